//! What a system call may wait for, by its name, and which of its arguments is a descriptor.

use super::Kind;
use headstart_sys::calls;
use std::collections::HashMap;

/// What a call does with descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing that matters.
    None,
    /// Its result is a descriptor of a file.
    Opens,
    /// Its result is a descriptor of something else.
    OpensOther,
    /// Its result is the same as a descriptor.
    Copies,
    /// fcntl(2): its result may be the same as a descriptor, or that may be kept open by execve(2).
    Controls,
    /// A descriptor is closed.
    Closes,
    /// All from one to another are closed: close_range(2).
    ClosesRange,
}

/// What is known of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Class {
    /// What its waits are.
    pub kind: Kind,
    /// The argument that is a descriptor.
    pub descriptor: Option<usize>,
    /// What it does with descriptors.
    pub effect: Effect,
}

impl Class {
    /// That of a call of which nothing is known.
    pub const UNKNOWN: Self = Self { kind: Kind::Call, descriptor: None, effect: Effect::None };

    /// By the name of the call, as `openat`.
    pub fn of(name: &str) -> Self {
        let (kind, descriptor) = match name {
            "read" | "pread64" | "readv" | "preadv" | "preadv2" | "copy_file_range" | "splice"
            | "tee" => (Kind::Read, Some(0)),
            "sendfile" => (Kind::Read, Some(1)),
            "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" | "ftruncate"
            | "fallocate" | "vmsplice" => (Kind::Write, Some(0)),
            "truncate" => (Kind::Write, None),
            "open" | "openat" | "openat2" | "creat" | "open_by_handle_at" => (Kind::Open, None),
            "stat" | "lstat" | "newfstatat" | "statx" | "access" | "faccessat" | "faccessat2"
            | "readlink" | "readlinkat" | "rename" | "renameat" | "renameat2" | "unlink"
            | "unlinkat" | "mkdir" | "mkdirat" | "rmdir" | "link" | "linkat" | "symlink"
            | "symlinkat" | "chmod" | "fchmodat" | "chown" | "lchown" | "fchownat"
            | "utimensat" | "utime" | "utimes" | "getxattr" | "lgetxattr" | "setxattr"
            | "listxattr" | "llistxattr" | "chdir" | "chroot" | "statfs" | "mount"
            | "move_mount" | "inotify_add_watch" | "name_to_handle_at" => (Kind::Lookup, None),
            "fstat" | "fstatfs" | "fgetxattr" | "fchmod" | "fchown" | "fchdir" => {
                (Kind::Lookup, Some(0))
            }
            "getdents" | "getdents64" => (Kind::Directory, Some(0)),
            "mmap" => (Kind::Map, Some(4)),
            "munmap" | "mprotect" | "pkey_mprotect" | "mremap" | "brk" | "madvise"
            | "process_madvise" | "mlock" | "mlock2" | "mlockall" | "munlock" => (Kind::Map, None),
            "execve" | "execveat" => (Kind::Execute, None),
            "fsync" | "fdatasync" | "sync_file_range" | "syncfs" => (Kind::Sync, Some(0)),
            "sync" | "msync" => (Kind::Sync, None),
            "readahead" | "fadvise64" => (Kind::Readahead, Some(0)),
            "connect" | "accept" | "accept4" | "recvfrom" | "recvmsg" | "recvmmsg" | "sendto"
            | "sendmsg" | "sendmmsg" => (Kind::Stream, Some(0)),
            "poll" | "ppoll" | "select" | "pselect6" | "epoll_wait" | "epoll_pwait"
            | "epoll_pwait2" | "io_uring_enter" | "io_getevents" => (Kind::Poll, None),
            "futex" | "futex_waitv" => (Kind::Thread, None),
            "nanosleep" | "clock_nanosleep" => (Kind::Timer, None),
            "wait4" | "waitid" | "vfork" | "fork" | "clone" | "clone3" => (Kind::Child, None),
            "rt_sigsuspend" | "rt_sigtimedwait" | "pause" => (Kind::Signal, None),
            "dup" | "dup2" | "dup3" | "fcntl" | "close" | "ioctl" | "flock" => {
                (Kind::Call, Some(0))
            }
            _ => (Kind::Call, None),
        };
        let effect = match name {
            _ if kind == Kind::Open => Effect::Opens,
            "socket" | "accept" | "accept4" | "epoll_create" | "epoll_create1" | "eventfd"
            | "eventfd2" | "inotify_init" | "inotify_init1" | "timerfd_create" | "signalfd"
            | "signalfd4" | "pidfd_open" | "io_uring_setup" | "userfaultfd" => Effect::OpensOther,
            "dup" | "dup2" | "dup3" => Effect::Copies,
            "fcntl" => Effect::Controls,
            "close" => Effect::Closes,
            "close_range" => Effect::ClosesRange,
            _ => Effect::None,
        };
        Self { kind, descriptor, effect }
    }
}

/// The classes of calls, by number; each is found once.
#[derive(Clone, Debug, Default)]
pub struct Classes(HashMap<u32, Class>);

/// Numbers beyond the last call of every architecture are not kept.
const MOST_CALLS: u32 = 4096;

impl Classes {
    /// That of a call of this architecture.
    pub fn of(&mut self, number: u32) -> Class {
        let find = || calls::name(number).map_or(Class::UNKNOWN, Class::of);
        if number < MOST_CALLS { *self.0.entry(number).or_insert_with(find) } else { find() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_the_kind_of_what_it_waits_for() {
        for (name, kind, descriptor, effect) in [
            ("pread64", Kind::Read, Some(0), Effect::None),
            ("sendfile", Kind::Read, Some(1), Effect::None),
            ("openat", Kind::Open, None, Effect::Opens),
            ("accept4", Kind::Stream, Some(0), Effect::OpensOther),
            ("mmap", Kind::Map, Some(4), Effect::None),
            ("close", Kind::Call, Some(0), Effect::Closes),
            ("fcntl", Kind::Call, Some(0), Effect::Controls),
            ("getrandom", Kind::Call, None, Effect::None),
        ] {
            assert_eq!(Class::of(name), Class { kind, descriptor, effect }, "{name}");
        }
    }

    #[test]
    fn a_number_without_a_name_is_another_call() {
        let mut classes = Classes::default();
        assert_eq!(classes.of(u32::MAX), Class::UNKNOWN);
        assert_eq!(classes.of(MOST_CALLS - 1), Class::UNKNOWN);
        let read = (0..400).find(|number| calls::name(*number) == Some("read"));
        assert_eq!(classes.of(read.unwrap()).kind, Kind::Read);
    }
}

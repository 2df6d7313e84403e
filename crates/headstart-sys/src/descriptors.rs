//! The inherited descriptors of this process, which belong to the program. Whoever waits for the
//! program to close them must not wait for us too. fcntl(2), close(2).

use rustix::fs::{Mode, OFlags, RawDir};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

/// Descriptors that stay open in a process that closes all; -1 where there is none. Read by a
/// signal handler.
static KEPT: [AtomicI32; 64] = [const { AtomicI32::new(-1) }; 64];

/// A descriptor that [`close_all`] leaves open: what the kernel releases by it lasts as long as
/// the last thread of the process.
#[derive(Debug)]
pub struct Kept {
    _fd: OwnedFd,
    place: &'static AtomicI32,
}

impl Kept {
    /// Keeps a descriptor; nothing where as many as there may be are kept.
    pub fn new(fd: OwnedFd) -> Option<Self> {
        let number = fd.as_raw_fd();
        let is_taken =
            |place: &&AtomicI32| place.compare_exchange(-1, number, SeqCst, SeqCst).is_ok();
        let place = KEPT.iter().find(is_taken)?;
        Some(Self { _fd: fd, place })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.place.store(-1, SeqCst);
    }
}

/// Lets go of everything that was inherited: stdin, stdout and stderr lead to `/dev/null`
/// from now on. What this process opened itself stays, which is
/// told by its close-on-exec flag.
///
/// # Errors
/// Without /proc or /dev/null nothing or a part is let go.
pub fn let_go_of_inherited() -> io::Result<()> {
    let null = fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    close_others()
}

/// Closes every descriptor but those [`Kept`], for a process that is about to end and may not: a
/// thread of it may wait for a file system that does not answer, and nobody shall wait for what it
/// has open. close_range(2). Async-signal-safe.
pub fn close_all() {
    let mut kept = KEPT.each_ref().map(|place| place.load(SeqCst));
    kept.sort_unstable();
    let mut from = 0;
    for fd in kept.into_iter().filter_map(|fd| libc::c_uint::try_from(fd).ok()) {
        if from < fd {
            close_from_to(from, fd - 1);
        }
        from = fd + 1;
    }
    close_from_to(from, libc::c_uint::MAX);
}

fn close_from_to(first: libc::c_uint, last: libc::c_uint) {
    // SAFETY: the process does nothing more with any of them but end.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}

/// Closes everything that was inherited but stdin, stdout and stderr.
///
/// # Errors
/// Without /proc nothing is closed.
pub fn close_others() -> io::Result<()> {
    for_each_open(|fd| {
        // SAFETY: F_GETFD only looks, at any number.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        if fd > 2 && flags != -1 && flags & libc::FD_CLOEXEC == 0 {
            // SAFETY: std and rustix open everything with the flag, so that
            // nothing in this process owns the descriptor.
            unsafe { libc::close(fd) };
        }
    })
}

/// Allows this process as many descriptors as its hard limit does. One that starts a program of others
/// later, which would inherit that, takes [`allow_most_during`]. setrlimit(2).
pub fn allow_most() {
    raise();
}

/// Does `work` with as many descriptors as the hard limit allows, and takes back the limit after it.
pub fn allow_most_during<T>(work: impl FnOnce() -> T) -> T {
    let before = raise();
    let done = work();
    let _ = setrlimit(Resource::Nofile, before);
    done
}

/// Raises the limit; what it was before.
fn raise() -> Rlimit {
    let limit = getrlimit(Resource::Nofile);
    // Without it there are fewer.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    limit
}

/// Calls `each` with every open descriptor, that of the directory that lists them included; `each`
/// may close others. getdents64(2).
///
/// # Errors
/// Without /proc none is listed.
pub fn for_each_open(mut each: impl FnMut(RawFd)) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let list = rustix::fs::open(c"/proc/self/fd", flags, Mode::empty())?;
    // On the stack: in a process that was just forked, the kernel copies each page of the heap that
    // an allocation touches.
    let mut buffer = [MaybeUninit::uninit(); 2048];
    let mut entries = RawDir::new(&list, &mut buffer);
    while let Some(entry) = entries.next() {
        // Not for `.` and `..`.
        if let Some(fd) = entry?.file_name().to_str().ok().and_then(|name| name.parse().ok()) {
            each(fd);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Change, fork, wait};
    use std::os::fd::IntoRawFd;

    #[test]
    fn a_process_allows_itself_what_its_hard_limit_does_for_a_while_or_for_good() {
        let pid = fork(|| {
            let limit = Rlimit { current: Some(64), maximum: Some(512) };
            setrlimit(Resource::Nofile, limit).unwrap();
            let now = || getrlimit(Resource::Nofile).current;
            let during = allow_most_during(now);
            let after = now();
            allow_most();
            u8::from((during, after, now()) == (Some(512), Some(64), Some(512)))
        })
        .unwrap();
        assert_eq!(wait(pid).unwrap().0, Change::Exited(1));
    }

    #[test]
    fn every_open_descriptor_is_listed_even_while_others_are_closed() {
        let pid = fork(|| {
            // More than one buffer of names.
            let opened: Vec<RawFd> =
                (0..200).map(|_| std::fs::File::open("/dev/null").unwrap().into_raw_fd()).collect();
            let mut listed = Vec::new();
            let listing = for_each_open(|fd| {
                listed.push(fd);
                if opened.contains(&fd) {
                    // SAFETY: nothing owns it.
                    unsafe { libc::close(fd) };
                }
            });
            let all = opened.iter().all(|fd| listed.iter().filter(|seen| *seen == fd).count() == 1);
            u8::from(listing.is_err() || !all)
        });
        assert_eq!(wait(pid.unwrap()).unwrap().0, Change::Exited(0));
    }

    #[test]
    fn a_process_that_closes_all_keeps_what_is_kept_until_that_is_dropped() {
        // SAFETY: F_GETFD only looks, at any number.
        let is_open = |fd: RawFd| unsafe { libc::fcntl(fd, libc::F_GETFD) } != -1;
        let pid = fork(|| {
            let open = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
            let (dropped, below, kept, above) = (open(), open(), open(), open());
            drop(Kept::new(dropped));
            let number = kept.as_raw_fd();
            // Nobody closes them after that.
            std::mem::forget((below, Kept::new(kept), above));
            close_all();
            let left: Vec<RawFd> = (0..64).filter(|fd| is_open(*fd)).collect();
            u8::from(left != [number])
        });
        assert_eq!(wait(pid.unwrap()).unwrap().0, Change::Exited(0));
    }
}

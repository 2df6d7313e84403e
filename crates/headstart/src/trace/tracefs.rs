//! Where tracefs is, and whose instances it has.
//!
//! An instance ([`super::instance`]) is named `headstart-PID-STARTTIME-PIDNS`, and its process holds
//! a shared lock (flock(2)) of its directory. The next headstart removes the instance of a killed
//! one, and only if nobody holds the lock: an instance that is removed while a thread writes a file
//! of its `options` crashes kernels up to 6.18 at least, since those files hold no reference. The
//! lock lasts as long as the last thread. Source: `Documentation/trace/ftrace.rst`, section
//! "Instances".

use crate::host::contents;
use crate::host::names;
use crate::host::proc::{
    has_ended, has_processes, in_first_pid_namespace, pid_namespace, start_time,
};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use thiserror::Error;

const PREFIX: &str = "headstart-";
/// Where tracefs is expected (`Documentation/trace/ftrace.rst`).
const MOUNT_POINT: &str = "/sys/kernel/tracing";
const ROOTS: [&str; 2] = [MOUNT_POINT, "/sys/kernel/debug/tracing"];

/// Why tracing is not available.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The kernel has no tracefs, or no mount of it is possible.
    #[error("Recording needs tracefs: run `mount -t tracefs nodev {MOUNT_POINT}` as root")]
    NoTracefs(#[source] io::Error),
    /// Tracefs is there but closed to this user.
    #[error("Recording needs {}", needed_right())]
    Permission(#[source] io::Error),
    /// None of the events exists.
    #[error("This kernel lacks the filemap trace events that recording needs (CONFIG_FTRACE)")]
    NoEvents,
    /// /proc does not say when this process started.
    #[error("Recording needs /proc: run `mount -t proc proc /proc` as root")]
    NoProc,
    /// A file of the instance could not be used.
    #[error("Can't use {path}", path = names::path(.path))]
    File {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

fn needed_right() -> &'static str {
    if rustix::process::geteuid().is_root() {
        "more than root may here: start the container with --privileged, or record outside of it"
    } else {
        "root: run headstart with sudo"
    }
}

/// A mounted tracefs.
#[derive(Clone, Debug)]
pub struct Tracefs {
    root: PathBuf,
    /// Whether [`Tracefs::locate`] had to mount it.
    pub mounted_now: bool,
}

impl Tracefs {
    /// Finds tracefs where it is mounted already.
    pub fn mounted() -> Result<Option<Self>, TraceError> {
        for root in ROOTS {
            match fs::metadata(Path::new(root).join("events")) {
                Ok(_) => return Ok(Some(Self { root: root.into(), mounted_now: false })),
                Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                    return Err(TraceError::Permission(e));
                }
                Err(_) => {}
            }
        }
        Ok(None)
    }

    /// Finds tracefs, mounting it at its usual place where it isn't mounted.
    pub fn locate() -> Result<Self, TraceError> {
        if let Some(mounted) = Self::mounted()? {
            return Ok(mounted);
        }
        let flags = rustix::mount::MountFlags::NOSUID
            | rustix::mount::MountFlags::NODEV
            | rustix::mount::MountFlags::NOEXEC;
        match rustix::mount::mount("nodev", MOUNT_POINT, "tracefs", flags, None) {
            Ok(()) => Ok(Self { root: MOUNT_POINT.into(), mounted_now: true }),
            Err(e) if e == rustix::io::Errno::PERM || e == rustix::io::Errno::ACCESS => {
                Err(TraceError::Permission(e.into()))
            }
            Err(e) => Err(TraceError::NoTracefs(e.into())),
        }
    }

    /// The text of `events/header_page`.
    pub fn header_page(&self) -> Result<String, TraceError> {
        let path = self.root.join("events/header_page");
        text_of(File::open(&path).map_err(of_file(&path))?, &path)
    }

    /// The names of threads that the kernel remembers: of the last that ran, 128 if nobody has changed
    /// that. None where it does not tell.
    pub fn saved_names(&self) -> HashMap<i32, Vec<u8>> {
        let lines = contents::bytes(self.root.join("saved_cmdlines")).unwrap_or_default();
        let name = |line: &[u8]| {
            let at = line.iter().position(|byte| *byte == b' ')?;
            let tid = str::from_utf8(&line[..at]).ok()?.parse().ok()?;
            // As the kernel says where it remembers none.
            let name = &line[at + 1..];
            (name != b"<...>").then(|| (tid, name.to_vec()))
        };
        lines.split(|byte| *byte == b'\n').filter_map(name).collect()
    }

    /// Where it is mounted.
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn instances(&self) -> PathBuf {
        self.root.join("instances")
    }

    /// How many instances of headstart processes there are: what each may fill is shared. They
    /// need not all be alive; the next start removes the others.
    pub fn recordings(&self) -> u64 {
        let Ok(entries) = fs::read_dir(self.instances()) else { return 0 };
        let names = entries.flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_str().is_some_and(|name| name.starts_with(PREFIX))).count()
            as u64
    }

    /// The instances of headstart processes that are gone with all their threads.
    pub fn orphans(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.instances()) else { return Vec::new() };
        let gone = |name: &str| owner(name).is_some_and(|owner| owner.is_gone());
        entries
            .flatten()
            .filter(|e| e.file_name().to_str().is_some_and(gone))
            .map(|e| e.path())
            .filter(|path| is_unlocked(path))
            .collect()
    }

    /// Removes the instances of headstart processes that are gone, in a
    /// process of its own, which takes a tenth of a second for each. One that
    /// is in use stays: the kernel says so.
    pub fn remove_orphans(&self) {
        let orphans = self.orphans();
        let names: Vec<_> = orphans.iter().filter_map(|path| path.file_name()).collect();
        if let (false, Ok(all)) = (names.is_empty(), open_dir(CWD, &self.instances())) {
            // What stays is left to the next start.
            let _ = headstart_sys::process::remove_dirs_detached(all, &names);
        }
    }

    /// Whether there is an instance of this name.
    pub fn has(&self, name: &str) -> bool {
        self.instances().join(name).exists()
    }
}

/// Whom an instance belongs to, read from its name.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    pid: i32,
    start_time: u64,
    pid_namespace: u64,
}

impl Owner {
    /// Whether the process has ended. A process of another PID namespace can be
    /// judged from the first one only, which sees whether that is still there.
    fn is_gone(&self) -> bool {
        if self.pid_namespace == pid_namespace() {
            has_ended(self.pid, self.start_time)
        } else {
            in_first_pid_namespace() && !has_processes(self.pid_namespace)
        }
    }
}

/// The name of the instance of this process; none where /proc does not say when it started, for
/// an instance of another name would be an orphan for everybody.
pub(super) fn own_name() -> Option<String> {
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    let namespace = Some(pid_namespace()).filter(|namespace| *namespace != 0)?;
    Some(format!("{PREFIX}{pid}-{}-{namespace}", start_time(pid)?))
}

/// Marks an instance as that of this process for as long as one of its threads, or a child
/// that has not yet called exec, lives.
pub(super) fn lock(dir: impl AsFd) -> rustix::io::Result<()> {
    rustix::fs::flock(dir, FlockOperation::NonBlockingLockShared)
}

/// Whether no process holds the lock of an instance.
fn is_unlocked(instance: &Path) -> bool {
    open_dir(CWD, instance)
        .is_ok_and(|dir| rustix::fs::flock(dir, FlockOperation::NonBlockingLockExclusive).is_ok())
}

fn owner(name: &str) -> Option<Owner> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let owner = Owner {
        pid: parts.next()?.parse().ok()?,
        start_time: parts.next()?.parse().ok()?,
        pid_namespace: parts.next()?.parse().ok()?,
    };
    // One of several has a label.
    let is_label = |label: &str| label.bytes().all(|byte| byte.is_ascii_lowercase());
    (parts.next().is_none_or(is_label) && parts.next().is_none()).then_some(owner)
}

pub(super) fn open_dir(at: impl AsFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(at, path, flags, Mode::empty())
}

pub(super) fn of_file<E: Into<io::Error>>(path: &Path) -> impl Fn(E) -> TraceError {
    move |error: E| TraceError::File { path: path.into(), source: error.into() }
}

pub(super) fn text_of(file: File, path: &Path) -> Result<String, TraceError> {
    let bytes = contents::rest_of(file).map_err(of_file(path))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_recordings_of_ours_share_the_memory_and_those_of_others_do_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let tracefs = Tracefs { root: dir.path().into(), mounted_now: false };
        assert_eq!(tracefs.recordings(), 0);
        for name in ["headstart-1-2-3", "headstart-boot", "trace-cmd"] {
            fs::create_dir_all(tracefs.instances().join(name)).unwrap();
        }
        assert_eq!(tracefs.recordings(), 2);
    }

    #[test]
    fn an_instance_name_tells_its_owner_and_nothing_else_does() {
        let owner_is =
            |pid, start_time, pid_namespace| Some(Owner { pid, start_time, pid_namespace });
        for (name, expected) in [
            ("headstart-12-3456-4026531836", owner_is(12, 3456, 4_026_531_836)),
            ("headstart-12-3456-4026531836-execs", owner_is(12, 3456, 4_026_531_836)),
            ("headstart-12-3456", None),
            ("headstart-12-3456-1-2", None),
            ("headstart-12-3456-1-execs-2", None),
            ("headstart-x-1-1", None),
            ("trace-cmd-12-3-4", None),
        ] {
            assert_eq!(owner(name), expected, "{name}");
        }
    }

    #[test]
    fn an_instance_is_no_orphan_while_somebody_holds_its_lock() {
        let dir = tempfile::tempdir().unwrap();
        let tracefs = Tracefs { root: dir.path().into(), mounted_now: false };
        // No process has started at that time.
        let name = format!("headstart-1-{}-{}", u64::MAX, pid_namespace());
        let instance = tracefs.instances().join(name);
        fs::create_dir_all(&instance).unwrap();
        let held = open_dir(CWD, &instance).unwrap();
        lock(&held).unwrap();
        assert_eq!(tracefs.orphans(), [] as [PathBuf; 0]);
        drop(held);
        assert_eq!(tracefs.orphans(), [instance]);
    }

    #[test]
    fn a_live_process_is_not_gone_and_a_reused_pid_is() {
        let pid = std::process::id() as i32;
        let mut me =
            Owner { pid, start_time: start_time(pid).unwrap(), pid_namespace: pid_namespace() };
        assert!(!me.is_gone());
        me.start_time += 1;
        assert!(me.is_gone());
        me.pid_namespace = 1;
        assert_eq!(me.is_gone(), in_first_pid_namespace(), "nobody is in that namespace");
    }
}

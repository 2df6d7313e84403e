//! Which file servers do not answer: a lock on a file for each of their file systems, held by a
//! process that waits for one, until its last thread has come back. No signal ends such a wait,
//! so every other start that asked the server too would leave one more process behind.
//!
//! Nothing is written, locked or looked at for files that need no server.

use super::directory::{Directory, of_others};
use super::search_path;
use super::trusted::TrustedDirectory;
use crate::host::id::Dev;
use crate::host::user::User;
use headstart_sys::descriptors::Kept;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Where root's marks are: in memory, so that they keep no disk from being unmounted.
const ROOT_DIR: &str = "/run/headstart";

/// The directory of a user's marks, if there is any.
fn directory(is_root: bool, var: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    if is_root {
        return Some(ROOT_DIR.into());
    }
    let runtime = var("XDG_RUNTIME_DIR").filter(|dir| dir.is_absolute());
    let packs = || search_path(false, var).ok()?.into_iter().next();
    runtime.map(|dir| dir.join("headstart")).or_else(packs)
}

/// Where the marks of a user are.
#[derive(Clone, Debug)]
struct Marks {
    dir: Option<PathBuf>,
    uid: u32,
}

impl Marks {
    fn here() -> Self {
        let user = User::own();
        Self { dir: directory(user.is_root(), user.variable), uid: user.uid }
    }

    /// Whether a process waits for the server of this file system.
    fn has(&self, server: Dev) -> bool {
        let open = |dir: &Path| TrustedDirectory::open(dir, self.uid).ok().flatten();
        let Some(dir) = self.dir.as_deref().and_then(open) else { return false };
        let dir = dir.into_directory();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::openat(&dir, name_of(server), flags, Mode::empty()) else {
            return false;
        };
        if rustix::fs::fstat(&file).is_ok_and(|stat| of_others(&stat, self.uid).is_some()) {
            return false;
        }
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => true,
            _ => {
                // Its process has ended. One that locks it at this moment tries again.
                let _ = rustix::fs::unlinkat(&dir, name_of(server), AtFlags::empty());
                false
            }
        }
    }

    /// Says that this process waits for the server; nothing where another has said so, or it
    /// can't be said.
    fn set(&self, server: Dev) -> Option<Mark> {
        let dir = TrustedDirectory::open_or_create(self.dir.as_deref()?, self.uid, 0o755).ok()?;
        let (dir, name) = (dir.into_directory(), name_of(server));
        let lock = dir.open_lock(&name, self.uid).ok()?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(Mark { dir, name, _lock: Kept::new(lock.into())? })
    }
}

fn name_of(server: Dev) -> OsString {
    format!("silent-{server}").into()
}

/// Says of a server that it does not answer, until it is dropped or its process has ended.
#[derive(Debug)]
struct Mark {
    dir: Directory,
    name: OsString,
    _lock: Kept,
}

impl Drop for Mark {
    fn drop(&mut self) {
        // What stays is removed by the next that looks.
        let _ = rustix::fs::unlinkat(&self.dir, &self.name, AtFlags::empty());
    }
}

/// Which servers were silent when they were first looked at.
#[derive(Debug)]
pub struct Silent {
    marks: Marks,
    known: RefCell<HashMap<Dev, bool>>,
}

impl Silent {
    /// By the marks of this process's user; looks at none yet.
    pub fn here() -> Self {
        Self { marks: Marks::here(), known: RefCell::default() }
    }

    /// Whether one of these does not answer.
    pub fn any(&self, servers: &[Dev]) -> bool {
        let mut known = self.known.borrow_mut();
        servers.iter().any(|dev| *known.entry(*dev).or_insert_with(|| self.marks.has(*dev)))
    }
}

/// What a thread has requested of a server. The thread keeps this until it has come back; who
/// waits for the thread marks the server when it has waited long enough.
#[derive(Debug)]
pub struct ServerCall {
    marks: Marks,
    server: Mutex<Option<Dev>>,
    mark: OnceLock<Mark>,
}

impl ServerCall {
    /// A call to the nearest of these servers.
    pub fn to(servers: &[Dev]) -> Self {
        Self::with(Marks::here(), servers)
    }

    fn with(marks: Marks, servers: &[Dev]) -> Self {
        let server = Mutex::new(servers.first().copied());
        Self { marks, server, mark: OnceLock::new() }
    }

    /// The thread goes on to the nearest of these.
    pub fn goes_to(&self, servers: &[Dev]) {
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = servers.first().copied();
    }

    /// Marks the server as one that does not answer, as long as the call lives. Whether this
    /// process has marked it; else it may be tried again.
    pub fn mark(&self) -> bool {
        let server = *self.server.lock().unwrap_or_else(PoisonError::into_inner);
        if self.mark.get().is_none()
            && let Some(mark) = server.and_then(|server| self.marks.set(server))
        {
            // Another thread was faster otherwise.
            let _ = self.mark.set(mark);
        }
        self.mark.get().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const SERVER: Dev = Dev::new(0, 45);
    const OTHER: Dev = Dev::new(0, 46);

    fn marks(dir: &Path) -> Marks {
        Marks { dir: Some(dir.into()), uid: rustix::process::geteuid().as_raw() }
    }

    #[test]
    fn a_server_is_silent_as_long_as_a_call_to_it_waits() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("marks");
        let marks = marks(&dir);
        let any = |servers: &[Dev]| {
            Silent { marks: marks.clone(), known: RefCell::default() }.any(servers)
        };
        assert!(!any(&[SERVER]) && !dir.exists(), "looking makes nothing");
        let call = ServerCall::with(marks.clone(), &[SERVER, OTHER]);
        assert!(!any(&[SERVER]), "most calls are answered");
        assert!(call.mark() && call.mark());
        assert!(any(&[SERVER]) && any(&[OTHER, SERVER]) && !any(&[OTHER]));
        assert!(!ServerCall::with(marks.clone(), &[SERVER]).mark(), "one is enough");
        let next = ServerCall::with(marks.clone(), &[SERVER]);
        next.goes_to(&[OTHER]);
        assert!(next.mark() && any(&[OTHER]));
        drop((call, next));
        assert!(!any(&[SERVER, OTHER]));
        assert!(!ServerCall::with(marks.clone(), &[]).mark(), "there is no server");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    }

    #[test]
    fn the_mark_of_a_process_that_has_ended_says_nothing_and_goes() {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join(name_of(SERVER)), "").unwrap();
        assert!(!marks(top.path()).has(SERVER));
        assert_eq!(fs::read_dir(top.path()).unwrap().count(), 0);
    }

    #[test]
    fn marks_are_in_memory_or_beside_the_packs() {
        let set = |wanted: &'static str| {
            move |name: &str| (name == wanted).then(|| PathBuf::from("/some/where"))
        };
        for (is_root, variable, expected) in [
            (true, "XDG_RUNTIME_DIR", Some(ROOT_DIR)),
            (false, "XDG_RUNTIME_DIR", Some("/some/where/headstart")),
            (false, "HEADSTART_PACKS", Some("/some/where")),
        ] {
            let found = directory(is_root, set(variable));
            assert_eq!(found.as_deref(), expected.map(Path::new), "{is_root} {variable}");
        }
    }
}

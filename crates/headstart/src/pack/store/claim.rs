//! Which process learns a program: the first of several starts at the same time. The others leave
//! learning to it.

use super::directory::{Directory, OWNER_ONLY, parent_of};
use super::trusted::TrustedDirectory;
use rustix::fs::{AtFlags, FlockOperation};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::Path;

/// The learning of one program, until it is dropped. The kernel ends it with its process.
#[derive(Debug)]
pub struct Claim {
    dir: Directory,
    name: OsString,
    /// Unlocked when it is closed.
    _lock: File,
}

/// How the names of claims end.
const ENDING: &str = ".learning";

/// Removes the claims of processes that were killed.
pub(super) fn remove_orphans(dir: &Directory, names: &[OsString], uid: u32) {
    for name in names.iter().filter(|name| name.as_encoded_bytes().ends_with(ENDING.as_bytes())) {
        let is_free =
            |lock: File| rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        if dir.open_lock(name, uid).is_ok_and(is_free) {
            let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
        }
    }
}

/// Claims to learn the pack of that path.
///
/// # Errors
/// `WouldBlock` when another process learns it; or its directory can't be made, used or
/// written.
pub fn claim(pack: &Path) -> io::Result<Claim> {
    let uid = rustix::process::geteuid().as_raw();
    // In other directories, other users could take the lock and keep it for ever.
    let dir = TrustedDirectory::open_or_create(parent_of(pack), uid, OWNER_ONLY);
    let dir = dir.map_err(io::Error::other)?.into_directory();
    let mut name = OsString::from(".");
    name.push(pack.file_name().unwrap_or_default());
    name.push(ENDING);
    let lock = dir.open_lock(&name, uid)?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(io::ErrorKind::WouldBlock.into()),
        // A file system without locks: both learn, and the pack is merged twice.
        _ => Ok(Claim { dir, name, _lock: lock }),
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Another process may have it open and lock it now, while another creates it again: both
        // learn then, and the pack is merged twice.
        let _ = rustix::fs::unlinkat(&self.dir, &self.name, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_learned_by_one_process_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("packs/a.pack");
        let first = claim(&path).unwrap();
        assert_eq!(claim(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(claim(&path.with_file_name("b.pack")).is_ok(), "another program");
        drop(first);
        assert!(claim(&path).is_ok());
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
    }

    #[test]
    fn claims_of_killed_processes_go_and_those_of_live_ones_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.pack");
        let live = claim(&path).unwrap();
        let dead = dir.path().join(format!(".b.pack{ENDING}"));
        std::fs::write(&dead, "").unwrap();
        remove_orphans(&live.dir, &live.dir.names().unwrap(), rustix::process::geteuid().as_raw());
        assert!(!dead.exists());
        assert!(dir.path().join(&live.name).exists());
    }
}

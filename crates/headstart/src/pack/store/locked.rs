//! Replaces packs and the files next to them: under a lock, atomically, and readable only for their
//! owner, since they name files and commands.
//!
//! The lock is a file of its own, which nobody else can open. A directory that others may change is
//! written without a lock, since others could hold it for ever.

use super::directory::{Directory, OWNER_ONLY, parent_of};
use super::error::StoreError;
use super::trusted::{TrustedDirectory, may_be_replaced, may_become_a_pack, remove};
use super::{claim, temporary};
use crate::host::contents::MOST_BYTES;
use crate::pack::{Pack, codec};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// The name of the lock of a directory.
const LOCK: &str = ".lock";
/// Directories of ours as their paths end; what lies in them is closed for others.
const PRIVATE: [&str; 2] = ["headstart/packs", "headstart/boot"];

/// Keeps other writers of the same directory out while a pack is read,
/// changed and replaced.
#[derive(Debug)]
pub struct Locked {
    dir: Directory,
    path: PathBuf,
    /// Unlocked when it is closed.
    _lock: Option<File>,
}

/// Writers have a directory locked while they read, merge and sync one file: milliseconds,
/// but on a busy rotational disk, when several starts end together, it may be seconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// Locks the directory of `path`, which is made if it is missing, and removes
/// what killed writers left in it. A user has named it, so it may be anybody's.
///
/// # Errors
/// Another process of this user keeps it locked, or the directory can't be made or opened.
pub fn lock(path: &Path) -> Result<Locked, StoreError> {
    lock_until(path, Instant::now() + PATIENCE)
}

/// The same for a directory of the search path: other users must not be able to change it.
///
/// # Errors
/// As [`lock`], or somebody else could have changed what is in it.
pub fn lock_trusted(path: &Path) -> Result<Locked, StoreError> {
    let dir = TrustedDirectory::open_or_create(parent_of(path), own_uid(), OWNER_ONLY)?;
    lock_open(dir.into_directory(), path, Instant::now() + PATIENCE)
}

/// The same as [`lock`], but waits until then.
///
/// # Errors
/// As [`lock`].
pub fn lock_until(path: &Path, until: Instant) -> Result<Locked, StoreError> {
    let failed = |source| StoreError::Write { path: path.into(), source };
    let dir = Directory::open_or_create(parent_of(path), own_uid(), OWNER_ONLY).map_err(failed)?;
    lock_open(dir, path, until)
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn lock_open(dir: Directory, path: &Path, until: Instant) -> Result<Locked, StoreError> {
    const AGAIN_AFTER: Duration = Duration::from_millis(5);
    let failed = |source| StoreError::Write { path: path.into(), source };
    let uid = own_uid();
    let is_private = PRIVATE.iter().any(|end| parent_of(path).ends_with(end));
    // Else another user has said where that path leads.
    if is_private && dir.untrusted().is_none() {
        dir.tighten(is_ours);
    }
    let lock = match dir.untrusted() {
        Some(_) => None,
        None => Some(dir.open_lock(OsStr::new(LOCK), uid).map_err(failed)?),
    };
    // File systems without locks (some network ones) lose a merge at worst.
    let is_locked = |lock: &File| {
        let tried = rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive);
        tried.is_err_and(|errno| errno == Errno::WOULDBLOCK)
    };
    while lock.as_ref().is_some_and(is_locked) {
        if Instant::now() >= until {
            let why = "another process keeps its directory locked; see lslocks";
            return Err(failed(io::Error::new(io::ErrorKind::TimedOut, why)));
        }
        thread::sleep(AGAIN_AFTER);
    }
    // What killed processes left.
    let names = dir.names().unwrap_or_default();
    temporary::remove_orphans(&dir, &names);
    claim::remove_orphans(&dir, &names, uid);
    Ok(Locked { dir, path: path.into(), _lock: lock })
}

/// The same as [`lock`], but makes no directory, and goes there by no link of another user: what is
/// removed is what was named.
///
/// # Errors
/// As [`lock`], or the file is missing, or such a link is on its path.
pub fn lock_existing(path: &Path) -> Result<Locked, StoreError> {
    let failed = |source| StoreError::Read { path: path.into(), source };
    match path.symlink_metadata() {
        Ok(_) => {
            let dir = Directory::open(parent_of(path), own_uid()).map_err(failed)?;
            if let Some(why) = dir.led_by() {
                let (path, why) = (parent_of(path).into(), why.into());
                return Err(StoreError::UntrustedDirectory { path, why });
            }
            lock_open(dir, path, Instant::now() + PATIENCE)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(StoreError::Missing(path.into())),
        Err(source) => Err(StoreError::Read { path: path.into(), source }),
    }
}

/// Packs, and records of last starts.
fn is_ours(name: &OsStr) -> bool {
    [".pack", ".last", LOCK].iter().any(|end| name.as_encoded_bytes().ends_with(end.as_bytes()))
}

impl Locked {
    /// Replaces the pack in one step: it is old or new, never half. Returns its bytes.
    ///
    /// # Errors
    /// Something else than a pack is there, the pack is too large, or it can't be written.
    pub fn write(&self, pack: &Pack) -> Result<u64, StoreError> {
        let failed = |source| StoreError::Write { path: self.path.clone(), source };
        let bytes = self.encoded(&self.path, pack)?;
        self.write_bytes(&bytes).map_err(failed)?;
        Ok(bytes.len() as u64)
    }

    /// The same of several packs of the directory, which the disk has together.
    ///
    /// # Errors
    /// As [`Self::write`]; each of them is old or new.
    pub fn write_all(&self, packs: &[(&Path, Pack)]) -> Result<(), StoreError> {
        let mut files = Vec::new();
        for (path, pack) in packs {
            let failed = |source| StoreError::Write { path: path.to_path_buf(), source };
            files.push((name_of(path).map_err(failed)?, self.encoded(path, pack)?));
        }
        let failed = |source| StoreError::Write { path: self.path.clone(), source };
        temporary::replace_all(&self.dir, &files).map_err(failed)
    }

    /// What a pack's file is to hold.
    fn encoded(&self, path: &Path, pack: &Pack) -> Result<Vec<u8>, StoreError> {
        let failed = |source| StoreError::Write { path: path.into(), source };
        let bytes = codec::encode(pack);
        if bytes.len() as u64 > MOST_BYTES {
            let why = "it would be too large to be read again; record less at a time";
            return Err(failed(io::Error::other(why)));
        }
        if !may_become_a_pack(&self.dir, name_of(path).map_err(failed)?).map_err(failed)? {
            return Err(StoreError::NotAPack(path.into()));
        }
        Ok(bytes)
    }

    /// Removes a pack of the directory.
    ///
    /// # Errors
    /// Something else is there, or it can't be removed.
    pub(crate) fn remove_pack(&self, path: &Path) -> Result<(), StoreError> {
        let failed = |source| StoreError::Write { path: path.into(), source };
        if !may_become_a_pack(&self.dir, name_of(path).map_err(failed)?).map_err(failed)? {
            return Err(StoreError::NotAPack(path.into()));
        }
        remove(&self.dir, name_of(path).map_err(failed)?).map_err(failed)
    }

    /// Removes a file of the directory, if it is there and empty or begins so; another stays.
    pub(crate) fn remove_beside(&self, path: &Path, begin: &[u8]) -> io::Result<()> {
        let name = name_of(path)?;
        if may_be_replaced(&self.dir, name, begin)? { remove(&self.dir, name) } else { Ok(()) }
    }

    /// The file that it was locked for.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the file in one step.
    pub(crate) fn write_bytes(&self, bytes: &[u8]) -> io::Result<()> {
        self.replace(name_of(&self.path)?, bytes, true)
    }

    /// Replaces another file of the directory in one step.
    pub(crate) fn write_beside(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.replace(name_of(path)?, bytes, true)
    }

    /// The same where nothing is, an empty file, or one that begins so, and without waiting until
    /// the disk has it: after a power cut it may be empty.
    pub(crate) fn write_beside_lazily(
        &self,
        path: &Path,
        bytes: &[u8],
        begin: &[u8],
    ) -> io::Result<()> {
        let name = name_of(path)?;
        if !may_be_replaced(&self.dir, name, begin)? {
            let why = "something else is in its place and stays as it is; remove that";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        self.replace(name, bytes, false)
    }

    fn replace(&self, name: &OsStr, bytes: &[u8], durable: bool) -> io::Result<()> {
        temporary::replace(&self.dir, name, durable, |file| file.write_all(bytes))
    }
}

fn name_of(path: &Path) -> io::Result<&OsStr> {
    path.file_name().ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

//! Replaces packs and what stands beside them: under a lock, atomically, and readable for
//! nobody but their owner, since they name files and commands.
//!
//! The lock is a file of its own, which nobody else can open. A directory that others may
//! change is written without a lock: whoever could take one could keep it for ever.

use super::directory::Directory;
use super::{Pack, StoreError, claim, codec, temporary};
use crate::host::contents::MOST_BYTES;
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
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
/// what killed writers left in it.
///
/// # Errors
/// Another process of this user keeps it locked, or the directory can't be made or opened.
pub fn lock(path: &Path) -> Result<Locked, StoreError> {
    lock_until(path, Instant::now() + PATIENCE)
}

/// The same, but waits until then.
///
/// # Errors
/// As [`lock`].
pub fn lock_until(path: &Path, until: Instant) -> Result<Locked, StoreError> {
    const AGAIN_AFTER: Duration = Duration::from_millis(5);
    let failed = |source| StoreError::Write { path: path.into(), source };
    let uid = rustix::process::geteuid().as_raw();
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let dir = Directory::open_or_create(parent, uid).map_err(failed)?;
    if PRIVATE.iter().any(|end| parent.ends_with(end)) {
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

/// The same as [`lock`], but makes no directory.
///
/// # Errors
/// As [`lock`], or the file is missing.
pub fn lock_existing(path: &Path) -> Result<Locked, StoreError> {
    match path.symlink_metadata() {
        Ok(_) => lock(path),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(StoreError::Missing(path.into())),
        Err(source) => Err(StoreError::Read { path: path.into(), source }),
    }
}

/// Packs, records of last starts, and history.
fn is_ours(name: &OsStr) -> bool {
    [".pack", ".last", ".json", LOCK]
        .iter()
        .any(|end| name.as_encoded_bytes().ends_with(end.as_bytes()))
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
        if !self.may_become_a_pack(path).map_err(failed)? {
            return Err(StoreError::NotAPack(path.into()));
        }
        Ok(bytes)
    }

    /// Whether nothing but an empty file or a pack is at a path in the directory now.
    fn may_become_a_pack(&self, path: &Path) -> io::Result<bool> {
        let name = name_of(path)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.dir, name, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT) => return Ok(true),
            // A symbolic link, or a file that may not be read.
            Err(Errno::LOOP | Errno::ACCESS | Errno::PERM | Errno::NXIO) => return Ok(false),
            Err(e) => return Err(e.into()),
        };
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(false);
        }
        let mut begin = [0; codec::MAGIC.len()];
        Ok(stat.st_size == 0 || file.read_exact_at(&mut begin, 0).is_ok() && begin == *codec::MAGIC)
    }

    /// Removes a pack of the directory.
    ///
    /// # Errors
    /// Something else is there, or it can't be removed.
    pub(crate) fn remove_pack(&self, path: &Path) -> Result<(), StoreError> {
        let failed = |source| StoreError::Write { path: path.into(), source };
        if !self.may_become_a_pack(path).map_err(failed)? {
            return Err(StoreError::NotAPack(path.into()));
        }
        self.remove_beside(path).map_err(failed)
    }

    /// Removes a file of the directory, if it is there.
    pub(crate) fn remove_beside(&self, path: &Path) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.dir, name_of(path)?, AtFlags::empty()) {
            Err(Errno::NOENT) | Ok(()) => Ok(()),
            Err(e) => Err(e.into()),
        }
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

    /// The same without waiting until the disk has it: after a power cut it may be
    /// empty.
    pub(crate) fn write_beside_lazily(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.replace(name_of(path)?, bytes, false)
    }

    fn replace(&self, name: &OsStr, bytes: &[u8], durable: bool) -> io::Result<()> {
        temporary::replace(&self.dir, name, durable, |file| file.write_all(bytes))
    }
}

fn name_of(path: &Path) -> io::Result<&OsStr> {
    path.file_name().ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

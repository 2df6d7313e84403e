//! A directory of ours that nobody else can change: packs of the search path, shared copies, device
//! models. Its files are read, written and removed through its descriptor.
//!
//! A pack that a user names may be in any directory and is not handled here.

use super::directory::Directory;
use super::error::StoreError;
use super::read::read_at;
use super::temporary;
use crate::pack::{Pack, codec};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// An open directory that the user can trust.
#[derive(Debug)]
pub struct TrustedDirectory {
    dir: Directory,
    path: PathBuf,
    uid: u32,
}

impl TrustedDirectory {
    /// Opens a directory as the user `uid`; `None` if it does not exist.
    ///
    /// # Errors
    /// Somebody else could have changed what is in it, or it can't be opened.
    pub fn open(path: &Path, uid: u32) -> Result<Option<Self>, StoreError> {
        let dir = match Directory::open(path, uid) {
            Ok(dir) => dir,
            Err(e) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&e.kind()) => {
                return Ok(None);
            }
            Err(source) => return Err(StoreError::Read { path: path.into(), source }),
        };
        if let Some(why) = dir.untrusted() {
            return Err(untrusted(path, why.into()));
        }
        Ok(Some(Self { dir, path: path.into(), uid }))
    }

    /// The same, and makes it, with this mode, if it is missing.
    ///
    /// # Errors
    /// As [`Self::open`], or it can't be made.
    pub fn open_or_create(path: &Path, uid: u32, mode: u32) -> Result<Self, StoreError> {
        if let Some(found) = Self::open(path, uid)? {
            return Ok(found);
        }
        let failed = |source| StoreError::Write { path: path.into(), source };
        if let Some(why) = Directory::untrusted_way(path, uid).map_err(failed)? {
            return Err(untrusted(path, why));
        }
        let dir = Directory::open_or_create(path, uid, mode).map_err(failed)?;
        match dir.untrusted() {
            Some(why) => Err(untrusted(path, why.into())),
            None => Ok(Self { dir, path: path.into(), uid }),
        }
    }

    pub(super) fn into_directory(self) -> Directory {
        self.dir
    }

    /// The names in it.
    ///
    /// # Errors
    /// What getdents(2) said.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        self.dir.names()
    }

    /// Reads a file of it, if the user can trust that, too.
    ///
    /// # Errors
    /// It is missing, can't be read, or is not trusted.
    pub fn read(&self, name: &OsStr) -> Result<Vec<u8>, StoreError> {
        read_at(&self.dir, name, &self.path.join(name), self.uid, OFlags::empty())
    }

    /// Whether there is anything of this name.
    pub fn has(&self, name: &OsStr) -> bool {
        rustix::fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Replaces a file in one step by one that all users may read.
    ///
    /// # Errors
    /// What the kernel said; the file is as it was.
    pub fn write_for_all(&self, name: &OsStr, bytes: &[u8]) -> io::Result<()> {
        temporary::replace(&self.dir, name, true, |file| {
            file.set_permissions(fs::Permissions::from_mode(0o644))?;
            file.write_all(bytes)
        })
    }

    /// The same of a pack.
    ///
    /// # Errors
    /// Something else than a pack is there, or it can't be written.
    pub fn write_pack_for_all(&self, name: &OsStr, pack: &Pack) -> Result<(), StoreError> {
        let path = || self.path.join(name);
        let failed = |source| StoreError::Write { path: path(), source };
        if !may_become_a_pack(&self.dir, name).map_err(failed)? {
            return Err(StoreError::NotAPack(path()));
        }
        self.write_for_all(name, &codec::encode(pack)).map_err(failed)
    }

    /// Removes a file, if it is there.
    ///
    /// # Errors
    /// What unlinkat(2) said.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        remove(&self.dir, name)
    }

    /// The same of a pack; what is none stays.
    ///
    /// # Errors
    /// It can't be looked at or removed.
    pub fn remove_pack(&self, name: &OsStr) -> io::Result<()> {
        if may_become_a_pack(&self.dir, name)? { self.remove(name) } else { Ok(()) }
    }
}

fn untrusted(path: &Path, why: String) -> StoreError {
    StoreError::UntrustedDirectory { path: path.into(), why }
}

/// The packs of a directory that the user `uid` can trust; none where there is none, or this
/// user may not look for them.
///
/// # Errors
/// Somebody else could have changed what is in it, or it can't be read.
pub fn packs_in(path: &Path, uid: u32) -> Result<Vec<PathBuf>, StoreError> {
    let dir = match TrustedDirectory::open(path, uid) {
        Err(StoreError::Read { source, .. }) if source.kind() == ErrorKind::PermissionDenied => {
            None
        }
        opened => opened?,
    };
    let Some(dir) = dir else { return Ok(Vec::new()) };
    let names = dir.names().map_err(|source| StoreError::Read { path: path.into(), source })?;
    let is_pack = |name: &OsString| Path::new(name).extension().is_some_and(|e| e == "pack");
    Ok(names.into_iter().filter(is_pack).map(|name| path.join(name)).collect())
}

/// Whether nothing but an empty file or a pack has this name in a directory now.
pub(super) fn may_become_a_pack(dir: impl AsFd, name: &OsStr) -> io::Result<bool> {
    may_be_replaced(dir, name, codec::MAGIC)
}

/// Whether nothing but an empty file, or one that begins so, has this name in a directory now.
pub(super) fn may_be_replaced(dir: impl AsFd, name: &OsStr, begin: &[u8]) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
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
    let mut found = vec![0; begin.len()];
    Ok(stat.st_size == 0 || file.read_exact_at(&mut found, 0).is_ok() && found == begin)
}

/// Removes a file of a directory, if it is there.
pub(super) fn remove(dir: impl AsFd, name: &OsStr) -> io::Result<()> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Err(Errno::NOENT) | Ok(()) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

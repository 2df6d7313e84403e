//! Reads files that a user can trust: regular files of bounded size that nobody else may write. It
//! does not check their directories.

use super::directory::{of_others, shared};
use super::error::StoreError;
use crate::host::contents::{self, MOST_BYTES};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// Reads a file if the user `uid` can trust it. That is no use of it, which its atime would tell.
pub(crate) fn read_bytes(path: &Path, uid: u32) -> Result<Vec<u8>, StoreError> {
    read_unused(CWD, path.as_os_str(), path, uid)
}

/// The same, of a file in a directory; `path` is for messages.
pub(super) fn read_unused(
    dir: impl AsFd,
    name: &OsStr,
    path: &Path,
    uid: u32,
) -> Result<Vec<u8>, StoreError> {
    match read_at(&dir, name, path, uid, OFlags::NOATIME) {
        // Only its owner may have it so (open(2)).
        Err(StoreError::Read { source, .. })
            if source.kind() == io::ErrorKind::PermissionDenied =>
        {
            read_at(dir, name, path, uid, OFlags::empty())
        }
        read => read,
    }
}

/// The same, with other flags for open(2).
pub(super) fn read_at(
    dir: impl AsFd,
    name: &OsStr,
    path: &Path,
    uid: u32,
    more: OFlags,
) -> Result<Vec<u8>, StoreError> {
    let failed = |source| StoreError::Read { path: path.into(), source };
    let untrusted = |why: String| StoreError::Untrusted { path: path.into(), why };
    // Not blocking: a fifo in its place must not hang a start.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(dir, name, flags | more, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(Errno::NOENT | Errno::NOTDIR) => return Err(StoreError::Missing(path.into())),
        Err(Errno::LOOP) => {
            return Err(untrusted("it is a symbolic link; name the file itself".into()));
        }
        Err(e) => return Err(failed(e.into())),
    };
    let stat = rustix::fs::fstat(&file).map_err(|e| failed(e.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(untrusted("it is no regular file".into()));
    }
    if let Some(why) = of_others(&stat, uid).or_else(|| shared(&stat)) {
        return Err(untrusted(format!("it {why}")));
    }
    let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
    if size > MOST_BYTES {
        let most = MOST_BYTES >> 20;
        return Err(untrusted(format!(
            "it is larger than {most} MiB; remove it, and the program is learned again"
        )));
    }
    contents::rest_of(file).map_err(failed)
}

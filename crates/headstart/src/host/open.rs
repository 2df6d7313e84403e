//! Opens files that were learned, so that nobody can lead us elsewhere: only regular files
//! that are what is expected, by a path without symbolic links, with their time of access
//! left alone where that is allowed. It reads nothing.

use super::identity::{Identity, identity_of};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

/// What was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A block device, for metadata.
    Device,
    /// A file.
    File,
    /// A file whose time of access stays when it is mapped.
    Unnoticed,
}

/// Why a file is not read.
#[derive(Debug)]
pub(crate) enum NotRead {
    Stale,
    Missing,
    Forbidden,
    Failed,
}

impl From<Errno> for NotRead {
    fn from(e: Errno) -> Self {
        match e {
            Errno::NOENT | Errno::NOTDIR => Self::Missing,
            // A link took the file's place.
            Errno::LOOP => Self::Stale,
            Errno::ACCESS | Errno::PERM => Self::Forbidden,
            _ => Self::Failed,
        }
    }
}

/// Opens a file that was learned for reading, by its path without symbolic links, so that
/// nobody can lead us elsewhere: opening a device could do something. What became a pipe
/// meanwhile does not block.
pub(crate) fn open_again(path: &Path) -> rustix::io::Result<OwnedFd> {
    open_unmoved(path, OFlags::empty(), ResolveFlags::NO_SYMLINKS)
}

/// openat2(2); before Linux 5.6 only the last component may be no symbolic link.
fn open_unmoved(path: &Path, more: OFlags, resolve: ResolveFlags) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | more;
    match rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve) {
        // A sandbox may refuse a call that it does not know.
        Err(Errno::NOSYS | Errno::PERM) => rustix::fs::open(path, flags, Mode::empty()),
        opened => opened,
    }
}

/// Opens a regular file that is still what was learned, if `identity` says what that
/// was; `uid` is who asks. Also tells the device that it is on.
pub(crate) fn open_learned(
    path: &Path,
    identity: Option<&Identity>,
    uid: u32,
) -> Result<(File, Kind, u64), NotRead> {
    let is_wanted = |stat: &Stat| identity.is_none_or(|l| l.is_still(&identity_of(stat)));
    open_if(path, is_wanted, identity.is_some(), uid)
}

/// The same of a regular file that `is_wanted`. If it was `learned`, its path has no symbolic
/// links; those that people write may have some, but in their last component.
pub(crate) fn open_if(
    path: &Path,
    is_wanted: impl FnOnce(&Stat) -> bool,
    learned: bool,
    uid: u32,
) -> Result<(File, Kind, u64), NotRead> {
    // Looked at before it is opened: opening a device could do something.
    let stat = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
    if !is_wanted(&stat) {
        return Err(NotRead::Stale);
    }
    if !is_regular(&stat) {
        return Err(NotRead::Failed);
    }
    let resolve = if learned { ResolveFlags::NO_SYMLINKS } else { ResolveFlags::empty() };
    let open = |more| open_unmoved(path, more, resolve);
    // Only the owner and root may look at a file unnoticed.
    let may = uid == 0 || uid == stat.st_uid;
    let (file, kind) = match may.then(|| open(OFlags::NOATIME)).and_then(Result::ok) {
        Some(file) => (file, Kind::Unnoticed),
        None => (open(OFlags::empty())?, Kind::File),
    };
    Ok((file.into(), kind, stat.st_dev))
}

/// Whether it is a regular file.
pub(crate) fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_file()
}

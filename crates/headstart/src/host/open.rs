//! Opens learned files: only regular files that are what is expected, by a path without symbolic
//! links, and without a change of their access time where that is allowed. It reads nothing.
//!
//! A path is walked once, with `O_PATH`; the result is checked and then opened by its descriptor.

use super::identity::{Identity, identity_of};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// What was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A block device, for metadata.
    Device,
    /// A file.
    File,
    /// A file that was opened with `O_NOATIME`.
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

/// Opens a regular file that was learned for reading, by its path without symbolic links.
///
/// # Errors
/// Those of open(2); ELOOP also where a link or something else is in the file's place.
pub fn open_again(path: &Path) -> rustix::io::Result<OwnedFd> {
    let found = Found::at(path, ResolveFlags::NO_SYMLINKS)?;
    if is_regular(&found.stat) { found.open(OFlags::empty()) } else { Err(Errno::LOOP) }
}

/// What is at the path of a file that was learned, where the path has no symbolic link.
///
/// # Errors
/// Those of open(2); ELOOP for such links.
pub fn stat_learned(path: &Path) -> rustix::io::Result<Stat> {
    Found::at(path, ResolveFlags::NO_SYMLINKS).map(|found| found.stat)
}

/// What a path leads to, held but not open: opening a device or a pipe could do something, and
/// what is looked at is what is opened then.
struct Found<'a> {
    path: &'a Path,
    resolve: ResolveFlags,
    held: OwnedFd,
    stat: Stat,
}

impl<'a> Found<'a> {
    fn at(path: &'a Path, resolve: ResolveFlags) -> rustix::io::Result<Self> {
        let held = open_unmoved(path, OFlags::PATH, resolve)?;
        let stat = rustix::fs::fstat(&held)?;
        Ok(Self { path, resolve, held, stat })
    }

    /// Opens it if it is a regular file that `is_wanted`; also tells the device that it is on.
    fn open_if(
        &self,
        is_wanted: impl FnOnce(&Stat) -> bool,
        uid: u32,
    ) -> Result<(File, Kind, u64), NotRead> {
        if !is_wanted(&self.stat) {
            return Err(NotRead::Stale);
        }
        if !is_regular(&self.stat) {
            return Err(NotRead::Failed);
        }
        // Only the owner and root may use O_NOATIME.
        let may = uid == 0 || uid == self.stat.st_uid;
        let (file, kind) = match may.then(|| self.open(OFlags::NOATIME)).and_then(Result::ok) {
            Some(file) => (file, Kind::Unnoticed),
            None => (self.open(OFlags::empty())?, Kind::File),
        };
        Ok((file.into(), kind, self.stat.st_dev))
    }

    /// Opens just that for reading.
    fn open(&self, more: OFlags) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | more;
        let held = format!("/proc/self/fd/{}", self.held.as_raw_fd());
        let opened = match rustix::fs::open(held, flags, Mode::empty()) {
            // There is no /proc here.
            Err(Errno::NOENT) => open_unmoved(self.path, flags, self.resolve),
            opened => opened,
        }?;
        // Nor need it be the kernel's.
        let now = rustix::fs::fstat(&opened)?;
        let is_same = (now.st_dev, now.st_ino) == (self.stat.st_dev, self.stat.st_ino);
        if is_same { Ok(opened) } else { Err(Errno::LOOP) }
    }
}

/// openat2(2); before Linux 5.6 only the last component may be no symbolic link.
fn open_unmoved(path: &Path, more: OFlags, resolve: ResolveFlags) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | more;
    match rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve) {
        // A sandbox may refuse a call that it does not know.
        Err(Errno::NOSYS | Errno::PERM) if !resolve.contains(ResolveFlags::CACHED) => {
            rustix::fs::open(path, flags, Mode::empty())
        }
        opened => opened,
    }
}

/// Opens a regular file for the user `uid`, if it still has the `identity`, if one is given. Also
/// returns its device.
pub(crate) fn open_learned(
    path: &Path,
    identity: Option<&Identity>,
    uid: u32,
) -> Result<(File, Kind, u64), NotRead> {
    let is_wanted = |stat: &Stat| identity.is_none_or(|l| l.is_still(&identity_of(stat)));
    open_if(path, is_wanted, true, uid)
}

/// The same, if nothing has to be read from a disk to find it. Not before Linux 5.12.
pub(crate) fn open_cached(
    path: &Path,
    identity: Option<&Identity>,
    uid: u32,
) -> Result<File, NotRead> {
    let found = Found::at(path, ResolveFlags::NO_SYMLINKS | ResolveFlags::CACHED)?;
    let is_wanted = |stat: &Stat| identity.is_none_or(|l| l.is_still(&identity_of(stat)));
    Ok(found.open_if(is_wanted, uid)?.0)
}

/// The same of a regular file that `is_wanted`. If it was `learned`, its path has no symbolic
/// links; those that people write may have some, but in their last component.
pub(crate) fn open_if(
    path: &Path,
    is_wanted: impl FnOnce(&Stat) -> bool,
    learned: bool,
    uid: u32,
) -> Result<(File, Kind, u64), NotRead> {
    let resolve = if learned { ResolveFlags::NO_SYMLINKS } else { ResolveFlags::empty() };
    Found::at(path, resolve)?.open_if(is_wanted, uid)
}

/// Whether it is a regular file.
pub(crate) fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_file()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{AtFlags, Timespec, Timestamps, mkfifoat, statat};
    use std::fs;
    use std::os::unix::fs::{FileExt, MetadataExt, symlink};

    /// Files `file` and `pipe` in a directory, to which `link` leads, too.
    fn dir() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("real")).unwrap();
        fs::write(dir.path().join("real/file"), "x").unwrap();
        mkfifoat(CWD, dir.path().join("real/pipe"), Mode::RUSR).unwrap();
        symlink("real", dir.path().join("link")).unwrap();
        dir
    }

    /// Asks the kernel to note when the link is followed next.
    fn watch(link: &Path) {
        let at = |seconds| Timespec { tv_sec: seconds, tv_nsec: 0 };
        let times = Timestamps { last_access: at(1), last_modification: at(2) };
        rustix::fs::utimensat(CWD, link, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }

    fn was_followed(link: &Path) -> bool {
        link.symlink_metadata().unwrap().atime() != 1
    }

    #[test]
    fn no_link_in_the_path_of_a_learned_file_is_followed_not_even_to_look_at_it() {
        let dir = dir();
        let (link, path) = (dir.path().join("link"), dir.path().join("link/file"));
        let learned = identity_of(&statat(CWD, &path, AtFlags::empty()).unwrap());
        watch(&link);
        for identity in [Some(&learned), None] {
            assert!(matches!(open_learned(&path, identity, 0), Err(NotRead::Stale)));
        }
        assert_eq!(open_again(&path).err(), Some(Errno::LOOP));
        assert_eq!(stat_learned(&path).err(), Some(Errno::LOOP));
        assert!(!was_followed(&link));
        assert!(open_if(&path, |_| true, false, 0).is_ok(), "people's lists may have links");
        if !was_followed(&link) {
            println!("skipped: this file system does not note when a link is followed");
        }
    }

    #[test]
    fn what_is_opened_is_what_was_looked_at_and_neither_pipe_nor_link() {
        let dir = dir();
        let real = dir.path().join("real");
        let (file, _, dev) = open_learned(&real.join("file"), None, 0).unwrap();
        let stat = rustix::fs::fstat(&file).unwrap();
        assert_eq!((stat.st_dev, stat.st_size), (dev, 1));
        assert_eq!(file.read_at(&mut [0; 2], 0).unwrap(), 1, "it is open for reading");
        for path in [real.join("pipe"), dir.path().join("link"), real] {
            assert!(matches!(open_learned(&path, None, 0), Err(NotRead::Failed)), "{path:?}");
            assert_eq!(open_again(&path).err(), Some(Errno::LOOP), "{path:?}");
        }
    }

    #[test]
    fn a_file_that_takes_the_place_of_what_was_looked_at_is_not_opened() {
        let dir = dir();
        let path = dir.path().join("real/file");
        let found = Found::at(&path, ResolveFlags::NO_SYMLINKS).unwrap();
        fs::rename(&path, dir.path().join("other")).unwrap();
        fs::write(&path, "longer").unwrap();
        let opened = found.open(OFlags::empty()).unwrap();
        assert_eq!(rustix::fs::fstat(&opened).unwrap().st_size, 1);
    }
}

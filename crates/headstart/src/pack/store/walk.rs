//! Walks a path as the kernel does, component by component and below a given directory, so that
//! each directory and link can be checked.
//!
//! It opens files only to check them; the caller decides what to trust.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt::{self, Display};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path};

/// Symbolic links that a path may have, as for the kernel (path_resolution(7)).
const MAX_LINKS: u32 = 40;
/// What is opened only to go on from there, or to look at.
pub(super) const ON_THE_PATH: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What a path goes through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Link,
    /// A directory above the end.
    Above,
    End,
}

impl Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Link => "a link on its path",
            Self::Above => "a directory above it",
            Self::End => "it",
        })
    }
}

/// How a path is gone along.
#[derive(Clone, Copy)]
pub(super) struct Way {
    /// Whether the last part is followed, if it is a link.
    pub(super) follow_last: bool,
    /// Whether missing directories are made, with mode 0755.
    pub(super) make: bool,
    /// Whether links in /proc are followed, which lead to what a process has open.
    pub(super) descriptors: bool,
}

/// Walks along a path below a directory as the kernel does, lets `see` look at each part, and
/// holds what is at its end. No symbolic link is followed unseen.
pub(super) fn walk(
    root: &OwnedFd,
    path: &Path,
    mut see: impl FnMut(Part, &Stat),
) -> io::Result<OwnedFd> {
    let way = Way { follow_last: true, make: false, descriptors: true };
    let (dir, name) = walk_to_last(root, path, way, &mut see)?;
    let Some(name) = name else { return Ok(dir) };
    let mut flags = ON_THE_PATH.difference(OFlags::DIRECTORY);
    flags.set(OFlags::NOFOLLOW, !is_descriptor(&dir, &name)?);
    let end = rustix::fs::openat(&dir, &name, flags, Mode::empty())?;
    see(Part::End, &rustix::fs::fstat(&end)?);
    Ok(end)
}

/// The same up to the last part of the path: the directory that it is in, and its name there,
/// whether there is one or not. No name: it is that directory.
pub(super) fn walk_to_last(
    root: &OwnedFd,
    path: &Path,
    way: Way,
    mut see: impl FnMut(Part, &Stat),
) -> io::Result<(OwnedFd, Option<OsString>)> {
    let same = |a: &Stat, b: &Stat| (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino);
    let top = rustix::fs::fstat(root)?;
    let mut at = root.try_clone()?;
    let mut left = words(path);
    let mut links = 0;
    while let Some(name) = left.pop_front() {
        if name == ".." && same(&rustix::fs::fstat(&at)?, &top) {
            continue;
        }
        let is_last = left.is_empty();
        let found = match rustix::fs::statat(&at, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) if is_last => return Ok((at, Some(name))),
            Err(Errno::NOENT) if way.make => {
                rustix::fs::mkdirat(&at, &name, Mode::from_raw_mode(0o755))?;
                left.push_front(name);
                continue;
            }
            found => found?,
        };
        let is_link = FileType::from_raw_mode(found.st_mode) == FileType::Symlink;
        // Where a descriptor in /proc leads is no path: something may be mounted there.
        let is_descriptor = is_link && is_descriptor(&at, &name)?;
        if is_descriptor && !way.descriptors {
            return Err(Errno::LOOP.into());
        }
        if is_last && (!is_link || is_descriptor || !way.follow_last) {
            return Ok((at, Some(name)));
        }
        if is_link && !is_descriptor {
            links += 1;
            if links > MAX_LINKS {
                return Err(Errno::LOOP.into());
            }
            see(Part::Link, &found);
            let target = rustix::fs::readlinkat(&at, &name, Vec::new())?.into_bytes();
            let target = OsString::from_vec(target);
            if Path::new(&target).is_absolute() {
                at = root.try_clone()?;
            }
            for word in words(Path::new(&target)).into_iter().rev() {
                left.push_front(word);
            }
            continue;
        }
        let mut flags = ON_THE_PATH;
        flags.set(OFlags::NOFOLLOW, !is_descriptor);
        at = rustix::fs::openat(&at, &name, flags, Mode::empty())?;
        see(Part::Above, &rustix::fs::fstat(&at)?);
    }
    Ok((at, None))
}

/// Whether this is a link in /proc.
fn is_descriptor(dir: &OwnedFd, name: &OsString) -> io::Result<bool> {
    if rustix::fs::fstatfs(dir)?.f_type != PROC_SUPER_MAGIC {
        return Ok(false);
    }
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

pub(super) fn open_root() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open("/", ON_THE_PATH, Mode::empty())?)
}

/// The names that a path goes through, from the last root on.
fn words(path: &Path) -> VecDeque<OsString> {
    let word = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(word).collect()
}

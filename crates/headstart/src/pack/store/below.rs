//! Files of a machine or of an image of one: configuration and units. All links are followed as
//! the machine itself would see them, so that nothing outside of an image is read or changed.
//! Files are replaced in one step, with owner, mode and attributes as they were.
//!
//! No locks; packs are only read.

use super::error::StoreError;
use super::read::read_unused;
use super::walk::{ON_THE_PATH, Way, walk_to_last};
use super::{decoded, temporary};
use crate::host::contents;
use crate::pack::Pack;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid, XattrFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A directory that paths are below, as for a process that has it as its root.
#[derive(Debug)]
pub(crate) struct Below {
    root: OwnedFd,
}

/// A way that ends at a link, or behind it.
const AT_LINK: Way = Way { follow_last: false, make: false, descriptors: false };
const THROUGH_LINK: Way = Way { follow_last: true, ..AT_LINK };

impl Below {
    /// Opens the root directory of a machine.
    ///
    /// # Errors
    /// It is missing or can't be opened.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        let flags = ON_THE_PATH.difference(OFlags::NOFOLLOW);
        Ok(Self { root: rustix::fs::open(root, flags, Mode::empty())? })
    }

    /// The directory of a path, and its name there.
    fn place(&self, path: &Path, way: Way) -> io::Result<(OwnedFd, OsString)> {
        let (dir, name) = walk_to_last(&self.root, path, way, |_, _| ())?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(&dir, ".", flags, Mode::empty())?;
        Ok((dir, name.unwrap_or_else(|| ".".into())))
    }

    fn file(&self, path: &Path) -> io::Result<File> {
        let (dir, name) = self.place(path, THROUGH_LINK)?;
        open_regular(&dir, &name)
    }

    /// All of a file, as text.
    ///
    /// # Errors
    /// It is missing, no regular file, too large or not UTF-8.
    pub(crate) fn text(&self, path: &Path) -> io::Result<String> {
        let bytes = self.bytes(path)?;
        String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "not UTF-8"))
    }

    /// All of a file.
    ///
    /// # Errors
    /// It is missing, no regular file or too large.
    pub(crate) fn bytes(&self, path: &Path) -> io::Result<Vec<u8>> {
        contents::rest_of(self.file(path)?)
    }

    /// A pack, if the user `uid` can trust it; `shown` is its path in messages.
    ///
    /// # Errors
    /// It is missing, can't be read, or is not trusted.
    pub(crate) fn pack(&self, path: &Path, shown: &Path, uid: u32) -> Result<Pack, StoreError> {
        decoded(self.trusted(path, shown, uid)?, shown)
    }

    /// The same of any file.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn trusted(
        &self,
        path: &Path,
        shown: &Path,
        uid: u32,
    ) -> Result<Vec<u8>, StoreError> {
        let (dir, name) = self.place(path, AT_LINK).map_err(|source| match source.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => StoreError::Missing(shown.into()),
            _ => StoreError::Read { path: shown.into(), source },
        })?;
        read_unused(dir, &name, shown, uid)
    }

    /// The type of what is at a path, links followed; `None` where that is nothing.
    fn file_type(&self, path: &Path) -> Option<FileType> {
        let (dir, name) = self.place(path, THROUGH_LINK).ok()?;
        let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(FileType::from_raw_mode(stat.st_mode))
    }

    /// Whether there is anything at a path, links followed.
    pub(crate) fn exists(&self, path: &Path) -> bool {
        self.file_type(path).is_some()
    }

    /// Whether there is a directory at a path, links followed.
    pub(crate) fn is_dir(&self, path: &Path) -> bool {
        self.file_type(path) == Some(FileType::Directory)
    }

    /// Where a link leads, as it says.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        let (dir, name) = self.place(path, AT_LINK)?;
        let target = rustix::fs::readlinkat(dir, name, Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()).into())
    }

    /// The names in a directory; none where there is none.
    pub(crate) fn names(&self, path: &Path) -> Vec<OsString> {
        let names = || -> io::Result<Vec<OsString>> {
            let (dir, name) = self.place(path, THROUGH_LINK)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            names_in(&rustix::fs::openat(dir, name, flags, Mode::empty())?)
        };
        names().unwrap_or_default()
    }

    /// Writes a file in one step: it is old or new, never half. A new file, and the directories
    /// that it needs, may be read by all.
    ///
    /// # Errors
    /// What the kernel said; the file is as it was.
    pub(crate) fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let (dir, name) = self.place(path, Way { make: true, ..THROUGH_LINK })?;
        let before = match open_regular(&dir, &name) {
            Ok(file) => Some(file),
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        temporary::replace(&dir, &name, true, |file| {
            match &before {
                Some(before) => take_over(before, file)?,
                None => file.set_permissions(fs::Permissions::from_mode(0o644))?,
            }
            file.write_all(bytes)
        })
    }

    /// Makes a symbolic link, and the directories that it needs, in the place of a file.
    ///
    /// # Errors
    /// What the kernel said.
    pub(crate) fn link(&self, target: &Path, path: &Path) -> io::Result<()> {
        self.remove(path)?;
        let (dir, name) = self.place(path, Way { make: true, ..AT_LINK })?;
        Ok(rustix::fs::symlinkat(target, dir, name)?)
    }

    /// Removes a file or link; whether there was one.
    ///
    /// # Errors
    /// What the kernel said.
    pub(crate) fn remove(&self, path: &Path) -> io::Result<bool> {
        self.unlink(path, AtFlags::empty())
    }

    /// Removes a directory if it is empty; whether it was.
    ///
    /// # Errors
    /// What the kernel said.
    pub(crate) fn remove_empty(&self, path: &Path) -> io::Result<bool> {
        match self.unlink(path, AtFlags::REMOVEDIR) {
            Err(e) if e.kind() == ErrorKind::DirectoryNotEmpty => Ok(false),
            removed => removed,
        }
    }

    fn unlink(&self, path: &Path, flags: AtFlags) -> io::Result<bool> {
        let unlink = || -> io::Result<()> {
            let (dir, name) = self.place(path, AT_LINK)?;
            Ok(rustix::fs::unlinkat(dir, name, flags)?)
        };
        match unlink() {
            Ok(()) => Ok(true),
            Err(e) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&e.kind()) => {
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }

    /// Removes a directory with all that is in it; whether there was one.
    ///
    /// # Errors
    /// What the kernel said.
    pub(crate) fn remove_all(&self, path: &Path) -> io::Result<bool> {
        let (dir, name) = match self.place(path, AT_LINK) {
            Ok(place) => place,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(e),
        };
        match remove_tree(&dir, &name) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }
}

/// Removes what has this name, links as such.
fn remove_tree(dir: &OwnedFd, name: &OsString) -> io::Result<()> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        // What unlink(2) says of a directory, and POSIX.
        Err(Errno::ISDIR | Errno::PERM) => {}
        removed => return Ok(removed?),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inner = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    for name in names_in(&inner)? {
        remove_tree(&inner, &name)?;
    }
    Ok(rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?)
}

fn names_in(dir: &OwnedFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let name = OsString::from_vec(entry?.file_name().to_owned().into_bytes());
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    Ok(names)
}

/// Opens what may be read without end or wait.
fn open_regular(dir: &OwnedFd, name: &OsString) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(dir, name, flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}

/// Gives a new file what the one has that it replaces.
fn take_over(before: &File, file: &File) -> io::Result<()> {
    let meta = before.metadata()?;
    let (uid, gid) = (Uid::from_raw(meta.uid()), Gid::from_raw(meta.gid()));
    rustix::fs::fchown(file, Some(uid), Some(gid))?;
    // After the owner, which clears bits of it.
    rustix::fs::fchmod(file, Mode::from_raw_mode(meta.mode()))?;
    let mut names = vec![0; 64 << 10];
    // File systems without attributes have none to lose.
    let Ok(length) = rustix::fs::flistxattr(before, &mut names[..]) else { return Ok(()) };
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 64 << 10];
        let length = rustix::fs::fgetxattr(before, name, &mut value[..])?;
        rustix::fs::fsetxattr(file, name, &value[..length], XattrFlags::empty())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o7777
    }

    #[test]
    fn a_new_file_may_be_read_by_all_and_no_other_is_left() {
        let top = tempfile::tempdir().unwrap();
        let below = Below::open(top.path()).unwrap();
        below.write(Path::new("/a/b/unit"), b"x").unwrap();
        let path = top.path().join("a/b/unit");
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"x".to_vec(), 0o644));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn looking_at_a_file_is_no_use_of_it() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("pack");
        fs::write(&path, b"x").unwrap();
        let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1000);
        let times = fs::FileTimes::new().set_accessed(long_ago);
        File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let below = Below::open(top.path()).unwrap();
        assert_eq!(below.trusted(Path::new("/pack"), &path, uid).unwrap(), b"x");
        assert_eq!(path.metadata().unwrap().accessed().unwrap(), long_ago);
    }

    #[test]
    fn a_link_stays_and_the_file_behind_it_keeps_owner_mode_and_attributes() {
        let top = tempfile::tempdir().unwrap();
        let (link, file) = (top.path().join("cmdline"), top.path().join("real"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let attribute = rustix::fs::setxattr(&file, "user.test", b"v", XattrFlags::empty());
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&file, Some(1000), Some(1001)).unwrap();
        }
        let owner = |path: &Path| path.metadata().map(|m| (m.uid(), m.gid())).unwrap();
        let before = owner(&file);
        symlink("real", &link).unwrap();
        Below::open(top.path()).unwrap().write(Path::new("/cmdline"), b"new").unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("real"));
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert_eq!((mode(&file), owner(&file)), (0o600, before));
        if attribute.is_ok() {
            let mut value = [0; 8];
            assert_eq!(rustix::fs::getxattr(&file, "user.test", &mut value).unwrap(), 1);
        }
    }

    #[test]
    fn links_lead_to_places_below_the_root_as_the_machine_sees_them() {
        let top = tempfile::tempdir().unwrap();
        let (image, host) = (top.path().join("image"), top.path().join("host"));
        for dir in [&image, &host, &host.join("dir")] {
            fs::create_dir(dir).unwrap();
        }
        fs::write(host.join("file"), "host").unwrap();
        symlink(host.join("file"), image.join("whole")).unwrap();
        symlink("../host/file", image.join("up")).unwrap();
        symlink(&host, image.join("dir")).unwrap();
        symlink("/proc/self/root", image.join("magic")).unwrap();
        symlink("loop", image.join("loop")).unwrap();
        let below = Below::open(&image).unwrap();
        for path in ["/whole", "up", "/dir/new", "/../new/file", "magic/x"] {
            let path = Path::new(path);
            assert!(below.bytes(path).is_err() && !below.exists(path), "{path:?}");
            below.write(path, b"image").unwrap();
            assert_eq!(below.text(path).unwrap(), "image");
        }
        assert!(below.write(Path::new("loop"), b"").is_err());
        below.link(Path::new("/x"), Path::new("/dir/link")).unwrap();
        assert_eq!(below.read_link(Path::new("dir/link")).unwrap(), Path::new("/x"));
        assert!(below.remove(Path::new("/dir/file")).unwrap(), "what `whole` leads to");
        assert!(below.remove(Path::new("/dir/new")).unwrap());
        assert!(!below.remove_empty(Path::new("/dir/dir")).unwrap());
        assert!(below.remove(Path::new("/whole")).unwrap());
        assert!(!below.remove_all(Path::new("/dir/dir")).unwrap());
        fs::create_dir_all(image.join("tree/deep")).unwrap();
        symlink(&host, image.join("tree/deep/host")).unwrap();
        assert!(below.remove_all(Path::new("/tree")).unwrap() && !image.join("tree").exists());
        assert!(below.is_dir(Path::new("/dir")) && !below.is_dir(Path::new("/up")));
        assert_eq!(below.names(Path::new("/dir")), ["link"]);
        assert_eq!(fs::read(host.join("file")).unwrap(), b"host");
        let mut left: Vec<_> =
            fs::read_dir(&host).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["dir", "file"]);
    }
}

//! A directory that holds files of ours, opened once: all further I/O goes through its
//! descriptor, so that nobody can put another directory in its place meanwhile.
//!
//! Checks who may change what is in it. Knows nothing of packs.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fmt::{self, Display};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path};

/// Bits of a mode that let others write.
const OTHERS_WRITE: u32 = 0o022;
/// Only the owner of a file in such a directory may rename or remove it (inode(7)).
const STICKY: u32 = 0o1000;
/// All that lets others look into a directory or file.
const OTHERS: u32 = 0o077;
/// Symbolic links that a path may have, as for the kernel (path_resolution(7)).
const MAX_LINKS: u32 = 40;
/// What is opened only to go on from there, or to look at.
const ON_THE_WAY: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An open directory.
#[derive(Debug)]
pub(super) struct Directory {
    fd: File,
    stat: Stat,
    /// Why somebody else may have changed what is in it, if so.
    untrusted: Option<String>,
}

impl Directory {
    /// Opens a directory as the user `uid` and looks whether another user could have changed
    /// what is in it: its owner and mode and, for root, those of all directories and links
    /// on the path to it.
    ///
    /// # Errors
    /// It is missing or can't be opened.
    pub(super) fn open(path: &Path, uid: u32) -> io::Result<Self> {
        let mut untrusted = None;
        let mut note = |why: Option<String>| {
            if untrusted.is_none() {
                untrusted = why;
            }
        };
        let at = walk(&open_root()?, &std::path::absolute(path)?, |part, stat| {
            if uid == 0 && part != Part::End {
                let shared = || shared(stat).filter(|_| part == Part::Above && !sticky(stat));
                note(of_others(stat, uid).or_else(shared).map(|why| format!("{part} {why}")));
            }
        })?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = File::from(rustix::fs::openat(&at, ".", flags, Mode::empty())?);
        let stat = rustix::fs::fstat(&fd)?;
        note(of_others(&stat, uid).or_else(|| shared(&stat)).map(|why| format!("it {why}")));
        Ok(Self { fd, stat, untrusted })
    }

    /// The same, and makes it, for nobody but its owner, if it is missing.
    ///
    /// # Errors
    /// It can't be made or opened.
    pub(super) fn open_or_create(path: &Path, uid: u32) -> io::Result<Self> {
        match Self::open(path, uid) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
        if let Some(parent) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
        }
        match DirBuilder::new().mode(0o700).create(path) {
            // Somebody else was faster.
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
            _ => Self::open(path, uid),
        }
    }

    /// Why somebody else may have changed what is in it, as the end of a sentence; `None`
    /// when nobody can.
    pub(super) fn untrusted(&self) -> Option<&str> {
        self.untrusted.as_deref()
    }

    /// Lets nobody but its owner look into it, nor at these of its files, if others may look
    /// into it now.
    pub(super) fn tighten(&self, is_private: impl Fn(&OsStr) -> bool) {
        let own = self.stat.st_uid == rustix::process::geteuid().as_raw();
        if !own || self.stat.st_mode & OTHERS == 0 {
            return;
        }
        let private = Mode::RUSR | Mode::WUSR;
        for name in self.names().unwrap_or_default().iter().filter(|name| is_private(name)) {
            // Not through a descriptor of the file: it need not be readable.
            let _ = rustix::fs::chmodat(&self.fd, name.as_os_str(), private, AtFlags::empty());
        }
        // It stays as it is on file systems without modes.
        let _ = rustix::fs::fchmod(&self.fd, Mode::RWXU);
    }

    /// The names in it.
    ///
    /// # Errors
    /// What getdents(2) said.
    pub(super) fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.fd)? {
            let name = entry?.file_name().to_owned();
            names.push(OsString::from_vec(name.into_bytes()));
        }
        Ok(names)
    }

    /// Opens a lock in it, which is made if it is missing.
    ///
    /// # Errors
    /// It can't be made, or is not a file of this user.
    pub(super) fn open_lock(&self, name: &OsStr, uid: u32) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = rustix::fs::openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR)?;
        let stat = rustix::fs::fstat(&lock)?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        match of_others(&stat, uid) {
            None if is_file => Ok(File::from(lock)),
            _ => {
                let name = name.to_string_lossy();
                Err(io::Error::other(format!("{name} beside it is not ours; remove that")))
            }
        }
    }

    /// Writes what was renamed in it to the disk.
    ///
    /// # Errors
    /// What fsync(2) said.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.fd.sync_all()
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Why a file or directory is not only this user's and root's.
pub(super) fn of_others(stat: &Stat, uid: u32) -> Option<String> {
    let owner = stat.st_uid;
    (owner != uid && owner != 0)
        .then(|| format!("belongs to user {owner}; `chown` it if you trust it"))
}

/// Why others could have changed it.
pub(super) fn shared(stat: &Stat) -> Option<String> {
    (stat.st_mode & OTHERS_WRITE != 0)
        .then(|| "may be written by others; `chmod go-w` it if you trust it".into())
}

fn sticky(stat: &Stat) -> bool {
    stat.st_mode & STICKY != 0
}

/// What a path goes through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Link,
    /// A directory on the way.
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

/// Why another user than `uid` and root could put something else in the place of a program: by
/// the owner and mode of it, of all directories above it, and of links on its path. Nobody has
/// to be trusted for a sticky directory: a user may have been there first. The path is one
/// below `root`, and so are those that links lead to. What is missing has no owner.
///
/// # Errors
/// It is no regular file, or can't be looked at.
pub fn replaceable(root: &Path, program: &Path, uid: u32) -> io::Result<Option<String>> {
    let root = rustix::fs::open(root, ON_THE_WAY.difference(OFlags::NOFOLLOW), Mode::empty())?;
    let mut found = None;
    let mut see = |part: Part, stat: &Stat| {
        let shared = || shared(stat).filter(|_| part != Part::Link);
        let why = of_others(stat, uid).or_else(shared).map(|why| format!("{part} {why}"));
        found = found.take().or(why);
    };
    see(Part::Above, &rustix::fs::fstat(&root)?);
    match walk(&root, program, see) {
        Ok(end) => {
            let end = FileType::from_raw_mode(rustix::fs::fstat(end)?.st_mode);
            if end == FileType::RegularFile { Ok(found) } else { Err(Errno::INVAL.into()) }
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(found),
        Err(e) => Err(e),
    }
}

/// Walks along a path below a directory as the kernel does, lets `see` look at each part, and
/// holds what is at its end. No symbolic link is followed unseen.
fn walk(root: &OwnedFd, path: &Path, mut see: impl FnMut(Part, &Stat)) -> io::Result<OwnedFd> {
    let same = |a: &Stat, b: &Stat| (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino);
    let top = rustix::fs::fstat(root)?;
    let mut at = root.try_clone()?;
    let mut left = words(path);
    let mut links = 0;
    while let Some(name) = left.pop_front() {
        if name == ".." && same(&rustix::fs::fstat(&at)?, &top) {
            continue;
        }
        let found = rustix::fs::statat(&at, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_link = FileType::from_raw_mode(found.st_mode) == FileType::Symlink;
        // Where a descriptor in /proc leads is no path: something may be mounted there.
        let is_descriptor = is_link && rustix::fs::fstatfs(&at)?.f_type == PROC_SUPER_MAGIC;
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
        let mut flags = ON_THE_WAY;
        flags.set(OFlags::NOFOLLOW, !is_descriptor);
        flags.set(OFlags::DIRECTORY, !left.is_empty());
        at = rustix::fs::openat(&at, &name, flags, Mode::empty())?;
        let part = if left.is_empty() { Part::End } else { Part::Above };
        see(part, &rustix::fs::fstat(&at)?);
    }
    Ok(at)
}

fn open_root() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open("/", ON_THE_WAY, Mode::empty())?)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn root_trusts_a_directory_only_if_no_other_user_can_change_or_replace_it() {
        if !rustix::process::getuid().is_root() {
            println!("skipped: only root can give a file away");
            assert!(std::env::var_os("CI").is_none(), "CI must run as root");
            return;
        }
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        for name in ["own", "given", "open", "sticky", "foreign/own", "wide/own"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        chown(at("given"), Some(65534), None).unwrap();
        chown(at("foreign"), Some(65534), None).unwrap();
        chmod(&at("open"), 0o775);
        chmod(&at("sticky"), 0o1777);
        chmod(&at("wide"), 0o777);
        for (link, to) in [("link", "own"), ("loop", "loop"), ("theirs", "own")] {
            symlink(to, at(link)).unwrap();
        }
        symlink(at("own"), at("whole")).unwrap();
        lchown(at("theirs"), Some(65534), None).unwrap();
        fs::create_dir(at("sticky/own")).unwrap();
        for (name, why) in [
            ("own", None),
            ("own/../own", None),
            ("link", None),
            ("whole", None),
            ("sticky/own", None),
            ("theirs", Some("a link on its path belongs to user 65534")),
            ("given", Some("it belongs to user 65534")),
            ("open", Some("it may be written by others")),
            ("sticky", Some("it may be written by others")),
            ("foreign/own", Some("a directory above it belongs to user 65534")),
            ("wide/own", Some("a directory above it may be written by others")),
        ] {
            let opened = Directory::open(&at(name), 0).unwrap();
            let said = opened.untrusted().unwrap_or_default();
            assert!(said.starts_with(why.unwrap_or_default()), "{name}: {said}");
            assert_eq!(said.is_empty(), why.is_none(), "{name}: {said}");
        }
        let failed = |name: &str| Directory::open(&at(name), 0).unwrap_err().raw_os_error();
        assert_eq!(failed("absent"), Some(Errno::NOENT.raw_os_error()));
        assert_eq!(failed("loop"), Some(Errno::LOOP.raw_os_error()));
        // What is above them is the users' own affair.
        let theirs = Directory::open(&at("foreign/own"), 1000).unwrap();
        assert_eq!(theirs.untrusted(), None);
    }

    #[test]
    fn a_program_that_another_user_could_replace_is_known() {
        if !rustix::process::getuid().is_root() {
            println!("skipped: only root can give a file away");
            assert!(std::env::var_os("CI").is_none(), "CI must run as root");
            return;
        }
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        for dir in ["own", "foreign/own", "wide", "sticky"] {
            fs::create_dir_all(at(dir)).unwrap();
            fs::write(at(dir).join("program"), "").unwrap();
        }
        fs::write(at("own/given"), "").unwrap();
        fs::write(at("own/open"), "").unwrap();
        chown(at("own/given"), Some(65534), None).unwrap();
        chown(at("foreign"), Some(65534), None).unwrap();
        chmod(&at("own/open"), 0o775);
        chmod(&at("wide"), 0o775);
        chmod(&at("sticky"), 0o1777);
        for (link, to) in
            [("good", "/own/program"), ("bad", "../../sticky/program"), ("theirs", "own/program")]
        {
            symlink(to, at(link)).unwrap();
        }
        lchown(at("theirs"), Some(65534), None).unwrap();
        for (name, why) in [
            ("own/program", None),
            ("good", None),
            ("own/absent", None),
            ("own/given", Some("it belongs to user 65534")),
            ("own/open", Some("it may be written by others")),
            ("foreign/own/program", Some("a directory above it belongs to user 65534")),
            ("foreign/absent", Some("a directory above it belongs to user 65534")),
            ("wide/program", Some("a directory above it may be written by others")),
            ("sticky/program", Some("a directory above it may be written by others")),
            ("bad", Some("a directory above it may be written by others")),
            ("theirs", Some("a link on its path belongs to user 65534")),
        ] {
            let said = replaceable(top.path(), Path::new(name), 0).unwrap().unwrap_or_default();
            assert!(said.starts_with(why.unwrap_or_default()), "{name}: {said}");
            assert_eq!(said.is_empty(), why.is_none(), "{name}: {said}");
        }
        assert!(replaceable(top.path(), Path::new("own"), 0).is_err(), "no program");
        let of_tmp = replaceable(Path::new("/"), &at("own/program"), 0).unwrap();
        assert!(of_tmp.is_some_and(|why| why.contains("may be written by others")));
        // An image is its builder's.
        assert_eq!(replaceable(&at("foreign"), Path::new("own/program"), 65534).unwrap(), None);
    }

    #[test]
    fn a_directory_is_made_for_its_owner_alone() {
        let top = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let path = top.path().join("a/b");
        for _ in 0..2 {
            Directory::open_or_create(&path, uid).unwrap();
            let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode(&path), 0o700);
            assert_ne!(mode(path.parent().unwrap()), 0o700, "others may pass");
        }
    }

    #[test]
    fn what_others_could_read_is_tightened_once() {
        let top = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let file = |name: &str| top.path().join(name);
        for name in ["a.pack", "other"] {
            fs::write(file(name), "").unwrap();
            chmod(&file(name), 0o644);
        }
        chmod(top.path(), 0o755);
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let tighten = || {
            let opened = Directory::open(top.path(), uid).unwrap();
            opened.tighten(|name| name.as_encoded_bytes().ends_with(b".pack"));
        };
        tighten();
        let modes = [top.path(), &file("a.pack"), &file("other")].map(mode);
        assert_eq!(modes, [0o700, 0o600, 0o644]);
        // Who shares a pack by hand afterwards, in a directory that is closed, knows why.
        chmod(&file("a.pack"), 0o640);
        tighten();
        assert_eq!(mode(&file("a.pack")), 0o640);
    }
}

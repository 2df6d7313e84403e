//! A directory with our files, opened once: all further I/O uses its descriptor, so that nobody can
//! replace the directory meanwhile.
//!
//! It checks who may change its content. It knows nothing about packs.

use super::walk::{ON_THE_PATH, Part, open_root, walk};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Bits of a mode that let others write.
const OTHERS_WRITE: u32 = 0o022;
/// Only the owner of a file in such a directory may rename or remove it (inode(7)).
const STICKY: u32 = 0o1000;
/// All that lets others look into a directory or file.
const OTHERS: u32 = 0o077;

/// The mode of a directory of packs.
pub(super) const OWNER_ONLY: u32 = 0o700;

/// The directory that a path is in.
pub(super) fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// An open directory.
#[derive(Debug)]
pub(super) struct Directory {
    fd: File,
    stat: Stat,
    /// Why somebody else may have changed what is in it, if so.
    untrusted: Option<String>,
    /// The same of another directory that was found on that path.
    untrusted_way: Option<String>,
    /// The same of links on that path.
    led_by: Option<String>,
}

impl Directory {
    /// Opens a directory as the user `uid` and looks whether another user could have changed
    /// what is in it: its owner and mode, those of all links on the path to it and, for root,
    /// of all directories above it.
    ///
    /// # Errors
    /// It is missing or can't be opened.
    pub(super) fn open(path: &Path, uid: u32) -> io::Result<Self> {
        let (mut untrusted_way, mut led_by) = (None, None);
        let at = walk(&open_root()?, &std::path::absolute(path)?, |part, stat| {
            if part == Part::Link || uid == 0 && part == Part::Above {
                let shared = || shared(stat).filter(|_| part == Part::Above && !sticky(stat));
                let why = of_others(stat, uid).or_else(shared).map(|why| format!("{part} {why}"));
                if part == Part::Link {
                    led_by = led_by.take().or(why.clone());
                }
                untrusted_way = untrusted_way.take().or(why);
            }
        })?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = File::from(rustix::fs::openat(&at, ".", flags, Mode::empty())?);
        let stat = rustix::fs::fstat(&fd)?;
        let own = || of_others(&stat, uid).or_else(|| shared(&stat));
        let untrusted = untrusted_way.clone().or_else(|| own().map(|why| format!("it {why}")));
        Ok(Self { fd, stat, untrusted, untrusted_way, led_by })
    }

    /// Why somebody else could put another directory in the place of a missing one, by what
    /// there is of the way to it.
    ///
    /// # Errors
    /// It can't be looked at.
    pub(super) fn untrusted_way(path: &Path, uid: u32) -> io::Result<Option<String>> {
        for above in std::path::absolute(path)?.ancestors().skip(1) {
            match Self::open(above, uid) {
                Ok(dir) => return Ok(dir.untrusted_below(uid)),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(None)
    }

    fn untrusted_below(self, uid: u32) -> Option<String> {
        let shared = || shared(&self.stat).filter(|_| !sticky(&self.stat));
        let own = || of_others(&self.stat, uid).or_else(shared).filter(|_| uid == 0);
        self.untrusted_way.clone().or_else(|| own().map(|why| format!("{} {why}", Part::Above)))
    }

    /// The same, and makes it, with this mode, if it is missing.
    ///
    /// # Errors
    /// It can't be made or opened.
    pub(super) fn open_or_create(path: &Path, uid: u32, mode: u32) -> io::Result<Self> {
        match Self::open(path, uid) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
        if let Some(parent) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
        }
        match DirBuilder::new().mode(mode).create(path) {
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

    /// Why another user has said where the path to it leads; `None` when nobody has.
    pub(super) fn led_by(&self) -> Option<&str> {
        self.led_by.as_deref()
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
                Err(io::Error::other(format!(
                    "{name} next to it is not from headstart; remove that"
                )))
            }
        }
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

/// Why another user than `uid` and root could put something else in the place of a program: by
/// the owner and mode of it, of all directories above it, and of links on its path. Nobody has
/// to be trusted for a sticky directory: a user may have been there first. The path is one
/// below `root`, and so are those that links lead to. What is missing has no owner.
///
/// # Errors
/// It is no regular file, or can't be looked at.
pub fn replaceable(root: &Path, program: &Path, uid: u32) -> io::Result<Option<String>> {
    let root = rustix::fs::open(root, ON_THE_PATH.difference(OFlags::NOFOLLOW), Mode::empty())?;
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
            assert_eq!(opened.led_by().is_some(), name == "theirs", "{name}");
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
            Directory::open_or_create(&path, uid, OWNER_ONLY).unwrap();
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

//! Where packs are, and which are trusted.
//!
//! The driver: it finds and reads files. A pack tells root which files to open, so root
//! believes only what root wrote, in a directory that nobody else can change
//! (`directory`). [`locked`] replaces packs, [`replace`] files that others may read.

pub mod claim;
mod directory;
pub mod locked;
pub mod replace;
mod temporary;

use super::codec::{PackError, decode};
use super::{Pack, codec, key, subcommand};
use crate::host::contents::{self, MOST_BYTES};
use crate::host::names;
pub use directory::replaceable;
use directory::{Directory, of_others, shared};
pub use locked::{Locked, lock, lock_existing, lock_until};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Packs that this machine learned.
pub const LOCAL_DIR: &str = "/var/lib/headstart/packs";
/// Copies of root's packs that root shares with all users.
pub const SHARED_DIR: &str = "/var/lib/headstart/shared";
/// The name of their directory.
pub(super) const SHARED: &str = "shared";
/// Packs that came with an image or a package.
pub const SHIPPED_DIR: &str = "/usr/lib/headstart/packs";
/// Overrides all directories.
pub const DIR_VARIABLE: &str = "HEADSTART_PACKS";

/// A pack file that can't be used or written.
#[derive(Debug, Error)]
pub enum StoreError {
    /// There is none.
    #[error("There is no pack {}", names::path(.0))]
    Missing(PathBuf),
    /// It can't be opened or read.
    #[error("Can't read the pack {path}", path = names::path(.path))]
    Read {
        /// The pack.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Somebody else could have written it.
    #[error("The pack {path} is not used: {why}", path = names::path(.path))]
    Untrusted {
        /// The pack.
        path: PathBuf,
        /// What is wrong, and the fix.
        why: String,
    },
    /// Somebody else could have changed what is in its directory.
    #[error("The pack directory {path} is not used: {why}", path = names::path(.path))]
    UntrustedDirectory {
        /// The directory.
        path: PathBuf,
        /// What is wrong, and the fix.
        why: String,
    },
    /// Something else is in the place of a pack that is to be replaced or removed.
    #[error("{} is not a pack, so it stays as it is; name another file", names::path(.0))]
    NotAPack(PathBuf),
    /// Its content is no good.
    #[error("The pack {path} is not used", path = names::path(.path))]
    Content {
        /// The pack.
        path: PathBuf,
        /// What is wrong with it.
        source: PackError,
    },
    /// What says where packs are says it relative to a directory that changes.
    #[error(
        "{DIR_VARIABLE} is {}, which is not an absolute path; no packs are used or learned until \
         it is one", names::path(.0)
    )]
    RelativeDirectory(PathBuf),
    /// A name is that of several.
    #[error("Several packs are of {name}; name one of them: {paths}")]
    Several {
        /// The name.
        name: String,
        /// The packs.
        paths: String,
    },
    /// It can't be written.
    #[error("Can't write the pack {path}", path = names::path(.path))]
    Write {
        /// The pack.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// The directories that are searched, the first that has a pack wins; the
/// first is also where packs are written.
///
/// # Errors
/// [`StoreError::RelativeDirectory`].
pub fn search_path(
    is_root: bool,
    var: impl Fn(&str) -> Option<PathBuf>,
) -> Result<Vec<PathBuf>, StoreError> {
    // As the XDG base directory specification has it.
    let set = |name| var(name).filter(|v: &PathBuf| v.is_absolute());
    match var(DIR_VARIABLE) {
        Some(dir) if dir.is_absolute() => return Ok(vec![dir]),
        Some(dir) if !dir.as_os_str().is_empty() => {
            return Err(StoreError::RelativeDirectory(dir));
        }
        _ => {}
    }
    let state = || set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
    let own = state().map(|dir| dir.join("headstart/packs"));
    Ok(match is_root {
        true => vec![LOCAL_DIR.into(), SHIPPED_DIR.into()],
        false => own.into_iter().chain([SHARED_DIR.into(), SHIPPED_DIR.into()]).collect(),
    })
}

/// Looks a pack up by its file name, or the first that there is of several. Returns it with the
/// path where it is learned, which is in the first directory, wherever it was found; that is the
/// last name where there is none. A pack that can't be used ends the search: a worse one further
/// on would hide that.
///
/// # Errors
/// The path where it is learned, and what is wrong with the pack found.
#[allow(clippy::type_complexity)] // A path in either case.
pub fn find(
    file_names: &[String],
    uid: u32,
    var: impl Fn(&str) -> Option<PathBuf>,
) -> Result<(PathBuf, Option<Pack>), Box<(PathBuf, StoreError)>> {
    let dirs = search_path(uid == 0, var).map_err(|error| Box::new((PathBuf::new(), error)))?;
    let mut home = PathBuf::new();
    for file_name in file_names {
        home = dirs.first().map(|dir| dir.join(file_name)).unwrap_or_default();
        for dir in &dirs {
            match find_in(dir, file_name, uid) {
                Ok(pack) => return Ok((home, Some(pack))),
                Err(StoreError::Missing(_)) => {}
                Err(error) => return Err(Box::new((home, error))),
            }
        }
    }
    Ok((home, None))
}

/// Reads a pack in a directory of the search path, if the user `uid` can trust both.
fn find_in(dir: &Path, file_name: &str, uid: u32) -> Result<Pack, StoreError> {
    let path = dir.join(file_name);
    let opened = match Directory::open(dir, uid) {
        Ok(opened) => opened,
        Err(e) if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&e.kind()) => {
            return Err(StoreError::Missing(path));
        }
        Err(source) => return Err(StoreError::Read { path: dir.into(), source }),
    };
    if let Some(why) = opened.untrusted() {
        return Err(StoreError::UntrustedDirectory { path: dir.into(), why: why.into() });
    }
    decoded(read_at(&opened, OsStr::new(file_name), &path, uid, OFlags::empty())?, &path)
}

/// The path of a pack that a user named: that of a file, or the name of a program, or of a job of
/// one as "git status", that has one in the first of the directories that knows it. What is
/// neither stays as it is.
///
/// # Errors
/// [`StoreError::Several`].
pub fn by_name(wanted: &Path, dirs: Vec<PathBuf>) -> Result<PathBuf, StoreError> {
    let Some(name) = wanted.to_str().filter(|name| !name.contains('/') && !wanted.exists()) else {
        return Ok(wanted.into());
    };
    for dir in dirs {
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        let is_it = |path: &PathBuf| {
            let file = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            file == name || key::program_of(file) == Some(name)
        };
        let is_of_job = |path: &PathBuf| {
            let pack = read(path, rustix::process::geteuid().as_raw());
            pack.is_ok_and(|pack| pack.origin.name == name)
        };
        let entries = entries.map(|entry| entry.path());
        let mut found: Vec<_> = match name.contains(' ') {
            true => entries.filter(is_of_job).collect(),
            false => entries.filter(is_it).collect(),
        };
        found.sort();
        let is_of_program = |path: &&PathBuf| {
            let file = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            subcommand::of_program(file) == file
        };
        let of_programs: Vec<_> = found.iter().filter(is_of_program).collect();
        match &found[..] {
            [] => {}
            [one] => return Ok(one.clone()),
            _ if of_programs.len() == 1 => return Ok(of_programs[0].clone()),
            several => {
                let paths: Vec<_> = several.iter().map(|p| names::path(p).to_string()).collect();
                return Err(StoreError::Several { name: name.into(), paths: paths.join(", ") });
            }
        }
    }
    Ok(wanted.into())
}

/// Reads a pack that was named by its path, if the user `uid` can trust it: its directory may
/// be anybody's. That is no use of it, so its time of access stays.
///
/// # Errors
/// It is missing, can't be read, or is not trusted.
pub fn read(path: &Path, uid: u32) -> Result<Pack, StoreError> {
    decoded(read_bytes(path, uid)?, path)
}

fn decoded(bytes: Vec<u8>, path: &Path) -> Result<Pack, StoreError> {
    decode(&bytes).map_err(|source| StoreError::Content { path: path.into(), source })
}

/// Whether a regular file begins like a pack. Of a pipe nothing is read: it may
/// bring a list.
pub fn is_pack(path: &Path) -> bool {
    let mut magic = [0; codec::MAGIC.len()];
    path.metadata().is_ok_and(|m| m.is_file())
        && File::open(path).and_then(|mut f| f.read_exact(&mut magic)).is_ok()
        && magic == *codec::MAGIC
}

/// Reads a file if the user `uid` can trust it.
pub(crate) fn read_bytes(path: &Path, uid: u32) -> Result<Vec<u8>, StoreError> {
    match read_at(CWD, path.as_os_str(), path, uid, OFlags::NOATIME) {
        // Only its owner may have it so (open(2)).
        Err(StoreError::Read { source, .. })
            if source.kind() == io::ErrorKind::PermissionDenied =>
        {
            read_at(CWD, path.as_os_str(), path, uid, OFlags::empty())
        }
        read => read,
    }
}

/// The same, of a file in a directory; `path` is for messages.
fn read_at(
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
        return Err(untrusted(format!("it is larger than {most} MiB; remove it to learn anew")));
    }
    contents::rest_of(file).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::super::Origin;
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn pack(starts: u32) -> Pack {
        Pack { origin: Origin { page_shift: 12, starts, ..Origin::default() }, ..Pack::default() }
    }

    fn me() -> u32 {
        rustix::process::getuid().as_raw()
    }

    #[test]
    fn a_pack_is_replaced_as_a_whole_and_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/er/a.pack");
        for starts in [1, 2] {
            lock(&path).unwrap().write(&pack(starts)).unwrap();
            assert_eq!(read(&path, me()).unwrap(), pack(starts));
        }
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 2, "with the lock");
        assert!(is_pack(&path));
    }

    #[test]
    fn packs_that_others_could_have_made_are_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["writable", "target", "corrupt"] {
            lock(&at(name)).unwrap().write(&pack(1)).unwrap();
        }
        fs::set_permissions(at("writable"), fs::Permissions::from_mode(0o666)).unwrap();
        symlink(at("target"), at("link")).unwrap();
        fs::write(at("corrupt"), "HEADSTRTxxxx").unwrap();
        fs::create_dir(at("directory")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("fifo"),
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        for (name, why) in [
            ("writable", "may be written by others"),
            ("link", "it is a symbolic link"),
            ("corrupt", "it is cut off"),
            ("directory", "it is no regular file"),
            ("fifo", "it is no regular file"),
            ("absent", "There is no pack"),
        ] {
            let error = read(&at(name), me()).unwrap_err();
            let message = format!(
                "{error}: {:?}",
                std::error::Error::source(&error).map(ToString::to_string)
            );
            assert!(message.contains(why), "{name}: {message}");
        }
        assert!(read(&at("target"), me()).is_ok());
    }

    #[test]
    fn a_foreign_pack_is_refused_and_one_of_root_is_not() {
        if me() != 0 {
            println!("skipped: only root can give a file away");
            assert!(std::env::var_os("CI").is_none(), "CI must run as root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.pack");
        lock(&path).unwrap().write(&pack(1)).unwrap();
        assert!(read(&path, 1000).is_ok());
        std::os::unix::fs::chown(&path, Some(1000), None).unwrap();
        assert!(read(&path, 1000).is_ok());
        let message = read(&path, 0).unwrap_err().to_string();
        assert!(message.contains("belongs to user 1000"), "{message}");
    }

    #[test]
    fn a_pack_is_found_by_the_name_of_its_program_unless_there_are_several() {
        let (near, far) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let pack = |dir: &tempfile::TempDir, name: &str| {
            let path = dir.path().join(name);
            lock(&path).unwrap().write(&pack(1)).unwrap();
            path
        };
        let sh = pack(&far, "sh-0123456789abcdef.pack");
        let python = pack(&near, "python3-app.py-0123456789abcdef.pack");
        pack(&far, "python3-app.py-ffffffffffffffff.pack");
        for digit in [1, 2] {
            pack(&far, &format!("cat-000000000000000{digit}.pack"));
        }
        pack(&far, "odd-0123.pack");
        let git = pack(&near, "git-0123456789abcdef.pack");
        let job = near.path().join("git-0123456789abcdef+0123456789abcdef.pack");
        let origin = Origin { page_shift: 12, name: "git status".into(), ..Origin::default() };
        lock(&job).unwrap().write(&Pack { origin, ..Pack::default() }).unwrap();
        let find = |name: &str| {
            by_name(Path::new(name), vec![near.path().into(), "/none".into(), far.path().into()])
        };
        for (name, expected) in [
            ("sh", sh.as_path()),
            ("python3-app.py", &python),
            ("sh-0123456789abcdef.pack", &sh),
            ("git", &git),
            ("git status", &job),
            ("git log", Path::new("git log")),
            ("odd", Path::new("odd")),
            ("absent", Path::new("absent")),
            ("./sh", Path::new("./sh")),
        ] {
            assert_eq!(find(name).unwrap(), expected, "{name}");
        }
        let message = find("cat").unwrap_err().to_string();
        assert!(message.contains("cat-0000000000000001.pack, /"), "{message}");
    }

    #[test]
    fn users_look_at_their_own_packs_first_and_root_never_does() {
        let var = |name: &str| match name {
            "HOME" => Some(PathBuf::from("/home/u")),
            _ => None,
        };
        let own = PathBuf::from("/home/u/.local/state/headstart/packs");
        let root = vec![PathBuf::from(LOCAL_DIR), SHIPPED_DIR.into()];
        assert_eq!(search_path(false, var).unwrap(), [own, SHARED_DIR.into(), SHIPPED_DIR.into()]);
        assert_eq!(search_path(true, var).unwrap(), root);
        let forced = |name: &str| (name == DIR_VARIABLE).then(|| PathBuf::from("/p"));
        assert_eq!(search_path(true, forced).unwrap(), [PathBuf::from("/p")]);
        let empty = |name: &str| (name == DIR_VARIABLE).then(PathBuf::new);
        assert_eq!(search_path(true, empty).unwrap(), root);
        let relative = |name: &str| (name == DIR_VARIABLE).then(|| PathBuf::from("p"));
        let refused = search_path(true, relative).unwrap_err().to_string();
        assert!(refused.contains("is p, which is not an absolute path"), "{refused}");
    }
}

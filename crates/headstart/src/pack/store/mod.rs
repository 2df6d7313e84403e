//! Where packs are, and which are trusted.
//!
//! The driver: it finds and reads files. A pack tells root which files to open, so root
//! believes only what root wrote, in a directory that nobody else can change
//! (`directory`). [`locked`] replaces packs, [`trusted`] what is next to them,
//! [`below`] files of a machine or an image. [`silent`] keeps which file servers do not answer.

pub mod below;
pub mod claim;
mod directory;
mod error;
pub mod locked;
mod read;
pub mod silent;
mod temporary;
pub mod trusted;
mod walk;

use super::codec::decode;
use super::{Pack, codec, key, subcommand};
use crate::host::names;
pub use directory::replaceable;
pub use error::StoreError;
pub use locked::{Locked, lock, lock_existing, lock_trusted, lock_until};
pub(crate) use read::read_bytes;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
pub use trusted::{TrustedDirectory, packs_in};

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
    let mut opened: Vec<_> = dirs.iter().map(|_| None).collect();
    let mut home = PathBuf::new();
    for file_name in file_names {
        home = dirs.first().map(|dir| dir.join(file_name)).unwrap_or_default();
        for (dir, opened) in dirs.iter().zip(&mut opened) {
            match find_in(dir, opened, file_name, uid) {
                Ok(pack) => return Ok((home, Some(pack))),
                Err(StoreError::Missing(_)) => {}
                Err(error) => return Err(Box::new((home, error))),
            }
        }
    }
    Ok((home, None))
}

/// Reads a pack in a directory of the search path, if the user `uid` can trust both. The directory
/// is opened once, for all names.
fn find_in(
    dir: &Path,
    opened: &mut Option<Option<TrustedDirectory>>,
    file_name: &str,
    uid: u32,
) -> Result<Pack, StoreError> {
    let path = dir.join(file_name);
    let opened = match opened {
        Some(opened) => opened,
        None => opened.insert(TrustedDirectory::open(dir, uid)?),
    };
    match opened {
        Some(opened) => decoded(opened.read(OsStr::new(file_name))?, &path),
        None => Err(StoreError::Missing(path)),
    }
}

/// The path of a pack that a user named: that of a file, or the name of a program, or of a job of
/// one as "git status", that has one in the first of the directories that knows it. What is
/// neither stays as it is.
///
/// # Errors
/// [`StoreError::Several`], or somebody else could have changed what is in a directory.
pub fn by_name(wanted: &Path, dirs: Vec<PathBuf>) -> Result<PathBuf, StoreError> {
    let Some(name) = wanted.to_str().filter(|name| !name.contains('/') && !wanted.exists()) else {
        return Ok(wanted.into());
    };
    let uid = rustix::process::geteuid().as_raw();
    for dir in dirs {
        let entries = packs_in(&dir, uid)?.into_iter();
        let is_it = |path: &PathBuf| {
            let file = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            file == name || key::program_of(file) == Some(name)
        };
        let is_of_job = |path: &PathBuf| read(path, uid).is_ok_and(|pack| pack.origin.name == name);
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
                let paths: Vec<_> = several.iter().map(|path| with_command(path)).collect();
                return Err(StoreError::Several { name: name.into(), paths: paths.join(", ") });
            }
        }
    }
    Ok(wanted.into())
}

/// A pack and, in parentheses, the command that it is of, where that can be read: for people.
fn with_command(path: &Path) -> String {
    let shown = names::path(path).to_string();
    match read(path, rustix::process::geteuid().as_raw()) {
        Ok(pack) if !pack.origin.command.is_empty() => {
            let words = pack.origin.command.split(|byte| *byte == 0).map(names::name);
            format!("{shown} ({})", words.collect::<Vec<_>>().join(" "))
        }
        _ => shown,
    }
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

#[cfg(test)]
mod tests {
    use super::super::Origin;
    use super::*;
    use rustix::fs::Mode;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn pack(starts: u32) -> Pack {
        Pack { origin: Origin { page_shift: 12, starts, ..Origin::default() }, ..Pack::default() }
    }

    fn me() -> u32 {
        rustix::process::getuid().as_raw()
    }

    #[test]
    fn a_pack_is_replaced_as_a_whole_and_leaves_no_other_file() {
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

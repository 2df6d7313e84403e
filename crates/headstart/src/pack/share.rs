//! A copy of a pack for other users: without the command, and with only those files that all users
//! may read.
//!
//! Packs of root are closed to others, since they name files and commands. When a user shares one,
//! the copy follows the pack from then on.

use super::Pack;
use super::build::Parts;
use super::key;
use super::paths::PathInterner;
use super::store::silent::Silent;
use super::store::{self, StoreError, TrustedDirectory};
use crate::host::mounts::Mounts;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The bit of a mode that lets all others read a file.
const READ: u32 = 0o004;
/// The bit that lets them pass through a directory.
const PASS: u32 = 0o001;

/// The pack without private parts. `is_public` says of a path whether all
/// users may read the file.
fn public(pack: &Pack, mut is_public: impl FnMut(&Path) -> bool) -> Pack {
    let mut names = PathInterner::default();
    let mut parts = Parts::of(pack, &mut names);
    parts.origin.command = Vec::new();
    // Only root can read a block device.
    parts.metadata = HashMap::new();
    parts.files.retain(|node, _| is_public(&names.table().path(*node)));
    parts.build(names.table())
}

/// Where the shared copy of a pack is.
pub fn path_of(pack: &Path) -> PathBuf {
    let packs = pack.parent().unwrap_or(Path::new("."));
    let dir = match packs.ends_with("headstart/packs") {
        true => packs.with_file_name(store::SHARED),
        false => packs.join(store::SHARED),
    };
    dir.join(pack.file_name().unwrap_or_default())
}

/// Shares the pack at this path of the store, or renews an existing copy. Removes the copy of a
/// pack that must not be shared.
///
/// # Errors
/// Why it is not shared; the pack is as it was.
pub fn keep_shared(path: &Path, pack: &Pack, wanted: bool, uid: u32) -> io::Result<()> {
    let copy = path_of(path);
    let (Some(dir), Some(name)) = (copy.parent(), copy.file_name()) else { return Ok(()) };
    let opened = TrustedDirectory::open(dir, uid).map_err(io::Error::other)?;
    let is_shared = opened.as_ref().is_some_and(|dir| dir.has(name));
    if !wanted && !is_shared {
        return Ok(());
    }
    let (mounts, silent, mut dirs) = (Mounts::default(), Silent::here(), HashMap::new());
    let answers =
        |file: &Path| mounts.table().is_none_or(|mounts| !silent.any(&mounts.servers_at(file)));
    let mut is_public = |file: &Path| answers(file) && may_all_read(file, &mut dirs);
    if let Some(why) = secret_of(pack, &mut is_public) {
        opened.map_or(Ok(()), |dir| dir.remove_pack(name))?;
        return Err(io::Error::other(why));
    }
    let create = || TrustedDirectory::open_or_create(dir, uid, 0o755);
    let opened = opened.map_or_else(create, Ok).map_err(io::Error::other)?;
    let shared = public(pack, is_public);
    opened.write_pack_for_all(name, &shared).map_err(io::Error::other)
}

/// Removes the shared copy of a pack, if there is one. In a directory that others may change
/// none is ours.
///
/// # Errors
/// It can't be removed.
pub fn forget_shared(path: &Path, uid: u32) -> io::Result<()> {
    let copy = path_of(path);
    let (Some(dir), Some(name)) = (copy.parent(), copy.file_name()) else { return Ok(()) };
    match TrustedDirectory::open(dir, uid) {
        Ok(Some(dir)) => dir.remove_pack(name),
        Ok(None) | Err(StoreError::UntrustedDirectory { .. }) => Ok(()),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Why the name of a pack is private, if it is. It is made from the command: a user who knows all
/// but a few characters could guess them.
fn secret_of(pack: &Pack, mut is_public: impl FnMut(&Path) -> bool) -> Option<&'static str> {
    let words = pack.origin.command.split(|byte| *byte == 0);
    for word in words.map(|word| Path::new(OsStr::from_bytes(word))) {
        if key::is_hash(word.as_os_str()) {
            return Some("its name is made from words that may be secret");
        }
        // By its name and, where it is a link, by that of the file.
        let mut may_be_seen =
            || is_public(word) && word.canonicalize().is_ok_and(|real| is_public(&real));
        if word.as_os_str().as_bytes().contains(&b'/') && !(word.is_absolute() && may_be_seen()) {
            return Some(
                "its name tells of a file that not all users may read, or that the command names \
                 by a relative path",
            );
        }
    }
    None
}

/// Whether all users may read a file: by the modes of the file and of all directories above it.
fn may_all_read(file: &Path, dirs: &mut HashMap<PathBuf, bool>) -> bool {
    has(file, READ) && file.parent().is_none_or(|dir| may_all_pass(dir, dirs))
}

fn may_all_pass(dir: &Path, dirs: &mut HashMap<PathBuf, bool>) -> bool {
    if let Some(known) = dirs.get(dir) {
        return *known;
    }
    let may = has(dir, PASS) && dir.parent().is_none_or(|above| may_all_pass(above, dirs));
    dirs.insert(dir.to_owned(), may);
    may
}

fn has(path: &Path, bit: u32) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.permissions().mode() & bit != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::range::PageRange;
    use crate::host::usage::How;
    use crate::pack::build::FilePart;
    use crate::pack::pieces::Piece;
    use crate::pack::{FileSystem, History, Identity, Origin};
    use std::fs;

    fn pack_of(files: &[&Path]) -> Pack {
        let mut names = PathInterner::default();
        let origin =
            Origin { page_shift: 12, starts: 3, command: b"sh".into(), ..Origin::default() };
        let mut parts = Parts { origin, ..Parts::default() };
        let file_system = parts.file_system(&FileSystem::default()).unwrap();
        let piece =
            Piece { pages: PageRange::of(0, 1), at_us: 0, how: How::READ, history: History(1) };
        for file in files {
            let (identity, pieces) = (Identity::default(), vec![piece]);
            let part = FilePart { file_system, identity, changes: History(0), pieces };
            parts.files.insert(names.intern(file).unwrap(), part);
        }
        parts.metadata.insert(file_system, vec![piece]);
        parts.build(names.table())
    }

    #[test]
    fn a_shared_copy_has_no_command_and_no_file_that_others_may_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(file("closed")).unwrap();
        for (name, mode) in [("open", 0o644), ("private", 0o640), ("closed/open", 0o644)] {
            fs::write(file(name), "x").unwrap();
            fs::set_permissions(file(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::set_permissions(file("closed"), fs::Permissions::from_mode(0o700)).unwrap();
        let names = [file("open"), file("private"), file("closed/open"), file("gone")];
        let pack = pack_of(&names.each_ref().map(PathBuf::as_path));
        let path = dir.path().join("headstart/packs/a.pack");
        let uid = rustix::process::geteuid().as_raw();
        keep_shared(&path, &pack, false, uid).unwrap();
        assert!(!path_of(&path).exists(), "it was not requested");
        for wanted in [true, false] {
            keep_shared(&path, &pack, wanted, uid).unwrap();
            let shared = store::read(&path_of(&path), u32::MAX);
            // Only root's packs are another user's to use.
            let Ok(shared) = shared else { return assert!(!rustix::process::geteuid().is_root()) };
            let files: Vec<_> = shared.files.iter().map(|f| shared.paths.path(f.node)).collect();
            assert_eq!(files, [file("open")]);
            assert_eq!((shared.origin.command.len(), shared.metadata.len()), (0, 0));
            assert_eq!(shared.origin.starts, 3);
            fs::write(path_of(&path), "").unwrap();
        }
        let mut secret = pack;
        secret.origin.command = b"sh\0-c\0#ab23f0eec020c951".into();
        assert!(keep_shared(&path, &secret, false, uid).is_err());
        assert!(!path_of(&path).exists(), "an older copy goes");
    }

    #[test]
    fn a_pack_whose_name_tells_what_others_can_not_see_is_not_shared() {
        let is_public = |path: &Path| path.starts_with("/usr") || path.starts_with("/bin");
        let link = std::fs::read_link("/proc/self/exe").unwrap();
        for (words, secret) in [
            (&["sh"][..], false),
            (&["python3", "-m", "http.server"], false),
            (&["/usr/bin/env", "ls"], false),
            (&["sh", "-c", "#ab23f0eec020c951"], true),
            (&["sudo", "#c09a1f593e02443a"], true),
            (&["git", "stash", "#dc47fd6761f51d72"], true),
            (&["sh", "/root/tool.sh"], true),
            (&["/usr/absent"], true),
            (&["./tool"], true),
            (&[link.to_str().unwrap()], true),
        ] {
            let command = words.join("\0").into_bytes();
            let origin = Origin { command, ..Origin::default() };
            let pack = Pack { origin, ..Pack::default() };
            assert_eq!(secret_of(&pack, is_public).is_some(), secret, "{words:?}");
        }
    }

    #[test]
    fn a_copy_is_beside_the_packs_of_a_machine_and_below_a_directory_that_a_user_chose() {
        for (pack, copy) in [
            ("/var/lib/headstart/packs/a.pack", "/var/lib/headstart/shared/a.pack"),
            ("/srv/packs/a.pack", "/srv/packs/shared/a.pack"),
        ] {
            assert_eq!(path_of(Path::new(pack)), Path::new(copy));
        }
    }
}

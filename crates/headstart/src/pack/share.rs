//! A copy of a pack that other users may read: without the command, and with only the files
//! that all users may read.
//!
//! Packs of root are closed for others, since they name files and commands. Who wants users
//! to replay one shares it; the copy follows the pack from then on.

use super::Pack;
use super::build::Parts;
use super::paths::PathInterner;
use super::store::{self, replace::replace};
use std::collections::HashMap;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The bit of a mode that lets all others read a file.
const READ: u32 = 0o004;
/// The bit that lets them pass through a directory.
const PASS: u32 = 0o001;

/// The pack without what is nobody else's business. `is_public` tells of a path whether all
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

/// Shares the pack of that path, or renews the copy if it was shared before.
///
/// # Errors
/// The copy can't be written; the pack is as it was.
pub fn keep_shared(path: &Path, pack: &Pack, wanted: bool) -> io::Result<()> {
    let copy = path_of(path);
    if !wanted && !copy.exists() {
        return Ok(());
    }
    let mut dirs = HashMap::new();
    let shared = public(pack, |file| may_all_read(file, &mut dirs));
    replace(&copy, &super::codec::encode(&shared))
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
    use crate::pack::{FileSystem, Identity, Origin};
    use std::fs;

    fn pack_of(files: &[&Path]) -> Pack {
        let mut names = PathInterner::default();
        let origin =
            Origin { page_shift: 12, starts: 3, command: b"sh".into(), ..Origin::default() };
        let mut parts = Parts { origin, ..Parts::default() };
        let file_system = parts.file_system(&FileSystem::default()).unwrap();
        let piece = Piece { pages: PageRange::of(0, 1), at_us: 0, how: How::READ, history: 1 };
        for file in files {
            let (identity, pieces) = (Identity::default(), vec![piece]);
            let part = FilePart { file_system, identity, changes: 0, pieces };
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
        keep_shared(&path, &pack, false).unwrap();
        assert!(!path_of(&path).exists(), "it was not asked for");
        for wanted in [true, false] {
            keep_shared(&path, &pack, wanted).unwrap();
            let shared = store::read(&path_of(&path), u32::MAX);
            // Only root's packs are another user's to use.
            let Ok(shared) = shared else { return assert!(!rustix::process::geteuid().is_root()) };
            let files: Vec<_> = shared.files.iter().map(|f| shared.paths.path(f.node)).collect();
            assert_eq!(files, [file("open")]);
            assert_eq!((shared.origin.command.len(), shared.metadata.len()), (0, 0));
            assert_eq!(shared.origin.starts, 3);
            fs::write(path_of(&path), "").unwrap();
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

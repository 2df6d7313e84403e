//! Directories of packs: whether they exist, are trusted and are writable. Pure.

use crate::host::names;
use std::io;
use std::path::Path;

use super::check::Check;

/// What was found of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Directory {
    /// Its owner.
    pub uid: u32,
    /// Its mode.
    pub mode: u32,
    /// Whether this user may create files in it.
    pub writable: bool,
}

/// Bits of a mode that let others write.
const OTHERS_WRITE: u32 = 0o022;

/// One directory of the search path for the user `uid`; `first`: it is where
/// packs are written.
pub fn directory(path: &Path, found: io::Result<Directory>, uid: u32, first: bool) -> Check {
    let id = if first { "packs_own" } else { "packs_others" };
    let name = names::path(path);
    match found {
        Err(e) if e.kind() == io::ErrorKind::NotFound && first => {
            Check::ok(id, format!("{name} will be created with the first pack"))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            Check::ok(id, format!("{name} does not exist, so no packs are taken from it"))
        }
        Err(e) => Check::degraded(id, format!("{name} can't be used: {e}")),
        Ok(dir) if dir.uid != 0 && dir.uid != uid => {
            let owner = dir.uid;
            Check::degraded(
                id,
                format!("{name} belongs to user {owner}, so its packs may be theirs"),
            )
            .fix(format!("sudo chown root {name}"))
        }
        Ok(dir) if dir.mode & OTHERS_WRITE != 0 => {
            Check::degraded(id, format!("Others may write to {name}, so its packs may be theirs"))
                .fix(format!("sudo chmod go-w {name}"))
        }
        Ok(dir) if first && !dir.writable => {
            Check::degraded(id, format!("{name} can't be written, so nothing is learned"))
        }
        Ok(_) => Check::ok(id, format!("{name} can be used")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::State;

    #[test]
    fn a_directory_is_ok_only_if_no_other_user_can_put_packs_there() {
        let dir = |uid, mode, writable| Ok(Directory { uid, mode, writable });
        let gone = || Err(io::ErrorKind::NotFound.into());
        for (found, uid, first, state, word) in [
            (dir(0, 0o40755, true), 0, true, State::Ok, "can be used"),
            (dir(0, 0o40755, false), 1000, false, State::Ok, "can be used"),
            (dir(1000, 0o40700, true), 1000, true, State::Ok, "can be used"),
            (dir(0, 0o40755, false), 0, true, State::Degraded, "can't be written"),
            (dir(1000, 0o40755, true), 0, true, State::Degraded, "user 1000"),
            (dir(0, 0o40775, true), 0, true, State::Degraded, "Others may write"),
            (dir(0, 0o41777, true), 0, true, State::Degraded, "Others may write"),
            (gone(), 0, true, State::Ok, "will be created"),
            (gone(), 0, false, State::Ok, "does not exist"),
            (Err(io::ErrorKind::NotADirectory.into()), 0, true, State::Degraded, "can't be used"),
        ] {
            let check = directory(Path::new("/packs"), found, uid, first);
            assert_eq!(check.state, state, "{check:?}");
            assert!(check.meaning.contains(word), "{check:?}");
        }
    }
}

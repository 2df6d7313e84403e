//! Packs that are there before the service has learned anything, such as those of `headstart run`:
//! their programs are known from the first start that the service sees. Packs are not read for that; one
//! that can't be used is noticed when it would be prefetched.

use super::shared::Places;
use crate::programs::table::{MOST, Table};
use crate::programs::{Id, Program};
use crate::state::is_file_name;
use headstart::pack::{key, store, subcommand};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Packs of `headstart unit` end so before their hash; the unit prefetches them.
const UNIT: &str = ".service";

/// Notes the packs of all users in the table, as far as there is room.
pub(super) fn add(table: &mut Table, places: &Places) {
    let own = rustix::process::geteuid().as_raw();
    for (uid, dir) in directories(places) {
        // One that others can change is not used for starts either.
        for path in store::packs_in(&dir, own).unwrap_or_default() {
            if table.len() >= MOST {
                return;
            }
            if let (Some((id, name)), Some(at)) = (program_of(uid, &path), learned_at(&path)) {
                let new = || Program { name, ..Program::default() }.with_short_names();
                table.change(&id, new, |program| program.note_found(at));
            }
        }
    }
}

/// When a pack was learned last, in seconds of Unix time; none where there is no file.
pub(super) fn learned_at(path: &Path) -> Option<u64> {
    let meta = path.symlink_metadata().ok().filter(fs::Metadata::is_file)?;
    let time = meta.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(time.as_secs())
}

/// The directory of root's packs, and those of other users.
fn directories(places: &Places) -> Vec<(u32, PathBuf)> {
    let users = fs::read_dir(places.users()).into_iter().flatten().flatten();
    let of_user = |dir: fs::DirEntry| Some((dir.file_name().to_str()?.parse().ok()?, dir.path()));
    [(0, places.packs.clone())].into_iter().chain(users.filter_map(of_user)).collect()
}

/// The program of a pack and what it is called; none if it is a pack of something else.
fn program_of(uid: u32, path: &Path) -> Option<(Id, String)> {
    let file_name = subcommand::of_program(path.file_name()?.to_str()?);
    let name = key::program_of(&file_name)?.to_owned();
    let is_program = is_file_name(&file_name) && !name.ends_with(UNIT);
    is_program.then_some((Id { uid, file_name }, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_packs_that_are_there_are_known_and_other_files_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let places = Places {
            state: dir.path().join("daemon"),
            packs: dir.path().join("packs"),
            socket: dir.path().join("socket"),
            sessions: dir.path().join("sessions"),
        };
        let mut table = Table::default();
        add(&mut table, &places);
        assert!(table.is_empty());
        let hash = "0123456789abcdef";
        let theirs = places.users().join("1000");
        for (dir, names) in [
            (&places.packs, &["a", "git", "x.service", "sp ace"][..]),
            (&theirs, &["b"]),
            (&places.users().join("notes"), &["c"]),
        ] {
            fs::create_dir_all(dir).unwrap();
            names
                .iter()
                .for_each(|name| fs::write(dir.join(format!("{name}-{hash}.pack")), "").unwrap());
        }
        for name in [&format!("git-{hash}+{hash}.pack"), "root@0.pack", "a.last", "d.pack"] {
            fs::write(places.packs.join(name), "").unwrap();
        }
        let known = Id { uid: 0, file_name: format!("git-{hash}.pack") };
        table.change(&known, Program::default, |program| {
            (program.cold_starts, program.name) = (1, "git".into());
        });
        add(&mut table, &places);
        let found: Vec<_> = table.iter().map(|(id, program)| (id.uid, &*program.name)).collect();
        assert_eq!(found, [(0, "a"), (0, "git"), (1000, "b")]);
        assert!(table.iter().all(|(_, program)| program.learned == 1 && program.learned_at > 0));
    }
}

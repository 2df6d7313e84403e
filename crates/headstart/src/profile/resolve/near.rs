//! Looks for files beside those that were found: in the same directories, and in those
//! just below. What a start touches lies together, so this finds most of what the kernel
//! has forgotten, and reads few directories where a walk reads all. The driver.

use super::ResolvedFile;
use super::verify::{Check, check};
use crate::id::{Dev, InodeId};
use crate::profile::mounts::MountTable;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long is looked at most: the disk may be slow, and has just become quiet.
pub(super) const LIMIT: Duration = Duration::from_secs(2);

/// The files among `wanted`, all of one device, that lie in or just below the directories
/// of `found` ones.
pub(super) fn beside<'a>(
    table: &MountTable,
    dev: Dev,
    wanted: &[InodeId],
    found: impl Iterator<Item = &'a Path>,
    limit: Duration,
) -> HashMap<InodeId, ResolvedFile> {
    let until = Instant::now() + limit;
    let mut search = Search {
        table,
        dev,
        wanted: wanted.iter().map(|id| id.ino).collect(),
        found: HashMap::new(),
    };
    let known: BTreeSet<PathBuf> = found.filter_map(Path::parent).map(Path::to_owned).collect();
    let mut below = BTreeSet::new();
    for dir in &known {
        if !search.goes_on(until) {
            break;
        }
        below.extend(search.list(dir));
    }
    for dir in below.difference(&known) {
        if !search.goes_on(until) {
            break;
        }
        search.list(dir);
    }
    search.found
}

struct Search<'a> {
    table: &'a MountTable,
    dev: Dev,
    wanted: HashSet<u64>,
    found: HashMap<InodeId, ResolvedFile>,
}

impl Search<'_> {
    fn goes_on(&self, until: Instant) -> bool {
        !self.wanted.is_empty() && Instant::now() < until
    }

    /// Takes what is wanted of a directory; returns the directories in it.
    fn list(&mut self, dir: &Path) -> Vec<PathBuf> {
        let mut below = Vec::new();
        // One that can't be read, or is gone, has nothing for us.
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                below.push(entry.path());
            } else if self.wanted.contains(&entry.ino()) {
                let id = InodeId { dev: self.dev, ino: entry.ino() };
                // Below another mount the number is another file's.
                if let Check::Same(file) = check(self.table, id, &entry.path()) {
                    self.wanted.remove(&id.ino);
                    self.found.insert(id, file);
                }
            }
        }
        below
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn files_are_found_beside_and_just_below_those_that_are_known() {
        let dir = tempfile::tempdir().unwrap();
        let table = MountTable::read().unwrap();
        let make = |name: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            let ino = fs::metadata(&path).unwrap().ino();
            (path, ino)
        };
        let (known, _) = make("a/known");
        let cases =
            [("a/beside", true), ("a/b/below", true), ("a/b/c/deeper", false), ("x", false)];
        let dev = table.at(dir.path()).unwrap().dev;
        for (name, expected) in cases {
            let (path, ino) = make(name);
            let id = InodeId { dev, ino };
            let seen = [known.as_path()];
            let found = beside(&table, dev, &[id], seen.into_iter(), LIMIT);
            let found = found.get(&id).map(|file| file.path.clone());
            assert_eq!(found, expected.then_some(path), "{name}");
            let none = beside(&table, dev, &[id], seen.into_iter(), Duration::ZERO);
            assert!(none.is_empty(), "without time");
        }
    }
}

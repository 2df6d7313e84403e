//! Looks for files beside those that were found: in the same directories, and in those
//! just below. What a start touches lies together, so this finds most of what the kernel
//! has forgotten, and reads few directories where a walk reads all. The driver.

use super::options::ResolveOptions;
use super::resolution::ResolvedFile;
use super::verify::{Check, check};
use super::walk::Wanted;
use crate::host::id::{Dev, InodeId};
use crate::host::mounts::MountTable;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long is looked at most, if no deadline is sooner: the disk may be slow, and has just
/// become quiet.
const LIMIT: Duration = Duration::from_secs(2);

/// The files among `wanted`, all of one device, that lie in or just below the directories
/// of `found` ones.
pub(super) fn beside<'a>(
    options: &ResolveOptions<'_>,
    dev: Dev,
    wanted: &[InodeId],
    found: impl Iterator<Item = &'a Path>,
) -> HashMap<InodeId, ResolvedFile> {
    let wanted = wanted.iter().map(|id| id.ino).collect();
    let mut search = Search { table: options.mounts, dev, wanted, found: HashMap::new() };
    offer_beside(options, &mut search, found);
    search.found
}

/// Offers all that lies in or just below the directories of `found` files.
pub(super) fn offer_beside<'a>(
    options: &ResolveOptions<'_>,
    wanted: &mut impl Wanted,
    found: impl Iterator<Item = &'a Path>,
) {
    let limit = Instant::now() + LIMIT;
    let until = options.deadline.map_or(limit, |deadline| deadline.min(limit));
    let goes_on = |wanted: &dyn Wanted| wanted.left() > 0 && Instant::now() < until;
    let known: BTreeSet<PathBuf> = found.filter_map(Path::parent).map(Path::to_owned).collect();
    let mut below = BTreeSet::new();
    for dir in &known {
        if !goes_on(wanted) {
            break;
        }
        below.extend(list(dir, wanted));
    }
    for dir in below.difference(&known) {
        if !goes_on(wanted) {
            break;
        }
        list(dir, wanted);
    }
}

/// Offers what is wanted of a directory; returns the directories in it.
fn list(dir: &Path, wanted: &mut dyn Wanted) -> Vec<PathBuf> {
    let mut below = Vec::new();
    // One that can't be read, or is gone, has nothing for us.
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            below.push(entry.path());
        } else if wanted.wants(entry.ino()) {
            wanted.offer(entry.ino(), entry.path());
        }
    }
    below
}

/// What is wanted of a device.
struct Search<'a> {
    table: &'a MountTable,
    dev: Dev,
    wanted: HashSet<u64>,
    found: HashMap<InodeId, ResolvedFile>,
}

impl Wanted for Search<'_> {
    fn left(&self) -> u64 {
        self.wanted.len() as u64
    }

    fn wants(&self, ino: u64) -> bool {
        self.wanted.contains(&ino)
    }

    fn offer(&mut self, ino: u64, path: PathBuf) {
        let id = InodeId { dev: self.dev, ino };
        // Below another mount the number is another file's.
        if let Check::Same(file) = check(self.table, id, &path) {
            self.wanted.remove(&ino);
            self.found.insert(id, file);
        }
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
            let mut options = ResolveOptions::new(&table);
            let found = beside(&options, dev, &[id], seen.into_iter());
            let found = found.get(&id).map(|file| file.path.clone());
            assert_eq!(found, expected.then_some(path), "{name}");
            options.deadline = Some(Instant::now());
            let none = beside(&options, dev, &[id], seen.into_iter());
            assert!(none.is_empty(), "without time");
        }
    }
}

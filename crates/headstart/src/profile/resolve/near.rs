//! Searches the directories of files that were found, and those just below. The files of a start
//! lie together, so this finds most names that are not cached any more, and reads few directories.
//! The driver.

use super::options::ResolveOptions;
use super::walk::WalkTarget;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest time of the search, if the deadline is not earlier: the disk may be slow, and has
/// just become idle.
const LIMIT: Duration = Duration::from_secs(2);

/// Offers all that lies in or just below the directories of `found` files.
pub(super) fn offer_beside<'a>(
    options: &ResolveOptions<'_>,
    wanted: &mut impl WalkTarget,
    found: impl Iterator<Item = &'a Path>,
) {
    let limit = Instant::now() + LIMIT;
    let until = options.deadline.map_or(limit, |deadline| deadline.min(limit));
    let goes_on = |wanted: &dyn WalkTarget| wanted.left() > 0 && Instant::now() < until;
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
fn list(dir: &Path, wanted: &mut dyn WalkTarget) -> Vec<PathBuf> {
    let mut below = Vec::new();
    // A directory that can't be read, or is gone, is skipped.
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            below.push(entry.path());
        } else if wanted.wants(entry.ino()) {
            wanted.offer(entry.ino(), entry.path());
        }
    }
    below
}

#[cfg(test)]
mod tests {
    use super::super::search::Search;
    use super::*;
    use crate::host::id::InodeId;
    use crate::host::mounts::MountTable;
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
            let beside = |options: &ResolveOptions<'_>| {
                let mut search = Search::of(&table, dev, &[id], false);
                offer_beside(options, &mut search, seen.into_iter());
                search.found.into_iter().map(|(id, file)| (id, file.path)).collect::<Vec<_>>()
            };
            let expected = if expected { vec![(id, path)] } else { vec![] };
            assert_eq!(beside(&options), expected, "{name}");
            options.deadline = Some(Instant::now());
            assert_eq!(beside(&options), [], "without time");
        }
    }
}

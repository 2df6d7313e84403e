//! How two packs differ. Pure.

use super::build::Parts;
use super::paths::{NodeId, PathInterner};
use super::pieces::{Piece, overlay};
use super::{History, Identity, Pack};
use crate::host::json_path::JsonPath;
use serde::Serialize;
use std::collections::BTreeSet;

/// How one file differs between two packs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FileDiff {
    /// The file.
    #[serde(flatten)]
    pub path: JsonPath,
    /// Its identity in the first pack.
    pub before: Option<Identity>,
    /// Its identity in the second pack.
    pub after: Option<Identity>,
    /// Pages that only the first has.
    pub removed_pages: u64,
    /// Pages that only the second has.
    pub added_pages: u64,
}

/// The differences between two packs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Diff {
    /// Files that differ, by path.
    pub files: Vec<FileDiff>,
    /// Metadata pages that only the first has.
    pub removed_metadata_pages: u64,
    /// Metadata pages that only the second has.
    pub added_metadata_pages: u64,
}

impl Diff {
    /// Whether both packs lead to the same replay.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Compares two packs: identities and pages, not times or histories.
pub fn diff(before: &Pack, after: &Pack) -> Diff {
    let mut names = PathInterner::default();
    let (before, after) = (Parts::of(before, &mut names), Parts::of(after, &mut names));
    let nodes: BTreeSet<NodeId> = before.files.keys().chain(after.files.keys()).copied().collect();
    let mut out = Diff::default();
    for node in nodes {
        let (a, b) = (before.files.get(&node), after.files.get(&node));
        let pieces = |part: Option<&super::build::FilePart>| {
            part.map(|p| p.pieces.clone()).unwrap_or_default()
        };
        let (removed_pages, added_pages) = changed(pieces(a), pieces(b));
        let (before, after) = (a.map(|p| p.identity), b.map(|p| p.identity));
        if removed_pages + added_pages > 0 || before != after {
            out.files.push(FileDiff {
                path: names.table().path(node).as_path().into(),
                before,
                after,
                removed_pages,
                added_pages,
            });
        }
    }
    out.files.sort_by(|a, b| a.path.cmp(&b.path));
    let systems: BTreeSet<_> =
        before.file_systems.iter().chain(&after.file_systems).map(|fs| fs.uuid).collect();
    for uuid in systems {
        let pieces = |parts: &Parts| {
            let at = parts.file_systems.iter().position(|fs| fs.uuid == uuid);
            let at = at.and_then(|at| u16::try_from(at).ok());
            at.and_then(|at| parts.metadata.get(&at)).cloned().unwrap_or_default()
        };
        let (removed, added) = changed(pieces(&before), pieces(&after));
        out.removed_metadata_pages += removed;
        out.added_metadata_pages += added;
    }
    out
}

/// Pages that only the one and only the other has.
fn changed(before: Vec<Piece>, after: Vec<Piece>) -> (u64, u64) {
    // The history marks the side, so that adjacent ranges aren't joined.
    let sides = overlay(before, after, |a, b| {
        let history = History(u8::from(a.is_some()) | u8::from(b.is_some()) << 1);
        Some(Piece { history, ..a.or(b)? })
    });
    let pages = |side| sides.iter().filter(|p| p.history == side).map(|p| p.pages.count()).sum();
    (pages(History(1)), pages(History(2)))
}

#[cfg(test)]
mod tests {
    use super::super::build::FilePart;
    use super::super::codec::tests::packs;
    use super::super::{FileSystem, Origin};
    use super::*;
    use crate::host::range::PageRange;
    use crate::host::usage::How;
    use proptest::prelude::*;
    use std::path::Path;

    fn pack(files: &[(&str, u64, u64, u64)]) -> Pack {
        let mut parts =
            Parts { origin: Origin { page_shift: 12, ..Origin::default() }, ..Parts::default() };
        let mut names = PathInterner::default();
        let file_system = parts.file_system(&FileSystem::default()).unwrap();
        for &(path, ino, first, end) in files {
            let identity = Identity { ino, ..Identity::default() };
            let pieces = vec![Piece {
                pages: PageRange { first, end },
                at_us: 0,
                how: How::READ,
                history: History(1),
            }];
            let node = names.intern(Path::new(path)).unwrap();
            parts
                .files
                .insert(node, FilePart { file_system, identity, changes: History(0), pieces });
        }
        parts.build(names.table())
    }

    #[test]
    fn files_and_pages_that_only_one_side_has_are_reported() {
        let before = pack(&[("/a", 1, 0, 8), ("/b", 2, 0, 2), ("/c", 3, 0, 1)]);
        let after = pack(&[("/a", 1, 4, 10), ("/c", 3, 0, 1), ("/d", 4, 0, 3)]);
        let diff = diff(&before, &after);
        let got: Vec<_> =
            diff.files.iter().map(|f| (f.path.shown(), f.removed_pages, f.added_pages)).collect();
        let expected = [("/a", 4, 2), ("/b", 2, 0), ("/d", 0, 3)];
        assert_eq!(got, expected.map(|(path, less, more)| (path.to_owned(), less, more)));
    }

    proptest! {
        #[test]
        fn a_pack_does_not_differ_from_itself(pack in packs()) {
            prop_assert!(diff(&pack, &pack).is_empty());
        }
    }
}

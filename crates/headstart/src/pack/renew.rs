//! Transfers what a pack knows of replaced files to the files that are at their paths now. Pure;
//! [`super::upgrade`] looks at the files.
//!
//! An upgrade replaces files by similar ones. Until these are learned, their ranges are assumed to
//! be those of the old files.

use super::build::{FilePart, Parts};
use super::changing::changes_often;
use super::paths::PathInterner;
use super::pieces::Piece;
use super::{FileSystem, Identity, Pack};
use crate::host::range::PageRange;
use crate::host::usage::How;
use serde::Serialize;
use std::path::Path;

/// A file up to this size is mostly read as a whole, so its size does not matter.
const SMALL: u64 = 64 << 10;
/// If the size changes by more than this part, it counts as another file.
const ALIKE: u64 = 4;

/// What is at the path of a file of a pack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Now {
    /// The learned file, or it is unknown.
    Same,
    /// Nothing.
    Gone,
    /// Another regular file of the same file system.
    Other(Identity),
}

/// The results for the files of packs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Renewal {
    /// Replaced; their ranges were transferred.
    pub followed: u64,
    /// Replaced by something else; the pack keeps the old ranges, which are not read.
    pub stale: u64,
    /// Gone, and forgotten.
    pub gone: u64,
}

impl Renewal {
    /// Whether the pack changed.
    pub fn changes(&self) -> bool {
        self.followed + self.gone > 0
    }

    /// Adds the results for the files of other packs.
    pub fn add(&mut self, other: Self) {
        self.followed += other.followed;
        self.stale += other.stale;
        self.gone += other.gone;
    }
}

/// The pack for the files that are `now` at its paths.
pub fn renew(
    pack: &Pack,
    mut now: impl FnMut(&Path, &FileSystem, &Identity) -> Now,
) -> (Pack, Renewal) {
    let mut names = PathInterner::default();
    let mut parts = Parts::of(pack, &mut names);
    let mut renewal = Renewal::default();
    let file_systems = std::mem::take(&mut parts.file_systems);
    parts.files.retain(|node, file| {
        // These are read whatever is at their path.
        if changes_often(file.changes) {
            return true;
        }
        let Some(on) = file_systems.get(usize::from(file.file_system)) else { return true };
        match now(&names.table().path(*node), on, &file.identity) {
            Now::Same => {}
            Now::Gone => {
                renewal.gone += 1;
                return false;
            }
            Now::Other(is) if is_alike(&file.identity, &is) => {
                follow(file, is, pack.page_size());
                renewal.followed += 1;
            }
            Now::Other(_) => renewal.stale += 1,
        }
        true
    });
    parts.file_systems = file_systems;
    (parts.build(names.table()), renewal)
}

/// Whether the second of these files may be read like the first: by their sizes.
pub(crate) fn is_alike(was: &Identity, is: &Identity) -> bool {
    let (was, is) = (was.size, is.size);
    is > 0 && (was.max(is) <= SMALL || was.abs_diff(is) <= was / ALIKE)
}

/// Transfers a file's ranges to another file.
fn follow(file: &mut FilePart, is: Identity, page: u64) {
    let (was_pages, pages) = (file.identity.size.div_ceil(page), is.size.div_ceil(page));
    // A hostile pack has more than any file.
    let read = file.pieces.iter().fold(0u64, |sum, piece| sum.saturating_add(piece.pages.count()));
    file.identity = is;
    for piece in &mut file.pieces {
        piece.how |= How::INFERRED;
        // A file that was read to its end is read to its new end.
        if read >= was_pages && piece.pages.end == was_pages {
            piece.pages.end = pages;
        }
        piece.pages.end = piece.pages.end.min(pages);
    }
    file.pieces.retain(|Piece { pages: PageRange { first, end }, .. }| first < end);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::merge::{Rule, merge};
    use crate::pack::{History, Origin};
    use proptest::prelude::*;

    const PAGE: u64 = 4096;

    fn identity(ino: u64, size: u64) -> Identity {
        Identity { ino, size, ..Identity::default() }
    }

    /// A start that touched these pages of `/a`.
    fn start(identity: Identity, ranges: &[(u64, u64)]) -> Pack {
        let mut names = PathInterner::default();
        let origin = Origin { page_shift: 12, starts: 1, ..Origin::default() };
        let mut parts = Parts { origin, ..Parts::default() };
        let file_system = parts.file_system(&FileSystem::default()).unwrap();
        let piece = |&(first, end): &(u64, u64)| Piece {
            pages: PageRange { first, end },
            at_us: 0,
            how: How::READ,
            history: History(1),
        };
        let pieces = ranges.iter().map(piece).collect();
        let part = FilePart { file_system, identity, changes: History(0), pieces };
        parts.files.insert(names.intern(Path::new("/a")).unwrap(), part);
        parts.build(names.table())
    }

    fn ranges(pack: &Pack) -> Vec<(u64, u64)> {
        pack.ranges.iter().map(|r| (r.first, r.page_range().end)).collect()
    }

    #[test]
    fn a_file_that_was_replaced_is_assumed_to_be_read_like_the_one_before() {
        let pages = |count: u64| count * PAGE;
        for (name, was, learned, is, expected, renewal) in [
            ("as large", 100, vec![(0, 4), (50, 60)], pages(100), vec![(0, 4), (50, 60)], (1, 0)),
            ("shorter", 100, vec![(0, 4), (85, 95)], pages(90), vec![(0, 4), (85, 90)], (1, 0)),
            ("beyond its end", 100, vec![(0, 4), (95, 96)], pages(90), vec![(0, 4)], (1, 0)),
            ("read to the end", 2, vec![(0, 2)], pages(7), vec![(0, 7)], (1, 0)),
            ("a part of a page", 2, vec![(0, 2)], 1, vec![(0, 1)], (1, 0)),
            ("another", 100, vec![(0, 4)], pages(130), vec![(0, 4)], (0, 1)),
            ("emptied", 2, vec![(0, 2)], 0, vec![(0, 2)], (0, 1)),
        ] {
            let pack = start(identity(1, pages(was)), &learned);
            let new = identity(2, is);
            let (renewed, what) = renew(&pack, |_, _, _| Now::Other(new));
            assert_eq!(ranges(&renewed), expected, "{name}");
            assert_eq!((what.followed, what.stale), renewal, "{name}");
            let is_new = renewed.files[0].identity == new;
            assert_eq!(is_new, what.changes(), "{name}");
            assert!(renewed.ranges.iter().all(|r| r.how.has(How::INFERRED) == is_new), "{name}");
        }
    }

    #[test]
    fn what_is_gone_is_forgotten_and_what_stayed_is_as_it_was() {
        let pack = start(identity(1, PAGE), &[(0, 1)]);
        let (renewed, what) = renew(&pack, |_, _, _| Now::Same);
        assert_eq!((renewed, what.changes()), (pack.clone(), false));
        let (renewed, what) = renew(&pack, |_, _, _| Now::Gone);
        assert_eq!((renewed.files.len(), what.gone, what.changes()), (0, 1, true));
    }

    #[test]
    fn the_first_start_that_learns_a_file_puts_the_truth_in_the_place_of_what_was_assumed() {
        let pack = start(identity(1, 100 * PAGE), &[(0, 4)]);
        let new = identity(2, 100 * PAGE);
        let (renewed, _) = renew(&pack, |_, _, _| Now::Other(new));
        let next = start(new, &[(2, 8)]);
        let merged = merge(
            &renewed,
            &next,
            Rule::NextStart { keep: 8, metadata_seen: true, keep_time_us: 0 },
        );
        assert_eq!(ranges(&merged), [(2, 8)]);
        assert!(!merged.ranges[0].how.has(How::INFERRED));
    }

    proptest! {
        #[test]
        fn no_range_ends_behind_the_file(
            was in 0u64..1 << 20, is in 0u64..1 << 20,
            learned in proptest::collection::vec((0u64..300, 1u64..40), 1..6),
        ) {
            let learned: Vec<_> = learned.iter().map(|&(a, n)| (a, a + n)).collect();
            let pack = start(identity(1, was), &learned);
            let (renewed, what) = renew(&pack, |_, _, _| Now::Other(identity(2, is)));
            prop_assert_eq!(what.followed + what.stale, 1);
            if what.followed == 1 {
                prop_assert!(ranges(&renewed).iter().all(|&(_, end)| end <= is.div_ceil(PAGE)));
            }
        }
    }
}

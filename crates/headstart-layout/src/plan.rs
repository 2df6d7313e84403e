//! Where each range goes: its place in the donor. Pure.

use super::extents::{as_one_file, between, end, shifted, within};
use super::wanted::WantedRange;
use headstart::host::range::ByteRange;
use headstart::replay::places::joined;
use headstart_sys::fiemap::Extent;
use std::collections::BTreeMap;

/// A range that is moved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Index of its file.
    pub file: usize,
    /// Its bytes: whole blocks.
    pub bytes: ByteRange,
    /// Where it lies now.
    pub old: Vec<Extent>,
    /// Its place in the donor, in bytes: at the start of a page.
    pub donor: u64,
}

impl Piece {
    /// Where it lies when it was moved; `None` if the donor does not have that place.
    pub fn new_place(&self, donor: &[Extent]) -> Option<Vec<Extent>> {
        let found = within(donor, ByteRange::of(self.donor, self.bytes.length()))?;
        Some(shifted(&found, self.donor, self.bytes.offset))
    }
}

/// Extents that an inode has room for, and one less: more of them take a block of their own.
pub(crate) const IN_INODE: usize = 3;
/// Extents that such a block has room for, at least.
pub(crate) const IN_BLOCK: u64 = 64;
/// Blocks of the tail in any case.
const LEAST_TAIL: u64 = 8;

impl Piece {
    /// The same in parts of at most so many bytes, whole pages; `None` if its old place is not all of it.
    pub fn parts(&self, most: u64) -> Option<Vec<Self>> {
        let ByteRange { offset, end } = self.bytes;
        let begins = (offset..end).step_by(usize::try_from(most).ok()?.max(1));
        let part = |begin: u64| {
            let bytes = ByteRange { offset: begin, end: end.min(begin.saturating_add(most)) };
            let old = within(&self.old, bytes)?;
            Some(Self { file: self.file, bytes, old, donor: self.donor + (begin - offset) })
        };
        begins.map(part).collect()
    }
}

/// The donor when other files took its blocks for theirs; `None` if it does not have their places, or two have the same.
pub fn exchanged(donor: &[Extent], aside: &[&Piece]) -> Option<Vec<Extent>> {
    let mut sorted = aside.to_vec();
    sorted.sort_unstable_by_key(|piece| piece.donor);
    let (mut out, mut at) = (Vec::with_capacity(donor.len() + aside.len()), 0);
    for piece in sorted {
        let stays = ByteRange { offset: at, end: piece.donor };
        at = piece.donor.checked_add(piece.bytes.length())?;
        if stays.offset > stays.end || at > donor.last().map_or(0, end) {
            return None;
        }
        out.extend(within(donor, stays)?);
        out.extend(shifted(&piece.old, piece.bytes.offset, piece.donor));
    }
    out.extend(within(donor, ByteRange { offset: at, end: donor.last().map_or(0, end) })?);
    Some(joined(out))
}

/// All of them in touch order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// Ranges of other files, which are moved aside before.
    pub aside: Vec<Piece>,
    /// The ranges that are laid out.
    pub pieces: Vec<Piece>,
    /// Bytes of the donor, without its tail.
    pub donor_bytes: u64,
}

impl Plan {
    /// Bytes of all ranges that are laid out.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes.length()).sum()
    }

    /// Bytes of other files that are moved aside.
    pub fn aside_bytes(&self) -> u64 {
        self.aside.iter().map(|piece| piece.bytes.length()).sum()
    }

    /// Bytes that the donor has behind all ranges. They are given up where the file system gets full
    /// meanwhile and the extents of files need blocks.
    pub fn tail(&self, block: u64) -> u64 {
        let most = self.of_files().map(|pieces| {
            // While it is moved, both the old ones and the new one, with what stays behind it.
            pieces.iter().map(|piece| piece.old.len() + 2).sum::<usize>()
        });
        let blocks = most.map(|extents| match extents > IN_INODE {
            true => 1 + extents as u64 / IN_BLOCK,
            false => 0,
        });
        (LEAST_TAIL + blocks.sum::<u64>()).saturating_mul(block)
    }

    /// The pieces of each file, in the order of their places in it.
    fn of_files(&self) -> impl Iterator<Item = Vec<&Piece>> {
        let mut files: BTreeMap<usize, Vec<&Piece>> = BTreeMap::new();
        for piece in &self.pieces {
            files.entry(piece.file).or_default().push(piece);
        }
        files.into_values().map(|mut pieces| {
            pieces.sort_unstable_by_key(|piece| piece.bytes.offset);
            pieces
        })
    }

    /// The places of a donor without its tail, which stays behind all ranges; `None` if it is too small.
    pub fn places(&self, donor: &[Extent]) -> Option<Vec<Extent>> {
        within(donor, ByteRange { offset: 0, end: self.donor_bytes })
    }

    /// Where ranges lie in a donor, in whole pages.
    fn used(&self, page: u64) -> impl Iterator<Item = ByteRange> {
        let range = move |piece: &Piece| {
            ByteRange::of(piece.donor, piece.bytes.length().next_multiple_of(page))
        };
        self.pieces.iter().map(range)
    }

    /// What a donor of so many bytes has that no range takes.
    pub fn unused(&self, bytes: u64, page: u64) -> Vec<ByteRange> {
        between(self.used(page).collect(), bytes)
    }

    /// In how many pieces of a donor the ranges lie.
    pub fn places_in(&self, donor: &[Extent], page: u64) -> usize {
        let places = self.used(page).filter_map(|range| within(donor, range));
        as_one_file(&places.flatten().collect::<Vec<_>>()).len()
    }

    /// The same with the ranges in places of the donor in their order on the disk. The kernel
    /// allocates these in any order, and a replay would jump between them. `None` if it can't be had in whole pages.
    pub fn in_order_of(&self, mut places: Vec<Extent>, page: u64) -> Option<Self> {
        let is_whole = |place: &Extent| (place.logical | place.length).is_multiple_of(page);
        if !places.iter().all(is_whole) {
            return None;
        }
        places.sort_unstable_by_key(|place| place.physical);
        let (mut places, mut pieces) = (places.into_iter(), Vec::with_capacity(self.pieces.len()));
        let (mut at, mut left) = (0, 0);
        for piece in &self.pieces {
            let ByteRange { mut offset, end } = piece.bytes;
            while offset < end {
                if left == 0 {
                    Extent { logical: at, length: left, .. } = places.next()?;
                }
                let bytes = ByteRange { offset, end: end.min(offset + left) };
                let old = within(&piece.old, bytes)?;
                pieces.push(Piece { file: piece.file, bytes, old, donor: at });
                let taken = bytes.length().next_multiple_of(page);
                (offset, at, left) = (bytes.end, at + taken, left - taken);
            }
        }
        Some(Self { pieces, ..self.clone() })
    }

    /// Of how many files the extents do not fit into the inode: now, as far as is known of what is moved, and
    /// with the donor in one piece. What lies before, between and behind the ranges of a file counts as one extent
    /// each; `size` tells how large a file is.
    pub fn trees(&self, size: impl Fn(usize) -> u64) -> (u64, u64) {
        let (mut old, mut new) = (0, 0);
        for pieces in self.of_files() {
            let mut now: Vec<Extent> =
                pieces.iter().flat_map(|piece| &piece.old).copied().collect();
            now.sort_unstable_by_key(|extent| extent.logical);
            // What lies between two parts of one extent is a part of it, too.
            let place = |extent: &Extent| extent.physical.wrapping_sub(extent.logical);
            let extents = now.chunk_by(|a, b| place(a) == place(b)).count();
            old += u64::from(extents > IN_INODE + 1);
            let moved = pieces.iter().map(|piece| Extent {
                logical: piece.bytes.offset,
                physical: piece.donor,
                length: piece.bytes.length(),
            });
            let moved = joined(moved.collect());
            let between = moved.windows(2).filter(|pair| end(&pair[0]) < pair[1].logical).count();
            let is_before = moved.first().is_some_and(|first| first.logical > 0);
            let is_behind = moved.last().is_some_and(|last| end(last) < size(pieces[0].file));
            let stay = between + usize::from(is_before) + usize::from(is_behind);
            new += u64::from(moved.len() + stay > IN_INODE + 1);
        }
        (old, new)
    }

    /// Gives each range its place, as long as there is room. Returns also the indices of the files
    /// of which a range found no room.
    pub fn of(
        found: Vec<(WantedRange, Vec<Extent>)>,
        page: u64,
        budget: u64,
    ) -> (Self, Vec<usize>) {
        let (mut plan, mut over) = (Self::default(), Vec::new());
        for (WantedRange { file, bytes }, old) in found {
            let room = bytes.length().next_multiple_of(page);
            match plan.donor_bytes.checked_add(room).filter(|all| *all <= budget) {
                Some(all) => {
                    plan.pieces.push(Piece { file, bytes, old, donor: plan.donor_bytes });
                    plan.donor_bytes = all;
                }
                None => over.push(file),
            }
        }
        over.sort_unstable();
        over.dedup();
        (plan, over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_lie_in_the_donor_page_by_page_in_their_order_as_long_as_there_is_room() {
        let range = |file, offset, length| {
            let bytes = ByteRange::of(offset, length);
            (WantedRange { file, bytes }, vec![Extent { logical: offset, physical: 7, length }])
        };
        let found = vec![range(0, 4096, 5120), range(1, 0, 9000), range(2, 0, 1024)];
        let (plan, over) = Plan::of(found, 4096, 12_288);
        let places: Vec<_> = plan.pieces.iter().map(|piece| (piece.file, piece.donor)).collect();
        assert_eq!((places, over, plan.donor_bytes), (vec![(0, 0), (2, 8192)], vec![1], 12_288));
        let donor = [Extent { logical: 0, physical: 1 << 20, length: 12_288 }];
        let new = plan.pieces[0].new_place(&donor).unwrap();
        assert_eq!(new, [Extent { logical: 4096, physical: 1 << 20, length: 5120 }]);
        assert_eq!(plan.pieces[1].new_place(&[]), None);
        assert_eq!(plan.tail(4096), 8 * 4096);
        let parts = plan.pieces[0].parts(4096).unwrap();
        let places: Vec<_> = parts.iter().map(|p| (p.bytes.offset, p.bytes.end, p.donor)).collect();
        assert_eq!(places, [(4096, 8192, 0), (8192, 9216, 4096)]);
        assert_eq!(parts[1].old, [Extent { logical: 8192, physical: 4103, length: 1024 }]);
        assert_eq!(plan.pieces[0].parts(1 << 20).unwrap(), plan.pieces[..1]);
    }

    #[test]
    fn files_with_more_extents_than_their_inode_holds_need_a_block_for_these() {
        const PAGE: u64 = 4096;
        const WHOLE: u64 = 90 * PAGE;
        // Ranges of one file (first page, pages, place now, place in the donor), in pages.
        for (name, size, pieces, expected) in [
            ("whole", 9 * PAGE, &[(0, 9, 500, 0)][..], (0, 0)),
            ("a part", WHOLE, &[(5, 9, 500, 0)], (0, 0)),
            (
                "two parts, and what is around them",
                WHOLE,
                &[(5, 9, 505, 0), (20, 9, 520, 9)],
                (0, 1),
            ),
            ("from the first page on", WHOLE, &[(0, 9, 500, 0), (20, 9, 520, 9)], (0, 0)),
            ("to the last page", 29 * PAGE, &[(5, 9, 505, 0), (20, 9, 520, 9)], (0, 0)),
            (
                "parts that follow each other in the file and in the donor",
                WHOLE,
                &[(9, 9, 509, 9), (0, 9, 500, 0), (18, 9, 518, 18), (27, 3, 527, 27)],
                (0, 0),
            ),
            (
                "not in the donor",
                29 * PAGE,
                &[(0, 9, 500, 0), (9, 9, 509, 18), (18, 9, 518, 9), (27, 1, 7, 40), (28, 1, 9, 70)],
                (0, 1),
            ),
            (
                "in pieces now",
                29 * PAGE,
                &[(0, 9, 1, 0), (9, 9, 200, 9), (18, 9, 70, 18), (27, 1, 7, 27), (28, 1, 9, 28)],
                (1, 0),
            ),
            (
                "four now",
                28 * PAGE,
                &[(0, 9, 1, 0), (9, 9, 200, 9), (18, 9, 70, 18), (27, 1, 7, 27)],
                (0, 0),
            ),
        ] {
            let piece = |&(first, pages, old, donor): &(u64, u64, u64, u64)| Piece {
                file: 3,
                bytes: ByteRange::of(first * PAGE, pages * PAGE),
                old: vec![Extent {
                    logical: first * PAGE,
                    physical: old * PAGE,
                    length: pages * PAGE,
                }],
                donor: donor * PAGE,
            };
            let plan = Plan { pieces: pieces.iter().map(piece).collect(), ..Plan::default() };
            let size = |file| if file == 3 { size } else { 0 };
            assert_eq!(plan.trees(size), expected, "{name}");
        }
    }

    #[test]
    fn the_tail_has_room_for_the_old_and_the_new_extents_of_all_files() {
        let extent = |n: u64| Extent { logical: n * 4096, physical: n << 20, length: 4096 };
        let piece = |file, first: u64, extents: u64| Piece {
            file,
            bytes: ByteRange::of(first * 4096, extents * 4096),
            old: (first..first + extents).map(extent).collect(),
            donor: 0,
        };
        for (pieces, expected) in [
            (vec![], 8),
            (vec![piece(0, 0, 1)], 8),
            (vec![piece(0, 0, 2)], 9),
            (vec![piece(0, 0, 1), piece(1, 0, 1)], 8),
            (vec![piece(0, 0, 1), piece(0, 9, 1)], 9),
            (vec![piece(0, 0, 62), piece(1, 0, 61)], 8 + 2 + 1),
        ] {
            let plan = Plan { pieces, ..Plan::default() };
            assert_eq!(plan.tail(1024), expected * 1024, "{plan:?}");
        }
    }

    #[test]
    fn a_donor_lies_where_the_files_lay_that_took_its_blocks() {
        let extent = |logical, physical, length| Extent { logical, physical, length };
        let piece = |offset, physical, length, donor| Piece {
            file: 0,
            bytes: ByteRange::of(offset, length),
            old: vec![extent(offset, physical, length)],
            donor,
        };
        let donor = [extent(0, 900, 10), extent(10, 100, 10)];
        let (first, second) = (piece(70, 96, 4, 6), piece(50, 30, 2, 1));
        let found = exchanged(&donor, &[&first, &second]).unwrap();
        // The first joins what the donor has behind it.
        let expected = [extent(0, 900, 1), extent(1, 30, 2), extent(3, 903, 3), extent(6, 96, 14)];
        assert_eq!(found, expected);
        assert_eq!(exchanged(&donor, &[]).as_deref(), Some(&donor[..]));
        for (name, aside) in [
            ("two have one place", [piece(0, 5, 4, 6), piece(9, 30, 4, 9)]),
            ("one is behind it", [piece(0, 5, 4, 6), piece(9, 30, 4, 17)]),
        ] {
            assert_eq!(exchanged(&donor, &aside.iter().collect::<Vec<_>>()), None, "{name}");
        }
        let plan = Plan { aside: vec![first, second], ..Plan::default() };
        assert_eq!((plan.aside_bytes(), plan.bytes()), (6, 0));
    }

    #[test]
    fn ranges_lie_in_ascending_places_of_a_donor_in_pieces_and_not_in_its_tail() {
        let extent = |logical, physical, length| Extent { logical, physical, length };
        let piece = |file, offset, length, donor| Piece {
            file,
            bytes: ByteRange::of(offset, length),
            old: vec![extent(offset, offset, length)],
            donor,
        };
        // The second ends within a page.
        let pieces =
            vec![piece(0, 0, 12_288, 0), piece(1, 0, 5120, 12_288), piece(2, 0, 4096, 20_480)];
        let plan = Plan { pieces, donor_bytes: 24_576, ..Plan::default() };
        let donor =
            [extent(0, 90_000, 8192), extent(8192, 10_000, 8192), extent(16_384, 50_000, 16_384)];
        let in_order_of = |donor: &[Extent]| plan.in_order_of(plan.places(donor)?, 4096);
        let placed = in_order_of(&donor).unwrap();
        let expected = [
            piece(0, 0, 8192, 8192),
            piece(0, 8192, 4096, 16_384),
            piece(1, 0, 4096, 20_480),
            piece(1, 4096, 1024, 0),
            piece(2, 0, 4096, 4096),
        ];
        assert_eq!(placed.pieces, expected);
        assert_eq!(placed.donor_bytes, plan.donor_bytes);
        assert_eq!(placed.places_in(&donor, 4096), 3, "pages of parts of one");
        assert_eq!(placed.unused(32_768, 4096), [ByteRange { offset: 24_576, end: 32_768 }]);
        let second = Plan { pieces: vec![piece(1, 0, 5120, 12_288)], ..plan.clone() };
        let around = [ByteRange { offset: 0, end: 12_288 }, ByteRange::of(20_480, 4096)];
        assert_eq!(second.unused(24_576, 4096), around);
        // One that is too small, and one of blocks smaller than a page.
        assert_eq!(in_order_of(&donor[..1]), None);
        let odd = [extent(0, 9000, 1024), extent(1024, 1, 30_000)];
        assert_eq!(in_order_of(&odd), None);
        let whole = [extent(0, 90_000, 24_576)];
        assert_eq!(in_order_of(&whole).as_ref(), Some(&plan));
    }
}

//! Room for a layout where the free space is in pieces: which other files are moved aside, so that the donor lies in
//! one area; and which places of a donor are taken, if it has more than is needed. Pure; [`super::others`] finds the files.
//!
//! The donor has free pieces in many places. From the area that is chosen, ranges of other files are moved to
//! pieces of the donor elsewhere, on ext4 by a swap. Each extent is moved as a whole into one piece, so no file gets
//! more of them. What can't be moved stays in the area, and a disk passes it.
//!
//! Where a layout is allocated once more when these files are moved, as on xfs, it also gets what is free in the area and
//! not the donor's.

use super::extents::{between, end, within};
use super::plan::Piece;
use headstart::host::range::ByteRange;
use headstart_sys::fiemap::Extent;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// An extent of another file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Other {
    /// Index of its file.
    pub file: usize,
    /// Where it lies.
    pub extent: Extent,
}

/// What is moved aside, and what a layout has then.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Room {
    /// Extents of other files, with their places in the donor.
    pub aside: Vec<Piece>,
    /// Places of the donor when they are moved, and behind its end what else is free in the area.
    pub places: Vec<Extent>,
}

/// Areas are looked for that have so many times the need, in percent: not all of it can be moved.
const TRIED: [u64; 6] = [100, 110, 125, 150, 200, 300];
/// The same of a donor that is larger than the need, where nothing is moved: what is missing lies elsewhere.
const TRIED_OF_DONOR: [u64; 5] = [100, 95, 90, 75, 50];
/// What finds no room in the area lies in pieces elsewhere, where a byte costs so many times as much: 128 KiB take a
/// seek of about 8 ms beside 1.2 ms for reading them.
const ELSEWHERE: u64 = 8;

/// Makes room of `need` bytes, if there are as many. `free` is what the layout gets besides the donor: where each part
/// begins, and its length. For each of the sizes that are tried there is an area with the least sum of its length and of
/// the bytes of others in it: each start passes what lies between, and each byte is moved once. Of these, the one is taken
/// that is shortest with what is missing in it. `None` if nothing can be moved into the donor.
pub fn room(donor: &[Extent], free: &[(u64, u64)], need: u64, others: &[Other]) -> Option<Room> {
    let largest = donor.iter().filter(|_| need > 0).map(|piece| piece.length).max()?;
    let fits = others.iter().filter(|other| other.extent.length <= largest);
    let mut parts: Vec<Part> = fits.map(|other| (other.extent, Owner::File(other.file))).collect();
    parts.extend(donor.iter().map(|piece| (*piece, Owner::Donor)));
    let mut logical = donor.last().map_or(0, end);
    for &(physical, length) in free {
        parts.push((Extent { logical, physical, length }, Owner::Free));
        logical = logical.saturating_add(length);
    }
    parts.sort_unstable_by_key(|(extent, _)| extent.physical);
    let room = best(&parts, need, &TRIED).filter(|room| !room.aside.is_empty())?;
    Some(room.with_rest(donor, need))
}

/// The places of a donor that lie closest together, if it has more than what is needed; the rest is in its largest
/// pieces elsewhere. `None` if it has less.
pub fn closest(donor: &[Extent], need: u64) -> Option<Vec<Extent>> {
    let mut parts: Vec<Part> = donor.iter().map(|piece| (*piece, Owner::Donor)).collect();
    parts.sort_unstable_by_key(|(extent, _)| extent.physical);
    let room = best(&parts, need, &TRIED_OF_DONOR)?.with_rest(donor, need);
    (room.bytes() >= need).then_some(room.places)
}

/// What is had in the best of the areas of these sizes, in percent of the need.
fn best(parts: &[Part], need: u64, tried: &[u64]) -> Option<Room> {
    let areas = tried.iter().filter_map(|percent| area(parts, need / 100 * percent));
    let cost = |(area, room): &(&[Part], Room)| {
        let missing = need.saturating_sub(room.bytes());
        length(area) + ELSEWHERE * missing
    };
    let found = areas.map(|area| (area, filled(parts, area, need)));
    found.min_by_key(cost).map(|(_, room)| room)
}

/// Whose a part of the disk is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    /// The donor's.
    Donor,
    /// Nobody's.
    Free,
    /// That of another file, which may be moved.
    File(usize),
}

impl Owner {
    fn is_file(self) -> bool {
        matches!(self, Self::File(_))
    }
}

/// A part of the disk.
type Part = (Extent, Owner);

/// From the first to the last of an area, in bytes.
fn length(area: &[Part]) -> u64 {
    match (area.first(), area.last()) {
        (Some((first, _)), Some((last, _))) => last.physical + last.length - first.physical,
        _ => 0,
    }
}

/// The parts of the best area that has so many bytes.
fn area(parts: &[Part], need: u64) -> Option<&[Part]> {
    let (mut first, mut has, mut others) = (0, 0u64, 0u64);
    let (mut best, mut least) = (None, u64::MAX);
    for (last, (extent, owner)) in parts.iter().enumerate() {
        has += extent.length;
        others += if owner.is_file() { extent.length } else { 0 };
        while let Some((begin, owner)) = parts.get(first)
            && has - begin.length >= need
        {
            has -= begin.length;
            others -= if owner.is_file() { begin.length } else { 0 };
            first += 1;
        }
        let found = parts.get(first..=last).filter(|_| has >= need);
        if let Some(cost) = found.map(|area| length(area) + others).filter(|cost| *cost < least) {
            (best, least) = (found, cost);
        }
    }
    best
}

/// Moves extents out of an area into pieces of the donor elsewhere, the largest first, each into the smallest that has
/// room for it, until the area has what is needed.
fn filled(parts: &[Part], area: &[Part], need: u64) -> Room {
    let range = match (area.first(), area.last()) {
        (Some((first, _)), Some((last, _))) => first.physical..=last.physical,
        _ => return Room::default(),
    };
    let is_inside = |extent: &Extent| range.contains(&extent.physical);
    let mut out = Room::default();
    // By length, then by place in the donor.
    let mut elsewhere = BTreeSet::new();
    let mut others = Vec::new();
    for &(extent, owner) in parts {
        match (owner, is_inside(&extent)) {
            (Owner::File(file), true) => others.push(Other { file, extent }),
            (Owner::Donor | Owner::Free, true) => out.places.push(extent),
            (Owner::Donor, false) => drop(elsewhere.insert((extent.length, extent.logical))),
            (Owner::File(_) | Owner::Free, false) => {}
        }
    }
    others.sort_by_key(|other| (Reverse(other.extent.length), other.extent.physical));
    let mut has = out.bytes();
    for Other { file, extent } in others {
        if has >= need {
            break;
        }
        let Some(&(room, at)) = elsewhere.range((extent.length, 0)..).next() else { continue };
        elsewhere.remove(&(room, at));
        elsewhere.insert((room - extent.length, at + extent.length));
        let bytes = ByteRange::of(extent.logical, extent.length);
        out.aside.push(Piece { file, bytes, old: vec![extent], donor: at });
        out.places.push(Extent { logical: at, ..extent });
        has += extent.length;
    }
    out
}

impl Room {
    fn bytes(&self) -> u64 {
        self.places.iter().map(|place| place.length).sum()
    }

    /// The same; what is still needed lies in the largest pieces of the donor that are left elsewhere.
    fn with_rest(mut self, donor: &[Extent], need: u64) -> Self {
        let taken = self.places.iter().map(|place| ByteRange::of(place.logical, place.length));
        let rest = between(taken.collect(), donor.last().map_or(0, end));
        let mut left: Vec<Extent> =
            rest.into_iter().filter_map(|range| within(donor, range)).flatten().collect();
        left.sort_by_key(|piece| (Reverse(piece.length), piece.physical));
        let mut has = self.bytes();
        for piece in left {
            if has >= need {
                break;
            }
            has += piece.length;
            self.places.push(piece);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::exchanged;
    use proptest::prelude::*;

    const PAGE: u64 = 4096;

    fn extent(logical: u64, physical: u64, length: u64) -> Extent {
        Extent { logical: logical * PAGE, physical: physical * PAGE, length: length * PAGE }
    }

    fn other(file: usize, physical: u64, length: u64) -> Other {
        Other { file, extent: extent(0, physical, length) }
    }

    fn piece(file: usize, physical: u64, length: u64, donor: u64) -> Piece {
        Piece {
            file,
            bytes: ByteRange::of(0, length * PAGE),
            old: vec![extent(0, physical, length)],
            donor: donor * PAGE,
        }
    }

    /// What is moved aside, and all places in their order on the disk.
    fn made(donor: &[Extent], need: u64, others: &[Other]) -> (Vec<Piece>, Vec<Extent>) {
        let mut found = room(donor, &[], need * PAGE, others).unwrap();
        found.places.sort_unstable_by_key(|place| place.physical);
        (found.aside, found.places)
    }

    #[test]
    fn others_between_pieces_of_the_donor_swap_with_pieces_elsewhere() {
        // Free are 10 to 13, 20 to 23 and 500 to 505; between the first two lie three files and something else.
        let donor = [extent(0, 500, 5), extent(5, 10, 3), extent(8, 20, 3)];
        let others = [
            other(0, 13, 3),
            other(1, 16, 1),
            other(4, 17, 1),
            other(2, 600, 1),
            other(3, 700, 90),
        ];
        let (aside, places) = made(&donor, 10, &others);
        assert_eq!(aside, [piece(0, 13, 3, 0), piece(1, 16, 1, 3)], "no more than is needed");
        let area = [extent(5, 10, 3), extent(0, 13, 3), extent(3, 16, 1), extent(8, 20, 3)];
        assert_eq!(places, area);
        // The rest lies where the donor has it, in the largest piece.
        let donor = [
            extent(0, 300, 1),
            extent(1, 400, 2),
            extent(3, 500, 4),
            extent(7, 10, 3),
            extent(10, 20, 3),
        ];
        let (aside, places) = made(&donor, 11, &[other(0, 13, 3), other(1, 16, 4)]);
        assert_eq!(aside, [piece(1, 16, 4, 3)], "the largest first");
        let inside = [extent(7, 10, 3), extent(3, 16, 4), extent(10, 20, 3)];
        assert_eq!(places, [&inside[..], &[extent(1, 400, 2)]].concat());
        // In the smallest piece that has room.
        let (aside, places) = made(&donor, 10, &[other(0, 13, 2), other(1, 15, 2)]);
        assert_eq!(aside, [piece(0, 13, 2, 1), piece(1, 15, 2, 3)]);
        assert_eq!(places.len(), 4);
    }

    #[test]
    fn an_area_is_as_short_as_it_can_be_and_has_what_is_needed() {
        let free = |physical, length| (extent(0, physical, length), Owner::Donor);
        let file = |physical, length| (extent(0, physical, length), Owner::File(7));
        for (name, parts, need, expected) in [
            ("exactly", vec![free(0, 4), free(10, 4), free(15, 4)], 8, Some(1..3)),
            ("one more", vec![free(0, 4), free(10, 4), free(15, 4)], 9, Some(0..3)),
            ("all", vec![free(0, 4), free(10, 4)], 8, Some(0..2)),
            ("too much", vec![free(0, 4), free(10, 4)], 9, None),
            ("none", vec![], 1, None),
            (
                "its last part counts",
                vec![free(0, 2), free(9, 9), free(20, 9), free(30, 2)],
                11,
                Some(2..4),
            ),
            (
                "to be moved counts",
                vec![free(0, 4), file(4, 4), free(20, 4), free(27, 4)],
                8,
                Some(2..4),
            ),
            (
                "and what is passed",
                vec![free(0, 4), file(4, 4), free(20, 4), free(29, 4)],
                8,
                Some(0..2),
            ),
            (
                "the first of two",
                vec![free(0, 4), free(5, 4), free(20, 4), free(25, 4)],
                8,
                Some(0..2),
            ),
        ] {
            let found = area(&parts, need * PAGE).map(<[Part]>::to_vec);
            assert_eq!(found, expected.map(|range| parts[range].to_vec()), "{name}");
        }
    }

    #[test]
    fn the_area_is_taken_where_least_is_passed_and_moved() {
        let donor = [extent(0, 100, 4), extent(4, 200, 4), extent(8, 300, 4)];
        let moved = |others: &[Other]| {
            let (aside, _) = made(&donor, 8, others);
            aside.iter().map(|piece| piece.file).collect::<Vec<_>>()
        };
        // Beside the second piece more lies between.
        assert_eq!(moved(&[other(0, 104, 4), other(1, 205, 4)]), [0]);
        assert_eq!(moved(&[other(0, 105, 4), other(1, 204, 4)]), [1]);
        // An area without any of the donor's pieces has more to be moved.
        assert_eq!(moved(&[other(0, 0, 4), other(1, 4, 4), other(2, 295, 4)]), [2]);
        // A little that is missing is no reason to pass much.
        let donor = [extent(0, 10, 4), extent(4, 19, 4), extent(8, 1000, 4)];
        let (aside, _) = made(&donor, 12, &[other(0, 14, 3), other(1, 17, 2)]);
        assert_eq!(aside, [piece(0, 14, 3, 8)]);
        // Files that are larger than all pieces left elsewhere stay, so a shorter area has less room in the end.
        let donor = [extent(0, 100, 4), extent(4, 110, 3), extent(7, 200, 3)];
        let (aside, places) = made(&donor, 10, &[other(0, 104, 4), other(1, 113, 3)]);
        assert_eq!(aside, [piece(1, 113, 3, 7)]);
        assert_eq!(places, [extent(0, 100, 4), extent(4, 110, 3), extent(7, 113, 3)]);
    }

    #[test]
    fn nothing_is_moved_where_nothing_fits() {
        let donor = [extent(0, 100, 4), extent(4, 200, 4)];
        fn room(donor: &[Extent], need: u64, others: &[Other]) -> Option<Room> {
            super::room(donor, &[], need, others)
        }
        assert_eq!(room(&donor, 8 * PAGE, &[other(0, 104, 5)]), None);
        assert_eq!(room(&donor, 8 * PAGE, &[]), None);
        assert_eq!(room(&[], 8 * PAGE, &[other(0, 104, 5)]), None);
        assert_eq!(room(&donor, 0, &[other(0, 104, 2)]), None);
    }

    #[test]
    fn places_of_a_donor_lie_close_together_though_it_has_larger_pieces_elsewhere() {
        let donor = |pieces: &[(u64, u64)]| {
            let mut logical = 0;
            let piece = |&(physical, length): &(u64, u64)| {
                let piece = extent(logical, physical, length);
                logical += length;
                piece
            };
            pieces.iter().map(piece).collect::<Vec<_>>()
        };
        let taken = |pieces: &[(u64, u64)], need| {
            let mut places = closest(&donor(pieces), need * PAGE)?;
            places.sort_unstable_by_key(|place| place.physical);
            let pages = |place: &Extent| (place.physical / PAGE, place.length / PAGE);
            Some(places.iter().map(pages).collect::<Vec<_>>())
        };
        let near: &[(u64, u64)] = &[(100, 30), (140, 30), (180, 40)];
        for (name, pieces, need, expected) in [
            (
                "the largest is far away",
                vec![(9000, 60), near[0], near[1], near[2]],
                100,
                Some(near.to_vec()),
            ),
            (
                "it is needed",
                vec![(9000, 60), near[0], near[1]],
                120,
                Some(vec![near[0], near[1], (9000, 60)]),
            ),
            (
                "a little is missing",
                vec![(9000, 20), near[0], near[1], near[2], (5000, 30)],
                105,
                Some(vec![near[0], near[1], near[2], (5000, 30)]),
            ),
            ("one piece", vec![(7, 50)], 50, Some(vec![(7, 50)])),
            ("too little", vec![(7, 49)], 50, None),
            ("none", vec![], 1, None),
        ] {
            assert_eq!(taken(&pieces, need), expected, "{name}");
        }
    }

    #[test]
    fn what_else_is_free_belongs_to_an_area_and_takes_no_other_file() {
        let donor = [extent(0, 100, 4), extent(4, 200, 2)];
        let free = [(104 * PAGE, 2 * PAGE), (108 * PAGE, 3 * PAGE), (300 * PAGE, 9 * PAGE)];
        let others = [other(0, 106, 2), other(1, 111, 3)];
        let found = room(&donor, &free, 11 * PAGE, &others).unwrap();
        assert_eq!(found.aside, [piece(0, 106, 2, 4)]);
        let mut places = found.places;
        places.sort_unstable_by_key(|place| place.physical);
        // What is free has places behind the donor's end.
        let area = [extent(0, 100, 4), extent(6, 104, 2), extent(4, 106, 2), extent(8, 108, 3)];
        assert_eq!(places, area);
    }

    proptest! {
        #[test]
        fn each_byte_has_one_owner_before_and_after(
            lengths in prop::collection::vec((1u64..20, 0u8..4), 1..60), part in 1u64..=10,
        ) {
            let (mut at, mut donor, mut others) = (0, Vec::<Extent>::new(), Vec::new());
            for (n, (length, kind)) in lengths.into_iter().enumerate() {
                match kind {
                    0 => donor.push(extent(0, at, length)),
                    1 | 2 => others.push(other(n, at, length)),
                    _ => {}
                }
                at += length;
            }
            // Places of the donor are not in their order on the disk.
            donor.reverse();
            let mut logical = 0;
            for piece in &mut donor {
                piece.logical = logical;
                logical += piece.length;
            }
            let need = (logical / PAGE * part / 10).max(1) * PAGE;
            if let Some(found) = room(&donor, &[], need, &others).filter(|_| logical >= need) {
                let aside: Vec<&Piece> = found.aside.iter().collect();
                for piece in &aside {
                    let moved = Other { file: piece.file, extent: piece.old[0] };
                    prop_assert!(others.contains(&moved));
                    let new = piece.new_place(&donor).unwrap();
                    prop_assert_eq!(new.len(), 1, "no file gets more extents");
                }
                let then = exchanged(&donor, &aside).unwrap();
                prop_assert_eq!(then.iter().map(|e| e.length).sum::<u64>(), logical);
                let mut places = found.places.clone();
                for place in &places {
                    prop_assert!(place.length > 0);
                    let bytes = ByteRange::of(place.logical, place.length);
                    let now = crate::extents::within(&then, bytes).unwrap();
                    prop_assert_eq!(now, vec![*place]);
                }
                prop_assert!(found.bytes() >= need);
                places.sort_unstable_by_key(|place| place.logical);
                prop_assert!(places.windows(2).all(|pair| end(&pair[0]) <= pair[1].logical));
            }
        }
    }
}

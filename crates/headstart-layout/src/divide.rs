//! Divides ranges that a replay reads as one, where large parts are touched much later. Such a part is placed
//! with what is touched at that time. Pure.
//!
//! A rotational disk reads a layout in the order of its places, and a start waits for what lies in front of
//! what it needs. Elsewhere the number of requests matters more.

use headstart::host::range::ByteRange;
use std::ops::Range;

/// Cost of a piece, in bytes that are read before they are needed.
const PIECE: u64 = 128 << 10;
/// Extents that fit into an inode of ext4. On xfs and btrfs more do, but the same limit applies: it only keeps a few
/// pieces together there.
const EXTENTS: usize = 4;
/// Cost of a block for the extents of a file, in bytes: a replay seeks for it.
const TREE: u64 = 512 << 10;
/// A file with more sections than this is not divided: the time grows with the cube of their number.
const MOST: usize = 256;
/// Touches within this time are at about the same time, in µs.
const NEAR_US: u32 = 20_000;
/// Those within this part of the start are, too.
const NEAR_PART: u32 = 20;

/// A range of a file with its first touch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Touch {
    pub(super) bytes: ByteRange,
    /// From the beginning of the start, in µs.
    pub(super) at_us: u32,
}

/// A section of a file that is touched at about the same time, or not read at all.
#[derive(Clone, Copy, Debug)]
struct Section {
    bytes: ByteRange,
    at_us: Option<u32>,
}

/// Which touches are at about the same time, in a start that lasts so long, in µs.
pub(super) fn near_us(lasts_us: u32) -> u32 {
    NEAR_US.max(lasts_us / NEAR_PART)
}

/// The pieces of what is read of a file, with the least cost. `reads` and `touches` are in the order of their
/// offsets; `end` is that of the file. What is not touched between two sections belongs to the later one.
pub(super) fn divided(reads: &[Touch], touches: &[Touch], end: u64, near_us: u32) -> Vec<Touch> {
    // A hostile pack may have many of both.
    if reads.len() > MOST {
        return reads.to_vec();
    }
    let sections = sections(reads, touches, end, near_us);
    if sections.len() > MOST {
        return reads.to_vec();
    }
    cheapest(&sections, near_us).into_iter().filter_map(|extent| piece(&sections[extent])).collect()
}

/// The cheapest division of a file into extents, as the sections of each, in order. What is not read is an extent of
/// its own.
fn cheapest(sections: &[Section], near_us: u32) -> Vec<Range<usize>> {
    /// Stands for all numbers of extents that do not fit into an inode.
    const MANY: usize = EXTENTS + 1;
    // `least[end][n]`: of the divisions of the first `end` sections into n extents, or into `MANY` and more, that of
    // the least cost: the cost, the number of extents, and where the last one begins.
    let mut least = vec![[None::<(u64, usize, usize)>; MANY + 1]; sections.len() + 1];
    least[0][0] = Some((0, 0, 0));
    for end in 1..=sections.len() {
        for begin in 0..end {
            let Some(cost) = cost(&sections[begin..end], near_us) else { continue };
            for (before, extents, _) in least[begin].into_iter().flatten() {
                let found = (before.saturating_add(cost), extents + 1, begin);
                let known = &mut least[end][MANY.min(extents + 1)];
                *known = Some(known.map_or(found, |known| known.min(found)));
            }
        }
    }
    let total = |(cost, extents, _): (u64, usize, usize)| {
        (cost.saturating_add(if extents > EXTENTS { TREE } else { 0 }), extents)
    };
    let mut end = sections.len();
    let mut extents = least[end].into_iter().flatten().map(total).min().map_or(0, |(_, n)| n);
    let mut out = Vec::with_capacity(extents);
    while let Some((.., begin)) = least[end][MANY.min(extents)].filter(|_| end > 0) {
        out.push(begin..end);
        (end, extents) = (begin, extents - 1);
    }
    out.reverse();
    out
}

/// What it costs that these sections are one extent, in bytes that are read before they are needed; `None` if they
/// can't be, since what is not read is among them.
fn cost(sections: &[Section], near_us: u32) -> Option<u64> {
    let Some(piece) = piece(sections) else { return Some(0) };
    let near = piece.at_us.saturating_add(near_us);
    sections.iter().try_fold(PIECE, |cost, section| {
        let is_late = section.at_us? > near;
        Some(cost.saturating_add(if is_late { section.bytes.length() } else { 0 }))
    })
}

/// These sections as one; `None` if nothing of them is read.
fn piece(sections: &[Section]) -> Option<Touch> {
    let at_us = sections.iter().filter_map(|section| section.at_us).min()?;
    let (first, last) = (sections.first()?.bytes, sections.last()?.bytes);
    Some(Touch { bytes: ByteRange { offset: first.offset, end: last.end }, at_us })
}

/// All sections of a file with this end, also those that are not read.
fn sections(reads: &[Touch], touches: &[Touch], end: u64, near_us: u32) -> Vec<Section> {
    let hole = |offset: u64, end: u64| {
        let bytes = ByteRange { offset, end };
        (!bytes.is_empty()).then_some(Section { bytes, at_us: None })
    };
    let (mut out, mut from) = (Vec::new(), 0);
    for read in reads {
        out.extend(hole(from, read.bytes.offset));
        let section = |touch: Touch| Section { bytes: touch.bytes, at_us: Some(touch.at_us) };
        out.extend(touched_apart(*read, touches, near_us).into_iter().map(section));
        from = read.bytes.end;
    }
    out.extend(hole(from, end));
    out
}

/// The sections of one read that are touched at different times.
fn touched_apart(read: Touch, touches: &[Touch], near_us: u32) -> Vec<Touch> {
    let mut sections: Vec<Touch> = Vec::new();
    // The last touch of the last section.
    let mut latest = 0;
    for touch in touches {
        let offset = touch.bytes.offset.max(read.bytes.offset);
        let bytes = ByteRange { offset, end: touch.bytes.end.min(read.bytes.end) };
        if bytes.is_empty() {
            continue;
        }
        let times = |last: &Touch| (touch.at_us.min(last.at_us), touch.at_us.max(latest));
        let is_near = |(first, last): (u32, u32)| last - first <= near_us;
        match sections.last_mut() {
            Some(last) if offset < last.bytes.end || is_near(times(last)) => {
                (last.at_us, latest) = times(last);
                last.bytes.end = bytes.end.max(last.bytes.end);
            }
            last => {
                let border = match last {
                    Some(last) if touch.at_us < last.at_us => {
                        last.bytes.end = offset;
                        offset
                    }
                    Some(last) => last.bytes.end,
                    None => offset,
                };
                latest = touch.at_us;
                sections.push(Touch { bytes: ByteRange { offset: border, ..bytes }, ..*touch });
            }
        }
    }
    match &mut sections[..] {
        [] => sections.push(read),
        [first, ..] => first.bytes.offset = read.bytes.offset,
    }
    if let Some(last) = sections.last_mut() {
        last.bytes.end = read.bytes.end;
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u32 = 1000;

    /// Parts (first KiB, KiB behind the last, ms).
    fn touches(list: &[(u64, u64, u32)]) -> Vec<Touch> {
        let touch = |&(first, end, at): &(u64, u64, u32)| Touch {
            bytes: ByteRange { offset: first << 10, end: end << 10 },
            at_us: at * MS,
        };
        list.iter().map(touch).collect()
    }

    #[test]
    fn what_is_touched_much_later_is_apart_unless_it_is_small() {
        for (name, read, list, expected) in [
            ("at the same time", (0, 999), vec![(0, 400, 5), (400, 999, 25)], vec![(0, 999, 5)]),
            (
                "later",
                (0, 999),
                vec![(0, 400, 5), (400, 999, 26)],
                vec![(0, 400, 5), (400, 999, 26)],
            ),
            (
                "earlier",
                (0, 999),
                vec![(0, 400, 26), (400, 999, 5)],
                vec![(0, 400, 26), (400, 999, 5)],
            ),
            (
                "near to each other in falling order",
                (0, 999),
                vec![(0, 250, 65), (250, 500, 45), (500, 750, 25), (750, 999, 5)],
                vec![(0, 500, 45), (500, 999, 5)],
            ),
            (
                "near to the first of all",
                (0, 999),
                vec![(0, 400, 5), (400, 410, 50), (410, 999, 25)],
                vec![(0, 999, 5)],
            ),
            (
                "one within another",
                (0, 999),
                vec![(0, 600, 5), (100, 200, 5), (600, 999, 90)],
                vec![(0, 600, 5), (600, 999, 90)],
            ),
            ("small and later", (0, 999), vec![(0, 871, 5), (871, 999, 90)], vec![(0, 999, 5)]),
            (
                "not as small",
                (0, 999),
                vec![(0, 870, 5), (870, 999, 90)],
                vec![(0, 870, 5), (870, 999, 90)],
            ),
            (
                "small and earlier",
                (0, 999),
                vec![(0, 99, 5), (99, 999, 90)],
                vec![(0, 99, 5), (99, 999, 90)],
            ),
            (
                "between others it takes two pieces more",
                (0, 999),
                vec![(0, 399, 5), (399, 655, 50), (655, 999, 5)],
                vec![(0, 999, 5)],
            ),
            (
                "small ones that are many",
                (0, 999),
                vec![(0, 399, 5), (399, 500, 50), (500, 699, 70), (699, 999, 5)],
                vec![(0, 399, 5), (399, 699, 50), (699, 999, 5)],
            ),
            (
                "a gap is with what is later",
                (0, 999),
                vec![(0, 300, 90), (400, 500, 5), (600, 999, 90)],
                vec![(0, 400, 90), (400, 500, 5), (500, 999, 90)],
            ),
            (
                "a gap at an end is with what is there",
                (0, 999),
                vec![(100, 300, 90), (300, 600, 5)],
                vec![(0, 300, 90), (300, 999, 5)],
            ),
            ("overlapping", (0, 999), vec![(0, 400, 90), (300, 999, 5)], vec![(0, 999, 5)]),
            (
                "beyond what is read",
                (200, 400),
                vec![(0, 300, 5), (300, 999, 5)],
                vec![(200, 400, 5)],
            ),
            ("not touched", (0, 400), vec![(400, 500, 5)], vec![(0, 400, 7)]),
        ] {
            let (first, end) = read;
            let found = divided(&touches(&[(first, end, 7)]), &touches(&list), 999 << 10, 20 * MS);
            assert_eq!(found, touches(&expected), "{name}");
        }
    }

    #[test]
    fn a_block_for_extents_must_save_as_much_as_the_seek_to_it_costs() {
        let in_five = |each: u64| -> Vec<_> {
            (0..5).map(|n| (n * each, (n + 1) * each, if n % 2 == 0 { 5 } else { 90 })).collect()
        };
        let in_four = |each: u64| in_five(each)[..4].to_vec();
        for (name, list, end, expected) in [
            ("four", in_four(400), 1600, 4),
            ("four, and a rest that is not read", in_four(400), 1601, 2),
            ("five", in_five(768), 3840, 3),
            ("five that save more", in_five(769), 3845, 5),
        ] {
            let read = touches(&[(0, list.last().unwrap().1, 5)]);
            let found = divided(&read, &touches(&list), end << 10, 20 * MS);
            assert_eq!(found.len(), expected, "{name}: {found:?}");
        }
        let behind_a_hole: Vec<_> =
            in_four(400).iter().map(|(a, b, at)| (a + 1, b + 1, *at)).collect();
        let read = touches(&[(1, 1601, 5)]);
        assert_eq!(divided(&read, &touches(&behind_a_hole), 1601 << 10, 20 * MS).len(), 2);
        // It has that block anyway.
        let list = in_five(400);
        let reads = touches(&[(0, 2000, 5), (3000, 3100, 5), (4000, 4100, 5)]);
        assert_eq!(divided(&reads, &touches(&list), 9999 << 10, 20 * MS).len(), 7);
    }

    #[test]
    fn a_file_with_too_many_sections_is_not_divided() {
        let pieces = |count: u64| {
            let list: Vec<_> =
                (0..count).map(|n| (n * 300, n * 300 + 300, n as u32 % 2 * 90)).collect();
            let end = count * 300;
            divided(&touches(&[(0, end, 0)]), &touches(&list), end << 10, 20 * MS).len()
        };
        assert_eq!((pieces(MOST as u64), pieces(MOST as u64 + 1)), (MOST, 1));
    }

    #[test]
    fn touches_are_near_within_20_ms_or_a_part_of_the_start() {
        assert_eq!(
            [0, 400 * MS, 401 * MS, 2000 * MS].map(near_us),
            [20_000, 20_000, 20_050, 100_000]
        );
    }

    proptest! {
        #[test]
        fn all_that_is_read_is_in_one_piece_which_is_no_later_than_its_touches(
            reads in prop::collection::vec((0u64..3000, 1u64..2000), 0..4),
            list in prop::collection::vec((0u64..4000, 0u64..900, 0u32..500), 0..20),
            size in 0u64..9000, near in 0u32..100,
        ) {
            let mut from = 0;
            let reads: Vec<_> = reads.iter().map(|(gap, length)| {
                let first = from + gap;
                from = first + length;
                (first, from, 500)
            }).collect();
            let mut list: Vec<_> =
                list.iter().map(|&(first, length, at)| (first, first + length, at)).collect();
            list.sort_unstable();
            let (reads, list) = (touches(&reads), touches(&list));
            let found = divided(&reads, &list, size << 10, near * MS);
            let kib = |touches: &[Touch]| -> Vec<u64> {
                touches.iter().flat_map(|t| t.bytes.offset >> 10..t.bytes.end >> 10).collect()
            };
            prop_assert_eq!(kib(&found), kib(&reads));
            prop_assert!(found.iter().all(|piece| !piece.bytes.is_empty()));
            for (piece, touch) in found.iter().flat_map(|p| list.iter().map(move |t| (p, t))) {
                let first = piece.bytes.offset.max(touch.bytes.offset);
                let is_in = first < piece.bytes.end.min(touch.bytes.end);
                prop_assert!(!is_in || piece.at_us <= touch.at_us);
            }
        }

        #[test]
        fn no_other_division_costs_less_or_as_much_with_fewer_extents(
            list in prop::collection::vec((prop::option::weighted(0.8, 0u32..9), 0u64..900), 1..10),
        ) {
            let mut from = 0;
            let sections: Vec<_> = list.iter().map(|&(at, length)| {
                let bytes = ByteRange::of(from, length << 10);
                from = bytes.end;
                Section { bytes, at_us: at.map(|at| at * 10 * MS) }
            }).collect();
            let total = |extents: &[Range<usize>]| {
                let tree = if extents.len() > EXTENTS { TREE } else { 0 };
                let each = |extent: &Range<usize>| cost(&sections[extent.clone()], 20 * MS);
                Some((tree + extents.iter().map(each).sum::<Option<u64>>()?, extents.len()))
            };
            let count = sections.len();
            let division = |borders: u32| {
                let (mut out, mut begin) = (Vec::new(), 0);
                for end in (1..=count).filter(|end| *end == count || borders & (1 << end) != 0) {
                    out.push(begin..end);
                    begin = end;
                }
                out
            };
            // Bit n is a border in front of section n.
            let all = (0..1u32 << count).filter(|borders| borders % 2 == 0).map(division);
            let least = all.filter_map(|extents| total(&extents)).min();
            let found = cheapest(&sections, 20 * MS);
            prop_assert!(found.iter().cloned().flatten().eq(0..count), "{:?}", found);
            prop_assert_eq!(total(&found), least);
        }
    }
}

//! Arithmetic with the extents of files. Pure.

use headstart::host::range::ByteRange;
use headstart::replay::places::{holder, joined};
use headstart_sys::fiemap::{Extent, Stored};

/// The parts of extents that hold a range of a file; `None` if a part of the range is in none.
pub fn within(extents: &[Extent], range: ByteRange) -> Option<Vec<Extent>> {
    let (mut out, mut at) = (Vec::new(), range.offset);
    let first = extents.partition_point(|e| end(e) <= range.offset);
    for extent in extents.get(first..)? {
        if at >= range.end {
            break;
        }
        let into = at.checked_sub(extent.logical)?;
        let length = extent.length.checked_sub(into)?.min(range.end - at);
        out.push(Extent { logical: at, physical: extent.physical.checked_add(into)?, length });
        at = at.checked_add(length)?;
    }
    (at >= range.end).then_some(joined(out))
}

/// What these ranges leave of the first bytes, so many.
pub fn between(mut ranges: Vec<ByteRange>, bytes: u64) -> Vec<ByteRange> {
    ranges.sort_unstable();
    let (mut out, mut at) = (Vec::new(), 0);
    for range in ranges.into_iter().chain([ByteRange { offset: bytes, end: bytes }]) {
        if at < range.offset.min(bytes) {
            out.push(ByteRange { offset: at, end: range.offset.min(bytes) });
        }
        at = at.max(range.end);
    }
    out
}

/// The same as those of one file that has them in this order, with those joined that follow each other on the device.
pub fn as_one_file(extents: &[Extent]) -> Vec<Extent> {
    let mut at = 0u64;
    let one_file = extents.iter().map(|extent| {
        let extent = Extent { logical: at, ..*extent };
        at = at.saturating_add(extent.length);
        extent
    });
    joined(one_file.collect())
}

/// Where a piece of a file lies. What is compressed lies at an odd place, since its bytes have no places of
/// their own: so none of them is taken for the place of something that is not compressed.
pub fn placed(&(extent, stored): &(Extent, Stored)) -> Extent {
    let odd = u64::from(stored == Stored::Encoded);
    Extent { physical: extent.physical | odd, ..extent }
}

/// The parts of extents in a range, which may have holes.
pub fn parts(extents: &[Extent], range: ByteRange) -> Vec<Extent> {
    let part = |extent: &Extent| {
        let begin = extent.logical.max(range.offset);
        let end = end(extent).min(range.end);
        within(&[*extent], (begin..end).into()).filter(|_| begin < end)
    };
    extents.iter().filter_map(part).flatten().collect()
}

/// Whether a piece that was [`placed`] is compressed.
pub fn is_encoded(extent: &Extent) -> bool {
    extent.physical % 2 == 1
}

/// The byte of the file behind an extent.
pub fn end(extent: &Extent) -> u64 {
    extent.logical.saturating_add(extent.length)
}

/// The same, as if the range began elsewhere in the file.
pub fn shifted(extents: &[Extent], from: u64, to: u64) -> Vec<Extent> {
    let shift =
        |e: &Extent| Extent { logical: e.logical.wrapping_sub(from).wrapping_add(to), ..*e };
    extents.iter().map(shift).collect()
}

/// Where the blocks of a range of a file are, compared with two places for them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Compared {
    /// What lies at its old place.
    pub old: Vec<ByteRange>,
    /// What lies at its new place.
    pub new: Vec<ByteRange>,
    /// Bytes that lie elsewhere, or nowhere: the file was written since.
    pub elsewhere: u64,
}

/// Compares where a range of a file lies with its two places. `old` and `new` cover the range; of
/// `now` this need not be true.
pub fn compare(now: &[Extent], old: &[Extent], new: &[Extent], range: ByteRange) -> Compared {
    let mut out = Compared::default();
    let mut at = range.offset;
    while at < range.end {
        // Up to here all three are in one piece.
        let ends = [now, old, new].map(|list| piece_end(list, at));
        let next = ends.into_iter().fold(range.end, u64::min).max(at + 1);
        let place = |list: &[Extent]| place(list, at);
        let bytes = ByteRange { offset: at, end: next };
        match place(now) {
            Some(here) if Some(here) == place(old) => push(&mut out.old, bytes),
            Some(here) if Some(here) == place(new) => push(&mut out.new, bytes),
            _ => out.elsewhere += bytes.length(),
        }
        at = next;
    }
    out
}

fn push(list: &mut Vec<ByteRange>, bytes: ByteRange) {
    match list.last_mut() {
        Some(last) if last.end == bytes.offset => last.end = bytes.end,
        _ => list.push(bytes),
    }
}

fn place(list: &[Extent], at: u64) -> Option<u64> {
    let extent = holder(list, at)?;
    extent.physical.checked_add(at - extent.logical)
}

/// Where the extent or the hole ends that a byte is in.
fn piece_end(list: &[Extent], at: u64) -> u64 {
    match list.get(list.partition_point(|e| end(e) <= at)) {
        Some(extent) if extent.logical <= at => end(extent),
        Some(extent) => extent.logical,
        None => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(extents: &[(u64, u64, u64)]) -> Vec<Extent> {
        let extent = |&(logical, physical, length)| Extent { logical, physical, length };
        extents.iter().map(extent).collect()
    }

    #[test]
    fn a_range_is_cut_out_of_extents_unless_it_has_a_hole() {
        let file = list(&[(0, 1000, 100), (100, 1100, 50), (150, 400, 50), (300, 600, 10)]);
        for (offset, end, expected) in [
            (0, 200, Some(list(&[(0, 1000, 150), (150, 400, 50)]))),
            (20, 160, Some(list(&[(20, 1020, 130), (150, 400, 10)]))),
            (300, 310, Some(list(&[(300, 600, 10)]))),
            (190, 305, None),
            (250, 305, None),
            (305, 320, None),
            (400, 410, None),
        ] {
            assert_eq!(within(&file, ByteRange { offset, end }), expected, "{offset} {end}");
        }
    }

    #[test]
    fn ranges_leave_what_is_before_between_and_behind_them() {
        let range = |&(offset, end): &(u64, u64)| ByteRange { offset, end };
        let ranges = |list: &[(u64, u64)]| list.iter().map(range).collect::<Vec<_>>();
        for (taken, left) in [
            (ranges(&[]), ranges(&[(0, 100)])),
            (ranges(&[(40, 50), (10, 20)]), ranges(&[(0, 10), (20, 40), (50, 100)])),
            (ranges(&[(0, 20), (20, 100)]), ranges(&[])),
            (ranges(&[(0, 60), (10, 20), (70, 80)]), ranges(&[(60, 70), (80, 100)])),
            (ranges(&[(90, 120)]), ranges(&[(0, 90)])),
            (ranges(&[(120, 130)]), ranges(&[(0, 100)])),
            (ranges(&[(0, 300)]), ranges(&[])),
        ] {
            assert_eq!(between(taken.clone(), 100), left, "{taken:?}");
        }
    }

    #[test]
    fn a_range_is_at_its_old_place_its_new_place_or_elsewhere() {
        let (old, new) = (list(&[(0, 1000, 60), (60, 2000, 40)]), list(&[(0, 5000, 100)]));
        let now = list(&[(0, 5000, 50), (50, 1050, 10), (60, 2000, 20), (90, 5090, 10)]);
        let found = compare(&now, &old, &new, ByteRange { offset: 0, end: 100 });
        let range = |offset, end| ByteRange { offset, end };
        let expected = Compared {
            old: vec![range(50, 80)],
            new: vec![range(0, 50), range(90, 100)],
            elsewhere: 10,
        };
        assert_eq!(found, expected);
        let none = compare(&[], &old, &new, range(0, 100));
        assert_eq!(none, Compared { elsewhere: 100, ..Compared::default() });
    }

    proptest! {
        #[test]
        fn every_byte_is_counted_once_whatever_the_extents_are(
            lists in prop::collection::vec(prop::collection::vec(any::<(u64, u64, u64)>(), 0..5), 3),
            (offset, length) in (any::<u64>(), 0u64..100_000),
        ) {
            let range = ByteRange::of(offset, length);
            let lists: Vec<_> = lists.iter().map(|extents| {
                let mut sorted = list(extents);
                sorted.iter_mut().for_each(|e| e.length %= 1 << 20);
                sorted.sort_by_key(|e| e.logical);
                sorted
            }).collect();
            // Overlapping ones too: only a sum is promised of them.
            let found = compare(&lists[0], &lists[1], &lists[2], range);
            let sum: u64 = found.old.iter().chain(&found.new).map(|r| r.length()).sum();
            prop_assert_eq!(sum + found.elsewhere, range.length());
            let _ = within(&lists[0], range);
        }

        #[test]
        fn what_lies_at_a_place_is_found_there(
            lengths in prop::collection::vec(1u64..50, 1..8), made in 0usize..8,
        ) {
            // The swaps of the first extents were made.
            let (mut at, mut old) = (0, Vec::new());
            for (n, &length) in lengths.iter().enumerate() {
                old.push(Extent { logical: at, physical: 1_000_000 - 1000 * n as u64, length });
                at += length;
            }
            let new = list(&[(0, 5_000_000, at)]);
            let range = ByteRange { offset: 0, end: at };
            let made = made.min(old.len());
            let moved: u64 = lengths[..made].iter().sum();
            let mut now = within(&new, ByteRange { offset: 0, end: moved }).unwrap();
            now.extend(&old[made..]);
            let found = compare(&now, &old, &new, range);
            let sum = |ranges: &[ByteRange]| ranges.iter().map(|r| r.length()).sum::<u64>();
            prop_assert_eq!((sum(&found.new), sum(&found.old)), (moved, at - moved));
            prop_assert!(found.old.len() <= 1 && found.new.len() <= 1);
        }
    }
}

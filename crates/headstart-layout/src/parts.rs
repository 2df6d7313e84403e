//! The parts of one file that are moved: what replays read of it, and small files as a whole. Pure.

use headstart::host::range::ByteRange;

/// Files up to this size are moved as a whole, in bytes: the kernel reads hardly less around a page fault
/// (`fault_around_bytes`).
const SMALL: u64 = 64 << 10;

/// What a replay of a pack reads as one, or a piece of that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Touched {
    pub(super) bytes: ByteRange,
    /// Its place among all, in the order of the replay of one pack after the other.
    pub(super) order: u64,
    /// Which pack, the weightiest first.
    pub(super) pack: usize,
}

/// Which packs touch a part, the weightiest first. Parts that the same packs touch are a group.
pub(super) type Group = Vec<bool>;

/// A part of a file, with who touches it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Part {
    pub(super) bytes: ByteRange,
    pub(super) order: u64,
    pub(super) group: Group,
}

/// The parts of a range between these gaps.
pub(super) fn without(
    range: ByteRange,
    gaps: impl Iterator<Item = ByteRange>,
) -> impl Iterator<Item = ByteRange> {
    let end = ByteRange { offset: range.end, end: range.end };
    gaps.chain([end]).scan(range.offset, |from, gap| {
        let part = ByteRange { offset: *from, end: gap.offset };
        *from = gap.end;
        Some(part)
    })
}

/// The parts of a file of this size that are moved, by offset; `packs` is how many there are.
pub(super) fn parts(mut ranges: Vec<Touched>, size: u64, page: u64, packs: usize) -> Vec<Part> {
    let whole = ByteRange::of(0, size).pages(page).bytes(page);
    ranges.sort_unstable();
    let mut out: Vec<Part> = Vec::new();
    for Touched { bytes, order, pack } in ranges {
        let bytes = ByteRange { offset: bytes.offset, end: bytes.end.min(whole.end) };
        if bytes.is_empty() {
            continue;
        }
        match out.last_mut() {
            Some(last) if bytes.offset < last.bytes.end => {
                last.bytes.end = last.bytes.end.max(bytes.end);
                last.order = last.order.min(order);
            }
            _ => out.push(Part { bytes, order, group: vec![false; packs] }),
        }
        if let Some(is_touched) = out.last_mut().and_then(|last| last.group.get_mut(pack)) {
            *is_touched = true;
        }
    }
    if size <= SMALL
        && let Some(order) = out.iter().map(|part| part.order).min()
    {
        let any = |pack: usize| out.iter().any(|part| part.group[pack]);
        out = vec![Part { bytes: whole, order, group: (0..packs).map(any).collect() }];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    #[test]
    fn what_ranges_of_two_packs_share_is_moved_once_and_belongs_to_both() {
        let touched = |pack, first, end, order| Touched {
            bytes: ByteRange { offset: first, end },
            order,
            pack,
        };
        let ranges = vec![
            touched(0, 0, 2 * PAGE, 5),
            touched(1, PAGE, 4 * PAGE, 3),
            touched(1, 4 * PAGE, 5 * PAGE, 4),
        ];
        let part = |first, end, order, group: [bool; 2]| Part {
            bytes: ByteRange { offset: first * PAGE, end: end * PAGE },
            order,
            group: group.to_vec(),
        };
        let expected = [part(0, 4, 3, [true, true]), part(4, 5, 4, [false, true])];
        assert_eq!(parts(ranges, 1 << 20, PAGE, 2), expected);
    }
}

//! Joins ranges and sorts them: the portions that are read at once, in order. Pure.

use crate::host::range::ByteRange;

/// A range to be read; `order`, its earliest touch, sorts portions.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlannedRange {
    pub(super) target: u32,
    pub(super) bytes: ByteRange,
    pub(super) order: u32,
    /// The latest touch of what was joined.
    pub(super) latest: u32,
    /// The end of what decides its touch times; small ranges behind that are read along.
    counted_end: u64,
}

impl PlannedRange {
    pub(super) fn new(target: u32, bytes: ByteRange, order: u32) -> Self {
        Self { target, bytes, order, latest: order, counted_end: bytes.end }
    }

    /// Joins `next`, which begins no earlier, if the gap is small enough and
    ///
    /// - they overlap, or are touched at about the same time, or
    /// - the one that is touched later is read along: with its gap, and with all others that are
    ///   read along there, it is no larger than the largest gap. It does not change the touch
    ///   times then.
    fn with(&self, next: &Self, gap: u64, near: u32) -> Option<Self> {
        let (order, latest) = (self.order.min(next.order), self.latest.max(next.latest));
        let end = self.bytes.end.max(next.bytes.end);
        let bytes = ByteRange { end, ..self.bytes };
        let both = Self { order, latest, bytes, counted_end: end, ..*self };
        let (here, there) = (self.bytes, next.bytes);
        if self.target != next.target || there.offset > here.end.saturating_add(gap) {
            None
        } else if there.offset < here.end || latest - order <= near {
            Some(both)
        } else if next.order > self.order {
            let along = Self { bytes, ..*self };
            (there.end - self.counted_end <= gap).then_some(along)
        } else {
            let along = Self { order: next.order, latest: next.latest, ..both };
            (there.offset - here.offset <= gap).then_some(along)
        }
    }
}

/// Joins ranges across small gaps and short times, up to the size of a portion, and sorts the
/// result by the earliest touch. Longer ranges become several full portions of the same order.
/// The gaps are returned, too.
pub(super) fn joined(
    mut wanted: Vec<PlannedRange>,
    gap: u64,
    step: u64,
    near: u32,
) -> (Vec<PlannedRange>, Vec<(u32, ByteRange)>) {
    wanted.sort_unstable_by_key(|w| (w.target, w.bytes.offset));
    let mut out: Vec<PlannedRange> = Vec::with_capacity(wanted.len());
    let mut gaps = Vec::new();
    for range in wanted {
        let mut from = range.bytes.offset;
        if let Some(last) = out.last_mut()
            && let Some(both) = last.with(&range, gap, near)
        {
            let limit = last.bytes.end.max(last.bytes.offset.saturating_add(step));
            // A portion that is full takes neither the gap nor the range.
            if range.bytes.offset < limit {
                let between = ByteRange { offset: last.bytes.end, end: range.bytes.offset };
                if !between.is_empty() {
                    gaps.push((range.target, between));
                }
                let end = both.bytes.end.min(limit);
                *last = PlannedRange { bytes: ByteRange { end, ..both.bytes }, ..both };
            }
            from = from.max(last.bytes.end);
        }
        // The last portion is separate, so that following ranges can be joined to it.
        let end = range.bytes.end;
        let full = ByteRange::of(from, end.saturating_sub(from) / step * step);
        for bytes in [full, ByteRange { offset: full.end, end }] {
            if !bytes.is_empty() {
                out.push(PlannedRange { bytes, ..range });
            }
        }
    }
    out.sort_by_key(|w| w.order);
    (out, gaps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_known_that_are_read_and_no_others() {
        // Ranges of a file, where they begin and end, with gaps up to 32 and portions of 512.
        for (name, ranges, expected) in [
            ("one", vec![(0, 4), (32, 36), (100, 104)], vec![(4, 32)]),
            ("none", vec![(0, 8), (4, 12), (12, 16)], vec![]),
            ("several", vec![(0, 4), (8, 12), (12, 16), (20, 24)], vec![(4, 8), (16, 20)]),
            ("before a full portion", vec![(0, 496), (508, 516)], vec![(496, 508)]),
            ("behind one", vec![(0, 512), (516, 520)], vec![]),
        ] {
            let range =
                |&(offset, end): &(u64, u64)| PlannedRange::new(7, ByteRange { offset, end }, 0);
            let (_, gaps) = joined(ranges.iter().map(range).collect(), 32, 512, u32::MAX);
            let gap = |&(offset, end): &(u64, u64)| (7, ByteRange { offset, end });
            assert_eq!(gaps, expected.iter().map(gap).collect::<Vec<_>>(), "{name}");
        }
    }
}

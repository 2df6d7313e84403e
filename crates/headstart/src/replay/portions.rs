//! From ranges to portions: what is read in one step, and in which order. Pure.

use crate::host::range::ByteRange;

/// A range to be read; `order`, its earliest touch, sorts portions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) target: u32,
    pub(super) bytes: ByteRange,
    pub(super) order: u32,
    /// The latest touch of what was joined.
    pub(super) latest: u32,
    /// Where what counts of it ends: behind that comes only what comes along.
    counted_end: u64,
}

impl Wanted {
    pub(super) fn new(target: u32, bytes: ByteRange, order: u32) -> Self {
        Self { target, bytes, order, latest: order, counted_end: bytes.end }
    }

    /// The touches of what is read when `next`, which begins no earlier, is read with it:
    /// if it lies near enough and is touched at about the same time, or they overlap, or
    /// the one that is touched later is, gap included, no larger than a gap that is read
    /// too, with all others that come along there: only the other one counts then.
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

/// Joins ranges across small gaps and short times, as far as a portion reaches,
/// and sorts what comes out by the earliest touch in each. What is longer than a
/// portion is a row of full ones of the same order.
pub(super) fn joined(mut wanted: Vec<Wanted>, gap: u64, step: u64, near: u32) -> Vec<Wanted> {
    wanted.sort_unstable_by_key(|w| (w.target, w.bytes.offset));
    let mut out: Vec<Wanted> = Vec::with_capacity(wanted.len());
    for range in wanted {
        let mut from = range.bytes.offset;
        if let Some(last) = out.last_mut()
            && let Some(both) = last.with(&range, gap, near)
        {
            let limit = last.bytes.end.max(last.bytes.offset.saturating_add(step));
            // A portion that is full takes neither the gap nor the range.
            if range.bytes.offset < limit {
                let end = both.bytes.end.min(limit);
                *last = Wanted { bytes: ByteRange { end, ..both.bytes }, ..both };
            }
            from = from.max(last.bytes.end);
        }
        // The last portion is apart, so that it may take in what follows.
        let end = range.bytes.end;
        let full = ByteRange::of(from, end.saturating_sub(from) / step * step);
        for bytes in [full, ByteRange { offset: full.end, end }] {
            if !bytes.is_empty() {
                out.push(Wanted { bytes, ..range });
            }
        }
    }
    out.sort_by_key(|w| w.order);
    out
}

//! When the ranges of a plan are touched, for parts of a step that are read apart. Pure.
//!
//! A step has the time of the first touch in all of it. Where its file lies in several pieces, as after a layout,
//! each piece comes where it lies, and what is touched late in one of them is not needed early.

use super::portions::PlannedRange;
use super::step::Step;
use crate::host::range::ByteRange;

/// Ranges of targets with their first touches, in µs: sorted, and none overlaps another.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Touches(Vec<(u32, ByteRange, u32)>);

impl Touches {
    /// Those of a plan. Of ranges that overlap, the one that begins first counts where both are.
    pub(super) fn of(ranges: &[PlannedRange]) -> Self {
        let mut sorted: Vec<_> =
            ranges.iter().map(|range| (range.target, range.bytes, range.order)).collect();
        sorted.sort_unstable();
        let mut out: Vec<(u32, ByteRange, u32)> = Vec::with_capacity(sorted.len());
        for (target, mut bytes, at_us) in sorted {
            if let Some((_, before, _)) = out.last().filter(|(last, ..)| *last == target) {
                bytes.offset = bytes.offset.max(before.end);
            }
            if bytes.offset < bytes.end {
                out.push((target, bytes, at_us));
            }
        }
        Self(out)
    }

    /// A part of a step, with the time of the first touch in it, if that is known. All of a step keeps its time.
    pub(super) fn part(&self, step: &Step, bytes: ByteRange) -> Step {
        if bytes == step.bytes {
            return *step;
        }
        let first = self.0.partition_point(|(target, range, _)| {
            (*target, range.end) <= (step.target, bytes.offset)
        });
        let is_in_it = |(target, range, _): &&(u32, ByteRange, u32)| {
            *target == step.target && range.offset < bytes.end
        };
        let touches = self.0[first..].iter().take_while(is_in_it).map(|(.., at_us)| *at_us);
        Step { bytes, touched_us: touches.min().unwrap_or(step.touched_us), ..*step }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(target: u32, offset: u64, end: u64, at_us: u32) -> PlannedRange {
        PlannedRange::new(target, ByteRange { offset, end }, at_us)
    }

    #[test]
    fn a_part_of_a_step_has_the_time_of_its_own_first_touch() {
        let ranges =
            [range(1, 40, 50, 900), range(1, 0, 10, 7), range(1, 20, 30, 70), range(2, 0, 9, 1)];
        let touches = Touches::of(&ranges);
        let step = Step { target: 1, bytes: ByteRange { offset: 0, end: 50 }, touched_us: 7 };
        for (name, offset, end, expected) in [
            ("all of it", 0, 50, 7),
            ("its begin", 0, 10, 7),
            ("a gap", 10, 20, 7),
            ("behind the begin", 10, 50, 70),
            ("the end", 30, 50, 900),
            ("a byte", 49, 50, 900),
            ("the last byte before", 29, 40, 70),
        ] {
            let bytes = ByteRange { offset, end };
            let expected = Step { bytes, touched_us: expected, ..step };
            assert_eq!(touches.part(&step, bytes), expected, "{name}");
        }
        let unknown = Step { target: 3, ..step };
        assert_eq!(touches.part(&unknown, ByteRange { offset: 0, end: 9 }).touched_us, 7);
    }

    #[test]
    fn all_of_a_step_keeps_its_time() {
        let step = Step { target: 1, bytes: ByteRange { offset: 0, end: 9 }, touched_us: 3 };
        assert_eq!(Touches::of(&[range(1, 0, 9, 8)]).part(&step, step.bytes), step);
    }

    proptest! {
        #[test]
        fn ranges_do_not_overlap_and_cover_all_that_is_planned(
            list in proptest::collection::vec((0u32..3, 0u64..90, 0u64..30, 0u32..50), 0..30),
        ) {
            let ranges: Vec<_> =
                list.iter().map(|&(target, at, length, us)| range(target, at, at + length, us)).collect();
            let Touches(found) = Touches::of(&ranges);
            for pair in found.windows(2) {
                let (before, next) = (&pair[0], &pair[1]);
                prop_assert!(before.0 < next.0 || before.1.end <= next.1.offset);
            }
            let has = |target: u32, byte: u64| {
                found.iter().any(|(of, bytes, _)| *of == target && (bytes.offset..bytes.end).contains(&byte))
            };
            for range in &ranges {
                prop_assert!((range.bytes.offset..range.bytes.end).all(|byte| has(range.target, byte)));
            }
        }
    }
}

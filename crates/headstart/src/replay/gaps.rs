//! Gaps: what a step reads only because what lies around it is read in one request. Pure.
//!
//! That holds where the gap lies between the ranges around it on the device, too. A layout may have
//! moved these and not the gap, or a file system may have written one of them elsewhere. Then the
//! gap is a request of its own. It is not read where that matters ([`ReadStrategy::joins_by_place`]).
//!
//! [`ReadStrategy::joins_by_place`]: super::strategy::ReadStrategy::joins_by_place

use super::places::holder;
use super::step::Step;
use crate::host::range::ByteRange;
use headstart_sys::fiemap::Extent;

/// The gaps of a plan.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Gaps(Vec<(u32, ByteRange)>);

impl Gaps {
    /// From gaps of targets, sorted by their targets and their places in them.
    pub(super) fn new(mut gaps: Vec<(u32, ByteRange)>) -> Self {
        gaps.shrink_to_fit();
        Self(gaps)
    }

    /// Those that a step reads.
    pub fn of(&self, step: &Step) -> impl Iterator<Item = ByteRange> {
        let first = self.0.partition_point(|(target, gap)| {
            (*target, gap.offset) < (step.target, step.bytes.offset)
        });
        let is_of =
            |(target, gap): &&(u32, ByteRange)| *target == step.target && gap.end < step.bytes.end;
        self.0[first..].iter().take_while(is_of).map(|(_, gap)| *gap)
    }
}

/// The parts of a range of a file that are read, if it has these gaps and these extents
/// ([`super::places::joined`]): it is divided by gaps that do not lie between what is around them. Where
/// the file system does not tell the place of that, the gap is read.
pub fn divided(
    bytes: ByteRange,
    gaps: impl Iterator<Item = ByteRange>,
    extents: &[Extent],
) -> Vec<ByteRange> {
    let is_apart = |gap: &ByteRange| {
        let before = holder(extents, gap.offset.saturating_sub(1));
        let around = before.zip(holder(extents, gap.end));
        around.is_some_and(|(before, behind)| before != behind)
    };
    let (mut out, mut from) = (Vec::new(), bytes.offset);
    for gap in gaps.filter(is_apart) {
        out.push(ByteRange { offset: from, end: gap.offset });
        from = gap.end;
    }
    out.push(ByteRange { offset: from, end: bytes.end });
    out
}

#[cfg(test)]
mod tests {
    use super::super::places::joined;
    use super::*;
    use proptest::prelude::*;

    fn step(target: u32, offset: u64, end: u64) -> Step {
        Step { target, bytes: ByteRange { offset, end }, touched_us: 0 }
    }

    fn gap(offset: u64, end: u64) -> ByteRange {
        ByteRange { offset, end }
    }

    fn extent(&(logical, end, physical): &(u64, u64, u64)) -> Extent {
        Extent { logical, physical, length: end - logical }
    }

    #[test]
    fn a_step_has_the_gaps_of_its_target_that_lie_in_it() {
        let gaps = Gaps::new(vec![(0, gap(4, 8)), (1, gap(2, 3)), (1, gap(4, 8)), (1, gap(9, 10))]);
        for (step, expected) in [
            (step(0, 0, 20), vec![gap(4, 8)]),
            (step(1, 0, 20), vec![gap(2, 3), gap(4, 8), gap(9, 10)]),
            (step(1, 3, 9), vec![gap(4, 8)]),
            (step(1, 5, 9), vec![]),
            (step(1, 3, 8), vec![]),
            (step(2, 0, 20), vec![]),
        ] {
            assert_eq!(gaps.of(&step).collect::<Vec<_>>(), expected, "{step:?}");
        }
    }

    #[test]
    fn a_gap_that_lies_elsewhere_is_not_read() {
        for (name, extents, expected) in [
            ("in one piece", vec![(0, 99, 500)], vec![(10, 60)]),
            ("in pieces that continue", vec![(0, 25, 500), (25, 99, 525)], vec![(10, 60)]),
            (
                "what is around it moved",
                vec![(0, 20, 900), (20, 30, 520), (30, 99, 910)],
                vec![(10, 20), (30, 60)],
            ),
            ("one moved", vec![(0, 30, 500), (30, 99, 900)], vec![(10, 20), (30, 60)]),
            (
                "rewritten",
                vec![(0, 25, 500), (25, 28, 900), (28, 99, 528)],
                vec![(10, 20), (30, 60)],
            ),
            ("a hole", vec![(0, 20, 500), (30, 99, 520)], vec![(10, 20), (30, 60)]),
            ("what is before it is in one", vec![(0, 15, 500), (30, 99, 900)], vec![(10, 60)]),
            ("no places are known", vec![], vec![(10, 60)]),
        ] {
            let extents = joined(extents.iter().map(extent).collect());
            let found = divided(gap(10, 60), [gap(20, 30)].into_iter(), &extents);
            let found: Vec<_> = found.iter().map(|part| (part.offset, part.end)).collect();
            assert_eq!(found, expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn all_but_gaps_is_read_once_and_in_order(
            lengths in prop::collection::vec((1u64..9, 1u64..9), 1..20),
            pieces in prop::collection::vec((1u64..30, 0u64..3), 0..20),
        ) {
            // What is wanted, and the gap behind it.
            let (mut gaps, mut end) = (Vec::new(), 0);
            for (wanted, length) in lengths {
                gaps.push(gap(end + wanted, end + wanted + length));
                end += wanted + length;
            }
            end = gaps.pop().map_or(end, |last| last.offset);
            let (mut extents, mut at) = (Vec::new(), 0);
            for (length, place) in pieces {
                extents.push(Extent { logical: at, physical: at + place * 1000, length });
                at += length;
            }
            let found = divided(gap(0, end), gaps.iter().copied(), &joined(extents));
            let read: Vec<u64> = found.iter().flat_map(|part| part.offset..part.end).collect();
            prop_assert!(read.is_sorted());
            let is_gap = |at: &u64| gaps.iter().any(|gap| (gap.offset..gap.end).contains(at));
            let wanted = (0..end).filter(|at| !is_gap(at));
            prop_assert!(wanted.eq(read.iter().copied().filter(|at| !is_gap(at))));
            // A gap is read as a whole or not at all.
            for gap in &gaps {
                let of_gap = read.iter().filter(|at| (gap.offset..gap.end).contains(at)).count();
                prop_assert!(of_gap == 0 || of_gap as u64 == gap.length());
            }
        }
    }
}

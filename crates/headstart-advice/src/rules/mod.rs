//! The rules, a file each. A rule takes [`Facts`] and returns advice with its figures, or none.

pub mod backward_text;
#[cfg(test)]
mod examples;
mod found;
pub mod huge_pages;
pub mod large_folios;
pub mod prefetch;
pub mod readahead;
pub mod relocations;
pub mod scattered_text;
pub mod small_files;
pub mod wasted;

use crate::advice::{Advice, Start};
use crate::facts::Facts;
use found::Found;

/// From this share of a start on, advice is shown.
pub const SHOWN_SHARE: f64 = 0.02;
/// From this gain on, advice is given at all, in ns.
const LEAST_NS: u64 = 100_000;

/// A rule.
type Apply = fn(&Facts) -> Vec<Found>;

const ALL: [Apply; 9] = [
    prefetch::apply,
    backward_text::apply,
    scattered_text::apply,
    relocations::apply,
    large_folios::apply,
    huge_pages::apply,
    readahead::apply,
    small_files::apply,
    wasted::apply,
];

/// All advice, that of the largest gain first.
///
/// Gains can't be added: several rules may be about the same faults.
pub fn advise(facts: &Facts) -> Vec<Advice> {
    let mut all: Vec<Advice> = ALL
        .iter()
        .flat_map(|apply| apply(facts))
        .filter_map(|found| {
            let start_ns = start_ns(facts, found.start);
            // Casts saturate, and NaN becomes 0. Faults of several threads are longer together than
            // the start, which can't save more than it takes.
            let gain_ns = (found.gain_ns as u64).min(start_ns);
            (gain_ns >= LEAST_NS).then(|| Advice {
                rule: found.rule,
                file: found.file,
                evidence: found.evidence,
                start: found.start,
                gain_ns,
                share: gain_ns as f64 / start_ns.max(1) as f64,
                formula: found.formula,
                command: found.command,
                note: found.note,
                lowers: found.lowers,
            })
        })
        .collect();
    all.sort_by_key(|advice| std::cmp::Reverse(advice.gain_ns));
    all
}

/// How long a start takes, in ns.
fn start_ns(facts: &Facts, start: Start) -> u64 {
    let expected = facts.learned.as_ref().and_then(|learned| learned.expected);
    match (start, expected) {
        (Start::Cold, Some(expected)) => {
            expected.start_us.saturating_add(expected.least_wait_us).saturating_mul(1000)
        }
        _ => facts.wall_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::examples::{facts, part};
    use super::*;
    use headstart::replay::model::Model;
    use headstart_faults::tables::{Segment, Sum};
    use proptest::prelude::*;

    #[test]
    fn a_start_that_does_not_wait_has_no_advice() {
        assert_eq!(advise(&Facts::default()), []);
        let few = (0..100).map(|window| (16 * window, 2000));
        assert_eq!(advise(&facts(vec![part(Segment::Rodata, few)])), []);
    }

    #[test]
    fn the_largest_gain_comes_first_and_has_its_share() {
        let majors = (0..100).map(|n| (10_000 - 50 * n, 1_000_000));
        let backward = (0..200).map(|n| (9_000 - n, 2_000_000));
        let parts = vec![part(Segment::Text, majors), part(Segment::Text, backward)];
        let found = advise(&facts(parts));
        assert!(found.len() >= 2 && found.is_sorted_by_key(|a| std::cmp::Reverse(a.gain_ns)));
        let share = found[0].gain_ns as f64 / 1e9;
        assert!((found[0].share - share).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn no_gain_is_larger_than_the_start() {
        // Of many processes at the same time.
        let backward = (0..2000).map(|n| (9_000 - n, 2_000_000));
        let found = advise(&facts(vec![part(Segment::Text, backward)]));
        assert_eq!((found[0].gain_ns, found[0].share), (1_000_000_000, 1.0));
    }

    proptest! {
        #[test]
        fn no_figures_break_a_rule(
            touches in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..60),
            figures in proptest::array::uniform5(any::<u32>()),
            wall_ns in any::<u64>(),
            anonymous in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..5),
        ) {
            let [latency_us, next_us, bandwidth_mb_s, depth, iops] = figures;
            let touches: Vec<_> = touches.iter().map(|(page, ns)| (page / 4096, *ns)).collect();
            let segments = [Segment::Text, Segment::Rodata, Segment::Data, Segment::Shared];
            let mut facts =
                facts(segments.map(|segment| part(segment, touches.clone())).into());
            facts.wall_ns = wall_ns;
            facts.model = Some(Model::of(latency_us, next_us, bandwidth_mb_s, depth, iops));
            facts.host = crate::facts::Host::new("6.18", "[madvise]", "2097152");
            let sum = |&(count, time_ns): &(u64, u64)| Sum { count, time_ns };
            facts.observed.anonymous = anonymous.iter().map(sum).collect();
            for advice in advise(&facts) {
                prop_assert!(advice.gain_ns >= LEAST_NS && (0.0..=1.0).contains(&advice.share));
            }
        }
    }
}

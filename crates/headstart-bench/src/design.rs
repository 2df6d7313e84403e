//! The order of the arms in each round, and the number of rounds.
//!
//! The order is random, so that neither drift nor the arm before favours one of them; but a hot
//! start always follows a start that read the pages itself. Which call fills the cache decides the
//! size of its folios, and that decides the cost of a hot start: after a prefetched start it can
//! take a quarter longer than after a plain one.

use crate::arm::Arm;
use crate::stats::order::Order;
use crate::stats::sequential::{Rule, Step};

/// The rounds of a benchmark, without end.
#[derive(Clone, Debug)]
pub struct Design {
    arms: Vec<Arm>,
    order: Order,
}

impl Design {
    /// The same seed and arms give the same rounds.
    pub fn new(seed: u64, arms: &[Arm]) -> Self {
        Self { arms: arms.to_vec(), order: Order::new(seed, arms.len()) }
    }
}

impl Iterator for Design {
    type Item = Vec<usize>;

    /// The indices of the next round's arms.
    fn next(&mut self) -> Option<Vec<usize>> {
        Some(hot_after_filler(&self.order.next()?, &self.arms))
    }
}

/// Moves each hot arm behind the nearest arm before it that fills the cache for
/// it, or behind the last such arm.
fn hot_after_filler(order: &[usize], arms: &[Arm]) -> Vec<usize> {
    let filler = |place: usize| {
        let fills = |at: &usize| arms[order[place]].is_filled_by(arms[order[*at]]);
        (0..place).rev().find(fills).or_else(|| (place..order.len()).rev().find(fills))
    };
    let fillers: Vec<Option<usize>> = (0..order.len()).map(filler).collect();
    let mut moved = Vec::with_capacity(order.len());
    for place in (0..order.len()).filter(|place| fillers[*place].is_none()) {
        moved.push(order[place]);
        let followers = (0..order.len()).filter(|hot| fillers[*hot] == Some(place));
        moved.extend(followers.map(|hot| order[hot]));
    }
    moved
}

/// Whether the medians of all arms are precise enough, or the cap is reached.
/// `times` has the values of each arm, one a round.
pub fn enough(rule: &Rule, times: &[Vec<f64>]) -> bool {
    let steps: Vec<Step> = times.iter().map(|arm| rule.after_runs(arm)).collect();
    steps.iter().all(|step| matches!(step, Step::Precise { .. }))
        || steps.iter().any(|step| matches!(step, Step::Capped { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arm::{CacheState, Peer, arms};
    use proptest::prelude::*;

    const fn program(state: CacheState) -> Arm {
        Arm::Program { state }
    }

    #[test]
    fn a_hot_start_follows_the_nearest_start_that_filled_the_cache() {
        let arms = [
            program(CacheState::Cold),
            program(CacheState::Prefetched),
            program(CacheState::Hot),
            program(CacheState::Selective),
        ];
        for (order, expected) in [
            ([0, 1, 2, 3], [0, 2, 1, 3]),
            ([2, 0, 1, 3], [0, 1, 3, 2]),
            ([0, 3, 1, 2], [0, 3, 2, 1]),
            ([1, 0, 2, 3], [1, 0, 2, 3]),
        ] {
            assert_eq!(hot_after_filler(&order, &arms), expected, "{order:?}");
        }
        // Nobody fills it: it stays where it is.
        let alone = [program(CacheState::Hot), program(CacheState::Prefetched)];
        assert_eq!(hot_after_filler(&[1, 0], &alone), [1, 0]);
        assert_eq!(hot_after_filler(&[0, 1], &alone), [0, 1]);
    }

    #[test]
    fn all_arms_must_be_precise_and_one_at_the_cap_ends_it() {
        let rule = Rule { precision: 0.05, least: 10, most: 30 };
        let steady = |n: usize| vec![1.0; n];
        let wild = |n: usize| (0..n).map(|i| 1.0 + (i % 2) as f64).collect::<Vec<f64>>();
        assert!(enough(&rule, &[steady(12), steady(12)]));
        assert!(!enough(&rule, &[steady(12), wild(12)]));
        assert!(enough(&rule, &[steady(30), wild(30)]));
        assert!(!enough(&rule, &[steady(9), steady(9)]));
    }

    proptest! {
        #[test]
        fn every_round_runs_every_arm_once_and_no_hot_start_follows_a_prefetched(
            seed in any::<u64>(),
            states in prop::sample::subsequence(CacheState::ALL.to_vec(), 1..=4),
            floor in any::<bool>(),
        ) {
            let peers: Vec<Peer> =
                ["a=x", "b:=x"].iter().map(|text| text.parse().unwrap()).collect();
            let arms = arms(&states, &peers, floor);
            for round in Design::new(seed, &arms).take(5) {
                let mut seen = round.clone();
                seen.sort_unstable();
                prop_assert_eq!(seen, (0..arms.len()).collect::<Vec<_>>());
                for (place, &index) in round.iter().enumerate() {
                    let fillable = arms.iter().any(|filler| arms[index].is_filled_by(*filler));
                    prop_assert!(
                        !fillable || place > 0 && arms[index].is_filled_by(arms[round[place - 1]])
                    );
                }
            }
        }
    }
}

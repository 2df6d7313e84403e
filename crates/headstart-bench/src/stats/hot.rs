//! How near prefetched starts come to hot ones.
//!
//! A hot start does no I/O, so prefetching can't save the time that it takes.

use serde::Serialize;

use super::paired::{Location, PairedRatio, location, ratio};
use super::summary::summarise;

/// The arms of one build or one setting, measured in the same rounds.
#[derive(Debug, Clone, Copy)]
pub struct ColdAndHot<'a> {
    /// Seconds of each round's cold start.
    pub cold: &'a [f64],
    /// Seconds of each round's hot start.
    pub hot: &'a [f64],
}

/// By how much the I/O part of a start changed: (cold2 − hot2) − (cold1 − hot1)
/// of each round, in the unit of the values, below 0 when the second is better.
/// Comparing cold times alone would count a change of the program's own
/// computing as one of its I/O.
///
/// The measure comes from a 2011 study of Firefox's start-up
/// (<https://glandium.org/blog/?p=1269>). It wants a fixed CPU frequency, because
/// a waiting CPU may clock down. `None` when no round has all four values;
/// rounds that lack one are counted.
pub fn improvement(first: ColdAndHot, second: ColdAndHot) -> Option<Location> {
    let arms = [second.cold, second.hot, first.cold, first.hot];
    let rounds = arms.iter().map(|arm| arm.len()).max().unwrap_or(0);
    let of_round = |round: usize| {
        let [cold2, hot2, cold1, hot1] =
            arms.map(|arm| arm.get(round).copied().unwrap_or(f64::NAN));
        (cold2 - hot2) - (cold1 - hot1)
    };
    location(&(0..rounds).map(of_round).collect::<Vec<_>>())
}

/// What bounds a prefetched start from below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// A hot start: what the program computes.
    Hot,
    /// The time the device needs for the bytes alone.
    Floor,
}

/// How many times the best possible a prefetched start took: its ratio to hot
/// starts or to the floor of the same rounds, whichever takes longer by their
/// medians. 1 is perfect; below 1 is possible when a prefetched start saves
/// more than I/O.
///
/// One of the two may be empty. `None` when no round has both values above 0.
pub fn ratio_to_ideal(ahead: &[f64], hot: &[f64], floor: &[f64]) -> Option<(Bound, PairedRatio)> {
    let median = |values: &[f64]| summarise(values).map(|summary| summary.median);
    // Round by round the larger of the two would be taken too often for the
    // noisier one, and the bound come out too high.
    let (bound, ideal) = match (median(hot), median(floor)) {
        (Some(hot_median), Some(floor_median)) if floor_median > hot_median => {
            (Bound::Floor, floor)
        }
        (None, _) => (Bound::Floor, floor),
        _ => (Bound::Hot, hot),
    };
    Some((bound, ratio(ideal, ahead)?))
}

/// How much a start has used at some moment, both as shares from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Of its computing.
    pub computed: f64,
    /// Of the bytes that it uses in all.
    pub used: f64,
}

/// The time of prefetched starts ÷ the lower bound in touch order.
///
/// A program computes only with what is there. What it has used at some moment takes
/// its share of the floor to arrive, whatever comes first, and what is then left to
/// compute takes its share of the hot start: the sum bounds the start from below, and
/// the largest sum over all moments is the bound. It is never below the larger of
/// hot start and floor, and well above where much is used early.
///
/// `None` when no round has all three values above 0.
pub fn ratio_in_order(
    ahead: &[f64],
    hot: &[f64],
    floor: &[f64],
    progress: &[Progress],
) -> Option<PairedRatio> {
    let bound = |hot: f64, floor: f64, at: &Progress| floor * at.used + hot * (1.0 - at.computed);
    let (usual_hot, usual_floor) = (summarise(hot)?.median, summarise(floor)?.median);
    let ends = [Progress { computed: 0.0, used: 0.0 }, Progress { computed: 1.0, used: 1.0 }];
    // By the medians, for the reason that holds in ratio_to_ideal.
    let tightest = ends.iter().chain(progress).max_by(|a, b| {
        bound(usual_hot, usual_floor, a).total_cmp(&bound(usual_hot, usual_floor, b))
    })?;
    let ideal: Vec<f64> =
        hot.iter().zip(floor).map(|(hot, floor)| bound(*hot, *floor, tightest)).collect();
    ratio(&ideal, ahead)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_faster_cpu_alone_is_no_improvement_of_the_io() {
        let first = ColdAndHot { cold: &[50.0, 52.0, 51.0], hot: &[20.0, 21.0, 20.5] };
        let second = ColdAndHot { cold: &[40.0, 42.0, 41.0], hot: &[10.0, 11.0, 10.5] };
        assert_eq!(improvement(first, second).unwrap().estimate, 0.0);
        let less_io = ColdAndHot { cold: &[35.0, 36.0, 35.5], hot: first.hot };
        assert!(improvement(first, less_io).unwrap().estimate < -14.0);
    }

    #[test]
    fn a_round_that_lacks_an_arm_is_counted_and_not_used() {
        let first = ColdAndHot { cold: &[50.0, f64::NAN, 51.0], hot: &[20.0, 21.0, 20.5] };
        let second = ColdAndHot { cold: &[40.0, 42.0, 41.0, 40.0], hot: &[20.0, 21.0, 20.5] };
        let found = improvement(first, second).unwrap();
        assert_eq!((found.n, found.skipped, found.estimate), (2, 2, -10.0));
        let nothing = ColdAndHot { cold: &[], hot: &[] };
        assert_eq!(improvement(nothing, nothing), None);
    }

    #[test]
    fn the_ideal_is_the_slower_of_hot_start_and_device() {
        let (ahead, hot) = ([2.0, 2.2, 1.8], [1.0, 1.1, 0.9]);
        let (bound, by_hot) = ratio_to_ideal(&ahead, &hot, &[0.5, 0.5, 0.6]).unwrap();
        assert!(bound == Bound::Hot && (by_hot.ratio - 2.0).abs() < 1e-12);
        let (bound, by_device) = ratio_to_ideal(&ahead, &hot, &[4.0, 4.4, 3.6]).unwrap();
        assert!(bound == Bound::Floor && (by_device.ratio - 0.5).abs() < 1e-12);
        let (bound, failed) = ratio_to_ideal(&ahead, &[f64::NAN, 1.1, 0.9], &[]).unwrap();
        assert_eq!((bound, failed.pairs, failed.skipped), (Bound::Hot, 2, 1));
        let (bound, _) = ratio_to_ideal(&ahead, &[], &[0.1, 0.1, 0.1]).unwrap();
        assert_eq!(bound, Bound::Floor);
        assert_eq!(ratio_to_ideal(&ahead, &[], &[]), None);
    }

    #[test]
    fn what_is_used_early_has_to_arrive_before_the_rest_is_computed() {
        let (hot, floor) = ([1.0, 1.1, 0.9], [1.0, 1.0, 1.0]);
        let at = |computed, used| Progress { computed, used };
        for (name, progress, bound) in [
            ("all at once", vec![at(0.0, 1.0)], 2.0),
            ("evenly", vec![at(0.25, 0.25), at(0.5, 0.5), at(1.0, 1.0)], 1.0),
            ("most of it early", vec![at(0.1, 0.6), at(0.9, 1.0)], 1.5),
            ("nothing is known", vec![], 1.0),
        ] {
            let ahead = [3.0, 3.0, 3.0];
            let found = ratio_in_order(&ahead, &hot, &floor, &progress).unwrap();
            assert!((found.ratio - 3.0 / bound).abs() < 0.1, "{name}: {found:?}");
        }
        assert_eq!(ratio_in_order(&[1.0], &[], &[1.0], &[]), None);
        let failed = ratio_in_order(&[1.0, 1.0], &[1.0, f64::NAN], &[1.0, 1.0], &[]).unwrap();
        assert_eq!((failed.pairs, failed.skipped), (1, 1));
    }

    proptest! {
        #[test]
        fn the_bound_in_order_is_never_below_the_ideal(
            hot in 0.1f64..10.0, floor in 0.1f64..10.0,
            shares in proptest::collection::vec((0.0f64..=1.0, 0.0f64..=1.0), 0..9)
        ) {
            let progress: Vec<_> =
                shares.iter().map(|&(computed, used)| Progress { computed, used }).collect();
            let (ahead, hot, floor) = ([1.0], [hot], [floor]);
            let in_order = ratio_in_order(&ahead, &hot, &floor, &progress).unwrap().ratio;
            let (_, ideal) = ratio_to_ideal(&ahead, &hot, &floor).unwrap();
            prop_assert!(in_order <= ideal.ratio * (1.0 + 1e-9));
            prop_assert!(in_order * (hot[0] + floor[0]) >= 1.0 - 1e-9);
        }
    }
}

//! How near to perfect: cold starts measured against hot ones.
//!
//! A hot start does no I/O, so what it takes is not start-up I/O's to save.

use super::paired::{Location, PairedRatio, location, ratio};

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

/// How many times the best possible a read-ahead start took: the ratio of each
/// round's start to max(hot, floor), where `floor` is the time the device needs
/// for the bytes alone. 1 is perfect; below 1 is possible when a read-ahead
/// start saves more than I/O.
///
/// A `floor` that is not known may be 0. `None` when no round has both values
/// above 0.
pub fn ratio_to_ideal(ahead: &[f64], hot: &[f64], floor: f64) -> Option<PairedRatio> {
    // A NaN must stay one: max() would turn a failed hot run into the floor.
    let ideal = |hot: &f64| if hot.is_nan() { *hot } else { hot.max(floor) };
    ratio(&hot.iter().map(ideal).collect::<Vec<_>>(), ahead)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!((found.n, found.left_out, found.estimate), (2, 2, -10.0));
        let nothing = ColdAndHot { cold: &[], hot: &[] };
        assert_eq!(improvement(nothing, nothing), None);
    }

    #[test]
    fn the_ideal_is_the_slower_of_hot_start_and_device() {
        let ahead = [2.0, 2.2, 1.8];
        let by_hot = ratio_to_ideal(&ahead, &[1.0, 1.1, 0.9], 0.5).unwrap();
        assert!((by_hot.ratio - 2.0).abs() < 1e-12);
        let by_device = ratio_to_ideal(&ahead, &[1.0, 1.1, 0.9], 4.0).unwrap();
        assert!((by_device.ratio - 0.5).abs() < 0.01);
        let failed = ratio_to_ideal(&ahead, &[f64::NAN, 1.1, 0.9], 0.5).unwrap();
        assert_eq!((failed.pairs, failed.left_out), (2, 1));
        assert_eq!(ratio_to_ideal(&ahead, &[1.0, 1.0, 1.0], f64::NAN).unwrap().pairs, 3);
    }
}

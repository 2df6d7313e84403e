//! A summary of one set of runs.

use serde::Serialize;
use std::sync::OnceLock;

use super::{CONFIDENCE, Interval, dist, mean, median_of_sorted, sorted};

/// The summary of one set of values; see [`summarise`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// How many values it describes.
    pub n: usize,
    /// How many more were skipped because they were not finite.
    pub skipped: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Sample standard deviation (n − 1); `None` for one value.
    pub stddev: Option<f64>,
    /// Middle value.
    pub median: f64,
    /// Median distance from the median, not scaled to a standard deviation.
    pub mad: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// Student's t interval of the mean; `None` for one value.
    pub mean_interval: Option<Interval>,
    /// Interval of the median between two of the values, exact whatever the
    /// distribution. Below six values it is the whole range, and its confidence
    /// says how much less than requested that is. `None` for one value.
    pub median_interval: Option<Interval>,
}

/// Summarises the finite values; `None` when there are none.
///
/// ```
/// let summary = headstart_bench::stats::summary::summarise(&[1.0, 2.0, 9.0]).expect("three values");
/// assert_eq!(summary.median, 2.0);
/// ```
pub fn summarise(values: &[f64]) -> Option<Summary> {
    let sorted = sorted(values.iter().copied());
    let median = median_of_sorted(&sorted)?;
    let mean = mean(&sorted)?;
    let stddev = stddev(&sorted, mean);
    Some(Summary {
        n: sorted.len(),
        skipped: values.len() - sorted.len(),
        mean,
        stddev,
        median,
        mad: mad(&sorted, median)?,
        min: *sorted.first()?,
        max: *sorted.last()?,
        mean_interval: stddev.and_then(|sd| mean_interval(sorted.len(), mean, sd)),
        median_interval: median_interval(&sorted),
    })
}

/// The sample standard deviation, scaled so that squares cannot overflow.
pub(super) fn stddev(values: &[f64], mean: f64) -> Option<f64> {
    let scale = values.iter().map(|x| (x - mean).abs()).fold(0.0, f64::max);
    if values.len() < 2 || scale == 0.0 {
        return (values.len() >= 2).then_some(0.0);
    }
    let squares: f64 = values.iter().map(|x| ((x - mean) / scale).powi(2)).sum();
    Some(scale * (squares / (values.len() - 1) as f64).sqrt())
}

/// The median distance of the values from their median.
pub(super) fn mad(values: &[f64], median: f64) -> Option<f64> {
    median_of_sorted(&sorted(values.iter().map(|x| (x - median).abs())))
}

/// [`dist::t_reach`] of so many values: hundred thousands of counters have the same number.
fn reach_of(n: usize) -> Option<f64> {
    static FOUND: [OnceLock<Option<f64>>; 128] = [const { OnceLock::new() }; 128];
    let find = || dist::t_reach(CONFIDENCE, n as f64 - 1.0);
    FOUND.get(n).map_or_else(find, |found| *found.get_or_init(find))
}

fn mean_interval(n: usize, mean: f64, stddev: f64) -> Option<Interval> {
    let reach = reach_of(n)? * stddev / (n as f64).sqrt();
    Some(Interval { low: mean - reach, high: mean + reach, confidence: CONFIDENCE })
}

/// Between the k-th smallest and the k-th largest value. The number of values
/// below the true median is binomial with 1/2, so the interval misses it with
/// probability 2·P(B < k); k is the largest that keeps this to 5 %.
fn median_interval(sorted: &[f64]) -> Option<Interval> {
    let n = sorted.len();
    if n < 2 {
        return None;
    }
    // Logarithms, because 2^-n is 0 in floating point from n = 1075 on.
    let mut log_mass = -(n as f64) * std::f64::consts::LN_2;
    let (mut k, mut below) = (1, log_mass.exp());
    while k < n / 2 {
        log_mass += ((n - k + 1) as f64 / k as f64).ln();
        let next = below + log_mass.exp();
        if next > (1.0 - CONFIDENCE) / 2.0 {
            break;
        }
        (k, below) = (k + 1, next);
    }
    Some(Interval { low: sorted[k - 1], high: sorted[n - k], confidence: 1.0 - 2.0 * below })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_statistics_follow_the_published_table() {
        // k of the k-th smallest and largest value, two-sided 95 %.
        for (n, k) in [(6, 1), (9, 2), (12, 3), (15, 4), (20, 6), (25, 8), (50, 18), (100, 40)] {
            let values: Vec<f64> = (1..=n).map(f64::from).collect();
            let interval = summarise(&values).unwrap().median_interval.unwrap();
            let expected = (f64::from(k), f64::from(n + 1 - k));
            assert_eq!((interval.low, interval.high), expected, "n = {n}");
            assert!(interval.is_confident());
        }
    }

    #[test]
    fn few_runs_give_the_whole_range_with_its_true_confidence() {
        let interval = summarise(&[3.0, 1.0, 2.0]).unwrap().median_interval.unwrap();
        assert_eq!(interval, Interval { low: 1.0, high: 3.0, confidence: 0.75 });
        assert!(!interval.is_confident());
    }

    #[test]
    fn a_single_value_has_no_spread_and_no_interval() {
        let summary = summarise(&[4.0]).unwrap();
        assert_eq!((summary.mean, summary.median, summary.mad), (4.0, 4.0, 0.0));
        assert_eq!((summary.stddev, summary.mean_interval), (None, None));
        assert_eq!(summary.median_interval, None);
    }

    #[test]
    fn values_that_are_not_finite_are_skipped_and_counted() {
        let summary = summarise(&[1.0, f64::NAN, 3.0, f64::INFINITY]).unwrap();
        assert_eq!((summary.n, summary.skipped, summary.mean), (2, 2, 2.0));
        assert_eq!(summarise(&[f64::NAN]), None);
        assert_eq!(summarise(&[]), None);
    }

    #[test]
    fn constant_values_have_an_interval_of_no_width() {
        let summary = summarise(&[7.0; 10]).unwrap();
        assert_eq!((summary.stddev, summary.mad), (Some(0.0), 0.0));
        let mean = summary.mean_interval.unwrap();
        let median = summary.median_interval.unwrap();
        assert_eq!((mean.low, mean.high, median.low, median.high), (7.0, 7.0, 7.0, 7.0));
    }

    #[test]
    fn thousands_of_runs_do_not_underflow() {
        let values: Vec<f64> = (0..5000).map(f64::from).collect();
        let interval = summarise(&values).unwrap().median_interval.unwrap();
        // 2500 − 0.98·√5000 ≈ 2430.7 values lie below.
        assert!((interval.low - 2430.0).abs() <= 1.0, "{interval:?}");
        assert!(interval.confidence >= 0.95 && interval.confidence < 0.953);
    }
}

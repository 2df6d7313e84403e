//! Statistics on run times and counters: values in, values out.
//!
//! No function here does I/O or panics, whatever it is given. A value that is
//! not finite is skipped and counted; an answer that the data cannot support
//! is `None`. An [`Interval`] carries the confidence it really has, which for
//! few runs is less than the [`CONFIDENCE`] requested.

mod dist;
pub mod fdr;
pub mod hot;
pub mod order;
pub mod paired;
pub mod quality;
mod ranks;
mod select;
pub mod sequential;
pub mod summary;
pub mod trend;
pub mod unpaired;
pub mod verdict;

use serde::Serialize;

/// The confidence asked of every interval.
pub const CONFIDENCE: f64 = 0.95;

/// A confidence interval, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Lower end, in the unit of the values.
    pub low: f64,
    /// Upper end, in the unit of the values.
    pub high: f64,
    /// How often such an interval covers the truth: [`CONFIDENCE`] or a little
    /// more, but less when there were too few values to do better.
    pub confidence: f64,
}

impl Interval {
    /// Whether there were enough values to have the confidence requested.
    pub fn is_confident(&self) -> bool {
        self.confidence >= CONFIDENCE - 1e-9
    }

    /// Whether `x` lies in the interval.
    pub fn contains(&self, x: f64) -> bool {
        self.low <= x && x <= self.high
    }

    /// Half the width as a share of `centre`; `None` when the centre is 0.
    pub fn relative_half_width(&self, centre: f64) -> Option<f64> {
        let half = (self.high - self.low) / 2.0 / centre.abs();
        half.is_finite().then_some(half)
    }

    fn map(self, f: impl Fn(f64) -> f64) -> Interval {
        Interval { low: f(self.low), high: f(self.high), ..self }
    }
}

/// The finite values in ascending order.
fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut kept: Vec<f64> = values.into_iter().filter(|x| x.is_finite()).collect();
    kept.sort_by(f64::total_cmp);
    kept
}

/// The middle of ascending values; `None` when there are none.
fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let low = *sorted.get(sorted.len().checked_sub(1)? / 2)?;
    let high = *sorted.get(sorted.len() / 2)?;
    Some(middle(low, high))
}

/// Halfway between two values, without overflow.
fn middle(low: f64, high: f64) -> f64 {
    low * 0.5 + high * 0.5
}

/// The mean without overflow; `None` when there are no values. Deviations from
/// one of the values are summed, so that equal values have exactly their mean.
fn mean(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    let from = *values.first()?;
    Some(from + values.iter().map(|x| x / n - from / n).sum::<f64>())
}

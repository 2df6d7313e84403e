//! Two sets of runs that share no rounds: Hodges and Lehmann's shift with the
//! Mann-Whitney interval, and Welch's t-test.

use serde::Serialize;
use std::collections::HashMap;

use super::ranks::Null;
use super::summary::stddev;
use super::{CONFIDENCE, Interval, dist, mean, select, sorted};

/// How far b lies above a; see [`shift`] and [`Ranks::ratio`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shift {
    /// How many values of a it rests on.
    pub n_a: usize,
    /// How many values of b it rests on.
    pub n_b: usize,
    /// The Hodges-Lehmann estimate.
    pub estimate: f64,
    /// The Mann-Whitney interval, with the confidence it achieves. With three
    /// values a side that is 90 %, with four 97 %.
    pub interval: Interval,
    /// Whether the interval's confidence is exact (up to 50 values a side) and
    /// not approximated.
    pub exact: bool,
}

/// Welch's t-test; see [`welch`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Welch {
    /// The mean of b minus the mean of a.
    pub difference: f64,
    /// Interval of the difference.
    pub interval: Interval,
    /// The difference in standard errors, positive when b is larger. Infinite
    /// when both sets are constant and differ.
    pub t: f64,
    /// Degrees of freedom by Welch and Satterthwaite.
    pub df: f64,
    /// Two-sided p value. When both sets are constant there is no standard
    /// error, so it is then the permutation test's: 1 if they are equal, else
    /// 2 of all possibilities to deal the values into two sets.
    pub p: f64,
}

/// The median of all differences b − a of finite values; `None` when a side
/// has none.
pub fn shift(a: &[f64], b: &[f64]) -> Option<Shift> {
    Ranks::default().shift(a, b)
}

/// The ranks that bound intervals, by the numbers of values: very many counters have the same.
#[derive(Debug, Default)]
pub struct Ranks(HashMap<(usize, usize), (u64, f64, bool)>);

impl Ranks {
    /// The rank of the member that bounds the interval, its confidence, and whether that is exact.
    fn of(&mut self, n: usize, m: usize) -> (u64, f64, bool) {
        *self.0.entry((n, m)).or_insert_with(|| {
            let null = Null::rank_sum(n, m);
            let (rank, confidence) = null.interval_rank();
            (rank, confidence, null.is_exact())
        })
    }

    /// [`shift`]
    pub fn shift(&mut self, a: &[f64], b: &[f64]) -> Option<Shift> {
        let (a, b) = (sorted(a.iter().copied()), sorted(b.iter().copied()));
        if a.is_empty() || b.is_empty() {
            return None;
        }
        let members = a.len() as u64 * b.len() as u64;
        let (rank, confidence, exact) = self.of(a.len(), b.len());
        let difference = select::differences(&a, &b);
        Some(Shift {
            n_a: a.len(),
            n_b: b.len(),
            estimate: select::median(members, &difference),
            interval: Interval {
                low: difference(rank),
                high: difference(members + 1 - rank),
                confidence,
            },
            exact,
        })
    }

    /// The typical b/a: the shift of the logarithms. `None` when a side is empty
    /// or a finite value is not above 0, because it has no ratio and leaving it out
    /// would favour its side.
    pub fn ratio(&mut self, a: &[f64], b: &[f64]) -> Option<Shift> {
        if a.iter().chain(b).any(|&x| x.is_finite() && x <= 0.0) {
            return None;
        }
        let logs = |values: &[f64]| values.iter().map(|x| x.ln()).collect::<Vec<_>>();
        let shift = self.shift(&logs(a), &logs(b))?;
        Some(Shift {
            estimate: shift.estimate.exp(),
            interval: shift.interval.map(f64::exp),
            ..shift
        })
    }
}

/// What Welch's t-test finds, without the interval, which takes ten times as long to compute.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tested {
    /// [`Welch::difference`]
    pub difference: f64,
    /// Its standard error.
    pub error: f64,
    /// [`Welch::t`]
    pub t: f64,
    /// [`Welch::df`]
    pub df: f64,
    /// [`Welch::p`]
    pub p: f64,
}

/// Compares the means of two sets whose spreads may differ (B. L. Welch,
/// Biometrika 34, 1947). `None` unless each has two finite values.
pub fn welch(a: &[f64], b: &[f64]) -> Option<Welch> {
    let Tested { difference, error, t, df, p } = test(a, b)?;
    let reach = if error == 0.0 { 0.0 } else { dist::t_reach(CONFIDENCE, df)? * error };
    Some(Welch {
        difference,
        interval: Interval {
            low: difference - reach,
            high: difference + reach,
            confidence: CONFIDENCE,
        },
        t,
        df,
        p,
    })
}

/// [`welch`], without the interval.
pub fn test(a: &[f64], b: &[f64]) -> Option<Tested> {
    let (a, b) = (sorted(a.iter().copied()), sorted(b.iter().copied()));
    let (mean_a, mean_b) = (mean(&a)?, mean(&b)?);
    let (n, m) = (a.len() as f64, b.len() as f64);
    let error_a = stddev(&a, mean_a)? / n.sqrt();
    let error_b = stddev(&b, mean_b)? / m.sqrt();
    let difference = mean_b - mean_a;
    let error = error_a.hypot(error_b);
    if error == 0.0 {
        let equal = difference == 0.0;
        return Some(Tested {
            difference,
            error,
            t: if equal { 0.0 } else { difference.signum() * f64::INFINITY },
            df: n + m - 2.0,
            p: if equal { 1.0 } else { smallest_p(a.len(), b.len()) },
        });
    }
    // Shares of the error first: its fourth power would leave the range.
    let (share_a, share_b) = (error_a / error, error_b / error);
    let df = (share_a.powi(4) / (n - 1.0) + share_b.powi(4) / (m - 1.0)).recip();
    let t = difference / error;
    Some(Tested { difference, error, t, df, p: dist::t_two_sided(t, df)? })
}

/// The p value of two sets that are constant and differ: 2 / C(n + m, n), since of all
/// possibilities to deal the values into the two sets, only the one found and its mirror image are
/// as extreme.
pub fn smallest_p(n: usize, m: usize) -> f64 {
    (1..=n).fold(2.0, |p, i| p * i as f64 / (m + i) as f64).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_sets_that_differ_are_only_as_sure_as_their_number_allows() {
        for (n, p) in [(2, 2.0 / 6.0), (3, 2.0 / 20.0), (5, 2.0 / 252.0)] {
            let found = welch(&vec![10.0; n], &vec![9.0; n]).unwrap();
            assert_eq!(found.t, f64::NEG_INFINITY);
            assert!((found.p - p).abs() < 1e-15, "{n}: {}", found.p);
        }
        let same = welch(&[10.0; 4], &[10.0; 4]).unwrap();
        assert_eq!((same.t, same.p, same.difference), (0.0, 1.0, 0.0));
    }

    #[test]
    fn too_few_values_give_no_answer() {
        assert_eq!(welch(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(welch(&[], &[]), None);
        assert_eq!(welch(&[f64::NAN, 1.0], &[1.0, 2.0]), None);
        assert_eq!(shift(&[], &[1.0]), None);
        assert_eq!(shift(&[1.0], &[f64::NAN]), None);
    }

    #[test]
    fn a_ratio_needs_every_value_above_zero() {
        let mut ranks = Ranks::default();
        assert_eq!(ranks.ratio(&[1.0, 0.0], &[1.0, 2.0]), None);
        let found = ranks.ratio(&[1.0, 2.0, 4.0, 8.0], &[3.0, 6.0, 12.0, 24.0]).unwrap();
        assert!((found.estimate - 3.0).abs() < 1e-12);
        assert!(found.interval.contains(3.0) && found.interval.is_confident());
    }

    #[test]
    fn extreme_magnitudes_keep_their_t() {
        for scale in [1e-200, 1.0, 1e200] {
            let a: Vec<f64> = [1.0, 2.0, 3.0].iter().map(|x| x * scale).collect();
            let b: Vec<f64> = [2.0, 3.0, 4.0].iter().map(|x| x * scale).collect();
            let found = welch(&a, &b).unwrap();
            assert!((found.t - 1.224_744_871).abs() < 1e-8, "{found:?}");
            assert!((found.df - 4.0).abs() < 1e-9);
        }
    }
}

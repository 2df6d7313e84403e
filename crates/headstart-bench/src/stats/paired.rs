//! Two arms measured in the same rounds: the difference or the ratio of a round's two values, so
//! that whatever slows a whole round cancels.
//!
//! The estimate is Hodges and Lehmann's, the median of all pairwise averages; its interval inverts
//! Wilcoxon's signed-rank test. Both assume differences that are symmetric about their centre, as
//! those of arms of the same shape are, but no particular distribution. One outlier changes them
//! little.

use serde::Serialize;

use super::ranks::{EXACT_UP_TO, Null, doubled_ranks, signed_sum_at_most};
use super::{Interval, dist, select, sorted};

/// Where the centre of a set of differences lies; see [`location`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Location {
    /// How many finite values it rests on.
    pub n: usize,
    /// How many more were skipped because they were not finite.
    pub skipped: usize,
    /// The Hodges-Lehmann estimate.
    pub estimate: f64,
    /// The signed-rank interval, with the confidence it achieves. Below six
    /// values that is less than requested.
    pub interval: Interval,
    /// Two-sided p value of the Wilcoxon signed-rank test that the centre is
    /// 0. Zeros are dropped and ties get mid-ranks; up to 50 values the
    /// distribution is exact, given the ties; above it is normal, with
    /// continuity correction.
    pub p: f64,
    /// Whether the interval's confidence is exact and not approximated.
    pub exact: bool,
}

/// A ratio b/a of two arms; see [`ratio`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PairedRatio {
    /// How many pairs it rests on.
    pub pairs: usize,
    /// How many pairs were skipped because a value was missing, not finite or
    /// not above 0.
    pub skipped: usize,
    /// The typical b/a of a round: 0.5 when b takes half of a's time.
    pub ratio: f64,
    /// The interval of the ratio.
    pub interval: Interval,
    /// Two-sided p value of the ratio being 1; see [`Location::p`].
    pub p: f64,
    /// Whether the interval's confidence is exact and not approximated.
    pub exact: bool,
}

/// The centre of the finite values among `differences`, one per round; `None`
/// when there are none.
pub fn location(differences: &[f64]) -> Option<Location> {
    let sorted = sorted(differences.iter().copied());
    let n = sorted.len();
    if n == 0 {
        return None;
    }
    let members = select::walsh_members(n);
    let null = Null::signed_rank(n);
    let (rank, confidence) = null.interval_rank();
    Some(Location {
        n,
        skipped: differences.len() - n,
        estimate: select::median(members, |k| select::walsh(&sorted, k)),
        interval: Interval {
            low: select::walsh(&sorted, rank),
            high: select::walsh(&sorted, members + 1 - rank),
            confidence,
        },
        p: signed_rank_p(&sorted),
        exact: null.is_exact(),
    })
}

/// The ratio b/a over the rounds, from the logarithms of each round's ratio:
/// swapping the arms gives the reciprocal. `None` without a usable pair.
///
/// ```
/// let (cold, prefetched) = ([2.0, 2.2, 1.8, 2.1, 2.0, 1.9], [1.0, 1.1, 0.9, 1.0, 1.1, 1.0]);
/// let ratio = headstart_bench::stats::paired::ratio(&cold, &prefetched).expect("six pairs");
/// assert!(ratio.ratio < 0.6, "about half the time");
/// ```
pub fn ratio(a: &[f64], b: &[f64]) -> Option<PairedRatio> {
    let logs: Vec<f64> = a
        .iter()
        .zip(b)
        .filter(|&(&a, &b)| a > 0.0 && b > 0.0)
        .map(|(a, b)| b.ln() - a.ln())
        .collect();
    let location = location(&logs)?;
    Some(PairedRatio {
        pairs: location.n,
        skipped: a.len().max(b.len()) - location.n,
        ratio: location.estimate.exp(),
        interval: location.interval.map(f64::exp),
        p: location.p,
        exact: location.exact,
    })
}

fn signed_rank_p(differences: &[f64]) -> f64 {
    let nonzero: Vec<f64> = differences.iter().copied().filter(|&d| d != 0.0).collect();
    let sizes: Vec<f64> = nonzero.iter().map(|d| d.abs()).collect();
    let ranks = doubled_ranks(&sizes);
    let total: usize = ranks.iter().sum();
    let positive: usize = ranks.iter().zip(&nonzero).filter(|(_, d)| **d > 0.0).map(|r| r.0).sum();
    let smaller = positive.min(total - positive);
    if nonzero.len() <= EXACT_UP_TO {
        return (2.0 * signed_sum_at_most(&ranks, smaller)).min(1.0);
    }
    // Sums of squared ranks hold the tie correction. All in doubled ranks.
    let sd = (ranks.iter().map(|&r| (r * r) as f64).sum::<f64>() / 4.0).sqrt();
    let from_centre = (total as f64 / 2.0 - smaller as f64 - 1.0).max(0.0);
    dist::normal_two_sided(from_centre / sd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_slow_round_does_not_move_the_ratio() {
        let a = [100.0, 110.0, 90.0, 105.0, 95.0, 100.0, 102.0, 98.0];
        let mut b: Vec<f64> = a.iter().map(|x| x / 2.0).collect();
        b[3] *= 40.0;
        let found = ratio(&a, &b).unwrap();
        assert!((found.ratio - 0.5).abs() < 1e-12, "{found:?}");
        assert!(found.interval.low <= 0.5 && found.interval.is_confident());
    }

    #[test]
    fn equal_arms_are_a_ratio_of_one_without_evidence() {
        let a = [3.0; 12];
        let found = ratio(&a, &a).unwrap();
        assert_eq!((found.ratio, found.p), (1.0, 1.0));
        assert_eq!((found.interval.low, found.interval.high), (1.0, 1.0));
    }

    #[test]
    fn pairs_that_have_no_ratio_are_skipped_and_counted() {
        let a = [1.0, 0.0, 1.0, f64::NAN, 1.0, -1.0, 9.0];
        let b = [2.0, 1.0, f64::INFINITY, 1.0, 2.0, 1.0];
        let found = ratio(&a, &b).unwrap();
        assert_eq!((found.pairs, found.skipped), (2, 5));
        assert!((found.ratio - 2.0).abs() < 1e-12);
        assert_eq!(ratio(&[], &[]), None);
        assert_eq!(ratio(&[0.0], &[1.0]), None);
    }

    #[test]
    fn five_rounds_cannot_have_the_confidence_requested() {
        let found = location(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!((found.interval.low, found.interval.high), (1.0, 5.0));
        assert_eq!(found.interval.confidence, 0.9375);
        assert!(!found.interval.is_confident());
        assert_eq!(found.p, 0.0625);
    }
}

//! Whether the values rise or fall with the rounds: Mann-Kendall and Theil-Sen.
//!
//! Only the order of the values counts, so an outlier is not taken for a trend (H. B. Mann,
//! Econometrica 13, 1945; P. K. Sen, JASA 63, 1968).

use serde::Serialize;

use super::ranks::EXACT_UP_TO;
use super::{dist, median_of_sorted, sorted};

/// From how many values on not all pairs are kept.
const ALL_PAIRS_UP_TO: usize = 2000;

/// A monotone trend over the rounds; see [`trend`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trend {
    /// Change per round: the median slope of all pairs of rounds (Theil-Sen), above
    /// 2000 rounds of those half of them apart.
    pub slope: f64,
    /// Change from the first to the last round as a share of the median; `None`
    /// when the median is 0.
    pub relative_change: Option<f64>,
    /// Two-sided p value that the order of the values is chance
    /// (Mann-Kendall): exact without ties up to 50 values, else normal with the
    /// variance corrected for ties, and with continuity correction.
    pub p: f64,
}

/// The trend of one value a round, in the order of the rounds. Rounds without a
/// finite value keep their place. `None` for fewer than three values.
pub fn trend(values: &[f64]) -> Option<Trend> {
    let points: Vec<(f64, f64)> = values
        .iter()
        .enumerate()
        .filter(|(_, x)| x.is_finite())
        .map(|(round, &x)| (round as f64, x))
        .collect();
    if points.len() < 3 {
        return None;
    }
    let ascending = sorted(points.iter().map(|p| p.1));
    let median = median_of_sorted(&ascending)?;
    // All pairs of many values would fill the memory: then those half of the rounds apart
    // (Theil's incomplete method).
    let apart = (points.len() > ALL_PAIRS_UP_TO).then_some(points.len() / 2);
    let mut slopes = Vec::new();
    let (mut rises, mut falls) = (0u64, 0u64);
    for (i, (from, x)) in points.iter().enumerate() {
        for (j, (to, y)) in points.iter().enumerate().skip(i + 1) {
            if apart.is_none_or(|apart| j == i + apart) {
                slopes.push((y - x) / (to - from));
            }
            rises += u64::from(y > x);
            falls += u64::from(y < x);
        }
    }
    let slope = median_of_sorted(&sorted(slopes))?;
    let change = slope * (points.last()?.0 - points.first()?.0) / median.abs();
    Some(Trend {
        slope,
        relative_change: change.is_finite().then_some(change),
        p: chance(&ascending, rises, falls),
    })
}

/// The two-sided p value of so many rising and falling pairs.
fn chance(ascending: &[f64], rises: u64, falls: u64) -> f64 {
    let n = ascending.len() as f64;
    if rises + falls == ascending.len() as u64 * (ascending.len() as u64 - 1) / 2
        && ascending.len() <= EXACT_UP_TO
    {
        let tail: f64 =
            inversions(ascending.len()).iter().take(rises.min(falls) as usize + 1).sum();
        return (2.0 * tail).min(1.0);
    }
    let ties: f64 = ascending
        .chunk_by(|x, y| x == y)
        .map(|tied| tied.len() as f64)
        .map(|t| t * (t - 1.0) * (2.0 * t + 5.0))
        .sum();
    let sd = ((n * (n - 1.0) * (2.0 * n + 5.0) - ties) / 18.0).sqrt();
    // All values equal: no pair rises or falls, and no spread to divide by.
    if sd == 0.0 {
        return 1.0;
    }
    let score = (rises.abs_diff(falls) as f64 - 1.0).max(0.0);
    dist::normal_two_sided(score / sd)
}

/// The share of all orders of n different values that have i pairs in falling
/// order, at index i: value k can be put into any of k places.
fn inversions(n: usize) -> Vec<f64> {
    let mut share = vec![1.0];
    for places in 2..=n {
        let mut next = vec![0.0; share.len() + places - 1];
        for (i, p) in share.iter().enumerate() {
            for sum in &mut next[i..i + places] {
                *sum += p / places as f64;
            }
        }
        share = next;
    }
    share
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steadily_rising_values_are_a_trend() {
        let values: Vec<f64> = (0..8).map(|i| 100.0 + 2.0 * f64::from(i)).collect();
        let found = trend(&values).unwrap();
        assert_eq!(found.slope, 2.0);
        assert!((found.relative_change.unwrap() - 14.0 / 107.0).abs() < 1e-12);
        // Two of the 8! orders are as extreme.
        assert!((found.p - 2.0 / 40320.0).abs() < 1e-12);
    }

    #[test]
    fn of_many_values_the_slope_is_that_of_pairs_half_of_the_rounds_apart() {
        let n = ALL_PAIRS_UP_TO + 1;
        let values: Vec<f64> = (0..n).map(|i| 100.0 + 2.0 * i as f64 + (i % 2) as f64).collect();
        let found = trend(&values).unwrap();
        assert!((found.slope - 2.0).abs() < 1.5 / (n / 2) as f64, "{found:?}");
        assert!(found.p < 1e-9);
    }

    #[test]
    fn one_wild_run_is_not_a_trend() {
        let mut values = [10.0, 11.0, 10.5, 11.5, 10.2, 10.9, 10.4, 11.1, 10.7];
        values[8] = 1e6;
        let found = trend(&values).unwrap();
        assert!(found.p > 0.1 && found.relative_change.unwrap() < 0.2, "{found:?}");
    }

    #[test]
    fn a_missing_round_keeps_its_place() {
        let found = trend(&[1.0, 2.0, f64::NAN, 4.0, 5.0]).unwrap();
        assert_eq!(found.slope, 1.0);
    }

    #[test]
    fn constant_or_few_values_have_no_trend() {
        assert_eq!(trend(&[5.0; 20]).unwrap().p, 1.0);
        assert_eq!(trend(&[0.0; 20]).unwrap().relative_change, None);
        assert_eq!(trend(&[1.0, 2.0]), None);
        assert_eq!(trend(&[f64::NAN; 9]), None);
    }

    #[test]
    fn the_exact_and_the_normal_p_meet() {
        let mut values: Vec<f64> = (0..50).map(|i| f64::from((i * 17) % 50 + i / 3)).collect();
        let ties = trend(&values).unwrap().p;
        for (i, x) in values.iter_mut().enumerate() {
            *x += i as f64 * 1e-6;
        }
        let exact = trend(&values).unwrap().p;
        assert!((ties - exact).abs() < 0.02, "{ties} {exact}");
    }
}

//! Whether runs can be compared: warnings that say which run, how much, and what to do.

use std::fmt;

use serde::Serialize;

use super::summary::mad;
use super::trend::trend;
use super::{mean, median_of_sorted, sorted};

/// The modified z-score beyond which a run is an outlier: 3.5 for many runs
/// (B. Iglewicz & D. Hoaglin, How to Detect and Handle Outliers, 1993).
///
/// The spread of few runs is often small by chance, and 3.5 would flag 9 to
/// 17 % of undisturbed sets of 6 to 50 normal values. With this bound it is
/// 1.5 to 2.6 %, and 5 % of sets of 100.
pub fn outlier_score(n: usize) -> f64 {
    3.5 * (1.0 + 8.0 / n as f64)
}

/// A first run that is slower by less than this share is not worth a word.
const FIRST_RUN_SHARE: f64 = 0.05;

/// A drift must be this unlikely to be chance, because it is looked for in
/// every arm of every benchmark …
const DRIFT_P: f64 = 0.01;

/// … and change the values by this share from the first run to the last.
const DRIFT_SHARE: f64 = 0.01;

/// With this many values the median has an interval of 95 %, and fewer say
/// little about which of them is odd.
const ENOUGH: usize = 6;

/// A run far from the others.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Outlier {
    /// Its number, from 1.
    pub run: usize,
    /// Its distance from the median as a share of the median, negative below.
    pub relative: f64,
    /// Its modified z-score.
    pub score: f64,
}

/// Something that makes a set of runs less trustworthy than its interval says.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Warning {
    /// Runs without a finite value.
    Skipped {
        /// How many.
        skipped: usize,
        /// Of how many runs.
        of: usize,
    },
    /// Fewer runs than an interval needs.
    TooFew {
        /// How many there are.
        n: usize,
        /// How many it takes.
        needed: usize,
    },
    /// The first run is an outlier on the slow side.
    FirstRunSlower {
        /// How many times the median of the others it took.
        times: f64,
    },
    /// Runs far from the others.
    Outliers {
        /// Which, farthest first.
        runs: Vec<Outlier>,
        /// Of how many runs.
        of: usize,
    },
    /// The values rise or fall with the runs.
    Drift {
        /// Change from first to last as a share of the median.
        relative_change: f64,
        /// How likely such an order is by chance.
        p: f64,
    },
}

/// What to know about the runs of one arm, in the order they were made.
/// Larger values are taken for slower runs.
pub fn check(values: &[f64]) -> Vec<Warning> {
    let runs: Vec<(usize, f64)> =
        values.iter().enumerate().filter(|r| r.1.is_finite()).map(|(i, &x)| (i + 1, x)).collect();
    let mut warnings = Vec::new();
    if runs.len() < values.len() {
        let skipped = values.len() - runs.len();
        warnings.push(Warning::Skipped { skipped, of: values.len() });
    }
    if runs.len() < ENOUGH {
        warnings.push(Warning::TooFew { n: runs.len(), needed: ENOUGH });
        return warnings;
    }
    let first = first_run_slower(&runs);
    // A slow first run has its own warning; it must not hide others by widening
    // the spread, nor pass for a drift.
    let rest = if first.is_some() { &runs[1..] } else { &runs[..] };
    warnings.extend(first);
    let outliers = outliers(rest);
    if !outliers.is_empty() {
        warnings.push(Warning::Outliers { runs: outliers, of: runs.len() });
    }
    warnings.extend(drift(&values[rest[0].0 - 1..]));
    warnings
}

fn first_run_slower(runs: &[(usize, f64)]) -> Option<Warning> {
    let (&(number, first), rest) = runs.split_first()?;
    let typical = Typical::of(rest)?;
    let times = first / typical.median;
    let slower = number == 1
        && typical.score(first) > outlier_score(rest.len())
        && times.is_finite()
        && times > 1.0 + FIRST_RUN_SHARE;
    slower.then_some(Warning::FirstRunSlower { times })
}

fn outliers(runs: &[(usize, f64)]) -> Vec<Outlier> {
    let Some(typical) = Typical::of(runs) else { return Vec::new() };
    let mut found: Vec<Outlier> = runs
        .iter()
        .map(|&(run, x)| Outlier {
            run,
            relative: (x - typical.median) / typical.median.abs(),
            score: typical.score(x),
        })
        .filter(|outlier| outlier.score.abs() > outlier_score(runs.len()))
        .collect();
    found.sort_by(|a, b| b.score.abs().total_cmp(&a.score.abs()));
    found
}

fn drift(values: &[f64]) -> Option<Warning> {
    let trend = trend(values)?;
    let relative_change = trend.relative_change?;
    let drifts = trend.p < DRIFT_P && relative_change.abs() >= DRIFT_SHARE;
    drifts.then_some(Warning::Drift { relative_change, p: trend.p })
}

/// Centre and spread that outliers move little.
struct Typical {
    median: f64,
    deviation: f64,
}

impl Typical {
    fn of(runs: &[(usize, f64)]) -> Option<Typical> {
        let ascending = sorted(runs.iter().map(|r| r.1));
        let median = median_of_sorted(&ascending)?;
        // The factors make both deviations a normal distribution's standard
        // deviation. More than half the values equal leaves the MAD at 0.
        let mut deviation = 1.482_602_2 * mad(&ascending, median)?;
        if deviation == 0.0 {
            let sizes: Vec<f64> = ascending.iter().map(|x| (x - median).abs()).collect();
            deviation = 1.253_314 * mean(&sizes)?;
        }
        Some(Typical { median, deviation })
    }

    /// The modified z-score; 0 when all values are equal.
    fn score(&self, x: f64) -> f64 {
        let from_median = x - self.median;
        if from_median == 0.0 { 0.0 } else { from_median / self.deviation }
    }
}

/// More outliers than this are counted, not listed.
const LISTED: usize = 4;

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::Skipped { skipped, of } => write!(
                f,
                "{skipped} of {of} runs gave no usable value and {} skipped. See why: what is \
                 missing may be just the slow ones.",
                if *skipped == 1 { "is" } else { "are" }
            ),
            Warning::TooFew { n, needed } => write!(
                f,
                "{n} {} too few for a 95 % interval. Use {needed} or more; 20 are enough \
                 for most comparisons.",
                if *n == 1 { "run is" } else { "runs are" }
            ),
            Warning::FirstRunSlower { times } => write!(
                f,
                "The first run took {times:.2} times as long as the others. It paid for what the \
                 later ones find done (caches, byte code, a CPU that has to clock up). Make a \
                 run beforehand that is not measured."
            ),
            Warning::Outliers { runs, of } => {
                let are = if runs.len() == 1 { "lies" } else { "lie" };
                write!(f, "{} of {of} runs {are} far from the others: ", runs.len())?;
                for (i, outlier) in runs.iter().take(LISTED).enumerate() {
                    let comma = if i == 0 { "" } else { ", " };
                    write!(f, "{comma}run {}{}", outlier.run, Distance(outlier.relative))?;
                }
                if runs.len() > LISTED {
                    write!(f, " and {} more", runs.len() - LISTED)?;
                }
                write!(
                    f,
                    ". Something else used the CPU or the disk then. Medians and ratios bear \
                     it, means do not; close what runs in parallel and measure again."
                )
            }
            Warning::Drift { relative_change, p } => write!(
                f,
                "The runs got {} by {:.1} % from first to last (p = {p:.1e}). The machine warms \
                 up, fills up or is shared. Arms of the same rounds stay comparable, runs of \
                 another day do not; let it settle and measure again.",
                if *relative_change > 0.0 { "slower" } else { "faster" },
                100.0 * relative_change.abs()
            ),
        }
    }
}

/// " (98 % above the median)"; nothing when the median is 0.
struct Distance(f64);

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.0 > 0.0 { "above" } else { "below" };
        let percent = 100.0 * self.0.abs();
        let decimals = usize::from(percent < 10.0);
        match self.0.is_finite() {
            true => write!(f, " ({percent:.decimals$} % {side} the median)"),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: [f64; 12] = [10.0, 10.3, 9.8, 10.1, 9.9, 10.2, 10.0, 9.7, 10.1, 10.2, 9.9, 10.1];

    fn with(run: usize, value: f64) -> Vec<f64> {
        let mut values = QUIET.to_vec();
        values[run - 1] = value;
        values
    }

    #[test]
    fn quiet_runs_get_no_warning() {
        assert_eq!(check(&QUIET), []);
        assert_eq!(check(&[5.0; 10]), []);
        assert_eq!(check(&[0.0; 10]), []);
    }

    #[test]
    fn an_outlier_is_named_with_its_distance() {
        let warnings = check(&with(7, 19.8));
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        let text = warnings[0].to_string();
        assert!(text.starts_with("1 of 12 runs lies far from the others: run 7 (96 % above the"));
        let below = check(&with(7, 1.0))[0].to_string();
        assert!(below.contains("run 7 (90 % below the median)"), "{below}");
    }

    #[test]
    fn a_slow_first_run_is_distinguished_from_an_outlier() {
        let warnings = check(&with(1, 15.1));
        assert!(
            matches!(warnings[..], [Warning::FirstRunSlower { times }] if (1.49..1.51).contains(&times))
        );
        assert!(warnings[0].to_string().contains("1.50 times as long"), "{}", warnings[0]);
        // A first run that failed leaves no first run to speak of.
        let second = check(&[vec![f64::NAN], with(1, 15.1)].concat());
        assert!(matches!(second[..], [Warning::Skipped { .. }, Warning::Outliers { .. }]));
    }

    #[test]
    fn one_deviant_among_equal_values_is_found_without_a_median_deviation() {
        let mut values = [10.0; 12];
        values[5] = 11.0;
        let warnings = check(&values);
        assert!(
            matches!(&warnings[..], [Warning::Outliers { runs, .. }] if runs[0].run == 6),
            "{warnings:?}"
        );
    }

    #[test]
    fn many_outliers_are_listed_farthest_first_and_then_counted() {
        let mut values = [QUIET, QUIET, QUIET].concat();
        for (i, run) in [5, 9, 14, 20, 27, 33].into_iter().enumerate() {
            values[run - 1] = 20.0 + i as f64;
        }
        let text = check(&values)[0].to_string();
        assert!(text.contains("6 of 36 runs lie far from the others: run 33 "), "{text}");
        assert!(text.contains(" and 2 more. "), "{text}");
    }

    #[test]
    fn a_drift_is_reported_with_size_and_chance() {
        let values: Vec<f64> = (0..12).map(|i| QUIET[i] + 0.2 * i as f64).collect();
        let warnings = check(&values);
        let [Warning::Drift { relative_change, p }] = warnings[..] else { panic!("{warnings:?}") };
        assert!((0.15..0.25).contains(&relative_change) && p < 0.001);
        assert!(warnings[0].to_string().starts_with("The runs got slower by "));
        let falling: Vec<f64> = values.into_iter().rev().collect();
        let text = check(&falling).last().unwrap().to_string();
        assert!(text.starts_with("The runs got faster by "), "{text}");
    }

    #[test]
    fn few_or_failed_runs_are_counted() {
        assert_eq!(check(&[]), [Warning::TooFew { n: 0, needed: 6 }]);
        assert_eq!(
            check(&[1.0, f64::NAN, 2.0]),
            [Warning::Skipped { skipped: 1, of: 3 }, Warning::TooFew { n: 2, needed: 6 }]
        );
    }
}

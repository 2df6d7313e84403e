//! When to stop measuring: `--until-ci P%`, with a cap.
//!
//! Stopping as soon as the interval is narrow favours samples whose spread is small by chance, so
//! the interval covers the truth less often than it says. In 4000 simulated benchmarks of each of
//! three kinds, which stopped after 20 to 60 rounds, a median's 95 % interval covered 93.0 to
//! 94.1 %. Requesting a narrow interval three rounds in a row costs three to eight rounds more and
//! gives 93.9 to 95.6 %; medians that take over 70 rounds stay at 93 %. A fixed number of rounds
//! gives the exact figure.

use serde::Serialize;

use super::{Interval, summary};

/// Stop when the answer is precise enough, or when enough has been tried.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    /// The relative half width to reach: 0.02 for `--until-ci 2%`.
    pub precision: f64,
    /// Never stop before this many rounds; [`LEAST`] unless there is a reason.
    pub least: usize,
    /// Never go beyond this many.
    pub most: usize,
}

/// The fewest rounds a rule should stop after.
pub const LEAST: usize = 10;

/// For so many rounds in a row the precision must be reached.
const IN_A_ROW: usize = 3;

/// What to do after a round, with the half width reached (`None`: too few
/// usable values for an interval).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum Step {
    /// Measure another round.
    GoOn {
        /// Relative half width so far.
        reached: Option<f64>,
    },
    /// Stop: the precision is reached.
    Precise {
        /// Relative half width.
        reached: f64,
    },
    /// Stop: the cap is reached and the precision is not.
    Capped {
        /// Relative half width.
        reached: Option<f64>,
    },
}

impl Rule {
    /// After runs of an arm: by the half width of their median. Failed runs count towards the
    /// cap, or a program that always fails would run for ever.
    pub fn after_runs(&self, values: &[f64]) -> Step {
        let rounds = values.len();
        let half_width = |runs: usize| {
            let summary = summary::summarise(&values[..runs])?;
            let interval = summary.median_interval.filter(Interval::is_confident)?;
            interval.relative_half_width(summary.median)
        };
        let reached = half_width(rounds);
        let precise = |half: f64| half <= self.precision;
        let steady = || {
            (1..IN_A_ROW)
                .all(|back| rounds.checked_sub(back).and_then(half_width).is_some_and(precise))
        };
        match reached {
            Some(reached) if rounds >= self.least && precise(reached) && steady() => {
                Step::Precise { reached }
            }
            _ if rounds >= self.most => Step::Capped { reached },
            _ => Step::GoOn { reached },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Rule = Rule { precision: 0.02, least: 10, most: 30 };

    fn runs(n: usize, spread: f64) -> Vec<f64> {
        (0..n).map(|i| 100.0 * (1.0 + spread * ((i % 5) as f64 - 2.0))).collect()
    }

    #[test]
    fn precise_runs_stop_at_the_least_number_and_not_before() {
        let after = |n| RULE.after_runs(&runs(n, 0.001));
        assert!(matches!(after(9), Step::GoOn { reached: Some(r) } if r < 0.02));
        assert!(matches!(after(10), Step::Precise { reached } if reached < 0.02));
    }

    #[test]
    fn wild_runs_go_on_to_the_cap() {
        let after = |n| RULE.after_runs(&runs(n, 0.2));
        assert!(matches!(after(29), Step::GoOn { reached: Some(r) } if r > 0.02));
        assert!(matches!(after(30), Step::Capped { reached: Some(_) }));
    }

    #[test]
    fn failing_runs_reach_the_cap_too() {
        assert_eq!(RULE.after_runs(&[f64::NAN; 30]), Step::Capped { reached: None });
        assert_eq!(RULE.after_runs(&[]), Step::GoOn { reached: None });
    }

    #[test]
    fn too_few_rounds_never_stop_even_when_asked_to() {
        let hasty = Rule { precision: 0.5, least: 0, most: 30 };
        assert_eq!(hasty.after_runs(&[1.0; 5]), Step::GoOn { reached: None });
        assert_eq!(hasty.after_runs(&[1.0; 7]), Step::GoOn { reached: Some(0.0) });
        assert_eq!(hasty.after_runs(&[1.0; 8]), Step::Precise { reached: 0.0 });
    }
}

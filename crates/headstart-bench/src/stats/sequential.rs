//! When to stop measuring: `--until-ci P%`, with a cap.
//!
//! Stopping as soon as the interval is narrow favours samples whose spread came
//! out small by chance, so that it covers the truth less often than it says. In
//! 4000 simulated benchmarks of each of three kinds, which stopped after 20 to
//! 60 rounds, a ratio's 95 % interval covered 93.5 to 94.3 %, a median's 93.0
//! to 94.1 %. Asking for a narrow interval three rounds in a row costs three to
//! eight rounds more and gives 94.2 to 95.0 % and 93.9 to 95.6 %; medians that
//! take over 70 rounds stay at 93 %. The rest is the price of looking: who
//! needs the exact figure fixes the number of rounds.

use serde::Serialize;

use super::{Interval, paired, summary};

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
    /// After rounds that measured arms a and b: by the half width of their
    /// paired ratio.
    pub fn after_pairs(&self, a: &[f64], b: &[f64]) -> Step {
        self.after(a.len().min(b.len()), |rounds| {
            let ratio = paired::ratio(&a[..rounds], &b[..rounds])?;
            confident(ratio.interval)?.ratio_half_width()
        })
    }

    /// After runs of a single arm: by the half width of their median.
    pub fn after_runs(&self, values: &[f64]) -> Step {
        self.after(values.len(), |runs| {
            let summary = summary::summarise(&values[..runs])?;
            confident(summary.median_interval?)?.relative_half_width(summary.median)
        })
    }

    /// Rounds that failed count towards the cap, or a program that always fails
    /// would run for ever.
    fn after(&self, rounds: usize, half_width: impl Fn(usize) -> Option<f64>) -> Step {
        let reached = half_width(rounds);
        let precise = |half: f64| half <= self.precision;
        let steady = || {
            (1..IN_A_ROW)
                .all(|back| rounds.checked_sub(back).and_then(&half_width).is_some_and(precise))
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

fn confident(interval: Interval) -> Option<Interval> {
    interval.is_confident().then_some(interval)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Rule = Rule { precision: 0.02, least: 10, most: 30 };

    fn rounds(n: usize, spread: f64) -> (Vec<f64>, Vec<f64>) {
        let a: Vec<f64> = (0..n).map(|i| 100.0 + (i % 7) as f64).collect();
        let b = a.iter().zip(0..).map(|(x, i)| x * 0.5 * (1.0 + spread * f64::from(i % 5 - 2)));
        (a.clone(), b.collect())
    }

    #[test]
    fn precise_rounds_stop_at_the_least_number_and_not_before() {
        let (a, b) = rounds(9, 0.001);
        assert!(matches!(RULE.after_pairs(&a, &b), Step::GoOn { reached: Some(r) } if r < 0.02));
        let (a, b) = rounds(10, 0.001);
        assert!(matches!(RULE.after_pairs(&a, &b), Step::Precise { reached } if reached < 0.02));
    }

    #[test]
    fn wild_rounds_go_on_to_the_cap() {
        let (a, b) = rounds(29, 0.2);
        assert!(matches!(RULE.after_pairs(&a, &b), Step::GoOn { reached: Some(r) } if r > 0.02));
        let (a, b) = rounds(30, 0.2);
        assert!(matches!(RULE.after_pairs(&a, &b), Step::Capped { reached: Some(_) }));
    }

    #[test]
    fn failing_rounds_reach_the_cap_too() {
        assert_eq!(RULE.after_pairs(&[f64::NAN; 30], &[1.0; 30]), Step::Capped { reached: None });
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

    #[test]
    fn a_single_arm_stops_by_its_median() {
        let steady: Vec<f64> = (0..12).map(|i| 50.0 + 0.1 * f64::from(i % 3)).collect();
        assert!(matches!(RULE.after_runs(&steady), Step::Precise { .. }));
        let wild: Vec<f64> = (0..12).map(|i| 50.0 + 10.0 * f64::from(i % 3)).collect();
        assert!(matches!(RULE.after_runs(&wild), Step::GoOn { .. }));
    }
}

//! A ratio in words: faster, slower, no difference, or inconclusive.

use std::fmt;

use serde::Serialize;

use super::Interval;
use super::paired::PairedRatio;

/// A change of times by a factor above 1, in the direction the verdict names.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Factor {
    /// The estimate.
    pub times: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end of its interval.
    pub high: f64,
}

/// What the measurement says about the second arm.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    /// The interval lies below 1: starts are faster.
    Helps {
        /// How many times faster.
        by: Factor,
    },
    /// The interval lies above 1: starts are slower.
    Hurts {
        /// How many times slower.
        by: Factor,
    },
    /// The whole interval is closer to 1 than the smallest difference of
    /// interest, whether or not it holds the 1.
    NoDifferenceBiggerThan {
        /// That smallest difference, as a share.
        share: f64,
    },
    /// The interval holds both a difference of interest and none.
    Unresolved {
        /// The interval of the ratio second ÷ first; `None` when there were too
        /// few usable rounds for one.
        between: Option<Interval>,
    },
}

impl Verdict {
    /// Judges a ratio of times, second ÷ first. Differences below `min_difference`
    /// (0.02 for 2 %) in either direction do not matter.
    ///
    /// When nothing differs, it says so or says nothing in 95 of 100 cases.
    pub fn of(ratio: Option<&PairedRatio>, min_difference: f64) -> Verdict {
        let Some(ratio) = ratio.filter(|ratio| ratio.interval.is_confident()) else {
            return Verdict::Unresolved { between: None };
        };
        let Interval { low, high, .. } = ratio.interval;
        let edge = 1.0 + min_difference.max(0.0);
        if low > 1.0 / edge && high < edge {
            Verdict::NoDifferenceBiggerThan { share: min_difference }
        } else if high < 1.0 {
            let by = Factor { times: 1.0 / ratio.ratio, low: 1.0 / high, high: 1.0 / low };
            Verdict::Helps { by }
        } else if low > 1.0 {
            Verdict::Hurts { by: Factor { times: ratio.ratio, low, high } }
        } else {
            Verdict::Unresolved { between: Some(ratio.interval) }
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Helps { by } => write!(f, "helps: {by} faster {}", by.range()),
            Verdict::Hurts { by } => write!(f, "hurts: {by} slower {}", by.range()),
            Verdict::NoDifferenceBiggerThan { share } => {
                write!(f, "no difference bigger than {} %", shortest(100.0 * share))
            }
            Verdict::Unresolved { between: None } => {
                write!(f, "unresolved: too few usable rounds")
            }
            Verdict::Unresolved { between: Some(interval) } => write!(
                f,
                "unresolved: anything from {} to {}; measure more rounds",
                ReadStrategy(interval.high),
                ReadStrategy(interval.low)
            ),
        }
    }
}

impl Factor {
    /// As many decimals as tell the ends of the interval apart, and its nearer
    /// end from 1: 3.1 in [2.9, 3.4], 1.034 in [1.031, 1.036].
    fn decimals(&self) -> usize {
        let half = (self.high - self.low) / 2.0;
        let finest = if half > 0.0 { half.min(self.low - 1.0) } else { 0.01 };
        (-finest.log10().floor()).clamp(1.0, 4.0) as usize
    }

    fn range(&self) -> String {
        let decimals = self.decimals();
        format!("[{:.decimals$}, {:.decimals$}]", self.low, self.high)
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.*} ×", self.decimals(), self.times)
    }
}

/// A ratio of times as a speed: "1.07 × slower".
struct ReadStrategy(f64);

impl fmt::Display for ReadStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (times, way) = if self.0 > 1.0 { (self.0, "slower") } else { (1.0 / self.0, "faster") };
        write!(f, "{times:.2} × {way}")
    }
}

/// Up to two decimals, without trailing zeros.
fn shortest(x: f64) -> f64 {
    (100.0 * x).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(ratio: f64, low: f64, high: f64) -> Verdict {
        let interval = Interval { low, high, confidence: 0.951 };
        let ratio = PairedRatio { pairs: 20, skipped: 0, ratio, interval, p: 0.0, exact: true };
        Verdict::of(Some(&ratio), 0.02)
    }

    #[test]
    fn each_place_of_the_interval_has_its_words() {
        for ((ratio, low, high), words) in [
            ((1.0 / 3.1, 1.0 / 3.4, 1.0 / 2.9), "helps: 3.1 × faster [2.9, 3.4]"),
            ((1.2, 1.09, 1.3), "hurts: 1.20 × slower [1.09, 1.30]"),
            ((1.034, 1.031, 1.036), "hurts: 1.034 × slower [1.031, 1.036]"),
            ((12.0, 8.0, 40.0), "hurts: 12.0 × slower [8.0, 40.0]"),
            ((2.0, 2.0, 2.0), "hurts: 2.00 × slower [2.00, 2.00]"),
            ((1.0, 0.99, 1.01), "no difference bigger than 2 %"),
            ((0.995, 0.99, 0.999), "no difference bigger than 2 %"),
            ((0.95, 0.91, 0.999), "helps: 1.053 × faster [1.001, 1.099]"),
            (
                (1.0, 0.9, 1.05),
                "unresolved: anything from 1.05 × slower to 1.11 × faster; measure more rounds",
            ),
        ] {
            assert_eq!(judged(ratio, low, high).to_string(), words);
        }
    }

    #[test]
    fn too_few_rounds_are_never_a_verdict() {
        let interval = Interval { low: 0.3, high: 0.4, confidence: 0.9375 };
        let ratio =
            PairedRatio { pairs: 5, skipped: 0, ratio: 0.35, interval, p: 0.0625, exact: true };
        for few in [Verdict::of(Some(&ratio), 0.02), Verdict::of(None, 0.02)] {
            assert_eq!(few.to_string(), "unresolved: too few usable rounds");
        }
    }

    #[test]
    fn without_a_smallest_difference_there_is_no_equality() {
        let interval = Interval { low: 1.0, high: 1.0, confidence: 0.96 };
        let ratio = PairedRatio { pairs: 9, skipped: 0, ratio: 1.0, interval, p: 1.0, exact: true };
        for min_difference in [0.0, -1.0, f64::NAN] {
            assert!(matches!(
                Verdict::of(Some(&ratio), min_difference),
                Verdict::Unresolved { between: Some(_) }
            ));
        }
        assert_eq!(Verdict::of(Some(&ratio), 0.005).to_string(), "no difference bigger than 0.5 %");
    }
}

//! A benchmark of boots: the figures of each boot, the comparison of all, and their form for
//! ChromeOS's boot performance tests (`bootperf`). Pure; the verb starts the commands.

use crate::report::{Comparison, compared};
use crate::stats::summary::{Summary, summarise};
use headstart::boot::history::BootRecord;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What a figure without a name of its own is called.
pub const TO_LOGIN: &str = "seconds_kernel_to_login";
/// What the shape calls the figures of a boot that is compared with no other.
const ALONE: &str = "summary";
/// Names of a boot's figures.
const NAME_BEGIN: &str = "seconds_";
/// Figures of a boot at most, and the length of their names.
const MOST: usize = 64;

/// The figures of one boot in seconds, by name.
pub type Figures = BTreeMap<String, f64>;

/// One boot.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Boot {
    /// The round, from 1.
    pub round: usize,
    /// Its place in the round, from 1.
    pub place: usize,
    /// Its figures; none when it failed.
    pub figures: Figures,
    /// Why there are none.
    pub failure: Option<String>,
}

/// The boots of one arm, one a round.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct BootArm {
    /// Its name.
    pub name: String,
    /// Its command, as a shell understands it.
    pub command: String,
    /// Its boots in the order of the rounds.
    pub boots: Vec<Boot>,
}

impl BootArm {
    /// A figure of each boot; NaN where it has none.
    pub fn values(&self, figure: &str) -> Vec<f64> {
        let value = |boot: &Boot| boot.figures.get(figure).copied().unwrap_or(f64::NAN);
        self.boots.iter().map(value).collect()
    }
}

/// A figure over all boots.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Metric {
    /// Its name.
    pub name: String,
    /// Its summary in each arm that has it.
    pub arms: Vec<MetricArm>,
    /// The arms against the first, over the rounds.
    pub comparisons: Vec<Comparison>,
}

/// A figure over the boots of one arm.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MetricArm {
    /// The arm.
    pub name: String,
    /// Its boots.
    pub summary: Summary,
}

/// What a command said of its boot: the last line of its output that is an object with
/// a number `seconds` or `seconds_…`, or a number alone. `None` when no line is.
pub fn figures(output: &str) -> Option<Figures> {
    output.lines().rev().find_map(figures_of_line)
}

fn figures_of_line(line: &str) -> Option<Figures> {
    let is_time = |seconds: &f64| seconds.is_finite() && *seconds > 0.0;
    let members = match serde_json::from_str(line.trim()).ok()? {
        Value::Object(members) => members,
        Value::Number(seconds) => {
            let seconds = seconds.as_f64().filter(is_time)?;
            return Some([(TO_LOGIN.to_owned(), seconds)].into());
        }
        _ => return None,
    };
    let figure = |(name, value): (String, Value)| {
        let name = if name == "seconds" { TO_LOGIN.to_owned() } else { name };
        let is_figure = name.starts_with(NAME_BEGIN) && name.len() <= MOST;
        Some((name, value.as_f64().filter(is_time)?)).filter(|_| is_figure)
    };
    let found: Figures = members.into_iter().filter_map(figure).take(MOST).collect();
    (!found.is_empty()).then_some(found)
}

/// Sums up each figure. Differences below `min_difference` (0.02 for 2 %) don't matter to
/// whoever asks.
pub fn metrics(arms: &[BootArm], min_difference: f64) -> Vec<Metric> {
    let metric = |name: &str| {
        let summary = |arm: &BootArm| {
            let summary = summarise(&arm.values(name))?;
            Some(MetricArm { name: arm.name.clone(), summary })
        };
        let comparisons = arms.split_first().map_or_else(Vec::new, |(first, others)| {
            let values = first.values(name);
            let against = |arm: &BootArm| {
                let values_of = (arm.name.clone(), &arm.values(name)[..]);
                compared(values_of, (first.name.clone(), &values), min_difference)
            };
            others.iter().map(against).collect()
        });
        let arms = arms.iter().filter_map(summary).collect();
        Metric { name: name.to_owned(), arms, comparisons }
    };
    names(arms).iter().map(|name| metric(name)).collect()
}

fn names(arms: &[BootArm]) -> BTreeSet<&str> {
    let boots = arms.iter().flat_map(|arm| &arm.boots);
    boots.flat_map(|boot| boot.figures.keys().map(String::as_str)).collect()
}

/// The document of ChromeOS's boot performance tests: the values of each figure by arm.
pub fn bootperf(arms: &[BootArm]) -> Value {
    let values = |arm: &BootArm, name: &str| -> Vec<f64> {
        let known = arm.values(name).into_iter().filter(|value| value.is_finite());
        known.map(|value| (value * 1e6).round() / 1e6).collect()
    };
    let chart = |name: &str| -> serde_json::Map<String, Value> {
        let variant = |arm: &BootArm| {
            let values = values(arm, name);
            let key = if arms.len() == 1 { ALONE.to_owned() } else { arm.name.clone() };
            let value = serde_json::json!({
                "units": "s",
                "improvement_direction": "down",
                "type": "list_of_scalar_values",
                "values": values,
            });
            (!values.is_empty()).then_some((key, value))
        };
        arms.iter().filter_map(variant).collect()
    };
    names(arms).iter().map(|name| ((*name).to_owned(), Value::Object(chart(name)))).collect()
}

/// The boots of a history as arms: those without and those with something prefetched.
/// They were not made in rounds, so they can't be compared pair by pair.
pub fn of_history(records: &[BootRecord]) -> Vec<BootArm> {
    let arm = |name: &str, replayed| {
        // The history has the last one first.
        let alike = records.iter().rev().filter(|record| record.replayed == replayed);
        let boots = alike.enumerate().map(|(index, record)| Boot {
            round: index + 1,
            place: 1,
            figures: figures_of(record),
            failure: None,
        });
        BootArm { name: name.into(), command: String::new(), boots: boots.collect() }
    };
    let arms = [arm("without", false), arm("with", true)];
    arms.into_iter().filter(|arm| !arm.boots.is_empty()).collect()
}

fn figures_of(record: &BootRecord) -> Figures {
    let session = record.phases.iter().find(|phase| phase.name == "session");
    let known = [
        ("seconds_kernel_to_local_fs", record.local_fs_ms),
        ("seconds_kernel_to_default_target", record.default_target_ms),
        // A user has logged in, and reading has died down.
        ("seconds_kernel_to_session", session.and_then(|phase| phase.end_ms)),
    ];
    let seconds = known.into_iter().filter_map(|(name, ms)| Some((name.to_owned(), ms? / 1e3)));
    seconds.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::verdict::Verdict;
    use proptest::prelude::*;

    fn arm(name: &str, seconds: &[f64]) -> BootArm {
        let boot = |seconds: &f64| Boot {
            figures: [(TO_LOGIN.to_owned(), *seconds)].into_iter().filter(|f| f.1 > 0.0).collect(),
            ..Boot::default()
        };
        BootArm {
            name: name.into(),
            boots: seconds.iter().map(boot).collect(),
            ..BootArm::default()
        }
    }

    #[test]
    fn the_last_line_with_figures_counts() {
        let only = |seconds| Some(Figures::from([(TO_LOGIN.to_owned(), seconds)]));
        for (output, expected) in [
            ("5.25\n", only(5.25)),
            ("booting\n{\"seconds\": 4, \"state\": \"running\"}\nbye\n", only(4.0)),
            ("{\"seconds\": 4}\n{\"seconds\": 3}\n\n", only(3.0)),
            ("{\"seconds\": 4}\n{\"seconds\": \"3\"}", only(4.0)),
            ("{\"seconds\": 0}", None),
            ("-1", None),
            ("1e999", None),
            ("{\"login\": 5}", None),
            ("[5]\n\"5\"", None),
            ("", None),
        ] {
            assert_eq!(figures(output), expected, "{output}");
        }
        let two = figures("{\"seconds\": 4.5, \"seconds_kernel_to_local_fs\": 2}").unwrap();
        assert_eq!(
            two.into_iter().collect::<Vec<_>>(),
            [("seconds_kernel_to_local_fs".to_owned(), 2.0), (TO_LOGIN.to_owned(), 4.5)]
        );
    }

    #[test]
    fn arms_are_compared_with_the_first_round_by_round() {
        let slow: Vec<f64> = (0..10).map(|i| 10.0 + f64::from(i)).collect();
        let fast: Vec<f64> = slow.iter().map(|s| s * 0.5 + 0.01).collect();
        let found = metrics(&[arm("without", &slow), arm("with", &fast)], 0.02);
        assert_eq!((found.len(), found[0].name.as_str()), (1, TO_LOGIN));
        assert_eq!(found[0].arms[1].summary.n, 10);
        let comparison = &found[0].comparisons[0];
        assert_eq!((comparison.arm.as_str(), comparison.with.as_str()), ("with", "without"));
        assert!(matches!(comparison.verdict, Verdict::Helps { .. }), "{comparison:?}");
    }

    #[test]
    fn the_shape_is_that_of_bootperf() {
        let of = |values: Value| {
            serde_json::json!({
                "units": "s", "improvement_direction": "down",
                "type": "list_of_scalar_values", "values": values,
            })
        };
        let alone = bootperf(&[arm("boot", &[1.5, 0.0, 1.25])]);
        let values = serde_json::json!([1.5, 1.25]);
        assert_eq!(alone, serde_json::json!({TO_LOGIN: {"summary": of(values)}}), "one failed");
        let two = bootperf(&[arm("a", &[1.5]), arm("b", &[2.000_000_4])]);
        let (a, b) = (of(serde_json::json!([1.5])), of(serde_json::json!([2.0])));
        assert_eq!(two, serde_json::json!({TO_LOGIN: {"a": a, "b": b}}));
    }

    #[test]
    fn a_history_has_its_boots_with_and_without() {
        let boot =
            |replayed, ms| BootRecord { replayed, default_target_ms: ms, ..BootRecord::default() };
        let arms =
            of_history(&[boot(true, Some(3000.0)), boot(false, None), boot(false, Some(9000.0))]);
        let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
        assert_eq!(names, ["without", "with"]);
        let values = arms[0].values("seconds_kernel_to_default_target");
        assert!(values[0] == 9.0 && values[1].is_nan(), "the oldest first");
        assert!(of_history(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn no_output_makes_it_panic_and_all_figures_are_times(
            output in "(\\{\"seconds(_a)?\": ?[-0-9.e]{0,6}\\}|\\PC{0,12}\n){0,6}"
        ) {
            for (name, seconds) in figures(&output).into_iter().flatten() {
                prop_assert!(name.starts_with(NAME_BEGIN) && seconds > 0.0 && seconds.is_finite());
            }
        }
    }
}

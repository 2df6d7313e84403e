//! Result files to compare: those of `headstart bench` and `headstart faults`, those of hyperfine,
//! and plain lists of numbers by name. It reads values and opens no files.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::arm::CacheState;
use crate::compare::ResultSet;
use crate::hyperfine;
use crate::recorded::{self, Recorded};
use crate::run::{ArmRuns, COUNTERS};
use crate::stats::unpaired::{Shift, shift};

/// The schema of the document that `headstart bench` writes.
pub const SCHEMA: &str = "headstart/bench/3";

/// What a result file holds.
#[derive(Clone, PartialEq, Debug)]
pub enum Results {
    /// Runs.
    Benchmark(Benchmark),
    /// The page faults of one run.
    Recording(Recorded),
}

/// The runs of a benchmark.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Benchmark {
    /// All counters of all arms, as `ARM COUNTER`; of a hyperfine file with one
    /// command, and of plain lists, without the arm.
    pub counters: ResultSet,
    /// What each round's cold start took longer than its hot start, in seconds.
    pub io_part_s: Vec<f64>,
}

/// A file that can't be compared.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is no JSON.
    #[error("This is not JSON")]
    Json(#[source] serde_json::Error),
    /// It is JSON of another kind.
    #[error(
        "This is neither a result of headstart bench --json, headstart faults --json or hyperfine \
         --export-json nor an object of lists of numbers"
    )]
    Unknown,
    /// It is of another version, or of another verb.
    #[error(
        "Results of the form {0:?} can't be compared; headstart bench writes {SCHEMA:?}, headstart \
         faults \"{faults}…\"",
        faults = recorded::SCHEMA
    )]
    Schema(String),
    /// It has a result's schema but not its content.
    #[error("This result is not whole")]
    Broken(#[source] serde_json::Error),
}

#[derive(Deserialize)]
struct Bench {
    arms: Vec<ArmRuns>,
}

/// Reads a result file.
///
/// # Errors
/// [`Error`], if its form is unknown.
pub fn read(json: &[u8]) -> Result<Results, Error> {
    let value: Value = serde_json::from_slice(json).map_err(Error::Json)?;
    match value.get("schema") {
        Some(schema) if *schema == SCHEMA => {
            let bench: Bench = serde_json::from_value(value).map_err(Error::Broken)?;
            return Ok(Results::Benchmark(of_bench(&bench.arms)));
        }
        Some(Value::String(schema)) if schema.starts_with(recorded::SCHEMA) => {
            return Ok(Results::Recording(Recorded::of(&value)));
        }
        Some(Value::String(schema)) => return Err(Error::Schema(schema.clone())),
        _ => {}
    }
    let counters = if value.get("results").is_some_and(Value::is_array) {
        of_hyperfine(&serde_json::from_value(value).map_err(Error::Broken)?)
    } else {
        // A gap in a list keeps its place as null.
        let lists: BTreeMap<String, Vec<Option<f64>>> =
            serde_json::from_value(value).map_err(|_| Error::Unknown)?;
        let number = |n: Option<f64>| n.unwrap_or(f64::NAN);
        lists.into_iter().map(|(k, list)| (k, list.into_iter().map(number).collect())).collect()
    };
    Ok(Results::Benchmark(Benchmark { counters, io_part_s: Vec::new() }))
}

fn of_bench(arms: &[ArmRuns]) -> Benchmark {
    let mut counters = ResultSet::new();
    for arm in arms {
        for (name, counter) in COUNTERS {
            let values = arm.values(counter);
            if values.iter().any(|value| value.is_finite()) {
                counters.insert(format!("{} {name}", arm.name), values);
            }
        }
    }
    let times = |state: CacheState| {
        arms.iter().find(|arm| arm.name == state.name()).map(ArmRuns::times).unwrap_or_default()
    };
    let rounds = times(CacheState::Cold).into_iter().zip(times(CacheState::Hot));
    Benchmark { counters, io_part_s: rounds.map(|(cold, hot)| cold - hot).collect() }
}

fn of_hyperfine(export: &hyperfine::Export) -> ResultSet {
    let several = export.results.len() > 1;
    let named = |command: &hyperfine::Command| {
        let prefix = if several { format!("{} ", command.command) } else { String::new() };
        command
            .result_set()
            .into_iter()
            .map(move |(name, values)| (format!("{prefix}{name}"), values))
            .collect::<Vec<_>>()
    };
    export.results.iter().flat_map(named).collect()
}

/// By how much the I/O part of a start changed from one side to the other, by those of their rounds:
/// (cold2 − hot2) − (cold1 − hot1), in seconds; `None` unless both have it.
pub fn io_part_change(first: &[f64], second: &[f64]) -> Option<Shift> {
    shift(first, second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn benchmark(json: &[u8]) -> Benchmark {
        match read(json).unwrap() {
            Results::Benchmark(benchmark) => benchmark,
            Results::Recording(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_benchmark_has_its_counters_by_arm_and_its_io_part() {
        let json = br#"{"schema": "headstart/bench/3", "arms": [
            {"name": "cold", "runs": [{"wall_s": 3.0, "major_faults": 7}, {"wall_s": 4.0}]},
            {"name": "hot", "runs": [{"wall_s": 1.0}, {"failure": "x"}]}]}"#;
        let found = benchmark(json);
        let names: Vec<&str> = found.counters.keys().map(String::as_str).collect();
        assert_eq!(names, ["cold major_faults", "cold time_s", "hot time_s"]);
        assert_eq!(found.counters["cold time_s"], [3.0, 4.0]);
        assert!(found.io_part_s[0] == 2.0 && found.io_part_s[1].is_nan());
    }

    #[test]
    fn a_hyperfine_file_names_its_commands_only_when_there_are_several() {
        let json = br#"{"results": [{"command": "a", "times": [1.0, 2.0]}]}"#;
        assert_eq!(benchmark(json).counters["time_s"], [1.0, 2.0]);
        let json = br#"{"results": [{"command": "a", "times": [1.0]},
            {"command": "b c", "times": [2.0], "memory_usage_byte": [9]}]}"#;
        let found = benchmark(json);
        let names: Vec<&str> = found.counters.keys().map(String::as_str).collect();
        assert_eq!(names, ["a time_s", "b c memory_bytes", "b c time_s"]);
        assert!(io_part_change(&found.io_part_s, &found.io_part_s).is_none());
    }

    #[test]
    fn plain_lists_of_numbers_are_counters() {
        let found = benchmark(br#"{"thp_split": [1, 2.5, null]}"#);
        let list = &found.counters["thp_split"];
        assert!(list[..2] == [1.0, 2.5] && list[2].is_nan());
    }

    #[test]
    fn other_files_are_refused_with_the_reason() {
        for (json, why) in [
            (&b"no json"[..], "not JSON"),
            (b"[1]", "neither a result"),
            (br#"{"a": "b"}"#, "neither a result"),
            (br#"{"schema": "headstart/run/2"}"#, "faults \"headstart/faults/…\""),
            (br#"{"schema": "headstart/bench/9"}"#, "\"headstart/bench/9\" can't be compared"),
            (br#"{"schema": "headstart/bench/3"}"#, "not whole"),
            (br#"{"results": [{"times": "fast"}]}"#, "not whole"),
        ] {
            let message = read(json).unwrap_err().to_string();
            assert!(message.contains(why), "{message}");
        }
    }

    #[test]
    fn the_change_of_the_io_part_has_its_sign() {
        let change = io_part_change(&[2.0, 2.1, 1.9], &[1.0, 1.1, 0.9]).unwrap();
        assert!((change.estimate + 1.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}") {
            let _ = read(text.as_bytes());
        }
    }
}

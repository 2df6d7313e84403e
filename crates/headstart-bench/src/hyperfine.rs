//! The result file of the benchmark tool hyperfine (`--export-json`), so that its users' scripts
//! read our results and `compare` reads theirs.
//!
//! The reader accepts all versions and other writers: it skips unknown members, and missing or null
//! ones are empty. It opens no files.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::compare::ResultSet;
use crate::stats::summary::summarise;

/// A whole result file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Export {
    /// One entry a command.
    pub results: Vec<Command>,
}

/// The runs of one command. All times in seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Command {
    /// The command line, or the name it was given.
    #[serde(deserialize_with = "null_is_default")]
    pub command: String,
    /// Mean wall clock time.
    pub mean: Option<f64>,
    /// Its sample standard deviation; `None` for one run.
    pub stddev: Option<f64>,
    /// Median wall clock time.
    pub median: Option<f64>,
    /// Mean CPU time in user mode.
    pub user: Option<f64>,
    /// Mean CPU time in the kernel.
    pub system: Option<f64>,
    /// Shortest wall clock time.
    pub min: Option<f64>,
    /// Longest wall clock time.
    pub max: Option<f64>,
    /// The wall clock time of every run, in order; NaN for null.
    #[serde(deserialize_with = "null_is_nan")]
    pub times: Vec<f64>,
    /// The largest resident set of every run, in bytes; newer versions have it.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub memory_usage_byte: Vec<u64>,
    /// The exit status of every run, in order; `None` after a signal.
    #[serde(deserialize_with = "null_is_default")]
    pub exit_codes: Vec<Option<i32>>,
    /// What a parameter scan put in for this command.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, serde_json::Value>,
}

/// A file that is not one of hyperfine's.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not JSON, or without a list of results.
    #[error("This is no result file of hyperfine; write one with --export-json: {0}")]
    Json(#[from] serde_json::Error),
}

/// Reads a result file's content.
pub fn parse(json: &[u8]) -> Result<Export, Error> {
    Ok(serde_json::from_slice(json)?)
}

impl Command {
    /// From the runs' wall clock times in seconds and their exit status. What
    /// follows from the times is worked out; `user` and `system` are for the
    /// caller to fill in.
    pub fn new(command: &str, times: &[f64], exit_codes: &[Option<i32>]) -> Command {
        let summary = summarise(times);
        let of = |f: fn(&crate::stats::summary::Summary) -> f64| summary.as_ref().map(f);
        Command {
            command: command.to_owned(),
            mean: of(|s| s.mean),
            stddev: summary.as_ref().and_then(|s| s.stddev),
            median: of(|s| s.median),
            min: of(|s| s.min),
            max: of(|s| s.max),
            times: times.to_vec(),
            exit_codes: exit_codes.to_vec(),
            ..Command::default()
        }
    }

    /// How many runs did not end with status 0. Runs whose status the file
    /// does not give count as good.
    pub fn failed(&self) -> usize {
        self.exit_codes.iter().filter(|code| **code != Some(0)).count()
    }

    /// What can be compared: of CPU times the file holds only the means.
    pub fn result_set(&self) -> ResultSet {
        let mut set = ResultSet::from([("time_s".to_owned(), self.times.clone())]);
        if !self.memory_usage_byte.is_empty() {
            let bytes = self.memory_usage_byte.iter().map(|&bytes| bytes as f64).collect();
            set.insert("memory_bytes".to_owned(), bytes);
        }
        set
    }
}

fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn null_is_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
    let times: Option<Vec<Option<f64>>> = Option::deserialize(deserializer)?;
    Ok(times.unwrap_or_default().into_iter().map(|time| time.unwrap_or(f64::NAN)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REAL: &[u8] = include_bytes!("../../../fixtures/stats/hyperfine.json");

    #[test]
    fn a_file_that_hyperfine_wrote_is_read_whole() {
        let export = parse(REAL).unwrap();
        assert_eq!(export.results.len(), 2);
        for command in &export.results {
            let again = Command::new(&command.command, &command.times, &command.exit_codes);
            for (found, theirs) in [
                (again.mean, command.mean),
                (again.stddev, command.stddev),
                (again.median, command.median),
                (again.min, command.min),
                (again.max, command.max),
            ] {
                assert!((found.unwrap() / theirs.unwrap() - 1.0).abs() < 1e-9);
            }
            assert!(command.user.unwrap() >= 0.0 && command.system.unwrap() >= 0.0);
        }
        assert_eq!((export.results[0].failed(), export.results[1].failed()), (0, 8));
        assert_eq!(export.results[0].result_set()["time_s"].len(), 8);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut command = Command::new("x --y", &[1.0, 2.0, 4.0], &[Some(0), None, Some(3)]);
        command.user = Some(0.5);
        command.memory_usage_byte = vec![4096, 8192, 4096];
        let export = Export { results: vec![command] };
        let json = serde_json::to_vec(&export).unwrap();
        assert_eq!(parse(&json).unwrap(), export);
        assert_eq!(export.results[0].failed(), 2);
        assert_eq!(export.results[0].result_set()["memory_bytes"], [4096.0, 8192.0, 4096.0]);
    }

    #[test]
    fn missing_null_and_unknown_members_do_not_matter() {
        let json = br#"{"results": [{"times": [1.5, null], "exit_codes": null, "stddev": null,
            "command": null, "parameters": null, "shiny": {"new": 1}}], "version": 9}"#;
        let command = parse(json).unwrap().results.remove(0);
        assert_eq!((command.mean, command.exit_codes.len()), (None, 0));
        assert!(command.times[0] == 1.5 && command.times[1].is_nan());
        assert_eq!(parse(br#"{"results": [{}]}"#).unwrap().results, [Command::default()]);
    }

    #[test]
    fn anything_else_is_refused_with_a_fix() {
        for text in ["", "[1]", "{}", r#"{"results": [{"times": "fast"}]}"#] {
            let message = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(message.contains("write one with --export-json"), "{message}");
        }
    }
}

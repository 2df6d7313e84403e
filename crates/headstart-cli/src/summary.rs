//! What a start has to tell at its end: one line for people, all figures for
//! programs.

use crate::output;
use anyhow::Context;
use headstart::launch::learn::Learned;
use headstart::outcome::counts::Outcome;
use headstart::replay::report::Report;
use headstart_sys::process::{Change, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// A start that was learned.
#[derive(Debug)]
pub struct Lesson {
    /// What it taught.
    pub learned: Learned,
    /// What became of the pages read ahead.
    pub outcome: Outcome,
}

/// How a program ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Exit status or signal.
    pub change: Change,
    /// What it cost.
    pub usage: Usage,
    /// From its exec to its end.
    pub wall: Duration,
}

/// What the helper found, as it tells its parent process.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Findings {
    /// Whether the program was executed.
    pub started: bool,
    /// From the start of headstart until the program might start, in µs.
    pub exec_after_us: u64,
    /// The parts of the summary.
    pub parts: Vec<String>,
    /// What could not be done.
    pub notes: Vec<String>,
    /// Figures of the replay, if there was one.
    pub read_ahead: Value,
    /// What became of the pages, if the start was learned.
    pub touched: Value,
    /// The share of the touched pages that were ready.
    pub ready_share: Option<f64>,
    /// Figures of what was learned, if anything was.
    pub learned: Value,
}

impl Findings {
    /// Those of a start.
    pub fn of(
        exec_after: Duration,
        report: Option<&Report>,
        lesson: Option<&Lesson>,
        notes: Vec<String>,
    ) -> Self {
        let mut parts = Vec::new();
        if let Some(report) = report {
            add_report(&mut parts, report);
        }
        if let Some(lesson) = lesson {
            add_lesson(&mut parts, lesson, report.is_some());
        }
        // Numbers, texts and lists of them: none of it can fail.
        let figures = |value: serde_json::Result<Value>| value.unwrap_or_default();
        Self {
            started: true,
            exec_after_us: u64::try_from(exec_after.as_micros()).unwrap_or(u64::MAX),
            parts,
            notes,
            read_ahead: figures(serde_json::to_value(report)),
            touched: figures(serde_json::to_value(lesson.map(|l| &l.outcome))),
            ready_share: lesson.map(|l| l.outcome.ready_share()),
            learned: figures(serde_json::to_value(lesson.map(|l| &l.learned))),
        }
    }

    /// Those where the helper was killed.
    pub fn none() -> Self {
        let why = "the helper process died, so nothing is known of this start".to_owned();
        Self { started: true, notes: vec![why], ..Self::default() }
    }

    /// From the start of headstart until the program might start.
    pub fn exec_after(&self) -> Duration {
        Duration::from_micros(self.exec_after_us)
    }

    /// Writes all figures of the start of `command` into a file.
    pub fn write(&self, command: &[OsString], ended: &Ended, file: &Path) -> anyhow::Result<()> {
        let (exit_status, signal) = match ended.change {
            Change::Exited(status) => (Some(status), None),
            Change::Killed(signal) | Change::Stopped(signal) => (None, Some(signal)),
        };
        let command: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
        let figures = json!({
            "schema": "headstart/run/2",
            "command": command,
            "exit_status": exit_status,
            "signal": signal,
            "wall_ms": ended.wall.as_secs_f64() * 1000.0,
            "exec_after_us": self.exec_after_us,
            "major_faults": ended.usage.major_faults,
            "minor_faults": ended.usage.minor_faults,
            "user_ms": ended.usage.user_us as f64 / 1000.0,
            "system_ms": ended.usage.system_us as f64 / 1000.0,
            "read_ahead": self.read_ahead,
            "touched": self.touched,
            "ready_share": self.ready_share,
            "learned": self.learned,
            "notes": self.notes,
        });
        let text = output::json_text(&figures)?;
        std::fs::write(file, text).with_context(|| format!("Can't write {}", output::shown(file)))
    }

    /// The one line at the end.
    pub fn summary(&self, ended: &Ended) -> String {
        let faults = output::counted(ended.usage.major_faults, "major fault");
        let mut parts = vec![format!("{:.2} s, {faults}", ended.wall.as_secs_f64())];
        parts.extend(self.parts.iter().chain(&self.notes).cloned());
        parts.join("; ")
    }
}

/// What was read ahead, in words.
pub fn add_report(parts: &mut Vec<String>, report: &Report) {
    parts.push(format!(
        "read ahead {} in {}",
        output::size(report.bytes),
        output::counted(report.requests, "request")
    ));
    for (count, words) in [
        (report.stale_files, "changed since it was learned"),
        (report.changing_files, "changing at each start"),
        (report.missing_files, "gone"),
        (report.forbidden_files, "not permitted"),
        (report.failed, "failed"),
    ] {
        if count > 0 {
            parts.push(format!("{} {words}", output::counted(count, "file")));
        }
    }
    if report.closed_devices > 0 {
        parts.push("metadata left out: its block device can't be opened".into());
    }
    if report.presumed_bytes > 0 {
        parts.push(format!(
            "{} left alone, as a sample was in memory",
            output::size(report.presumed_bytes)
        ));
    }
    if report.stuck {
        parts.push("reading ahead was left behind at a file that does not answer".into());
    }
    if let Some(why) = report.stopped {
        parts.push(format!("stopped {} before its end: {why}", output::size(report.stopped_bytes)));
    }
    if report.seldom_bytes > 0 {
        parts.push(format!(
            "{} left out, as few starts touch them",
            output::size(report.seldom_bytes)
        ));
    }
    if report.over_budget_bytes > 0 {
        parts.push(format!("{} over the budget", output::size(report.over_budget_bytes)));
    }
}

/// What was learned, in words.
pub fn add_lesson(parts: &mut Vec<String>, Lesson { learned, outcome }: &Lesson, replayed: bool) {
    if replayed {
        parts.push(format!(
            "{:.1} % of {} touched were ready, {} late, {} missing, {} wasted",
            outcome.ready_share() * 100.0,
            output::counted(outcome.touched_pages, "page"),
            outcome.late_pages,
            outcome.missing_pages,
            outcome.wasted_pages
        ));
    }
    if learned.written {
        parts.push(format!(
            "learned start {} ({}, {})",
            learned.starts,
            output::counted(learned.files as u64, "file"),
            output::size(learned.data_bytes)
        ));
        if learned.starts == 1 {
            parts.push("the next start is read ahead".into());
        }
    }
    if learned.lost_events > 0 {
        parts.push(format!("{} lost", output::counted(learned.lost_events, "event")));
    }
    parts.extend(learned.problems.iter().cloned());
}

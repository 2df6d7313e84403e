//! What a start has to tell at its end: one line for people, all figures for
//! programs.

use crate::launch::Ended;
use crate::learning::Learned;
use crate::output;
use anyhow::Context;
use headstart::outcome::counts::Outcome;
use headstart::replay::report::Report;
use headstart_sys::process::Change;
use serde::Serialize;
use std::ffi::OsString;
use std::path::Path;

/// A start that was learned.
#[derive(Debug)]
pub struct Lesson {
    /// What it taught.
    pub learned: Learned,
    /// What became of the pages read ahead.
    pub outcome: Outcome,
}

/// All that is known at the end of a start.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// How the program ended.
    pub end: &'a Ended,
    /// What was read ahead, if anything.
    pub report: Option<&'a Report>,
    /// What was learned, if anything.
    pub lesson: Option<&'a Lesson>,
    /// What could not be done.
    pub notes: &'a [String],
}

/// The document.
#[derive(Debug, Serialize)]
struct Figures<'a> {
    schema: &'static str,
    command: Vec<String>,
    exit_status: Option<i32>,
    signal: Option<i32>,
    wall_ms: f64,
    /// From the begin of headstart to the program's exec.
    exec_after_us: u64,
    major_faults: u64,
    minor_faults: u64,
    user_ms: f64,
    system_ms: f64,
    read_ahead: Option<&'a Report>,
    touched: Option<&'a Outcome>,
    ready_share: Option<f64>,
    learned: Option<&'a Learned>,
    notes: &'a [String],
}

impl Told<'_> {
    /// Writes all figures of the start of `command` into a file.
    pub fn write(
        &self,
        command: &[OsString],
        exec_after_us: u64,
        file: &Path,
    ) -> anyhow::Result<()> {
        let (exit_status, signal) = match self.end.change {
            Change::Exited(status) => (Some(status), None),
            Change::Killed(signal) | Change::Stopped(signal) => (None, Some(signal)),
        };
        let figures = Figures {
            schema: "headstart/run/1",
            command: command.iter().map(|w| w.to_string_lossy().into_owned()).collect(),
            exit_status,
            signal,
            wall_ms: self.end.wall.as_secs_f64() * 1000.0,
            exec_after_us,
            major_faults: self.end.usage.major_faults,
            minor_faults: self.end.usage.minor_faults,
            user_ms: self.end.usage.user_us as f64 / 1000.0,
            system_ms: self.end.usage.system_us as f64 / 1000.0,
            read_ahead: self.report,
            touched: self.lesson.map(|l| &l.outcome),
            ready_share: self.lesson.map(|l| l.outcome.ready_share()),
            learned: self.lesson.map(|l| &l.learned),
            notes: self.notes,
        };
        let text = serde_json::to_vec_pretty(&figures).context("Can't make JSON of the figures")?;
        std::fs::write(file, text).with_context(|| format!("Can't write {}", file.display()))
    }

    /// The one line at the end.
    pub fn summary(&self) -> String {
        let mut parts = vec![format!(
            "{:.2} s, {}",
            self.end.wall.as_secs_f64(),
            output::counted(self.end.usage.major_faults, "major fault")
        )];
        if let Some(report) = self.report {
            add_report(&mut parts, report);
        }
        if let Some(lesson) = self.lesson {
            add_lesson(&mut parts, lesson, self.report.is_some());
        }
        parts.extend(self.notes.iter().cloned());
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
            "{:.1} % of {} touched were ready, {} late, {} missing, {} never touched",
            outcome.ready_share() * 100.0,
            output::counted(outcome.touched_pages, "page"),
            outcome.late_pages,
            outcome.missing_pages,
            outcome.never_touched_pages
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

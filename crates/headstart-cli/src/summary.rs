//! The run summary: a verdict of one line, details on a second line if requested, and all figures
//! as JSON.

mod verdict;

use crate::output;
use crate::results::{self, ResultKind};
use crate::waited;
use headstart::host::clock::micros;
use headstart::launch::learn::Learned;
use headstart::outcome::counts::PageCounts;
use headstart::outcome::waited::Waited;
use headstart::replay::benefit::{AvoidedWait, Expected};
use headstart::replay::report::Report;
use headstart_sys::process::{Change, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// What a trace event costs the program that causes it, in ns (doc/recording.md).
const EVENT_NS: u64 = 350;

/// Files that were waited for: so many are shown, and with details.
const FILES: usize = 5;
const ALL_FILES: usize = 25;

/// A start that was learned.
#[derive(Debug)]
pub struct LearnedStart {
    /// What was learned.
    pub learned: Learned,
    /// The classification of its pages.
    pub outcome: PageCounts,
}

/// How a program ended.
#[derive(Clone, Copy, Debug)]
pub struct ProgramEnd {
    /// Exit status or signal.
    pub change: Change,
    /// What it cost.
    pub usage: Usage,
    /// From its exec to its end.
    pub wall: Duration,
}

/// What the helper found, as it reports it to its parent process.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Findings {
    /// Whether the program was executed.
    pub started: bool,
    /// From the start of headstart until the program might start, in µs.
    pub exec_after_us: u64,
    /// The parts of the verdict, beside the times and the notes.
    pub verdict: Vec<String>,
    /// How long it would have waited for the disk without the replay, if that is known.
    pub avoided_wait: Option<AvoidedWait>,
    /// How long the replay took, in µs.
    pub replay_us: u64,
    /// How long the program waited for its trace, in µs, if it was traced.
    pub trace_us: Option<u64>,
    /// The parts of the details.
    pub parts: Vec<String>,
    /// What could not be done.
    pub notes: Vec<String>,
    /// Figures of the replay, if there was one.
    pub prefetch: Value,
    /// The classification of the pages, if the start was learned.
    pub touched: Value,
    /// The share of the touched pages that were ready.
    pub ready_share: Option<f64>,
    /// Figures of what was learned, if anything was.
    pub learned: Value,
    /// What it waited for, if that was recorded.
    #[serde(default)]
    pub waited: Option<Waited>,
}

/// What the helper knows of a start.
#[derive(Debug, Default)]
pub struct Facts<'a> {
    /// From the start of headstart until the program might start.
    pub exec_after: Duration,
    /// How long the program waited for its trace, if it was traced.
    pub armed_in: Option<Duration>,
    /// What was expected of the replay.
    pub expected: Option<Expected>,
    /// The replay, if there was one.
    pub report: Option<&'a Report>,
    /// What was learned.
    pub start: Option<&'a LearnedStart>,
    /// What it waited for.
    pub waited: Option<Waited>,
    /// What could not be done.
    pub notes: Vec<String>,
}

impl Facts<'_> {
    /// How long the start would have waited for the disk without the replay: estimated of a
    /// learned one, since of others nobody knows which pages were ready in time.
    fn avoided_wait(&self) -> Option<AvoidedWait> {
        let (report, start) = (self.report?, self.start?);
        let share = report.read_share() * start.outcome.in_time_share();
        Some(self.expected?.avoided_wait(share))
    }
}

impl Findings {
    /// Those of a start.
    pub fn of(facts: Facts<'_>) -> Self {
        let avoided_wait = facts.avoided_wait();
        let Facts { report, start, .. } = facts;
        let mut parts = Vec::new();
        let mut notes = facts.notes;
        if let Some(report) = report {
            add_report(&mut parts, report);
            add_hitches(&mut notes, report);
        }
        if let Some(start) = start {
            add_learned(&mut parts, start, report.is_some());
            add_problems(&mut notes, start);
        }
        // Numbers, texts and lists of them: none of it can fail.
        let figures = |value: serde_json::Result<Value>| value.unwrap_or_default();
        Self {
            started: true,
            exec_after_us: micros(facts.exec_after),
            verdict: verdict::of(report, start),
            avoided_wait,
            replay_us: report.map_or(0, |report| report.elapsed_us),
            trace_us: facts.armed_in.map(micros),
            parts,
            notes,
            prefetch: figures(serde_json::to_value(report)),
            touched: figures(serde_json::to_value(start.map(|l| &l.outcome))),
            ready_share: start.map(|l| l.outcome.ready_share()),
            learned: figures(serde_json::to_value(start.map(|l| &l.learned))),
            waited: facts.waited,
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

    /// Writes all figures of the start of `command` into a file; with `force`, into any.
    pub fn write(
        &self,
        command: &[OsString],
        ended: &ProgramEnd,
        file: &Path,
        force: bool,
    ) -> anyhow::Result<()> {
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
            "saved_ms": self.saved_us(ended).map(|us| us as f64 / 1000.0),
            "exec_after_us": self.exec_after_us,
            "trace_us": self.trace_us,
            "major_faults": ended.usage.major_faults,
            "minor_faults": ended.usage.minor_faults,
            "user_ms": ended.usage.user_us as f64 / 1000.0,
            "system_ms": ended.usage.system_us as f64 / 1000.0,
            "prefetch": self.prefetch,
            "touched": self.touched,
            "ready_share": self.ready_share,
            "learned": self.learned,
            "waited": self.waited,
            "notes": self.notes,
        });
        let text = output::json_text(&figures)?;
        results::write(file, &text, ResultKind::Json, force)
    }

    /// The lines at the end: the verdict, and where they are wanted the details.
    pub fn summary(&self, ended: &ProgramEnd, details: bool) -> Vec<String> {
        let mut verdict = vec![verdict::times(ended.wall, self.saved_us(ended))];
        verdict.extend(self.verdict.iter().chain(&self.notes).cloned());
        let mut lines = vec![verdict.join("; ")];
        if details {
            lines.push(self.details(ended).join("; "));
        }
        if let Some(waited) = &self.waited {
            lines.push(waited::line(waited));
            lines.extend(waited::files(waited, if details { ALL_FILES } else { FILES }));
        }
        lines
    }

    /// How much shorter a start was because of the replay, in µs, if that can be said. What it
    /// did not compute it waited, but for what was prefetched no longer than that took.
    fn saved_us(&self, ended: &ProgramEnd) -> Option<u64> {
        let Usage { user_us, system_us, .. } = ended.usage;
        let idle_us = micros(ended.wall).saturating_sub(user_us.saturating_add(system_us));
        let waited_us = idle_us.min(self.replay_us).saturating_add(self.exec_after_us);
        self.avoided_wait?.saved_us(waited_us)
    }

    fn details(&self, ended: &ProgramEnd) -> Vec<String> {
        let ms = |us: u64| us as f64 / 1000.0;
        let mut parts = vec![
            output::counted(ended.usage.major_faults, "major fault"),
            format!("exec delayed by {:.1} ms", ms(self.exec_after_us)),
        ];
        if let Some(us) = self.trace_us {
            let events = self.learned["events"].as_u64().unwrap_or(0);
            let cost_us = us.saturating_add(events.saturating_mul(EVENT_NS) / 1000);
            parts.push(format!(
                "tracing cost about {:.0} ms ({:.1} ms to set up, {})",
                ms(cost_us),
                ms(us),
                output::counted(events, "event")
            ));
        }
        parts.extend(self.parts.iter().cloned());
        parts
    }
}

/// What was prefetched, in words.
pub fn add_report(parts: &mut Vec<String>, report: &Report) {
    parts.push(format!(
        "prefetched {} in {}",
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
        parts.push("metadata skipped: its block device can't be opened".into());
    }
    if report.absent_devices > 0 {
        parts.push("metadata skipped: its file system is not mounted".into());
    }
    if report.assumed_bytes > 0 {
        parts
            .push(format!("{} assumed resident from a sample", output::size(report.assumed_bytes)));
    }
    if report.apart_bytes > 0 {
        let gaps = output::size(report.apart_bytes);
        parts.push(format!("{gaps} of gaps skipped: they lie elsewhere on the device"));
    }
    if report.seldom_bytes > 0 {
        parts.push(format!("{} skipped: rarely touched", output::size(report.seldom_bytes)));
    }
    if report.over_budget_bytes > 0 {
        parts.push(format!("{} over the budget", output::size(report.over_budget_bytes)));
    }
}

/// What kept a replay from its end, in words.
pub fn add_hitches(parts: &mut Vec<String>, report: &Report) {
    if report.stuck {
        parts.push("prefetching gave up on a file whose server does not answer".into());
    }
    if report.unserved_files > 0 {
        let files = output::counted(report.unserved_files, "file");
        parts.push(format!(
            "{files} not prefetched: another process still waits for the file server, which does \
             not answer"
        ));
    }
    if let Some(why) = report.stopped {
        parts.push(format!("stopped {} before its end: {why}", output::size(report.stopped_bytes)));
    }
}

/// The classification of pages of a start or a boot that was prefetched, in words.
pub fn add_outcome(parts: &mut Vec<String>, outcome: &PageCounts) {
    parts.push(format!(
        "{:.1} % of {} touched were ready, {} late, {} missing, {} wasted",
        outcome.ready_share() * 100.0,
        output::counted(outcome.touched_pages, "page"),
        outcome.late_pages,
        outcome.missing_pages,
        outcome.wasted_pages
    ));
}

/// What was learned, in words.
pub fn add_learned(
    parts: &mut Vec<String>,
    LearnedStart { learned, outcome }: &LearnedStart,
    replayed: bool,
) {
    if replayed {
        add_outcome(parts, outcome);
    }
    if learned.written {
        parts.push(format!(
            "learned start {} ({}, {})",
            learned.starts,
            output::counted(learned.files as u64, "file"),
            output::size(learned.data_bytes)
        ));
    }
    if learned.forgotten_packs > 0 {
        let forgotten = output::counted(learned.forgotten_packs as u64, "pack");
        parts.push(format!("forgot {forgotten} of least benefit: the store was full"));
    }
}

/// What could not be learned, in words.
pub fn add_problems(parts: &mut Vec<String>, LearnedStart { learned, .. }: &LearnedStart) {
    if learned.lost_events > 0 {
        parts.push(format!("{} lost", output::counted(learned.lost_events, "event")));
    }
    parts.extend(learned.problems.iter().cloned());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is printed of a start that took two seconds and computed for one, was prefetched for
    /// so long, and would have waited so long without that.
    fn printed(avoided_wait: Option<AvoidedWait>, replay_ms: u64, details: bool) -> String {
        let usage =
            Usage { major_faults: 2, minor_faults: 0, user_us: 900_000, system_us: 100_000 };
        let ended = ProgramEnd { change: Change::Exited(0), usage, wall: Duration::from_secs(2) };
        let findings = Findings {
            exec_after_us: 7_000,
            verdict: vec!["24 of 4,864 pages were missing".into()],
            avoided_wait,
            replay_us: replay_ms * 1000,
            trace_us: Some(5_000),
            parts: vec!["prefetched 1 B".into()],
            notes: vec!["4 events lost".into()],
            learned: json!({"events": 10_000}),
            ..Findings::none()
        };
        findings.summary(&ended, details).join("\n")
    }

    #[test]
    fn a_summary_is_one_line_and_details_are_another() {
        let rest = "; 24 of 4,864 pages were missing; 4 events lost";
        assert_eq!(printed(None, 0, false), format!("2.0 s{rest}"));
        let details = "2 major faults; exec delayed by 7.0 ms; \
            tracing cost about 8 ms (5.0 ms to set up, 10000 events); prefetched 1 B";
        assert_eq!(printed(None, 0, true), format!("2.0 s{rest}\n{details}"));
    }

    #[test]
    fn what_a_start_waited_for_its_replay_and_for_headstart_was_not_saved() {
        let avoided_wait = |least_ms: u64, usual_ms: u64| {
            Some(AvoidedWait { least_us: least_ms * 1000, usual_us: usual_ms * 1000 })
        };
        for (avoided_wait, replay_ms, expected) in [
            (avoided_wait(9_000, 15_300), 100, "2.0 s, about 15 s saved"),
            // It can't have waited longer than it did not compute.
            (avoided_wait(1_008, 3_000), 60_000, "2.0 s, about 2.0 s saved"),
            (avoided_wait(1_006, 3_000), 60_000, "2.0 s;"),
            (avoided_wait(106, 1_000), 99, "2.0 s;"),
            (None, 0, "2.0 s;"),
        ] {
            let said = printed(avoided_wait, replay_ms, false);
            assert!(said.starts_with(expected), "{said}");
        }
    }

    #[test]
    fn a_learned_start_prints_the_classification_if_it_was_prefetched() {
        let outcome = PageCounts {
            touched_pages: 4000,
            ready_pages: 3990,
            late_pages: 3,
            missing_pages: 7,
            wasted_pages: 12,
            ..PageCounts::default()
        };
        let learned = Learned { written: true, starts: 2, files: 1, ..Learned::default() };
        let classes = "99.8 % of 4000 pages touched were ready, 3 late, 7 missing, 12 wasted";
        for (replayed, expected) in [(true, Some(classes)), (false, None)] {
            let mut parts = Vec::new();
            add_learned(&mut parts, &LearnedStart { learned: learned.clone(), outcome }, replayed);
            assert_eq!(parts.pop().as_deref(), Some("learned start 2 (1 file, 0 B)"));
            assert_eq!(parts.pop().as_deref(), expected);
        }
        let mut parts = Vec::new();
        let learned = Learned { forgotten_packs: 2, ..Learned::default() };
        add_learned(&mut parts, &LearnedStart { learned, outcome }, false);
        assert_eq!(parts, ["forgot 2 packs of least benefit: the store was full"]);
    }
}

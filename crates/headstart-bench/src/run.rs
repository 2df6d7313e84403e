//! One measured start.

use serde::{Deserialize, Serialize};

use headstart::outcome::waited::Waited;
use headstart::replay::report::{Report, Stopped};

/// What was measured of one start, or of one reading of the floor. A value that
/// is `None` was not available.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// The round, from 1.
    pub round: usize,
    /// Its place in the round, from 1.
    pub place: usize,
    /// From the decision to start the program to its end, or until it was
    /// ready; `None` when it failed.
    pub wall_s: Option<f64>,
    /// CPU time of the program and its children in user space.
    pub user_s: Option<f64>,
    /// The same in the kernel.
    pub system_s: Option<f64>,
    /// Page faults that needed I/O.
    pub major_faults: Option<u64>,
    /// Page faults that did not.
    pub minor_faults: Option<u64>,
    /// What the disks under the program's files read meanwhile, in bytes.
    pub read_bytes: Option<u64>,
    /// In how many requests.
    pub read_requests: Option<u64>,
    /// How long a command that ran before the program took; part of `wall_s`.
    pub peer_s: Option<f64>,
    /// What headstart asked to be prefetched.
    pub prefetch: Option<Prefetch>,
    /// Processes that the program left behind; they were ended, and what they
    /// cost is counted above.
    pub left_behind: u64,
    /// The program's exit status.
    pub exit_code: Option<i32>,
    /// Why there is no time.
    pub failure: Option<String>,
    /// What it waited for, of starts that are recorded apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited: Option<Waited>,
}

/// The figures of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Prefetch {
    /// Bytes requested that were not in memory.
    pub bytes: u64,
    /// Of these, metadata of file systems.
    pub metadata_bytes: u64,
    /// Calls that requested them.
    pub requests: u64,
    /// Bytes of the plan that were in memory already.
    pub resident_bytes: u64,
    /// Whether everything was requested before the start was over.
    pub complete: bool,
    /// Files that are no longer what was learned, are gone, or may not be read.
    pub files_skipped: u64,
    /// Why it was stopped, if for want of memory.
    pub stopped: Option<Stopped>,
}

impl From<&Report> for Prefetch {
    fn from(report: &Report) -> Self {
        Self {
            bytes: report.bytes,
            metadata_bytes: report.metadata_bytes,
            requests: report.requests,
            resident_bytes: report.resident_bytes,
            complete: report.complete,
            files_skipped: report.stale_files
                + report.missing_files
                + report.forbidden_files
                + report.unserved_files
                + report.failed,
            stopped: report.stopped,
        }
    }
}

/// A counter's name and its value in a run.
pub type Counter = (&'static str, fn(&Run) -> Option<f64>);

/// What is summed up and compared, times first.
pub const COUNTERS: [Counter; 9] = [
    ("time_s", |run| run.wall_s),
    ("user_s", |run| run.user_s),
    ("system_s", |run| run.system_s),
    ("major_faults", |run| run.major_faults.map(as_f64)),
    ("minor_faults", |run| run.minor_faults.map(as_f64)),
    ("read_bytes", |run| run.read_bytes.map(as_f64)),
    ("read_requests", |run| run.read_requests.map(as_f64)),
    ("prefetched_bytes", |run| run.prefetch.map(|ahead| as_f64(ahead.bytes))),
    ("peer_s", |run| run.peer_s),
];

fn as_f64(n: u64) -> f64 {
    n as f64
}

impl Run {
    /// A counter of it; NaN when it is not there. A run that failed has none,
    /// because they are those of another start than the one meant.
    pub fn value(&self, counter: fn(&Run) -> Option<f64>) -> f64 {
        match self.failure {
            None => counter(self).unwrap_or(f64::NAN),
            Some(_) => f64::NAN,
        }
    }
}

/// The runs of one arm, one a round.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ArmRuns {
    /// The arm's name.
    pub name: String,
    /// Its runs in the order of the rounds.
    pub runs: Vec<Run>,
}

impl ArmRuns {
    /// A counter of each run; NaN where there is none.
    pub fn values(&self, counter: fn(&Run) -> Option<f64>) -> Vec<f64> {
        self.runs.iter().map(|run| run.value(counter)).collect()
    }

    /// The time of each run in seconds; NaN where it failed.
    pub fn times(&self) -> Vec<f64> {
        self.values(|run| run.wall_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_run_keeps_its_place_and_gives_no_values() {
        let good = Run { wall_s: Some(2.0), major_faults: Some(3), ..Run::default() };
        let failed = Run { failure: Some("x".into()), ..good.clone() };
        let arm = ArmRuns { name: "cold".into(), runs: vec![good.clone(), failed, good] };
        let times = arm.times();
        assert!(times[0] == 2.0 && times[1].is_nan() && times[2] == 2.0);
        let (_, faults) = COUNTERS[3];
        assert!(arm.values(faults)[1].is_nan() && arm.values(faults)[2] == 3.0);
        let (_, bytes) = COUNTERS[5];
        assert!(arm.values(bytes)[0].is_nan());
    }

    #[test]
    fn a_run_is_read_back_as_it_was_written_and_unknown_members_do_not_matter() {
        let run = Run { round: 3, wall_s: Some(0.25), exit_code: Some(1), ..Run::default() };
        let json = serde_json::to_string(&run).unwrap();
        assert_eq!(serde_json::from_str::<Run>(&json).unwrap(), run);
        let later: Run = serde_json::from_str(r#"{"wall_s": 1.0, "shiny": {}}"#).unwrap();
        assert_eq!(later.wall_s, Some(1.0));
    }
}

//! What became of a replay, counted while it goes on.

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::AtomicU64;

/// What became of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Portions that the kernel was asked to read ahead.
    pub requests: u64,
    /// Bytes asked for that were not in memory.
    pub bytes: u64,
    /// Of `bytes`, those of file-system metadata.
    pub metadata_bytes: u64,
    /// Bytes of the plan that were in memory already.
    pub resident_bytes: u64,
    /// Bytes of the plan that were not looked at, because a sample was in memory.
    pub presumed_bytes: u64,
    /// Files that were opened.
    pub files: u64,
    /// Files that are no longer what was learned.
    pub stale_files: u64,
    /// Files that are no longer what was learned and were read, since each start changes
    /// them.
    pub changing_files: u64,
    /// Files that are gone.
    pub missing_files: u64,
    /// Files that this user may not read.
    pub forbidden_files: u64,
    /// Files and requests that failed otherwise.
    pub failed: u64,
    /// Block devices that could not be opened, so that their metadata is left
    /// to the program.
    pub closed_devices: u64,
    /// Bytes of the plan that belong to the files and devices above.
    pub dropped_bytes: u64,
    /// Bytes that were not asked for because the budget was used up.
    pub over_budget_bytes: u64,
    /// Bytes of the pack that were left out because too few starts touch them.
    pub seldom_bytes: u64,
    /// Why the replay was stopped, if for want of memory.
    pub stopped: Option<Stopped>,
    /// Bytes that were not asked for because of that.
    pub stopped_bytes: u64,
    /// Whether the end of the plan was reached.
    pub complete: bool,
    /// From the start of the process to the first request, in µs.
    pub first_request_us: Option<u64>,
    /// From the start of the replay to its end, in µs.
    pub elapsed_us: u64,
}

/// Why a replay was stopped: memory had become scarce.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stopped {
    /// Pages that were asked for were reclaimed again.
    Reclaimed,
    /// Tasks had to wait for memory.
    Pressure,
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reclaimed => "memory is being reclaimed",
            Self::Pressure => "tasks wait for memory",
        })
    }
}

/// Counters that the threads share.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) requests: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) metadata_bytes: AtomicU64,
    pub(super) resident_bytes: AtomicU64,
    pub(super) presumed_bytes: AtomicU64,
    pub(super) files: AtomicU64,
    pub(super) stale_files: AtomicU64,
    pub(super) changing_files: AtomicU64,
    pub(super) missing_files: AtomicU64,
    pub(super) forbidden_files: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) closed_devices: AtomicU64,
    pub(super) dropped_bytes: AtomicU64,
}

/// Why a target is not read.
#[derive(Debug)]
pub(crate) enum NotRead {
    Stale,
    Missing,
    Forbidden,
    Failed,
}

impl NotRead {
    pub(super) fn count(self, counters: &Counters) -> &AtomicU64 {
        match self {
            Self::Stale => &counters.stale_files,
            Self::Missing => &counters.missing_files,
            Self::Forbidden => &counters.forbidden_files,
            Self::Failed => &counters.failed,
        }
    }
}

impl From<Errno> for NotRead {
    fn from(e: Errno) -> Self {
        match e {
            Errno::NOENT | Errno::NOTDIR => Self::Missing,
            // A link took the file's place.
            Errno::LOOP => Self::Stale,
            Errno::ACCESS | Errno::PERM => Self::Forbidden,
            _ => Self::Failed,
        }
    }
}

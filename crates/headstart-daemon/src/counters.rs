//! What the service did since it began, and what it did not do and why. Pure.

use serde::{Deserialize, Serialize};

/// Counts since the service began.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Execs that were reported.
    pub execs: u64,
    /// Execs that the kernel did not report, because a buffer was full.
    pub lost_execs: u64,
    /// Execs that were not looked at, because too many were waiting.
    pub missed_execs: u64,
    /// Processes that ended before they were looked at.
    pub gone: u64,
    /// Starts by names that are executed often, which were seen by their reads.
    pub by_reads: u64,
    /// Children without exec that do slow jobs.
    pub by_forks: u64,
    /// Execs that were skipped by their rate.
    pub skipped_by_rate: u64,
    /// Execs of programs that were lately hot, or gain nothing.
    pub skipped: u64,
    /// Execs within a start that was handled: they are a part of it.
    pub in_starts: u64,
    /// Execs of a process that was handled already by the same program, as when it executes itself again: no
    /// start of their own.
    pub again: u64,
    /// Programs in containers.
    pub in_containers: u64,
    /// Programs in another root directory that is of no known image, which are not handled.
    pub elsewhere: u64,
    /// Starts that were only watched.
    pub watched: u64,
    /// Of those, the ones that waited for disks for longer than the threshold.
    pub cold: u64,
    /// Starts that were not watched or prefetched, because too many were.
    pub crowded: u64,
    /// Starts for which something was prefetched.
    pub prefetched: u64,
    /// Starts whose files were resident.
    pub hot: u64,
    /// Starts that were not prefetched since the memory budget was used up.
    pub without_budget: u64,
    /// Starts that were learned.
    pub learned: u64,
    /// Starts that were not recorded, because too many were, or events were lost lately.
    pub not_recorded: u64,
    /// Recordings that could not be learned.
    pub failed: u64,
    /// Trace events that were lost.
    pub lost_events: u64,
    /// Logins that were seen.
    pub logins: u64,
    /// Bytes of login packs that were prefetched.
    pub login_read_bytes: u64,
    /// Of those, the ones that no program could use that started within five minutes.
    pub login_wasted_bytes: u64,
    /// Time that login packs saved, as estimated, in µs.
    pub login_saved_us: u64,
    /// Programs that were prefetched because they were predicted, and something had to be read.
    pub predictions: u64,
    /// Of those, the ones that started within five minutes.
    pub predictions_hit: u64,
    /// Bytes that were prefetched for predictions.
    pub predicted_read_bytes: u64,
    /// Of those, the ones that no program could use that started within five minutes.
    pub predicted_wasted_bytes: u64,
    /// Time that predictions saved, as estimated, in µs.
    pub predicted_saved_us: u64,
    /// Predicted programs that were not prefetched: on battery, or for lack of free memory.
    pub predictions_skipped: u64,
    /// Parts of pinned programs, of a huge page each, that were put into large folios.
    pub large_folios: u64,
    /// Clients of the socket that were refused, or were too slow.
    pub refused_clients: u64,
}

//! What is known of each program, and what follows for its next start.
//!
//! ```text
//! rates ──▶ decide ──▶ … a start … ──▶ note
//! too many  skip, watch,              what came of it
//! execs?    record, prefetch          goes into the table
//! ```
//!
//! All of it is pure: times are given.

pub mod decide;
pub mod gain;
pub mod lead;
pub mod note;
pub mod rates;
pub mod table;

use serde::{Deserialize, Serialize};

/// Which program of which user.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Id {
    /// The user.
    pub uid: u32,
    /// The file name of the program's pack.
    pub file_name: String,
}

/// What is known of a program.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Program {
    /// What people call it.
    pub name: String,
    /// Its executable.
    pub executable: String,
    /// If it is no exec but a fork: what the kernel calls the program that forks.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub forker: String,
    /// Starts that were looked at.
    pub starts: u64,
    /// Of those, the ones that waited for disks for longer than the threshold.
    pub cold_starts: u64,
    /// Starts for which something was read.
    pub prefetched: u64,
    /// Starts that were learned.
    pub learned: u64,
    /// Whether only the rest of a start was learned.
    pub has_rest_only: bool,
    /// When it was learned last, in seconds of Unix time.
    pub learned_at: u64,
    /// When it was started last, in seconds of Unix time.
    pub started_at: u64,
    /// Time that was saved, as estimated, in µs.
    pub saved_us: u64,
    /// How long the latest slow start that was not prefetched took until its end, in µs; 0 if none
    /// has ended while it was looked at.
    pub cold_us: u64,
    /// The time that the latest measured start saved, in thousandths of the estimate; 0 for none.
    pub gain_permille: u32,
    /// Bytes that were prefetched.
    pub read_bytes: u64,
    /// Of those, the ones that were not touched, as measured or estimated by the latest recorded start.
    pub wasted_bytes: u64,
    /// Bytes that were prefetched for the latest recorded start that was cold.
    pub last_measured_bytes: u64,
    /// Of those, the ones that were not touched.
    pub last_wasted_bytes: u64,
    /// Recorded starts in a row that wasted more than half of what was prefetched.
    pub wasteful_streak: u32,
    /// Bytes that its pack has; 0 if that is not known.
    pub pack_bytes: u64,
    /// Whether its user wants it prefetched and kept, whatever the figures say.
    pub pinned: bool,
    /// Starts in a row for which nothing had to be read.
    pub hot_streak: u32,
    /// Its starts are not looked at before that, in milliseconds of the monotonic clock.
    #[serde(skip)]
    pub quiet_until_ms: u64,
    /// The file name of the pack of the slow program that its starts lead to.
    pub leads_to: Option<String>,
    /// Of the latest starts, those that led there.
    pub led: u32,
    /// How many the latest starts are.
    pub led_of: u32,
    /// It gains nothing, and is not prefetched or learned before that, in seconds of Unix time.
    pub useless_until: u64,
}

impl Program {
    /// Whether there is something to remember beyond the next minutes.
    pub fn is_remembered(&self) -> bool {
        self.pinned || self.is_slow() || self.leads_to.is_some()
    }

    /// Whether it was slow, or is learned.
    pub fn is_slow(&self) -> bool {
        self.cold_starts > 0 || self.learned > 0
    }
}

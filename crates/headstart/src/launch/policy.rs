//! What differs between kinds of launches, and what bounds a replay.
//!
//! A service gets all that a program gets. A benchmark measures what a replay gains and costs,
//! so it asks for one `always`, worth it or not. Boots have a strategy and limits of their own.

use crate::host::memory;
use crate::host::mounts::Mounts;
use crate::pack::Pack;
use crate::pack::history::HISTORY_STARTS;
use crate::replay::frequency::Frequency;
use crate::replay::model::{self, Model};
use crate::replay::models::Models;
use crate::replay::plan::Limits;
use crate::replay::strategy::ReadStrategy;
use std::time::Duration;

/// How often the last starts must have touched what is read of a pack. Boots, whose packs hold
/// what few starts tell, choose otherwise.
pub const FREQUENT: Frequency = Frequency::HALF;

/// What a user limits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Bounds {
    /// Bytes at most, if limited.
    pub budget: Option<u64>,
    /// Threads, if given.
    pub threads: Option<usize>,
}

impl Bounds {
    /// What bounds a plan: the memory that may be filled too, and what this user may read.
    pub fn limits(self) -> Limits {
        let budget = memory::budget().min(self.budget.unwrap_or(u64::MAX));
        Limits { budget, metadata: rustix::process::geteuid().is_root(), often: FREQUENT }
    }

    /// A read strategy with the threads of these bounds.
    pub fn apply(self, strategy: ReadStrategy) -> ReadStrategy {
        ReadStrategy { threads: self.threads.unwrap_or(strategy.threads), ..strategy }
    }
}

/// How a recorded launch becomes a pack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Learning {
    /// Starts after whose absence a range is dropped.
    pub keep: u32,
    /// Whether times of touches are those of a launch that never waited for a disk.
    pub without_waits: bool,
    /// How long names are looked for at most.
    pub names_limit: Duration,
}

impl Learning {
    /// Of a program or service. Somebody may wait for what it tells, and a disk that has just
    /// become quiet is not kept busy for a few names.
    pub fn of_start(keep: u32) -> Self {
        Self { keep, without_waits: false, names_limit: Duration::from_secs(2) }
    }

    /// Of a boot. What any of the known boots touched stays, since few boots tell what the next
    /// one needs. How long a boot waited depends on how it was prefetched, and its phases are
    /// put one behind the other. Nobody waits for it, and a disk that seeks takes its time for
    /// the thousands of files of a boot.
    pub const BOOT: Self =
        Self { keep: HISTORY_STARTS, without_waits: true, names_limit: Duration::from_secs(30) };
}

/// How a pack is best read, by the model of its device, if that was measured.
pub fn read_strategy(model: Option<Model>, pack: &Pack, bounds: Bounds) -> ReadStrategy {
    bounds.apply(model::read_strategy(model, pack))
}

/// How a pack is best read here.
pub fn strategy_here(pack: &Pack, mounts: &Mounts, bounds: Bounds) -> ReadStrategy {
    read_strategy(Models::here().of_pack(pack, mounts), pack, bounds)
}

/// How the pack of a boot is best read, by what earlier boots measured of its device.
/// `waits`: whether the boot waits for all of it; where it does not, and the disk is rotational,
/// that is done in several passes, since a boot computes for seconds.
pub fn strategy_of_boot(model: Option<Model>, pack: &Pack, waits: bool) -> ReadStrategy {
    // Measured of single programs only.
    let strategy =
        ReadStrategy { metadata_lead: None, in_flight: None, ..model::read_strategy(model, pack) };
    if waits { strategy } else { strategy.in_passes() }
}

/// What bounds the plan of a boot: each range that any start touched, since few boots tell what
/// the next one needs.
pub fn limits_of_boot() -> Limits {
    Limits { budget: memory::budget(), metadata: true, often: Frequency::EVER }
}

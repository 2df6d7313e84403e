//! How packs are read ahead here: in which way, within which bounds.

use headstart::replay::engine::{Options, Replay};
use headstart::replay::often::Often;
use headstart::replay::plan::{Limits, Plan};
use headstart::replay::way::Way;
use headstart::replay::{budget, metadata};
use std::time::Instant;

/// This way, with so many threads, if so told.
pub fn with_threads(way: Way, threads: Option<usize>) -> Way {
    Way { threads: threads.unwrap_or(way.threads), ..way }
}

/// What bounds a plan of at most this many bytes, if so limited.
pub fn limits(budget: Option<u64>) -> Limits {
    let budget = budget::available().min(budget.unwrap_or(u64::MAX));
    Limits { budget, metadata: rustix::process::geteuid().is_root(), often: Often::HALF }
}

/// Begins to read ahead beside a program.
pub fn read_ahead(plan: Plan, began: Instant) -> std::io::Result<Replay> {
    let options = Options { wait: false, timeout: None, exact: false };
    Replay::start(plan, options, metadata::devices, began)
}

//! How packs are read ahead here: in which way, within which bounds.

use crate::output;
use headstart::profile::mounts::Mounts;
use headstart::replay::budget;
use headstart::replay::engine::{Options, Replay};
use headstart::replay::often::Often;
use headstart::replay::plan::{Limits, Plan};
use headstart::replay::way::Way;
use std::path::Path;
use std::process::{Command, Stdio};
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

/// Begins to read ahead beside a program; with `log`, to tell later what was asked
/// for when.
pub fn read_ahead(
    plan: Plan,
    mounts: Mounts,
    began: Instant,
    log: bool,
) -> std::io::Result<Replay> {
    let options = Options { log, ..Options::default() };
    Replay::start(plan, options, mounts, began)
}

/// Puts a pack's big files into large folios, in a process of its own that nobody waits
/// for and that takes only what others leave of processors and disks.
pub fn large_folios_later(pack: &Path) {
    let words = ["replay", "--large-folios", "--background", "--quiet"];
    let later = Command::new("/proc/self/exe")
        .args(words)
        .args(["--nice", "19", "--ioprio", "idle", "--"])
        .arg(pack)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    // It goes on in the background, so this is only about its begin.
    if !later.is_ok_and(|status| status.success()) {
        output::message(
            "Can't put files into large folios: `headstart replay --large-folios` says why",
        );
    }
}

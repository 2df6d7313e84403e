//! How packs are read ahead here: in which way, within which bounds.

use crate::output;
use headstart::host::memory;
use headstart::replay::often::Often;
use headstart::replay::plan::Limits;
use headstart::replay::way::Way;
use std::path::Path;
use std::process::{Command, Stdio};

/// This way, with so many threads, if so told.
pub fn with_threads(way: Way, threads: Option<usize>) -> Way {
    Way { threads: threads.unwrap_or(way.threads), ..way }
}

/// How often the last starts must have touched what is read of a program's pack.
pub const OFTEN: Often = Often::HALF;

/// What bounds a plan of at most this many bytes, if so limited.
pub fn limits(budget: Option<u64>) -> Limits {
    let budget = memory::budget().min(budget.unwrap_or(u64::MAX));
    Limits { budget, metadata: rustix::process::geteuid().is_root(), often: OFTEN }
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

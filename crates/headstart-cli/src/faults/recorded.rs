//! What a recording leaves, of a program that was started and of one that ran.

use crate::output::{self, counted};
use headstart::host::clock;
use headstart_faults::capture::{Captured, Over};
use headstart_faults::document::Usage;
use headstart_faults::recording::Recorder;
use std::path::PathBuf;

/// What was recorded, and of whom.
pub struct Recorded {
    pub captured: Captured,
    pub recorder: Recorder,
    pub pid: i32,
    pub over: Over,
    /// In ns of the monotonic clock.
    pub began: u64,
    pub ended: u64,
    pub usage: Option<Usage>,
    /// CPU time of this process meanwhile, in µs.
    pub recorder_us: u64,
    /// Threads of a running process that are there now.
    pub threads: Vec<i32>,
    /// Where paths of its files begin.
    pub root: PathBuf,
}

/// Now, in ns of the monotonic clock.
pub fn now() -> u64 {
    clock::monotonic_us() * 1000
}

/// Said when there was too much.
pub fn warn_if_full(over: Over, faults: u64) {
    if over == Over::Full {
        let faults = counted(faults, "fault");
        output::message(format_args!(
            "The recording ended early: the records of {faults} take 512 MiB, the most that is kept"
        ));
    }
}

/// CPU time of this process so far, in µs.
pub fn cpu_time() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec.cast_unsigned() * 1_000_000 + time.tv_nsec.cast_unsigned() / 1000
}

//! What a recording leaves, of a program that was started and of one that ran.

use crate::output::{self, counted, size};
use headstart::host::clock;
use headstart_faults::capture::points::Points;
use headstart_faults::capture::{Access, Captured, MOST_BYTES, Over};
use headstart_faults::document::Usage;
use headstart_faults::recorder::Recorder;
use std::os::fd::OwnedFd;

/// What is recorded besides faults.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// What maps a huge page.
    pub huge: bool,
    /// What threads wait for.
    pub waits: bool,
}

impl Wanted {
    /// What the kernel allows of it.
    ///
    /// # Errors
    /// What is wanted can't be recorded.
    pub fn find(self) -> anyhow::Result<(Access, Points)> {
        let points = if self.waits { Points::find()? } else { Points::default() };
        if points.mounted_tracefs {
            output::message("Mounted tracefs on /sys/kernel/tracing, where --waits needs it");
        }
        Ok((Access::find(self.huge)?, points))
    }

    /// A recorder of it.
    pub fn of(self, recorder: Recorder) -> Recorder {
        if self.waits { recorder.with_waits() } else { recorder }
    }
}

/// What was recorded, and of whom.
pub struct Recorded {
    pub captured: Captured,
    pub recorder: Recorder,
    pub pid: i32,
    pub over: Over,
    /// In ns of the monotonic clock.
    pub began: u64,
    pub usage: Option<Usage>,
    /// CPU time of this process meanwhile, in µs.
    pub recorder_us: u64,
    /// Where paths of its files begin.
    pub root: OwnedFd,
}

/// Said when there was too much.
pub fn warn_if_full(over: Over, faults: u64) {
    if over == Over::Full {
        let faults = counted(faults, "fault");
        let most = size(MOST_BYTES as u64);
        output::message(format_args!(
            "The recording ended early: the records of {faults} take {most}, the most that is kept"
        ));
    }
}

/// CPU time of this process so far, in µs.
pub fn cpu_time() -> u64 {
    clock::process_ns() / 1000
}

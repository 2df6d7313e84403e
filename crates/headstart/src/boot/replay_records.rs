//! What a replay reports to the recorder and to `status`, in `/run/headstart/replay`: one document
//! for each phase and for each of the two replays of a boot, of the initramfs and of the unit.

use super::machine::{Machine, MachineError};
use crate::host::clock::monotonic_us;
use crate::pack::store;
use crate::replay::report::Report;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// The form of the document.
const SCHEMA: &str = "headstart/boot-replay/1";

/// One phase that was prefetched, or is.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ReplayRecord {
    /// Its form.
    pub schema: String,
    /// The phase.
    pub phase: String,
    /// Whether the initramfs did it.
    pub in_initramfs: bool,
    /// The process.
    pub pid: i32,
    /// Its threads, also those that have ended.
    pub threads: Vec<i32>,
    /// When it began, in µs of the monotonic clock.
    pub began_us: u64,
    /// When it ended, in µs of the monotonic clock; `None` as long as it goes on.
    pub ended_us: Option<u64>,
    /// The packs that were read.
    #[serde(default)]
    pub packs: Vec<PathBuf>,
    /// Of these, those that were read to the end.
    #[serde(default)]
    pub read_packs: Vec<PathBuf>,
    /// Its figures, summed over file systems.
    pub report: Report,
}

impl ReplayRecord {
    /// A phase whose replay begins.
    pub fn new(phase: &str, in_initramfs: bool) -> Self {
        Self {
            schema: SCHEMA.into(),
            phase: phase.into(),
            in_initramfs,
            pid: rustix::process::getpid().as_raw_nonzero().get(),
            began_us: monotonic_us(),
            ..Self::default()
        }
    }

    /// Adds the figures of one plan of this phase.
    pub fn add(&mut self, report: &Report, threads: &[i32]) {
        // One plan is read after another.
        let elapsed_us = self.report.elapsed_us + report.elapsed_us;
        match self.ended_us {
            None => self.report = *report,
            Some(_) => self.report.add(report),
        }
        self.report.elapsed_us = elapsed_us;
        for thread in threads {
            if !self.threads.contains(thread) {
                self.threads.push(*thread);
            }
        }
        self.ended_us = Some(monotonic_us());
    }

    /// Writes the document.
    ///
    /// # Errors
    /// It can't be written.
    pub fn keep(&self, machine: &Machine) -> Result<(), MachineError> {
        let suffix = if self.in_initramfs { ".initramfs" } else { "" };
        let path = dir(machine).join(format!("{}{suffix}.json", self.phase));
        let locked = store::lock(&path)?;
        let write = || -> io::Result<()> { locked.write_bytes(&serde_json::to_vec(self)?) };
        write().map_err(|source| MachineError::Write { path: path.clone(), source })
    }
}

/// All that this boot has prefetched until now.
pub fn all(machine: &Machine) -> Vec<ReplayRecord> {
    let dir = dir(machine);
    let read = |name: OsString| -> Option<ReplayRecord> {
        let bytes = machine.bytes(&dir.join(name)).ok()?;
        let replayed: ReplayRecord = serde_json::from_slice(&bytes).ok()?;
        (replayed.schema == SCHEMA).then_some(replayed)
    };
    machine.names(&dir).into_iter().filter_map(read).collect()
}

/// The packs of a phase that the initramfs has read to the end.
pub fn read_before(machine: &Machine, phase: &str) -> HashSet<PathBuf> {
    let of_phase = |replayed: &ReplayRecord| replayed.in_initramfs && replayed.phase == phase;
    all(machine).into_iter().filter(of_phase).flat_map(|replayed| replayed.read_packs).collect()
}

/// The threads of these replays: what they do is not a part of the boot.
pub fn threads(all: &[ReplayRecord]) -> HashSet<i32> {
    let of_one = |replayed: &ReplayRecord| {
        let alive = match replayed.ended_us {
            None => crate::host::proc::threads_of(replayed.pid),
            Some(_) => Vec::new(),
        };
        [&replayed.threads[..], &alive, &[replayed.pid]].concat()
    };
    all.iter().flat_map(of_one).collect()
}

fn dir(machine: &Machine) -> PathBuf {
    machine.run().join("replay")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_replays_of_a_boot_are_found_with_their_threads_and_sums() {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::at(dir.path());
        assert!(all(&machine).is_empty());
        let report = |bytes, complete| Report {
            bytes,
            complete,
            seldom_bytes: 1,
            elapsed_us: 2,
            ..Report::default()
        };
        let mut one = ReplayRecord::new("mounts", true);
        one.keep(&machine).unwrap();
        one.add(&report(5, false), &[71]);
        one.add(&report(6, true), &[72, 71]);
        one.read_packs.push("/9.pack".into());
        one.keep(&machine).unwrap();
        let mut two = ReplayRecord::new("mounts", false);
        two.add(&report(1, true), &[]);
        two.read_packs.push("/8.pack".into());
        two.keep(&machine).unwrap();
        fs::write(super::dir(&machine).join("broken.json"), "{").unwrap();
        let mut found = all(&machine);
        found.sort_by_key(|r| r.in_initramfs);
        assert_eq!(found.len(), 2);
        assert!(found[0].report.complete && !found[1].report.complete);
        assert_eq!((found[1].report.bytes, found[1].ended_us.is_some()), (11, true));
        assert_eq!((found[1].report.seldom_bytes, found[1].report.elapsed_us), (2, 4));
        assert_eq!(found[1].threads, [71, 72], "each once, however many packs it read");
        assert_eq!(read_before(&machine, "mounts"), HashSet::from(["/9.pack".into()]));
        assert_eq!(read_before(&machine, "system"), HashSet::new());
        let own = std::process::id() as i32;
        assert_eq!(threads(&found), HashSet::from([71, 72, own]));
    }
}

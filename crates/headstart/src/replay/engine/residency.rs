//! Which pages of a plan are resident: checked, or assumed after many resident steps in a row,
//! since a hot start should not pay for checks.

use super::progress::Progress;
use super::targets::{Opened, Targets};
use crate::cache::residency::{page_size, resident_count};
use crate::host::mounts::Mounts;
use crate::host::open::Kind;
use crate::replay::plan::Plan;
use crate::replay::step::Step;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// After this many resident steps in a row, the rest is assumed to be resident,
const CERTAIN_AFTER: usize = 64;
/// and one in this many is checked.
const SAMPLE: usize = 16;

#[derive(Debug)]
pub(super) struct Residency {
    /// From which number on steps may be assumed to be resident: the program waits for those
    /// before it.
    assumes_from: usize,
    /// Steps of files that were found resident, in a row.
    in_a_row: AtomicUsize,
    /// Whether a sample of the plan was resident, and nothing contradicts it yet.
    sample_holds: AtomicBool,
    /// Steps that were assumed to be resident, with their numbers.
    assumed: Mutex<Vec<(Step, usize)>>,
    progress: Arc<Progress>,
}

impl Residency {
    /// `sampled` if a sample of the plan was resident.
    pub(super) fn new(assumes_from: usize, sampled: bool, progress: Arc<Progress>) -> Self {
        Self {
            assumes_from,
            in_a_row: AtomicUsize::new(0),
            sample_holds: AtomicBool::new(sampled),
            assumed: Mutex::default(),
            progress,
        }
    }

    /// Looks a step up: its bytes that are not resident.
    pub(super) fn missing(&self, target: &Opened, step: &Step) -> u64 {
        let resident = resident(target, step);
        self.progress.count(|report| report.resident_bytes += resident);
        let missing = step.bytes.length() - resident;
        if missing > 0 {
            self.contradict_sample();
            self.in_a_row.store(0, Relaxed);
        } else if target.kind != Kind::Device {
            // Resident metadata says little about data.
            self.in_a_row.fetch_add(1, Relaxed);
        }
        missing
    }

    pub(super) fn contradict_sample(&self) {
        self.sample_holds.store(false, Relaxed);
    }

    pub(super) fn sample_holds(&self) -> bool {
        self.sample_holds.load(Relaxed)
    }

    /// Assumes that a step of data is resident if those before it were; returns whether it does.
    pub(super) fn assume(&self, step: &Step, number: usize) -> bool {
        let may_be = number >= self.assumes_from && !number.is_multiple_of(SAMPLE);
        let assumes = may_be && self.is_row_long();
        if assumes {
            let mut assumed = self.assumed.lock().unwrap_or_else(PoisonError::into_inner);
            assumed.push((*step, number));
        }
        assumes
    }

    /// Whether what was assumed still may be: another thread may have found a step that is
    /// missing meanwhile.
    pub(super) fn is_row_long(&self) -> bool {
        self.in_a_row.load(Relaxed) >= CERTAIN_AFTER
    }

    /// Takes back all that was assumed.
    pub(super) fn take_assumed(&self) -> Vec<(Step, usize)> {
        std::mem::take(&mut *self.assumed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Bytes of a step that are resident. Without an answer the kernel sorts out by itself what it
/// has.
fn resident(target: &Opened, step: &Step) -> u64 {
    let count = resident_count(&target.file, step.pages()).unwrap_or(0);
    (count * page_size()).min(step.bytes.length())
}

/// How many pages a plan reads, and how many of them are resident. Those of files that are not
/// what was learned count as not resident.
pub fn resident_pages(plan: &Plan, mounts: &Mounts) -> (u64, u64) {
    let plan = Arc::new(plan.clone());
    let progress = Arc::new(Progress::new(Instant::now(), 0, None));
    let targets = Targets::new(plan.clone(), 1, false, mounts.clone(), progress);
    let (mut planned, mut resident) = (0, 0);
    for step in &plan.steps {
        match targets.opened(step.target) {
            None => planned += step.pages().count(),
            Some(target) => {
                let existing = targets.existing(step);
                for part in existing.iter().flat_map(|step| targets.parts(&target, step)) {
                    planned += part.pages().count();
                    resident += resident_count(&target.file, part.pages()).unwrap_or(0);
                }
            }
        }
        targets.note_use(step);
    }
    (planned, resident)
}

#[cfg(test)]
mod tests {
    use super::super::targets::tests::opened;
    use super::*;
    use crate::host::range::ByteRange;

    fn step(length: u64) -> Step {
        Step { target: 0, bytes: ByteRange::of(0, length), touched_us: 0 }
    }

    /// After so many steps that are resident.
    fn after_resident(count: usize, kind: Kind, assumes_from: usize) -> Residency {
        let progress = Arc::new(Progress::new(Instant::now(), 0, None));
        let residency = Residency::new(assumes_from, true, progress);
        let (_dir, target) = opened(4096, kind);
        for _ in 0..count {
            assert_eq!(residency.missing(&target, &step(4096)), 0);
        }
        assert_eq!(residency.progress.report().resident_bytes, count as u64 * 4096);
        residency
    }

    #[test]
    fn data_behind_the_head_is_assumed_after_a_row_and_a_sample_is_looked_up() {
        for (name, row, number, expected) in [
            ("after a row", CERTAIN_AFTER, 101, true),
            ("after a short row", CERTAIN_AFTER - 1, 101, false),
            ("of the head", CERTAIN_AFTER, 99, false),
            ("a sample", CERTAIN_AFTER, 7 * SAMPLE, false),
        ] {
            let residency = after_resident(row, Kind::File, 100);
            assert_eq!(residency.assume(&step(4096), number), expected, "{name}");
            let assumed = if expected { vec![(step(4096), number)] } else { vec![] };
            assert_eq!(residency.take_assumed(), assumed, "{name}");
        }
    }

    #[test]
    fn a_missing_step_ends_the_row_and_contradicts_the_sample() {
        let residency = after_resident(CERTAIN_AFTER, Kind::File, 0);
        assert!(residency.sample_holds() && residency.is_row_long());
        let (_dir, target) = opened(4096, Kind::File);
        assert_eq!(residency.missing(&target, &step(8192)), 4096, "nothing behind its end");
        assert!(!residency.sample_holds() && !residency.is_row_long());
    }

    #[test]
    fn resident_metadata_is_no_sign_of_resident_data() {
        assert!(!after_resident(CERTAIN_AFTER, Kind::Device, 0).is_row_long());
    }
}

//! What was asked for and may not have arrived: bounded, so that what the program asks for
//! itself, and what comes later in the plan but is needed soon, does not stand behind all of
//! the rest. Steps that are asked for together are not counted.

use super::Shared;
use super::targets::Opened;
use crate::cache::residency::resident_count;
use crate::replay::plan::Step;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Steps on their way, in the order in which they were asked for.
#[derive(Debug, Default)]
pub(super) struct Flight(Mutex<OnWay>);

#[derive(Debug, Default)]
struct OnWay {
    steps: VecDeque<(Arc<Opened>, Step)>,
    /// Of those, and of what is waited for at the moment.
    bytes: u64,
}

impl Flight {
    fn lock(&self) -> MutexGuard<'_, OnWay> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets all, and lets go of the files.
    pub(super) fn clear(&self) {
        *self.lock() = OnWay::default();
    }
}

impl Shared {
    /// Waits until a step may be asked for, and counts it.
    pub(super) fn wait_for_room(&self, target: &Arc<Opened>, step: &Step) {
        let Some(limit) = self.plan.way.in_flight else { return };
        loop {
            let mut on_way = self.flight.lock();
            let fits = on_way.bytes.saturating_add(step.length) <= limit.bytes
                && on_way.steps.len() < limit.steps;
            let oldest = if fits { None } else { on_way.steps.pop_front() };
            let Some((of, oldest)) = oldest else {
                on_way.bytes = on_way.bytes.saturating_add(step.length);
                on_way.steps.push_back((target.clone(), *step));
                return;
            };
            drop(on_way);
            wait_until_read(&of, &oldest);
            let mut on_way = self.flight.lock();
            on_way.bytes = on_way.bytes.saturating_sub(oldest.length);
        }
    }
}

/// Waits until the last page of a step is in memory. What could not be asked for, or is
/// gone again, is not read for that.
fn wait_until_read(target: &Opened, step: &Step) {
    let page = rustix::param::page_size() as u64;
    let last = (step.offset + step.length.max(1) - 1) / page;
    if resident_count(&target.file, last, 1).is_ok_and(|pages| pages > 0) {
        // An error is the program's to meet.
        let _ = rustix::io::pread(&target.file, &mut [0u8][..], last * page);
    }
}

//! What recording costs here: page faults of this process with and without events, measured after
//! the recording, so that nobody waits for it.

use crate::capture::points::Points;
use crate::capture::{Access, CaptureError, Scope, events_of};
use headstart_sys::touch;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Pages of a pass.
const PAGES: usize = 512;
/// Passes with events, and as many without.
const PASSES: usize = 15;

/// What recording adds to a fault, in ns: the difference of the shortest passes over new memory, which
/// nothing else has interrupted. Less than nothing counts as nothing.
///
/// # Errors
/// Those of [`CaptureError`].
pub fn ns_per_fault(access: Access) -> Result<u64, CaptureError> {
    let before = sched_getaffinity(None).map_err(std::io::Error::from)?;
    let cpu = sched_getcpu();
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).map_err(std::io::Error::from)?;
    let measured = passes(access, cpu as i32);
    sched_setaffinity(None, &before).map_err(std::io::Error::from)?;
    let [without, with] = measured?.map(|times| times.into_iter().min().unwrap_or(0));
    Ok(with.saturating_sub(without) / PAGES as u64)
}

fn passes(access: Access, cpu: i32) -> Result<[Vec<u64>; 2], CaptureError> {
    let mut times = [Vec::new(), Vec::new()];
    let pass = || touch::pages(PAGES).map(|time| time.as_nanos() as u64);
    // The first one allocates page tables.
    pass()?;
    for _ in 0..PASSES {
        times[0].push(pass()?);
        let events = events_of(Scope::Own, &[cpu], access, &Points::default())?;
        times[1].push(pass()?);
        drop(events);
    }
    Ok(times)
}

//! Whether there is memory pressure during a replay; a replay would only take memory from the
//! program then.
//!
//! There are two signs, checked now and then: requested pages are gone again (cachestat(2) of a
//! sample), and tasks wait for memory (PSI).

use super::targets::Opened;
use crate::cache::residency::count_in_cache;
use crate::host::memory;
use crate::replay::report::Stopped;
use crate::replay::step::Step;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often is looked.
const INTERVAL: Duration = Duration::from_millis(10);
/// Steps that are checked again. Their files stay open.
const SAMPLES: usize = 16;
/// This many of them must have lost most of their pages. Memory pressure reclaims the oldest pages;
/// DAMON's proactive reclaim takes single pages that it finds idle, also new ones.
const LOST: usize = SAMPLES / 4;
/// Tasks wait for memory when some did for this part of the time,
const STALLED_PART: u32 = 5;
/// seen over at least this time.
const STALLED_OVER: Duration = Duration::from_millis(50);

/// Looks after memory.
#[derive(Debug, Default)]
pub(super) struct MemoryPressure(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    looked: Option<Instant>,
    stalled: Option<(Instant, u64)>,
    samples: Samples<(Arc<Opened>, Step)>,
}

impl MemoryPressure {
    /// Notes that a step was requested.
    pub(super) fn note(&self, target: &Arc<Opened>, step: &Step) {
        // Another thread holds the lock, so this step is not sampled.
        if let Ok(mut state) = self.0.try_lock() {
            state.samples.add(|| (target.clone(), *step));
        }
    }

    /// Why to stop, if it is time to check and there is memory pressure. Tasks also wait for memory
    /// when there is plenty, as for a short time in each boot; that does not count.
    pub(super) fn look(&self, is_plenty: impl Fn() -> bool) -> Option<Stopped> {
        let mut state = self.0.try_lock().ok()?;
        let now = Instant::now();
        let looked = *state.looked.get_or_insert(now);
        if now - looked < INTERVAL {
            return None;
        }
        state.looked = Some(now);
        let lost = state.samples.kept.iter().filter(|(target, step)| is_lost(target, step));
        if lost.count() >= LOST {
            return Some(Stopped::Reclaimed);
        }
        let stalled = memory::stalled_us()?;
        let (since, before) = *state.stalled.get_or_insert((now, stalled));
        if now - since < STALLED_OVER {
            return None;
        }
        state.stalled = Some((now, stalled));
        let waited = Duration::from_micros(stalled.saturating_sub(before));
        let is_stalled = waited * STALLED_PART >= now - since;
        (is_stalled && !is_plenty()).then_some(Stopped::Pressure)
    }
}

/// Whether most pages of a step were reclaimed. Pages that were never read, or were dropped with
/// their file, leave no shadow entries in the page cache.
fn is_lost(target: &Opened, step: &Step) -> bool {
    let stat = count_in_cache(&target.file, step.pages());
    stat.is_ok_and(|stat| stat.is_some_and(|stat| stat.evicted > 0 && stat.evicted >= stat.cache))
}

/// Some of what was added, spread over all of it.
#[derive(Debug)]
struct Samples<T> {
    kept: Vec<T>,
    /// One of so many is kept.
    every: usize,
    added: usize,
}

impl<T> Default for Samples<T> {
    fn default() -> Self {
        Self { kept: Vec::new(), every: 1, added: 0 }
    }
}

impl<T> Samples<T> {
    fn add(&mut self, make: impl FnOnce() -> T) {
        if self.added.is_multiple_of(self.every) {
            if self.kept.len() == SAMPLES {
                let mut number = 0;
                self.kept.retain(|_| {
                    number += 1;
                    number % 2 == 1
                });
                self.every *= 2;
            }
            if self.added.is_multiple_of(self.every) {
                self.kept.push(make());
            }
        }
        self.added += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn samples_are_few_and_spread_evenly_over_all(count in 1usize..5000) {
            let mut samples = Samples::default();
            for number in 0..count {
                samples.add(|| number);
            }
            let expected: Vec<_> = (0..count).step_by(samples.every).collect();
            prop_assert_eq!(&samples.kept, &expected);
            prop_assert!(samples.kept.len() <= SAMPLES);
            prop_assert!(samples.kept.len() > SAMPLES / 2 || samples.every == 1);
        }
    }
}

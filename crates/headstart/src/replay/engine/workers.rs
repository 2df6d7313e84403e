//! The threads of a replay: they take step numbers in order until all are done or the replay is
//! over.

use super::progress::Progress;
use crate::trace::kernel_tids::KernelTids;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Stack of each thread, in bytes.
const STACK: usize = 128 << 10;
/// Threads that look up where files lie before a pass over a rotational disk. It seeks for what of names, inodes and
/// extents is not in memory, but the nearest of all that wait is chosen.
pub(super) const LOOKING_UP: usize = 64;
/// Threads for one list of numbers.
const MOST: usize = 256;

/// The threads that worked on a replay.
#[derive(Debug)]
pub(super) struct Workers {
    /// Tells them their numbers.
    tids: KernelTids,
    seen: Mutex<HashSet<i32>>,
    progress: Arc<Progress>,
}

impl Workers {
    pub(super) fn new(tids: KernelTids, progress: Arc<Progress>) -> Self {
        Self { tids, seen: Mutex::default(), progress }
    }

    fn seen(&self) -> MutexGuard<'_, HashSet<i32>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets threads act on the numbers below `count` in order until all are done or the replay
    /// is over; tells whether they came to the end. This thread is one of them, and the only one
    /// while one is enough, as `is_one_enough` says, and if no other can be had.
    pub(super) fn each(
        &self,
        threads: usize,
        count: usize,
        is_one_enough: impl Fn() -> bool + Sync,
        act: impl Fn(usize) + Sync,
    ) -> bool {
        let next = AtomicUsize::new(0);
        let work = |goes_on: &dyn Fn() -> bool| {
            while goes_on() && !self.progress.is_over() {
                let number = next.fetch_add(1, Relaxed);
                if number >= count {
                    break;
                }
                act(number);
            }
            self.note_own_number();
        };
        if is_one_enough() {
            // The CPUs are the program's.
            work(&is_one_enough);
        }
        let left = count.saturating_sub(next.load(Relaxed));
        thread::scope(|scope| {
            for _ in 1..threads.clamp(1, MOST).min(left) {
                if builder().spawn_scoped(scope, || work(&|| true)).is_err() {
                    break;
                }
            }
            work(&|| true);
        });
        next.into_inner() >= count
    }

    /// At the end of the work, for it may take a moment.
    fn note_own_number(&self) {
        if let Some(own) = self.tids.own() {
            self.seen().insert(own);
        }
    }

    /// The kernel's numbers of the threads that have worked, without those that can't be known.
    pub(super) fn tids(&self) -> Vec<i32> {
        self.seen().iter().copied().collect()
    }
}

pub(super) fn builder() -> thread::Builder {
    thread::Builder::new().name("replay".into()).stack_size(STACK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    fn workers() -> Workers {
        let progress = Arc::new(Progress::new(Instant::now(), 0, None));
        Workers::new(KernelTids::default(), progress)
    }

    #[test]
    fn each_number_is_acted_on_once() {
        for (name, threads, count) in
            [("none", 4, 0), ("one thread", 1, 100), ("some", 4, 100), ("no threads", 0, 3)]
        {
            let workers = workers();
            let done: Vec<_> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            let act = |number: usize| {
                done[number].fetch_add(1, Relaxed);
            };
            assert!(workers.each(threads, count, || false, act), "{name}");
            assert!(done.into_iter().all(|times| times.into_inner() == 1), "{name}");
            assert!(!workers.tids().is_empty(), "{name}");
        }
    }

    #[test]
    fn nothing_is_acted_on_when_the_replay_is_over() {
        let workers = workers();
        workers.progress.stop();
        assert!(!workers.each(4, 10, || true, |number| panic!("{number}")));
    }

    #[test]
    fn one_thread_works_alone_as_long_as_it_is_enough() {
        const ALONE: usize = 50;
        let (is_enough, alone) = (AtomicBool::new(true), Mutex::new(HashSet::new()));
        let act = |number: usize| {
            if number < ALONE {
                alone.lock().unwrap().insert(thread::current().id());
            }
            if number + 1 == ALONE {
                is_enough.store(false, Relaxed);
            }
        };
        assert!(workers().each(4, 100, || is_enough.load(Relaxed), act));
        assert_eq!(alone.into_inner().unwrap(), HashSet::from([thread::current().id()]));
    }
}

//! The threads of a replay: they take step numbers in order until all are done or the replay is
//! over.

use super::progress::Progress;
use crate::trace::kernel_tids::KernelTids;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Stack of each thread, in bytes.
const STACK: usize = 128 << 10;
/// Threads that look up where files lie before a pass over a rotational disk. It seeks for what of names, inodes and
/// extents is not in memory, but the nearest of all that wait is chosen.
pub(super) const LOOKING_UP: usize = 64;
/// Numbers that are prepared ahead of the one that is acted on.
const AHEAD: usize = 64;
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

    /// The same with one thread that acts, while the others prepare the numbers that come next, less than [`AHEAD`]
    /// of them: so it hardly waits for what can be prepared. Others prepare once one thread is not enough; a
    /// number may be acted on that is not prepared, or meanwhile.
    pub(super) fn each_prepared(
        &self,
        threads: usize,
        count: usize,
        is_one_enough: impl Fn() -> bool,
        prepare: impl Fn(usize) + Sync,
        act: impl Fn(usize),
    ) -> bool {
        let (place, next) = (Place::default(), AtomicUsize::new(0));
        let prepares = || {
            loop {
                let number = next.fetch_add(1, Relaxed);
                if number >= count || !place.comes_near(number) {
                    break;
                }
                if number > place.now() {
                    prepare(number);
                }
            }
            self.note_own_number();
        };
        let mut number = 0;
        thread::scope(|scope| {
            let _end = EndOf(&place);
            let others = threads.min(MOST).min(count).saturating_sub(1);
            let mut is_alone = true;
            while number < count && !self.progress.is_over() {
                // Until then the CPUs are the program's.
                if is_alone && !is_one_enough() {
                    is_alone = false;
                    next.store(number, Relaxed);
                    // Fewer do, too.
                    let begins = |_: &usize| builder().spawn_scoped(scope, prepares).is_ok();
                    (0..others).take_while(begins).for_each(drop);
                }
                place.advance(number);
                act(number);
                number += 1;
            }
        });
        self.note_own_number();
        number >= count
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

/// The number that is acted on, for which others may wait.
#[derive(Default)]
struct Place {
    now: Mutex<usize>,
    moved: Condvar,
}

impl Place {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> usize {
        *self.lock()
    }

    fn advance(&self, number: usize) {
        *self.lock() = number;
        // Each time would wake all for one.
        if number.is_multiple_of(AHEAD / 4) || number == usize::MAX {
            self.moved.notify_all();
        }
    }

    /// Waits until a number is less than [`AHEAD`] after the place; `false` at the end.
    fn comes_near(&self, number: usize) -> bool {
        let far = |now: &mut usize| number >= now.saturating_add(AHEAD);
        let now = self.moved.wait_while(self.lock(), far).unwrap_or_else(PoisonError::into_inner);
        *now < usize::MAX
    }
}

/// Ends the waiting for a place, also in a panic.
struct EndOf<'a>(&'a Place);

impl Drop for EndOf<'_> {
    fn drop(&mut self) {
        self.0.advance(usize::MAX);
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
    fn numbers_are_acted_on_in_order_and_prepared_before_that_but_not_long_before() {
        for (name, threads, count) in [
            ("none", 4, 0),
            ("one thread", 1, 100),
            ("some", 4, 300),
            ("few numbers", 9, 3),
            ("no threads", 0, 3),
        ] {
            let (prepared, acted) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
            let lock = |numbers: &Mutex<Vec<usize>>| numbers.lock().unwrap().clone();
            let act = |number: usize| {
                let most = (number + AHEAD).min(count);
                let is_next = |all: Vec<usize>| (number + 1..most).all(|next| all.contains(&next));
                // All that may be prepared is, and no more. Others are not woken up at each number.
                while number.is_multiple_of(AHEAD) && threads > 1 && !is_next(lock(&prepared)) {
                    thread::yield_now();
                }
                assert!(lock(&prepared).iter().all(|prepared| *prepared < most), "{name}");
                acted.lock().unwrap().push(number);
            };
            let prepare = |number| prepared.lock().unwrap().push(number);
            let workers = workers();
            assert!(workers.each_prepared(threads, count, || false, prepare, act), "{name}");
            assert_eq!(lock(&acted), (0..count).collect::<Vec<_>>(), "{name}");
            assert_eq!(lock(&prepared).is_empty(), threads < 2 || count < 2, "{name}");
            let mut once = lock(&prepared);
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), lock(&prepared).len(), "{name}: each once");
        }
    }

    #[test]
    fn nothing_is_prepared_while_one_thread_is_enough_or_when_it_is_over() {
        let acted = AtomicUsize::new(0);
        let act = |_| {
            acted.fetch_add(1, Relaxed);
        };
        let prepare = |number| panic!("{number}");
        assert!(workers().each_prepared(4, 100, || true, prepare, act));
        assert_eq!(acted.load(Relaxed), 100);
        let workers = workers();
        workers.progress.stop();
        assert!(!workers.each_prepared(4, 10, || false, prepare, |number| panic!("{number}")));
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

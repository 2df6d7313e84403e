//! Lets one thread after the other do what takes much memory, unless one takes too long: it may wait for a
//! file server that does not answer. It does no I/O.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Whose turn it is.
#[derive(Debug)]
pub(super) struct Turn {
    is_taken: Mutex<bool>,
    free: Condvar,
}

/// Holds the turn until it is dropped.
#[derive(Debug)]
pub(super) struct Taken<'a>(&'a Turn);

impl Turn {
    pub(super) const fn new() -> Self {
        Self { is_taken: Mutex::new(false), free: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn, but no longer than this: then the work is done all the same, without it.
    pub(super) fn wait(&self, limit: Duration) -> Option<Taken<'_>> {
        let waited = self.free.wait_timeout_while(self.lock(), limit, |is_taken| *is_taken);
        let (mut is_taken, end) = waited.unwrap_or_else(PoisonError::into_inner);
        if end.timed_out() {
            return None;
        }
        *is_taken = true;
        Some(Taken(self))
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.0.lock() = false;
        self.0.free.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::thread;

    #[test]
    fn one_after_the_other_has_the_turn() {
        let (turn, working) = (Turn::new(), AtomicUsize::new(0));
        let work = || {
            for _ in 0..200 {
                let taken = turn.wait(Duration::MAX);
                assert!(taken.is_some() && working.fetch_add(1, SeqCst) == 0);
                thread::yield_now();
                working.fetch_sub(1, SeqCst);
            }
        };
        thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
    }

    #[test]
    fn who_has_waited_long_enough_goes_on_without_it() {
        let turn = Turn::new();
        let first = turn.wait(Duration::ZERO);
        assert!(first.is_some() && turn.wait(Duration::from_millis(1)).is_none());
        drop(first);
        assert!(turn.wait(Duration::ZERO).is_some());
    }
}

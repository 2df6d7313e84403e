//! What was requested last: whether the device has enough to do, so that steps may wait for others
//! without delaying any. It limits nothing.

use crate::replay::strategy::InFlight;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The last steps that were requested, no more of them than are enough.
#[derive(Debug)]
pub(super) struct Backlog<T> {
    /// How much is enough; `None`: nothing is kept.
    enough: Option<InFlight>,
    last: Mutex<Last<T>>,
}

/// In the order in which they were requested.
#[derive(Debug)]
struct Last<T> {
    steps: VecDeque<(T, u64)>,
    bytes: u64,
}

impl<T> Last<T> {
    const EMPTY: Self = Self { steps: VecDeque::new(), bytes: 0 };

    /// Whether all but the first so many steps are enough.
    fn is_enough_without(&self, first: usize, enough: InFlight) -> bool {
        let gone: u64 = self.steps.iter().take(first).map(|(_, bytes)| bytes).sum();
        let steps = self.steps.len().saturating_sub(first);
        steps > 0 && (self.bytes.saturating_sub(gone) >= enough.bytes || steps >= enough.steps)
    }
}

impl<T> Backlog<T> {
    pub(super) fn new(enough: Option<InFlight>) -> Self {
        Self { enough, last: Mutex::new(Last::EMPTY) }
    }

    fn last(&self) -> MutexGuard<'_, Last<T>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a step of which so many bytes were requested.
    pub(super) fn add(&self, step: impl FnOnce() -> T, bytes: u64) {
        let Some(enough) = self.enough else { return };
        let mut last = self.last();
        last.bytes = last.bytes.saturating_add(bytes);
        last.steps.push_back((step(), bytes));
        while last.is_enough_without(1, enough) {
            if let Some((_, bytes)) = last.steps.pop_front() {
                last.bytes = last.bytes.saturating_sub(bytes);
            }
        }
    }

    /// Whether enough is in flight: devices answer about in the order of requests, so if the first of
    /// those that are enough has not arrived, none of them has. `has_arrived` tells of one.
    pub(super) fn is_enough(&self, has_arrived: impl Fn(&T) -> bool) -> bool {
        let Some(enough) = self.enough else { return false };
        let last = self.last();
        let first = last.steps.front().filter(|_| last.is_enough_without(0, enough));
        first.is_some_and(|(first, _)| !has_arrived(first))
    }

    /// Forgets the steps, which closes their files.
    pub(super) fn clear(&self) {
        *self.last() = Last::EMPTY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_enough_as_long_as_the_first_of_those_that_are_enough_has_not_arrived() {
        let enough = Some(InFlight { bytes: 100, steps: 3 });
        for (name, enough, requested, arrived, expected) in [
            ("nothing was requested", enough, &[][..], 0, false),
            ("too little", enough, &[60, 39][..], 0, false),
            ("enough bytes", enough, &[60, 40], 0, true),
            ("and the first has arrived", enough, &[60, 40], 1, false),
            ("enough steps", enough, &[1, 1, 1], 0, true),
            ("the first of many has arrived", enough, &[60, 60, 60, 60], 1, true),
            ("all but the last have", enough, &[60, 60, 60, 60], 3, false),
            ("a large one", enough, &[1, 500], 1, true),
            ("rows are not formed", None, &[500, 500, 500, 500], 0, false),
        ] {
            let backlog = Backlog::new(enough);
            for (number, &bytes) in requested.iter().enumerate() {
                backlog.add(|| number, bytes);
            }
            assert_eq!(backlog.is_enough(|number| *number < arrived), expected, "{name}");
            assert!(backlog.last().steps.len() <= 3, "{name}");
            backlog.clear();
            assert!(!backlog.is_enough(|_| false), "{name}");
        }
    }
}

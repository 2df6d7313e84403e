//! What was asked for and may not have arrived: bounded, so that what the program asks for
//! itself, and what comes later in the plan but is needed soon, does not stand behind all of
//! the rest. Steps that are asked for together are not counted, nor files whose time of
//! access would change by looking; all devices share the bound.

use super::opened::Opened;
use crate::replay::step::Step;
use crate::replay::strategy::InFlight;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Steps on their way.
#[derive(Debug, Default)]
pub(super) struct Flight {
    on_way: Mutex<OnWay<(Arc<Opened>, Step)>>,
    /// Held by the thread that waits for room, so that others do not take what it waits for.
    pub(super) turn: Mutex<()>,
}

impl Flight {
    pub(super) fn on_way(&self) -> MutexGuard<'_, OnWay<(Arc<Opened>, Step)>> {
        self.on_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of the files.
    pub(super) fn clear(&self) {
        *self.on_way() = OnWay::default();
    }
}

/// What is on its way, in the order in which it was asked for.
#[derive(Debug)]
pub(super) struct OnWay<T> {
    all: VecDeque<(T, u64)>,
    /// Of those, and of what somebody waits for.
    bytes: u64,
}

impl<T> Default for OnWay<T> {
    fn default() -> Self {
        Self { all: VecDeque::new(), bytes: 0 }
    }
}

impl<T> OnWay<T> {
    /// Without room for so many bytes the oldest, with its own: there may be room when that
    /// has arrived. There always is when nothing is on its way.
    pub(super) fn make_room(&mut self, bytes: u64, limit: InFlight) -> Option<(T, u64)> {
        if self.has_room(bytes, limit) { None } else { self.all.pop_front() }
    }

    pub(super) fn has_room(&self, bytes: u64, limit: InFlight) -> bool {
        self.bytes.saturating_add(bytes) <= limit.bytes && self.all.len() < limit.steps
    }

    pub(super) fn add(&mut self, one: T, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.all.push_back((one, bytes));
    }

    pub(super) fn arrived(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_makes_room_in_bytes_and_in_steps() {
        let limit = InFlight { bytes: 100, steps: 3 };
        let mut on_way = OnWay::default();
        for (one, bytes) in [('a', 60), ('b', 40)] {
            assert_eq!(on_way.make_room(bytes, limit), None);
            on_way.add(one, bytes);
        }
        assert_eq!(on_way.make_room(1, limit), Some(('a', 60)));
        on_way.arrived(60);
        for one in ['c', 'd'] {
            assert_eq!(on_way.make_room(1, limit), None);
            on_way.add(one, 1);
        }
        assert_eq!(on_way.make_room(1, limit), Some(('b', 40)), "three are on their way");
    }

    #[test]
    fn a_step_larger_than_the_limit_is_asked_for_when_nothing_else_is_on_its_way() {
        let limit = InFlight { bytes: 100, steps: 3 };
        let mut on_way = OnWay::default();
        assert_eq!(on_way.make_room(500, limit), None);
        on_way.add('a', 500);
        assert_eq!(on_way.make_room(500, limit), Some(('a', 500)));
        assert_eq!(on_way.make_room(500, limit), None);
    }
}

//! The in-flight limit: bounds how much was requested and may not be resident yet, so that the
//! program's own requests, and later steps that are needed soon, do not wait behind all of it.
//!
//! Batched steps are not counted, nor files whose access time a check would change. All devices
//! share the limit.

use crate::replay::strategy::InFlight;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Steps in flight, which a limit may bound.
#[derive(Debug)]
pub(super) struct StepsInFlight<T> {
    limit: Option<InFlight>,
    queue: Mutex<Queue<T>>,
    /// Held by the thread that waits for room, so that no other takes the room.
    /// Locked before `queue`.
    turn: Mutex<()>,
}

/// What is in flight, in the order in which it was requested.
#[derive(Debug)]
struct Queue<T> {
    steps: VecDeque<(T, u64)>,
    /// Bytes of those, and of the step that waits.
    bytes: u64,
}

impl<T> Queue<T> {
    const EMPTY: Self = Self { steps: VecDeque::new(), bytes: 0 };

    fn has_room(&self, bytes: u64, limit: InFlight) -> bool {
        self.bytes.saturating_add(bytes) <= limit.bytes && self.steps.len() < limit.steps
    }

    /// The oldest step in flight, if there is no room for this many bytes: room may come when it
    /// has arrived. There is always room when nothing is in flight.
    fn take_for_room(&mut self, bytes: u64, limit: InFlight) -> Option<(T, u64)> {
        if self.has_room(bytes, limit) { None } else { self.steps.pop_front() }
    }
}

impl<T> StepsInFlight<T> {
    pub(super) fn new(limit: Option<InFlight>) -> Self {
        Self { limit, queue: Mutex::new(Queue::EMPTY), turn: Mutex::default() }
    }

    fn queue(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this many bytes may be requested immediately.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.limit.is_none_or(|limit| self.queue().has_room(bytes, limit))
    }

    /// Waits until so many bytes may be requested. `wait_for` returns when a step has arrived,
    /// and whether to wait on.
    pub(super) fn wait_for_room(&self, bytes: u64, wait_for: impl Fn(&T) -> bool) {
        let Some(limit) = self.limit else { return };
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let oldest = self.queue().take_for_room(bytes, limit);
            let Some((oldest, its_bytes)) = oldest else { return };
            let waits_on = wait_for(&oldest);
            let mut queue = self.queue();
            queue.bytes = queue.bytes.saturating_sub(its_bytes);
            if !waits_on {
                return;
            }
        }
    }

    /// Counts a step of which so many bytes were requested, if there is a limit.
    pub(super) fn add(&self, step: impl FnOnce() -> T, bytes: u64) {
        if self.limit.is_some() {
            let mut queue = self.queue();
            queue.bytes = queue.bytes.saturating_add(bytes);
            queue.steps.push_back((step(), bytes));
        }
    }

    /// Forgets the steps, which closes their files.
    pub(super) fn clear(&self) {
        *self.queue() = Queue::EMPTY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// In flight are steps of these bytes, named from 'a' on. Those that room for more waits
    /// for, in order, if it is over after so many.
    fn waited_for(limit: Option<InFlight>, in_flight: &[u64], bytes: u64, most: usize) -> String {
        let steps = StepsInFlight::new(limit);
        for (name, &bytes) in ('a'..).zip(in_flight) {
            steps.add(|| name, bytes);
        }
        let arrived = RefCell::new(String::new());
        steps.wait_for_room(bytes, |step| {
            arrived.borrow_mut().push(*step);
            arrived.borrow().len() < most
        });
        arrived.into_inner()
    }

    #[test]
    fn the_oldest_make_room_in_bytes_and_in_steps() {
        let limit = Some(InFlight { bytes: 100, steps: 3 });
        for (name, limit, in_flight, bytes, most, expected) in [
            ("nothing is in flight", limit, &[][..], 100, 9, ""),
            ("there is room", limit, &[60], 40, 9, ""),
            ("too many bytes", limit, &[60, 40], 1, 9, "a"),
            ("far too many", limit, &[20, 30, 50], 51, 9, "abc"),
            ("too many steps", limit, &[1, 1, 1], 1, 9, "a"),
            ("a step above the limit", limit, &[1], 500, 9, "a"),
            ("one above it is in flight", limit, &[500], 1, 9, "a"),
            ("it is over", limit, &[20, 30, 50], 51, 2, "ab"),
            ("no limit", None, &[500; 9], 500, 9, ""),
        ] {
            assert_eq!(waited_for(limit, in_flight, bytes, most), expected, "{name}");
        }
    }

    #[test]
    fn there_is_room_again_when_all_is_forgotten() {
        let steps = StepsInFlight::new(Some(InFlight { bytes: 100, steps: 3 }));
        assert!(steps.has_room(100));
        steps.add(|| 'a', 60);
        assert!(steps.has_room(40) && !steps.has_room(41));
        steps.clear();
        assert!(steps.has_room(100));
    }
}

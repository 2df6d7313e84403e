//! The in-flight limit: bounds how much was requested and may not be resident yet, so that the
//! program's own requests, and later steps that are needed soon, do not wait behind all of it.
//!
//! Batched steps are not counted, nor files whose access time a check would change. Of the adjacent
//! steps of a row, which the device gets as one request, the first is counted, and the bytes of all.
//! All devices share the limit.

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

/// What of a step counts for the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Counted {
    /// The bytes that were requested.
    pub(super) bytes: u64,
    /// Whether it continues the request of the step before.
    pub(super) continues: bool,
}

/// What is in flight, in the order in which it was requested.
#[derive(Debug)]
struct Queue<T> {
    steps: VecDeque<(T, Counted)>,
    /// Bytes of those, and of the step that waits.
    bytes: u64,
    /// How many of those, and of the step that waits, begin a request.
    requests: usize,
}

impl<T> Queue<T> {
    const EMPTY: Self = Self { steps: VecDeque::new(), bytes: 0, requests: 0 };

    fn has_room(&self, bytes: u64, limit: InFlight) -> bool {
        self.bytes.saturating_add(bytes) <= limit.bytes && self.requests < limit.steps
    }

    /// The oldest step in flight, if there is no room for this many bytes: room may come when it
    /// has arrived. There is always room when nothing is in flight.
    fn take_for_room(&mut self, bytes: u64, limit: InFlight) -> Option<(T, Counted)> {
        if self.has_room(bytes, limit) { None } else { self.steps.pop_front() }
    }

    fn add(&mut self, step: T, counted: Counted) {
        self.bytes = self.bytes.saturating_add(counted.bytes);
        self.requests += usize::from(!counted.continues);
        self.steps.push_back((step, counted));
    }

    /// A step that was taken has arrived.
    fn note_arrival(&mut self, counted: Counted) {
        self.bytes = self.bytes.saturating_sub(counted.bytes);
        self.requests = self.requests.saturating_sub(usize::from(!counted.continues));
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
            let Some((oldest, counted)) = oldest else { return };
            let waits_on = wait_for(&oldest);
            self.queue().note_arrival(counted);
            if !waits_on {
                return;
            }
        }
    }

    /// Counts a step that was requested, if there is a limit.
    pub(super) fn add(&self, step: impl FnOnce() -> T, counted: Counted) {
        if self.limit.is_some() {
            self.queue().add(step(), counted);
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

    fn begins(bytes: u64) -> Counted {
        Counted { bytes, continues: false }
    }

    fn continues(bytes: u64) -> Counted {
        Counted { bytes, continues: true }
    }

    /// In flight are these steps, named from 'a' on. Those that room for more waits for, in
    /// order, if it is over after so many.
    fn waited_for(
        limit: Option<InFlight>,
        in_flight: &[Counted],
        bytes: u64,
        most: usize,
    ) -> String {
        let steps = StepsInFlight::new(limit);
        for (name, &counted) in ('a'..).zip(in_flight) {
            steps.add(|| name, counted);
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
            let in_flight: Vec<_> = in_flight.iter().copied().map(begins).collect();
            assert_eq!(waited_for(limit, &in_flight, bytes, most), expected, "{name}");
        }
    }

    #[test]
    fn a_row_is_one_request_with_the_bytes_of_all_its_steps() {
        let limit = Some(InFlight { bytes: 100, steps: 2 });
        let (b, c) = (begins(20), continues(20));
        for (name, in_flight, bytes, expected) in [
            ("a row", &[b, c, c][..], 40, ""),
            ("too many bytes", &[b, c, c], 41, "a"),
            ("too many bytes by more", &[b, c, c], 61, "ab"),
            ("two rows", &[b, c, b, c], 1, "a"),
            ("what is left of a row", &[c, c, b], 1, ""),
            ("steps that continue a row make no room in requests", &[c, c, b, b], 1, "abc"),
        ] {
            assert_eq!(waited_for(limit, in_flight, bytes, 9), expected, "{name}");
        }
    }

    #[test]
    fn there_is_room_again_when_all_is_forgotten() {
        let steps = StepsInFlight::new(Some(InFlight { bytes: 100, steps: 3 }));
        assert!(steps.has_room(100));
        steps.add(|| 'a', begins(60));
        assert!(steps.has_room(40) && !steps.has_room(41));
        steps.clear();
        assert!(steps.has_room(100));
    }
}

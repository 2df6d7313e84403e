//! Gathers small steps for one batch, and orders them so that those that are adjacent on their
//! device follow each other. In elevator order a batch is one row of adjacent steps.

use super::targets::Opened;
use crate::replay::places::{self, Stretch};
use crate::replay::requests::{ROWS_BYTES, TOGETHER};
use crate::replay::step::Step;
use crate::replay::strategy::Order;
use headstart_sys::willneed::Piece;
use std::mem;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a step waits for others, unless all threads wait for the disk.
const PATIENCE: Duration = Duration::from_millis(1);

/// Small steps that are about to be requested in one batch.
#[derive(Debug, Default)]
pub(super) struct Gathering(Mutex<Gathered>);

#[derive(Debug, Default)]
struct Gathered {
    wanted: Vec<PendingStep>,
    /// When the first of them came.
    since: Option<Instant>,
    /// Where the last of them lies, in elevator order.
    last: Option<Stretch>,
}

/// A step that is to be requested.
#[derive(Debug)]
pub(super) struct PendingStep {
    pub(super) step: Step,
    /// Its place among those that are carried out in order.
    pub(super) number: usize,
    pub(super) target: Arc<Opened>,
    /// Bytes of it that are not in memory.
    pub(super) missing: u64,
}

/// When steps that wait for others are requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Due {
    /// When there are more of them, or the device is no longer busy.
    Later,
    /// Now.
    Now,
    /// When the in-flight limit has room for so many bytes.
    WithRoom(u64),
}

impl Gathering {
    fn lock(&self) -> MutexGuard<'_, Gathered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a step.
    pub(super) fn add(&self, wanted: PendingStep) {
        let mut gathered = self.lock();
        gathered.since.get_or_insert_with(Instant::now);
        gathered.wanted.push(wanted);
    }

    /// Adds a step. If it does not continue the row of those before it, these are returned.
    pub(super) fn add_to_row(&self, wanted: PendingStep) -> Vec<PendingStep> {
        let stretch = wanted.stretch();
        let mut gathered = self.lock();
        let is_next = follows(gathered.last, stretch);
        let before = if is_next { Vec::new() } else { mem::take(&mut *gathered).wanted };
        // Behind a step in several pieces nothing is adjacent.
        gathered.last = stretch.filter(|s| s.bytes.length() == wanted.step.bytes.length());
        gathered.since.get_or_insert_with(Instant::now);
        gathered.wanted.push(wanted);
        before
    }

    /// When the gathered steps are requested where steps wait for others only while the device
    /// `is_busy`; `must`: now.
    pub(super) fn due(&self, must: bool, is_busy: impl FnOnce() -> bool) -> Due {
        let gathered = self.lock();
        let bytes = gathered.wanted.iter().map(|wanted| wanted.missing).sum();
        let is_full = gathered.wanted.len() >= TOGETHER || bytes >= ROWS_BYTES;
        let is_empty = gathered.wanted.is_empty();
        drop(gathered);
        match is_empty {
            true => Due::Later,
            false if must || !is_busy() => Due::Now,
            false if is_full => Due::WithRoom(bytes),
            false => Due::Later,
        }
    }

    /// Takes the gathered steps, if they `must` be requested, or are enough, or old enough.
    pub(super) fn take(&self, must: bool) -> Vec<PendingStep> {
        let mut gathered = self.lock();
        let is_old = gathered.since.is_some_and(|since| since.elapsed() >= PATIENCE);
        if !(must || is_old || gathered.wanted.len() >= TOGETHER) {
            return Vec::new();
        }
        gathered.since = None;
        mem::take(&mut gathered.wanted)
    }
}

impl PendingStep {
    pub(super) fn piece(&self) -> Piece<'_> {
        let Self { step, target, .. } = self;
        Piece {
            file: target.file.as_fd(),
            offset: step.bytes.offset,
            length: step.bytes.length() as usize,
        }
    }

    fn stretch(&self) -> Option<Stretch> {
        places::stretch(&self.target.file, self.target.dev, self.step.bytes)
    }
}

/// Whether a stretch begins where another ends.
fn follows(before: Option<Stretch>, next: Option<Stretch>) -> bool {
    let pair = before.zip(next);
    pair.is_some_and(|(a, b)| (a.dev, a.bytes.end) == (b.dev, b.bytes.offset))
}

/// Sorts adjacent steps behind each other, at the position of the first of them in the plan, and says
/// of each whether it continues the row of the one before. In elevator order that is the order of the
/// plan, and the answer is always no.
pub(super) fn in_rows(mut wanted: Vec<PendingStep>, order: Order) -> Vec<(PendingStep, bool)> {
    wanted.sort_by_key(|wanted| wanted.number);
    if order == Order::Elevator {
        return wanted.into_iter().map(|wanted| (wanted, false)).collect();
    }
    let stretches: Vec<_> = wanted.iter().map(PendingStep::stretch).collect();
    let mut wanted: Vec<_> = wanted.into_iter().map(Some).collect();
    let placed = |(number, continues): (usize, bool)| Some((wanted[number].take()?, continues));
    rows(&stretches).into_iter().filter_map(placed).collect()
}

/// The order in which each stretch follows the one that ends where it begins, and whether it does;
/// otherwise they keep their order, by the first of each row.
fn rows(stretches: &[Option<Stretch>]) -> Vec<(usize, bool)> {
    let mut by_place: Vec<usize> = (0..stretches.len()).collect();
    by_place.sort_by_key(|&number| (stretches[number], number));
    let mut rows: Vec<_> =
        by_place.chunk_by(|a, b| follows(stretches[*a], stretches[*b])).collect();
    rows.sort_by_key(|row| row.iter().min());
    let row = |row: &[usize]| {
        let placed = row.iter().enumerate();
        placed.map(|(place, number)| (*number, place > 0)).collect::<Vec<_>>()
    };
    rows.into_iter().flat_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::super::targets::tests::{opened, opened_in_one_piece};
    use super::*;
    use crate::host::open::Kind;
    use crate::host::range::ByteRange;
    use proptest::prelude::*;
    use std::ops::Range;

    fn stretch(dev: u64, begin: u64, end: u64) -> Option<Stretch> {
        Some(Stretch { dev, bytes: (begin..end).into() })
    }

    #[test]
    fn a_row_ends_before_a_step_that_is_not_adjacent() {
        let Some((_dir, target)) = opened_in_one_piece(8) else { return };
        let wanted = |pages: Range<u64>| {
            let bytes = ByteRange { offset: pages.start * 4096, end: pages.end * 4096 };
            let step = Step { target: 0, bytes, touched_us: 0 };
            PendingStep { step, number: 0, target: target.clone(), missing: bytes.length() }
        };
        let gathering = Gathering::default();
        let before = [0..2, 2..3, 4..5, 5..6, 6..8, 0..1]
            .map(|pages| gathering.add_to_row(wanted(pages)).len());
        assert_eq!(before, [0, 0, 2, 0, 0, 3]);
        assert_eq!(gathering.take(true).len(), 1);
        assert_eq!(gathering.add_to_row(wanted(1..2)).len(), 0);
    }

    #[test]
    fn what_lies_side_by_side_follows_what_it_is_adjacent_to_and_the_rest_keeps_its_order() {
        for (name, stretches, expected) in [
            ("apart", vec![stretch(1, 90, 95), stretch(1, 10, 15)], vec![(0, false), (1, false)]),
            (
                "a row comes where its first is requested",
                vec![stretch(1, 50, 60), stretch(1, 20, 30), stretch(1, 0, 9), stretch(1, 10, 20)],
                vec![(0, false), (3, false), (1, true), (2, false)],
            ),
            (
                "other devices",
                vec![stretch(1, 10, 20), None, stretch(2, 20, 30)],
                vec![(0, false), (1, false), (2, false)],
            ),
            ("unknown places", vec![None, None], vec![(0, false), (1, false)]),
        ] {
            assert_eq!(rows(&stretches), expected, "{name}");
        }
    }

    #[test]
    fn steps_wait_for_others_only_while_the_device_is_busy() {
        let (_dir, target) = opened(4096, Kind::Unnoticed);
        let half = ROWS_BYTES / 2;
        for (name, missing, must, is_busy, expected) in [
            ("nothing is gathered", &[][..], true, false, Due::Later),
            ("the device has enough to do", &[4096, 4096], false, true, Due::Later),
            ("it has not", &[4096, 4096], false, false, Due::Now),
            ("the start needs it now", &[4096], true, true, Due::Now),
            ("enough bytes", &[half, half], false, true, Due::WithRoom(ROWS_BYTES)),
            ("enough steps", &[1; TOGETHER], false, true, Due::WithRoom(TOGETHER as u64)),
        ] {
            let gathering = Gathering::default();
            for &missing in missing {
                let step = Step { target: 0, bytes: ByteRange::of(0, 4096), touched_us: 0 };
                gathering.add(PendingStep { step, number: 0, target: target.clone(), missing });
            }
            assert_eq!(gathering.due(must, || is_busy), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn each_step_is_requested_once_in_whatever_rows(
            steps in proptest::collection::vec((1u64..300, any::<bool>(), 0u8..20), 0..300)
        ) {
            let (_dir, target) = opened(4096, Kind::Unnoticed);
            let gathering = Gathering::default();
            let mut requested = Vec::new();
            for (number, (pages, is_busy, must)) in steps.iter().enumerate() {
                let bytes = ByteRange::of(0, pages * 4096);
                let step = Step { target: 0, bytes, touched_us: 0 };
                let missing = bytes.length();
                gathering.add(PendingStep { step, number, target: target.clone(), missing });
                if gathering.due(*must == 0, || *is_busy) != Due::Later {
                    let row = gathering.take(true);
                    let before = row.split_last().map_or(&row[..], |(_, before)| before);
                    prop_assert!(row.len() <= TOGETHER);
                    prop_assert!(before.iter().map(|w| w.missing).sum::<u64>() < ROWS_BYTES);
                    requested.extend(in_rows(row, Order::Touch).iter().map(|(w, _)| w.number));
                }
            }
            requested.extend(in_rows(gathering.take(true), Order::Touch).iter().map(|(w, _)| w.number));
            requested.sort_unstable();
            prop_assert_eq!(requested, (0..steps.len()).collect::<Vec<_>>());
        }

        #[test]
        fn each_stretch_is_requested_once_and_next_to_what_it_is_adjacent_to(
            places in proptest::collection::vec(proptest::option::of((0u64..2, 0u64..20)), 0..40)
        ) {
            let stretches: Vec<_> =
                places.iter().map(|p| p.and_then(|(dev, at)| stretch(dev, at, at + 1))).collect();
            let found = rows(&stretches);
            let mut sorted: Vec<_> = found.iter().map(|(number, _)| *number).collect();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..stretches.len()).collect::<Vec<_>>());
            // Where one ends, one that begins there comes next, if there is one.
            let mut known: Vec<_> = stretches.iter().flatten().collect();
            known.sort_unstable();
            let has_twins = known.windows(2).any(|pair| pair[0] == pair[1]);
            prop_assert!(found.first().is_none_or(|(_, continues)| !continues));
            for pair in found.windows(2) {
                let continues = follows(stretches[pair[0].0], stretches[pair[1].0]);
                // Of two that lie in the same place one begins a row.
                prop_assert!(pair[1].1 == continues || (continues && has_twins));
                let Some(first) = stretches[pair[0].0] else { continue };
                let next = |s: &Option<Stretch>| {
                    s.is_some_and(|s| (s.dev, s.bytes.offset) == (first.dev, first.bytes.end))
                };
                let twins = stretches.iter().filter(|s| **s == Some(first)).count();
                if twins == 1 && stretches.iter().any(next) {
                    prop_assert!(next(&stretches[pair[1].0]));
                }

            }
        }
    }
}

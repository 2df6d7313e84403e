//! Which requests a device gets for the steps of a replay: what is requested in one call and adjacent
//! is one, up to the largest that it takes. Pure; the engine does what is counted here.

use super::queue::Run;
use super::strategy::{InFlight, Order, ReadStrategy};
use crate::host::range::ByteRange;

/// The largest step that is requested in a batch in touch order, in bytes: the kernel submits plugged
/// requests when one has grown to this (`BLK_PLUG_FLUSH_SIZE`, `block/blk-mq.c`).
pub(super) const SMALL: u64 = 128 << 10;
/// The most steps that are requested together, each with its file open.
pub(super) const TOGETHER: usize = 64;
/// How many bytes are gathered for rows at most, while the device is busy.
pub(super) const ROWS_BYTES: u64 = 2 << 20;

/// The requests for steps in touch order, each given by where its parts lie on the device, of at most
/// `largest` bytes each, in the order in which they are submitted.
pub fn requests(strategy: &ReadStrategy, steps: &[Vec<ByteRange>], largest: u64) -> Vec<Run> {
    let mut found = Requests {
        largest: largest.max(1),
        continues: strategy.opens_ahead(),
        runs: Vec::new(),
        end: None,
        gathered: Vec::new(),
    };
    match (strategy.order, strategy.batched, strategy.rows_while_busy()) {
        // Sorted by their places, they are one row where they are adjacent.
        (Order::Elevator, true, _) => found.gathered = steps.concat(),
        (Order::Touch, true, _) => {
            let mut together = 0;
            for step in steps {
                if length(step) > SMALL {
                    found.submit(step.clone());
                    continue;
                }
                found.gathered.extend(step);
                together += 1;
                if together == TOGETHER {
                    found.submit_gathered();
                    together = 0;
                }
            }
        }
        (_, false, Some(InFlight { bytes, steps: busy })) => {
            let (mut before, mut together, mut waiting) = (0u64, 0, 0u64);
            for (number, step) in steps.iter().enumerate() {
                if before < bytes && number < busy {
                    before = length(step).saturating_add(before);
                    found.submit(step.clone());
                    continue;
                }
                found.gathered.extend(step);
                (together, waiting) = (together + 1, length(step).saturating_add(waiting));
                if together == TOGETHER || waiting >= ROWS_BYTES {
                    found.submit_gathered();
                    (together, waiting) = (0, 0);
                }
            }
        }
        (_, false, None) => steps.iter().for_each(|step| found.submit(step.clone())),
    }
    found.submit_gathered();
    found.runs
}

fn length(parts: &[ByteRange]) -> u64 {
    parts.iter().fold(0, |sum, part| part.length().saturating_add(sum))
}

struct Requests {
    largest: u64,
    /// Whether the last request still waits for the device when the next ones come, so that the I/O scheduler
    /// adds to it what is adjacent.
    continues: bool,
    runs: Vec<Run>,
    /// Where the last request ends.
    end: Option<u64>,
    gathered: Vec<ByteRange>,
}

impl Requests {
    fn submit_gathered(&mut self) {
        let gathered = std::mem::take(&mut self.gathered);
        self.submit(gathered);
    }

    /// Takes back the last request, to which what begins here is added; its bytes.
    fn take_waiting(&mut self, begin: u64) -> u64 {
        let is_added = |run: &mut Run| run.length < self.largest && self.end == Some(begin);
        match self.runs.pop_if(|run| self.continues && is_added(run)) {
            // Of those that are smaller than the largest each row has one.
            Some(run) => run.length,
            None => 0,
        }
    }

    /// What is requested in one call.
    fn submit(&mut self, mut parts: Vec<ByteRange>) {
        parts.retain(|part| !part.is_empty());
        parts.sort_unstable();
        for row in parts.chunk_by(|a, b| a.end == b.offset) {
            let bytes = length(row).saturating_add(self.take_waiting(row[0].offset));
            let (count, rest) = (bytes / self.largest, bytes % self.largest);
            self.end = row.last().map(|part| part.end);
            let whole = Run { count, length: self.largest };
            let runs = [whole, Run { count: u64::from(rest > 0), length: rest }];
            self.runs.extend(runs.into_iter().filter(|run| run.count > 0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KIB: u64 = 1 << 10;

    /// Steps of so many KiB, each behind the one before.
    fn in_a_row(count: u64, kib: u64) -> Vec<Vec<ByteRange>> {
        (0..count).map(|n| vec![ByteRange::of(n * kib * KIB, kib * KIB)]).collect()
    }

    /// The same in an order in which none follows the one before.
    fn scattered(count: u64, kib: u64) -> Vec<Vec<ByteRange>> {
        let mut steps = in_a_row(count, kib);
        steps.iter_mut().flatten().for_each(|part| {
            let begin = part.offset * 3;
            *part = ByteRange::of(begin, part.length());
        });
        steps
    }

    fn count(strategy: &ReadStrategy, steps: &[Vec<ByteRange>]) -> u64 {
        requests(strategy, steps, 512 * KIB).iter().map(|run| run.count).sum()
    }

    #[test]
    fn adjacent_steps_are_one_request_where_they_are_requested_together() {
        let busy = InFlight { bytes: 64 * KIB, steps: 4 };
        let one_by_one = ReadStrategy::default();
        let batched = ReadStrategy { batched: true, ..one_by_one };
        let ahead = ReadStrategy { rows: Some(busy), ..one_by_one };
        let rows = ReadStrategy { in_flight: Some(busy), ..ahead };
        let elevator = ReadStrategy { order: Order::Elevator, ..batched };
        for (name, strategy, steps, expected) in [
            ("each is one", one_by_one, in_a_row(40, 16), 40),
            ("a large one is several", one_by_one, in_a_row(2, 600), 4),
            ("two batches", batched, in_a_row(128, 4), 2),
            ("larger ones are not batched", batched, in_a_row(8, 160), 8),
            ("a row is as large as the device takes", elevator, in_a_row(128, 16), 4),
            ("so are parts of it", elevator, in_a_row(8, 160), 3),
            ("the first of a row make the device busy", rows, in_a_row(4 + 64, 16), 4 + 2),
            ("no row is larger than what is gathered", rows, in_a_row(2 + 2 * 64, 32), 2 + 8),
            ("none of it is adjacent", rows, scattered(100, 16), 100),
            ("with opening ahead rows continue those before", ahead, in_a_row(4 + 64, 16), 3),
            ("as large as the device takes", ahead, in_a_row(2 + 2 * 64, 32), 9),
            ("and none of these", ahead, scattered(100, 16), 100),
            (
                "of any order a batch makes one row",
                batched,
                {
                    let mut steps = in_a_row(64, 4);
                    steps.reverse();
                    steps
                },
                1,
            ),
            ("nothing", rows, Vec::new(), 0),
        ] {
            assert_eq!(count(&strategy, &steps), expected, "{name}");
        }
    }

    #[test]
    fn a_step_in_two_places_is_two_requests() {
        let step = vec![ByteRange::of(0, 8192), ByteRange::of(99 * KIB, 4096)];
        assert_eq!(count(&ReadStrategy::default(), &[step]), 2);
    }

    #[test]
    fn what_is_larger_than_a_request_ends_with_a_smaller_one() {
        let row = [vec![ByteRange::of(0, 1000 * KIB)], vec![ByteRange::of(1000 * KIB, 100 * KIB)]];
        let elevator =
            ReadStrategy { order: Order::Elevator, batched: true, ..ReadStrategy::default() };
        let run = |count, kib| Run { count, length: kib * KIB };
        assert_eq!(requests(&elevator, &row, 512 * KIB), [run(2, 512), run(1, 76)]);
    }

    proptest! {
        #[test]
        fn together_they_are_never_more_requests_and_enough_for_all_bytes(
            places in prop::collection::vec((0u64..400, 1u64..40), 0..200),
            busy in (0u64..200, 0usize..80),
        ) {
            let part = |&(at, length): &(u64, u64)| vec![ByteRange::of(at * 4096, length * 4096)];
            let steps: Vec<_> = places.iter().map(part).collect();
            let bytes: u64 = places.iter().map(|(_, length)| length * 4096).sum();
            let alone = count(&ReadStrategy::default(), &steps);
            let limit = InFlight { bytes: busy.0 * 4096, steps: busy.1 };
            for strategy in [
                ReadStrategy { batched: true, ..ReadStrategy::default() },
                ReadStrategy { rows: Some(limit), ..ReadStrategy::default() },
                ReadStrategy {
                    rows: Some(limit),
                    in_flight: Some(limit),
                    ..ReadStrategy::default()
                },
            ] {
                let found = count(&strategy, &steps);
                prop_assert!(found <= alone && found >= bytes.div_ceil(512 * KIB));
            }
        }
    }
}

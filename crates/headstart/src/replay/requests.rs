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

/// Requests that are submitted next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Submitted {
    /// The indices of the steps that they read from, which need not end with them.
    pub steps: Vec<usize>,
    /// How many, and how large.
    pub run: Run,
}

/// The requests for steps in touch order, each given by where its parts lie on the device, of at most
/// `largest` bytes each, in the order in which they are submitted.
pub fn requests(strategy: &ReadStrategy, steps: &[Vec<ByteRange>], largest: u64) -> Vec<Submitted> {
    let mut found = Requests {
        largest: largest.max(1),
        continues: strategy.opens_ahead(),
        submitted: Vec::new(),
        end: None,
        gathered: Vec::new(),
    };
    let steps = steps.iter().enumerate();
    match (strategy.order, strategy.batched, strategy.rows_while_busy()) {
        // Sorted by their places, they are one row where they are adjacent.
        (Order::Elevator, true, _) => found.gathered.extend(steps),
        (Order::Touch, true, _) => {
            let mut together = 0;
            for step in steps {
                if length(step.1) > SMALL {
                    found.submit(&[step]);
                    continue;
                }
                found.gathered.push(step);
                together += 1;
                if together == TOGETHER {
                    found.submit_gathered();
                    together = 0;
                }
            }
        }
        (_, false, Some(InFlight { bytes, steps: busy })) => {
            let (mut before, mut together, mut waiting) = (0u64, 0, 0u64);
            for step in steps {
                let bytes_of_step = length(step.1);
                if before < bytes && step.0 < busy {
                    before = bytes_of_step.saturating_add(before);
                    found.submit(&[step]);
                    continue;
                }
                found.gathered.push(step);
                (together, waiting) = (together + 1, bytes_of_step.saturating_add(waiting));
                if together == TOGETHER || waiting >= ROWS_BYTES {
                    found.submit_gathered();
                    (together, waiting) = (0, 0);
                }
            }
        }
        (_, false, None) => steps.for_each(|step| found.submit(&[step])),
    }
    found.submit_gathered();
    found.submitted
}

/// A step with its index.
type Numbered<'a> = (usize, &'a Vec<ByteRange>);

fn length(parts: &[ByteRange]) -> u64 {
    parts.iter().fold(0, |sum, part| part.length().saturating_add(sum))
}

struct Requests<'a> {
    largest: u64,
    /// Whether the last request still waits for the device when the next ones come, so that the I/O scheduler
    /// adds to it what is adjacent.
    continues: bool,
    submitted: Vec<Submitted>,
    /// Where the last request ends.
    end: Option<u64>,
    gathered: Vec<Numbered<'a>>,
}

impl<'a> Requests<'a> {
    fn submit_gathered(&mut self) {
        let gathered = std::mem::take(&mut self.gathered);
        self.submit(&gathered);
    }

    /// Takes back the last request, to which what begins here is added; its steps and bytes.
    fn take_waiting(&mut self, begin: u64) -> (Vec<usize>, u64) {
        let continues = self.continues && self.end == Some(begin);
        // Of those that are smaller than the largest there is one.
        let is_added = |last: &mut Submitted| continues && last.run.length < self.largest;
        let waiting = self.submitted.pop_if(is_added);
        waiting.map_or_else(Default::default, |last| (last.steps, last.run.length))
    }

    /// What is requested in one call.
    fn submit(&mut self, steps: &[Numbered<'a>]) {
        let part_of =
            |&(number, parts): &Numbered<'a>| parts.iter().map(move |part| (*part, number));
        let mut parts: Vec<_> = steps.iter().flat_map(part_of).collect();
        parts.retain(|(part, _)| !part.is_empty());
        parts.sort_unstable();
        for row in parts.chunk_by(|(a, _), (b, _)| a.end == b.offset) {
            let (mut steps, mut bytes) = self.take_waiting(row[0].0.offset);
            for (part, step) in row {
                steps.push(*step);
                bytes = bytes.saturating_add(part.length());
                let (count, rest) = (bytes / self.largest, bytes % self.largest);
                if count > 0 {
                    let run = Run { count, length: self.largest };
                    self.submitted.push(Submitted { steps: std::mem::take(&mut steps), run });
                    steps.extend((rest > 0).then_some(*step));
                }
                bytes = rest;
                self.end = Some(part.end);
            }
            if bytes > 0 {
                self.submitted.push(Submitted { steps, run: Run { count: 1, length: bytes } });
            }
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
        requests(strategy, steps, 512 * KIB).iter().map(|one| one.run.count).sum()
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
        let steps =
            [vec![ByteRange::of(0, 1000 * KIB)], vec![ByteRange::of(1000 * KIB, 100 * KIB)]];
        let elevator =
            ReadStrategy { order: Order::Elevator, batched: true, ..ReadStrategy::default() };
        let of = |steps: &[usize], count, kib| Submitted {
            steps: steps.to_vec(),
            run: Run { count, length: kib * KIB },
        };
        let found = requests(&elevator, &steps, 512 * KIB);
        assert_eq!(found, [of(&[0], 1, 512), of(&[0, 1], 1, 512), of(&[1], 1, 76)]);
        let found = requests(&elevator, &[vec![ByteRange::of(0, 1024 * KIB)]], 512 * KIB);
        assert_eq!(found, [of(&[0], 2, 512)]);
    }

    #[test]
    fn requests_name_the_steps_that_they_read_from() {
        let batched = ReadStrategy { batched: true, ..ReadStrategy::default() };
        let row = InFlight { bytes: 16 * KIB, steps: 1 };
        let ahead = ReadStrategy { rows: Some(row), ..ReadStrategy::default() };
        let of = |kib: &[u64]| -> Vec<Vec<ByteRange>> {
            let mut at = 0;
            let mut part = |&kib: &u64| {
                at += kib * KIB;
                vec![ByteRange { offset: at - kib * KIB, end: at }]
            };
            kib.iter().map(&mut part).collect()
        };
        let apart = |begins: &[u64]| -> Vec<Vec<ByteRange>> {
            begins.iter().map(|kib| vec![ByteRange::of(kib * KIB, 4 * KIB)]).collect()
        };
        for (name, strategy, steps, expected) in [
            ("one by one", ReadStrategy::default(), of(&[4, 4]), vec![vec![0], vec![1]]),
            // What is submitted with others comes behind a large one.
            ("a batch", batched, of(&[4, 160, 4]), vec![vec![1], vec![0], vec![2]]),
            (
                "a batch in the order of places",
                batched,
                apart(&[90, 0, 4]),
                vec![vec![1, 2], vec![0]],
            ),
            ("a row that adds to the one before", ahead, of(&[4, 4, 4]), vec![vec![0, 1, 2]]),
            ("nothing", ReadStrategy::default(), of(&[0]), vec![]),
        ] {
            let found = requests(&strategy, &steps, 512 * KIB).into_iter();
            assert_eq!(found.map(|one| one.steps).collect::<Vec<_>>(), expected, "{name}");
        }
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

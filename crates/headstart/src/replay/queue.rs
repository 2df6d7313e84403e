//! How long a device with a queue takes for requests in a given order, by its model. Pure. Seeks of rotational
//! disks are in [`super::elevator`].

use super::model::Model;
use super::strategy::{InFlight, ReadStrategy};
use std::collections::VecDeque;

/// Requests of one length that follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// How many.
    pub count: u64,
    /// Bytes of each.
    pub length: u64,
}

/// More places in a queue have no influence.
const MOST: usize = 1024;
/// After this many times the places of requests of one run, the next ones take as long as the last, until
/// something else limits them: the rate, once transfers have caught up with starts.
const UNTIL_STEADY: u64 = 8;
/// How often that is looked for in one run; the rest takes as long as the last.
const CHANGES: usize = 3;

/// When the last of each of these requests, and of those before, is answered, in µs. A request starts when fewer
/// requests than the in-flight limit are unanswered (at queue depth 1: none) and the request rate allows it, waits for
/// its transfer, and then for the latency. So the rate and the bandwidth are used at the same time only as far as that
/// limit reaches. The model does not tell the places of a device's own queue, only how many it needs.
pub fn answered_us(
    model: &Model,
    in_flight: Option<InFlight>,
    runs: impl IntoIterator<Item = Run>,
) -> Vec<u64> {
    let mut queue = Queue::of(model, places(model, in_flight));
    let answered = |run| {
        queue.serve_run(run);
        queue.last_answer().round() as u64
    };
    runs.into_iter().map(answered).collect()
}

/// How many requests may be unanswered.
fn places(model: &Model, in_flight: Option<InFlight>) -> usize {
    match model.depth {
        0 | 1 => 1,
        _ => in_flight.map_or(MOST, |limit| limit.steps.clamp(1, MOST)),
    }
}

/// The same in a start, which bounds what is in flight. Where rows are formed, threads wait for room for whole rows,
/// several of them at a time. So from the in-flight limit on nothing more is requested until no more is in flight than
/// what lets steps wait for others, here as many requests as there are steps of that.
pub fn answered_in_start_us(
    model: &Model,
    strategy: &ReadStrategy,
    runs: impl IntoIterator<Item = Run>,
) -> Vec<u64> {
    let Some((limit, refilled_at)) = strategy.in_flight.zip(strategy.rows_while_busy()) else {
        return answered_us(model, strategy.in_flight, runs);
    };
    let mut queue = Queue::of(model, places(model, strategy.in_flight));
    let mut window = Window { limit, refilled_at, in_flight: VecDeque::new(), bytes: 0, now: 0.0 };
    let answered = |run: Run| {
        // So many of one length are bound by rate or bandwidth, nearly.
        let single = run.count.min(MOST as u64);
        for _ in 0..single {
            queue.next_start = queue.next_start.max(window.submitted_at(run.length));
            queue.serve(run.length);
            window.add(queue.last_answer(), run.length);
        }
        queue.serve_run(Run { count: run.count - single, ..run });
        queue.last_answer().round() as u64
    };
    runs.into_iter().map(answered).collect()
}

/// What a start has in flight. Times in µs.
struct Window {
    limit: InFlight,
    /// Once the limit is reached, more is requested when no more than this is in flight.
    refilled_at: InFlight,
    /// When each is answered, in that order, and its bytes.
    in_flight: VecDeque<(f64, u64)>,
    bytes: u64,
    now: f64,
}

impl Window {
    fn has_room(&self, length: u64) -> bool {
        self.bytes.saturating_add(length) <= self.limit.bytes
            && self.in_flight.len() < self.limit.steps
    }

    /// When a request of this length is submitted.
    fn submitted_at(&mut self, length: u64) -> f64 {
        let waits = !self.has_room(length);
        while waits
            && (self.bytes > self.refilled_at.bytes
                || self.in_flight.len() > self.refilled_at.steps
                || !self.has_room(length))
            && let Some((answered, bytes)) = self.in_flight.pop_front()
        {
            self.now = self.now.max(answered);
            self.bytes = self.bytes.saturating_sub(bytes);
        }
        self.now
    }

    fn add(&mut self, answered: f64, length: u64) {
        self.in_flight.push_back((answered, length));
        self.bytes = self.bytes.saturating_add(length);
    }
}

/// Times in µs.
struct Queue<'a> {
    model: &'a Model,
    places: usize,
    /// From when on the request rate allows the next one.
    next_start: f64,
    transfers_end: f64,
    /// When those are answered that take a place; ascending.
    answered: VecDeque<f64>,
}

impl<'a> Queue<'a> {
    fn of(model: &'a Model, places: usize) -> Self {
        Self { model, places, next_start: 0.0, transfers_end: 0.0, answered: VecDeque::new() }
    }

    /// When the last request is answered; 0 without any. As a whole number it saturates.
    fn last_answer(&self) -> f64 {
        self.answered.back().copied().unwrap_or_default()
    }

    fn serve(&mut self, length: u64) {
        let free = match self.answered.len() < self.places {
            true => 0.0,
            false => self.answered.pop_front().unwrap_or_default(),
        };
        let start = free.max(self.next_start);
        self.next_start = start + 1e6 / f64::from(self.model.request_rate());
        let transfer = length as f64 / f64::from(self.model.bandwidth_mb_s.max(1));
        self.transfers_end = self.transfers_end.max(start) + transfer;
        self.answered.push_back(self.transfers_end + self.model.request_us());
    }

    /// Serves requests of one length, most of a long run at once.
    fn serve_run(&mut self, run: Run) {
        let places = self.places as u64;
        let mut left = run.count;
        for change in (0..=CHANGES).rev() {
            let single = left.min(UNTIL_STEADY.saturating_mul(places));
            left -= single;
            let mut before = (self.next_start, self.transfers_end);
            for number in (0..single).rev() {
                self.serve(run.length);
                if number == places {
                    before = (self.next_start, self.transfers_end);
                }
            }
            let rounds = left / places;
            if rounds == 0 {
                break;
            }
            let steps = (self.next_start - before.0, self.transfers_end - before.1);
            let ahead = self.transfers_end - self.next_start;
            // Where starts take longer, transfers catch up with them; infinite where both take as long.
            let until_change = ahead / (steps.0 - steps.1);
            let passes = match change > 0 && until_change >= 0.0 {
                true => rounds.min(until_change as u64),
                false => rounds,
            };
            self.pass(passes, steps);
            left -= passes * places;
        }
        for _ in 0..left {
            self.serve(run.length);
        }
    }

    /// So many rounds, in each of which the next start and the last transfer come by so much later.
    fn pass(&mut self, rounds: u64, (start, transfer): (f64, f64)) {
        let rounds = rounds as f64;
        self.next_start += rounds * start;
        self.transfers_end += rounds * transfer;
        self.answered.iter_mut().for_each(|end| *end += rounds * transfer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLOUD: Model = Model::of(1500, 1500, 125, 16, 3000);
    const EMMC: Model = Model::of(330, 330, 150, 1, 3000);

    /// With so many places.
    fn took(model: &Model, places: usize, runs: impl IntoIterator<Item = Run>) -> u64 {
        last_us(model, Some(InFlight { bytes: u64::MAX, steps: places }), runs)
    }

    /// When the last of these is answered.
    fn last_us(
        model: &Model,
        in_flight: Option<InFlight>,
        runs: impl IntoIterator<Item = Run>,
    ) -> u64 {
        answered_us(model, in_flight, runs).last().copied().unwrap_or(0)
    }

    fn runs(list: &[(u64, u64)]) -> Vec<Run> {
        list.iter().map(|&(count, length)| Run { count, length }).collect()
    }

    #[test]
    fn rate_and_bandwidth_are_used_at_once_as_far_as_the_queue_reaches() {
        let (small, large) = (1250, 500_000);
        // Latency and rate are those of a block, with its transfer of 33 and 27 µs.
        for (name, model, list, expected) in [
            ("nothing", CLOUD, vec![], 0),
            ("one", CLOUD, vec![(1, small)], 1477),
            ("the rate is the limit", CLOUD, vec![(300, small)], 299 * 1_000_000 / 3000 + 1477),
            ("the bandwidth is the limit", CLOUD, vec![(30, large)], 30 * 4000 + 1467),
            // The next start while the first is transferred.
            ("a few of both", CLOUD, vec![(1, large), (10, small)], 4000 + 10 * 10 + 1467),
            // 15 start meanwhile, the others afterwards, when a place is free.
            (
                "many of both",
                CLOUD,
                vec![(1, large), (115, small)],
                4000 + 1467 + 99 * 1_000_000 / 3000 + 1477,
            ),
            ("one by one", EMMC, vec![(3, 15_000)], 3 * (306 + 100)),
        ] {
            let found = took(&model, 16, runs(&list));
            assert!(found.abs_diff(expected) <= 1, "{name}: {found}, not {expected}");
        }
    }

    #[test]
    fn requests_are_answered_one_after_the_other() {
        let list = runs(&[(1, 15_000), (0, 15_000), (2, 15_000)]);
        assert_eq!(answered_us(&EMMC, None, list), [406, 406, 3 * 406]);
        assert!(answered_us(&EMMC, None, []).is_empty());
    }

    #[test]
    fn requests_start_at_the_rate_that_the_device_reaches_at_any_depth() {
        let small = || runs(&[(3000, 4096)]);
        let at_depth = Model { iops: 2500, ..CLOUD };
        assert_eq!(took(&at_depth, 64, small()), took(&CLOUD, 64, small()));
        let least = Model { iops: 2500, most_iops: 2500, ..CLOUD };
        assert!(took(&least, 64, small()) > took(&CLOUD, 64, small()) + 150_000);
    }

    /// When the last of these is answered in a start with this strategy.
    fn in_start(strategy: &ReadStrategy, runs: impl IntoIterator<Item = Run>) -> u64 {
        answered_in_start_us(&CLOUD, strategy, runs).last().copied().unwrap_or(0)
    }

    #[test]
    fn a_start_requests_more_when_little_is_in_flight() {
        let (small, large) = (1250, 500_000);
        let limit = |bytes, steps| Some(InFlight { bytes, steps });
        let with = |in_flight, rows| ReadStrategy { in_flight, rows, ..ReadStrategy::default() };
        let (all, rate) = (2 * large, 1_000_000 / 3000);
        for (name, strategy, list, expected) in [
            ("nothing", with(limit(all, 4), limit(large, 1)), vec![], 0),
            ("there is room", with(limit(all, 4), limit(large, 1)), vec![(2, large)], 8000 + 1467),
            // The third is requested when one is left, at 4000 + 1467, while that is transferred.
            (
                "too many bytes",
                with(limit(all, 9), limit(large, 9)),
                vec![(3, large)],
                12_000 + 1467,
            ),
            (
                "too many bytes, until none are left",
                with(limit(all, 9), limit(0, 9)),
                vec![(3, large)],
                8000 + 1467 + 4000 + 1467,
            ),
            (
                "too many requests",
                with(limit(all, 4), limit(all, 0)),
                vec![(5, small)],
                3 * rate + 2 * 1477,
            ),
            (
                "more than the limit at once",
                with(limit(small, 4), limit(0, 1)),
                vec![(2, large)],
                2 * (4000 + 1467),
            ),
            ("no rows", with(limit(all, 4), None), vec![(5, small)], 2 * 1477),
            ("no limit", with(None, limit(0, 0)), vec![(5, small)], 4 * rate + 1477),
        ] {
            let found = in_start(&strategy, runs(&list));
            assert!(found.abs_diff(expected) <= 2, "{name}: {found}, not {expected}");
        }
    }

    proptest! {
        #[test]
        fn a_start_is_answered_no_earlier_than_a_replay_and_in_order(
            list in prop::collection::vec((0u64..60, 0u64..1_000_000), 0..20),
            steps in 1usize..40,
            busy in 0usize..10,
        ) {
            let limit = InFlight { bytes: 4 << 20, steps };
            let rows = Some(InFlight { bytes: 1 << 20, steps: busy });
            let strategy = ReadStrategy { in_flight: Some(limit), rows, ..ReadStrategy::default() };
            let start = answered_in_start_us(&CLOUD, &strategy, runs(&list));
            let replay = answered_us(&CLOUD, Some(limit), runs(&list));
            prop_assert!(start.is_sorted());
            prop_assert!(start.iter().zip(&replay).all(|(start, replay)| start + 1 >= *replay));
        }

        #[test]
        fn it_takes_what_rate_and_bandwidth_need_and_never_more_than_one_by_one(
            list in prop::collection::vec((0u64..300, 0u64..1_000_000), 0..20),
            places in 1usize..40,
        ) {
            let found = took(&CLOUD, places, runs(&list)) as f64;
            let requests: u64 = list.iter().map(|(count, _)| count).sum();
            let transfer = list.iter().map(|(count, length)| count * length).sum::<u64>() as f64 / 125.0;
            let least = transfer.max(requests.saturating_sub(1) as f64 * 1e6 / 3000.0);
            prop_assert!(found >= least - 1.0);
            prop_assert!(found <= transfer + requests as f64 * 1500.0 + 1.0);
        }

        #[test]
        fn a_run_takes_as_long_as_its_requests_one_after_the_other(
            list in prop::collection::vec((0u64..400, 0u64..1_000_000), 0..5),
            places in 1usize..20,
        ) {
            let single = list.iter().flat_map(|&(count, length)| {
                (0..count).map(move |_| Run { count: 1, length })
            });
            let (at_once, single) = (took(&CLOUD, places, runs(&list)), took(&CLOUD, places, single));
            prop_assert!(at_once.abs_diff(single) <= 1 + single / 1000, "{at_once} {single}");
        }

        #[test]
        fn no_figures_break_it(
            list in prop::collection::vec((any::<u64>(), any::<u64>()), 0..5),
            figures in proptest::array::uniform5(any::<u32>()),
        ) {
            let [latency_us, next_us, bandwidth_mb_s, depth, iops] = figures;
            let model = Model::of(latency_us, next_us, bandwidth_mb_s, depth, iops);
            for steps in [0, 1, usize::MAX] {
                took(&model, steps, runs(&list));
            }
            last_us(&model, None, runs(&list));
            let limit = InFlight { bytes: list.len() as u64, steps: figures[0] as usize };
            let (in_flight, rows) = (Some(limit), Some(limit));
            let strategy = ReadStrategy { in_flight, rows, ..ReadStrategy::default() };
            let few = list.iter().map(|&(count, length)| (count % 99, length));
            answered_in_start_us(&model, &strategy, runs(&few.collect::<Vec<_>>()));
            answered_in_start_us(&model, &strategy, runs(&list));
        }
    }
}

//! What passed through a device, counted while it runs: requests, bytes,
//! sequential share, queue depth over time, idle time, and how late answers
//! left. Takes times as arguments; has no clock.

use serde::{Deserialize, Serialize};

use crate::sched::{Nanos, Op, Request};

/// Most slices of [`Stats::slices`]; when they are full, pairs are merged.
pub const SLICES: usize = 1024;
/// Above this share of late answers the model was not held.
pub const TOO_LATE: f64 = 0.05;
/// Width of a slice at the start.
const FIRST_WIDTH: Nanos = 1_000_000;
/// An answer is late when it leaves so much after its time …
const LATE: Nanos = 100_000;
/// … and the modelled time divided by this.
const LATE_SHARE: Nanos = 20;

/// Reads or writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfers {
    /// How many.
    pub requests: u64,
    /// How many bytes.
    pub bytes: u64,
    /// Requests that began where the one before of the same kind ended.
    pub sequential: u64,
    #[serde(skip)]
    end: Option<u64>,
}

impl Transfers {
    fn count(&mut self, request: &Request) {
        self.requests += 1;
        self.bytes += request.len;
        self.sequential += u64::from(self.end == Some(request.offset));
        self.end = Some(request.end());
    }

    /// Share of sequential requests, 0 to 1; 0 without requests.
    pub fn sequential_share(&self) -> f64 {
        self.sequential as f64 / self.requests.max(1) as f64
    }
}

/// What happened in one slice of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// Reads that arrived.
    pub reads: u64,
    /// Their bytes.
    pub bytes_read: u64,
    /// Writes that arrived.
    pub writes: u64,
    /// Their bytes.
    pub bytes_written: u64,
    /// Time with at least one request, in nanoseconds.
    pub busy_ns: Nanos,
    /// Requests times the time they were there, in nanoseconds; divided by
    /// the width it is the mean queue depth.
    pub depth_ns: Nanos,
}

impl Slice {
    fn add(&mut self, other: &Slice) {
        self.reads += other.reads;
        self.bytes_read += other.bytes_read;
        self.writes += other.writes;
        self.bytes_written += other.bytes_written;
        self.busy_ns += other.busy_ns;
        self.depth_ns += other.depth_ns;
    }
}

/// All counts since the start or the last reset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Since then, in nanoseconds.
    pub elapsed_ns: Nanos,
    /// Reads.
    pub reads: Transfers,
    /// Writes.
    pub writes: Transfers,
    /// Flushes.
    pub flushes: u64,
    /// Discards and requests for zeroes.
    pub discards: u64,
    /// Requests that could not be carried out.
    pub errors: u64,
    /// Requests there now.
    pub depth: usize,
    /// Time spent at each queue depth in nanoseconds; the first is idle time.
    pub depth_ns: Vec<Nanos>,
    /// Answers that left so late that the model was not held.
    pub late: u64,
    /// The longest time after which an answer left too late, in nanoseconds.
    pub latest_ns: Nanos,
    /// Width of each slice in nanoseconds.
    pub slice_ns: Nanos,
    /// The course of things, slice by slice from the start.
    pub slices: Vec<Slice>,
}

impl Stats {
    /// Time without any request, in nanoseconds.
    pub fn idle_ns(&self) -> Nanos {
        self.depth_ns.first().copied().unwrap_or(0)
    }

    /// Mean queue depth while there was any request; 0 if there was none.
    pub fn mean_depth(&self) -> f64 {
        let busy: Nanos = self.depth_ns.iter().skip(1).sum();
        let weighted = |(depth, ns): (usize, &Nanos)| depth as f64 * *ns as f64;
        let sum: f64 = self.depth_ns.iter().enumerate().map(weighted).sum();
        sum / busy.max(1) as f64
    }

    /// Share of late answers, 0 to 1.
    pub fn late_share(&self) -> f64 {
        let all = self.reads.requests + self.writes.requests + self.flushes + self.discards;
        self.late as f64 / all.max(1) as f64
    }
}

/// The counters of a running device.
#[derive(Debug)]
pub struct Counters {
    start: Nanos,
    last: Nanos,
    stats: Stats,
}

impl Counters {
    /// Nothing counted, nothing there.
    pub fn new(now: Nanos) -> Self {
        let stats = Stats { slice_ns: FIRST_WIDTH, ..Stats::default() };
        Self { start: now, last: now, stats }
    }

    /// Forgets everything but the requests that are there.
    pub fn reset(&mut self, now: Nanos) {
        let depth = self.stats.depth;
        *self = Self::new(now);
        self.stats.depth = depth;
    }

    /// The counts up to now.
    pub fn stats(&mut self, now: Nanos) -> Stats {
        self.pass(now);
        let mut stats = self.stats.clone();
        stats.elapsed_ns = self.last - self.start;
        stats
    }

    /// A request came in.
    pub fn arrive(&mut self, now: Nanos, request: &Request) {
        self.pass(now);
        self.stats.depth += 1;
        let mut part = Slice::default();
        match request.op {
            Op::Read => {
                self.stats.reads.count(request);
                (part.reads, part.bytes_read) = (1, request.len);
            }
            Op::Write => {
                self.stats.writes.count(request);
                (part.writes, part.bytes_written) = (1, request.len);
            }
            Op::Flush => self.stats.flushes += 1,
            Op::Discard => self.stats.discards += 1,
        }
        self.slice(self.last).add(&part);
    }

    /// An answer that was due `modelled` after its arrival went out at `now`,
    /// `late` after its time.
    pub fn complete(&mut self, now: Nanos, modelled: Nanos, late: Nanos) {
        self.pass(now);
        self.stats.depth = self.stats.depth.saturating_sub(1);
        self.stats.late += u64::from(late > LATE + modelled / LATE_SHARE);
        self.stats.latest_ns = self.stats.latest_ns.max(late);
    }

    /// A request could not be carried out.
    pub fn error(&mut self) {
        self.stats.errors += 1;
    }

    /// Lets time pass at the present depth.
    fn pass(&mut self, now: Nanos) {
        let now = now.max(self.last);
        let depth = self.stats.depth;
        if self.stats.depth_ns.len() <= depth {
            self.stats.depth_ns.resize(depth + 1, 0);
        }
        self.stats.depth_ns[depth] += now - self.last;
        while depth > 0 && self.last < now {
            self.slice(now - 1);
            let width = self.stats.slice_ns;
            let part_end = self.start + ((self.last - self.start) / width + 1) * width;
            let time = part_end.min(now) - self.last;
            let slice = self.slice(self.last);
            slice.busy_ns += time;
            slice.depth_ns += time * depth as Nanos;
            self.last += time;
        }
        self.last = now;
    }

    /// The slice that `now` falls into; widens all until there is one.
    fn slice(&mut self, now: Nanos) -> &mut Slice {
        let stats = &mut self.stats;
        while (now - self.start) / stats.slice_ns >= SLICES as Nanos {
            stats.slice_ns *= 2;
            let merge = |pair: &[Slice]| {
                let mut sum = Slice::default();
                pair.iter().for_each(|slice| sum.add(slice));
                sum
            };
            stats.slices = stats.slices.chunks(2).map(merge).collect();
        }
        let index = ((now - self.start) / stats.slice_ns) as usize;
        if stats.slices.len() <= index {
            stats.slices.resize(index + 1, Slice::default());
        }
        &mut stats.slices[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Nanos = 1_000_000;

    #[test]
    fn a_request_that_begins_where_the_last_of_its_kind_ended_is_sequential() {
        let mut counters = Counters::new(0);
        let write = |offset| Request { op: Op::Write, ..Request::read(offset, 4096) };
        for request in [
            Request::read(0, 4096),
            write(1 << 20),
            Request::read(4096, 8192),
            Request::read(12_288, 4096),
            Request::read(0, 4096),
        ] {
            counters.arrive(0, &request);
        }
        let stats = counters.stats(0);
        assert_eq!((stats.reads.requests, stats.reads.bytes), (4, 20_480));
        assert_eq!(stats.reads.sequential_share(), 0.5);
        assert_eq!(stats.writes.sequential_share(), 0.0);
    }

    #[test]
    fn time_is_booked_to_the_depth_it_was_spent_at() {
        let mut counters = Counters::new(5 * MS);
        counters.arrive(6 * MS, &Request::read(0, 1));
        counters.arrive(7 * MS, &Request::read(9, 1));
        counters.complete(9 * MS, MS, 0);
        counters.complete(12 * MS, MS, 0);
        let stats = counters.stats(20 * MS);
        assert_eq!(stats.depth_ns, [9 * MS, 4 * MS, 2 * MS]);
        assert_eq!((stats.idle_ns(), stats.elapsed_ns), (9 * MS, 15 * MS));
        assert!((stats.mean_depth() - 8.0 / 6.0).abs() < 1e-9);
        let depths: Vec<_> = stats.slices.iter().map(|s| s.depth_ns / MS).collect();
        assert_eq!(depths, [0, 1, 2, 2, 1, 1, 1]);
    }

    #[test]
    fn an_answer_is_late_beyond_100_microseconds_and_a_twentieth() {
        for (modelled, late, counted) in
            [(0, 100_000, 0), (0, 100_001, 1), (2 * MS, 200_000, 0), (2 * MS, 200_001, 1)]
        {
            let mut counters = Counters::new(0);
            counters.arrive(0, &Request::read(0, 1));
            counters.complete(1, modelled, late);
            let stats = counters.stats(1);
            assert_eq!((stats.late, stats.latest_ns), (counted, late));
        }
    }

    #[test]
    fn a_reset_forgets_counts_but_not_requests_under_way() {
        let mut counters = Counters::new(0);
        counters.arrive(MS, &Request::read(0, 1));
        counters.reset(2 * MS);
        let stats = counters.stats(3 * MS);
        assert_eq!((stats.depth, stats.reads.requests), (1, 0));
        assert_eq!(stats.depth_ns, [0, MS]);
    }

    proptest! {
        #[test]
        fn slices_stay_few_and_lose_nothing(
            steps in prop::collection::vec((0u64..60_000 * MS, any::<bool>()), 1..200),
        ) {
            let mut counters = Counters::new(17);
            let mut now = 17;
            for (gap, arrives) in steps {
                now += gap;
                if arrives {
                    counters.arrive(now, &Request::read(0, 512));
                } else {
                    counters.complete(now, 0, 0);
                }
            }
            let stats = counters.stats(now);
            prop_assert!(stats.slices.len() <= SLICES);
            prop_assert_eq!(stats.depth_ns.iter().sum::<Nanos>(), stats.elapsed_ns);
            let busy: Nanos = stats.slices.iter().map(|s| s.busy_ns).sum();
            prop_assert_eq!(busy, stats.elapsed_ns - stats.idle_ns());
            let bytes: u64 = stats.slices.iter().map(|s| s.bytes_read).sum();
            prop_assert_eq!(bytes, stats.reads.bytes);
            let depths = stats.depth_ns.iter().zip(0u64..);
            let weighted: Nanos = depths.map(|(ns, depth)| ns * depth).sum();
            prop_assert_eq!(stats.slices.iter().map(|s| s.depth_ns).sum::<Nanos>(), weighted);
        }
    }
}

//! The model of a block device, and the read strategy that follows from it. Pure; [`super::probe`]
//! measures a model, [`super::models`] keeps it.

use super::elevator::SeekCost;
use super::ranges::Ranges;
use super::strategy::{InFlight, Order, ReadStrategy};
use serde::{Deserialize, Serialize};

/// The model of a device, as it was measured.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Model {
    /// Random read latency: the time of a single read of 4 KiB, in µs.
    pub latency_us: u32,
    /// Sequential read latency: the time of a read that follows the last one, in µs.
    pub next_us: u32,
    /// Bandwidth of a large read, in MB/s.
    pub bandwidth_mb_s: u32,
    /// Queue depth: reads in flight beyond which IOPS hardly grow.
    pub depth: u32,
    /// Reads of 4 KiB a second at that depth.
    pub iops: u32,
    /// The same at any depth; 0 in a model of a build that did not keep it.
    #[serde(default)]
    pub most_iops: u32,
}

/// What latencies and rates are measured with, in bytes.
pub(super) const BLOCK: u64 = 4096;

/// A device whose random reads take longer than sequential ones by this is rotational, in µs. The
/// fastest disks need several times as much.
const SEEK_US: u32 = 1000;
/// And by this factor.
const SEEK_TIMES: u32 = 3;

/// On devices with a deep queue, pages that are touched later than this are read in another step.
const NEAR_US: u32 = 20_000;
/// Requests are the bottleneck if they take this many times as long as the bytes.
const CLEARLY: f64 = 2.0;
/// The number of requests matters if they take at least this part of the time of the bytes.
const NOTABLE_PART: f64 = 4.0;
/// Steps wait for others while at least this part of the in-flight limit is in flight: as much as the
/// device works on at a time, or more.
const BUSY_PART: u32 = 4;
/// The same at queue depth 1: a request in work and one that waits, or a large one.
const ONE_BY_ONE_BUSY: InFlight = InFlight { bytes: 256 << 10, steps: 2 };
/// From this IOPS on, batched readahead costs more than the requests that it saves.
const CHEAP_IOPS: u32 = 100_000;

/// The metadata lookahead in bytes, and that at queue depth 1.
const LEAD: u64 = 1 << 20;
const ONE_BY_ONE_LEAD: u64 = 4 << 20;
/// The in-flight limit of a device with a queue: this many times bandwidth × latency, and twice the
/// queue depth, but never less than these.
const IN_FLIGHT_TIMES: u64 = 4;
const LEAST_IN_FLIGHT: u64 = 4 << 20;
const LEAST_STEPS_IN_FLIGHT: usize = 64;

impl Model {
    /// What is assumed of a device that was never measured, as those of file servers can't be: a
    /// network volume.
    pub const ASSUMED: Self = Self::of(1000, 1000, 100, 16, 4000);

    /// A device that takes no more requests a second at another depth than at this one.
    pub const fn of(
        latency_us: u32,
        next_us: u32,
        bandwidth_mb_s: u32,
        depth: u32,
        iops: u32,
    ) -> Self {
        Self { latency_us, next_us, bandwidth_mb_s, depth, iops, most_iops: iops }
    }

    /// The most requests a second.
    pub fn request_rate(&self) -> u32 {
        self.most_iops.max(self.iops).max(1)
    }

    /// The cost of a seek, in µs; 0 on a device that is not rotational.
    pub fn seek_us(&self) -> u32 {
        let seek = self.latency_us.saturating_sub(self.next_us);
        let matters = seek >= SEEK_US && self.latency_us / SEEK_TIMES >= self.next_us;
        if matters { seek } else { 0 }
    }

    /// The cost of a seek on a rotational disk.
    pub fn seek(&self) -> Option<SeekCost> {
        let seek_us = self.seek_us();
        (seek_us > 0).then_some(SeekCost { seek_us, mb_s: self.bandwidth_mb_s })
    }

    /// The order in which it is read.
    pub fn order(&self) -> Order {
        if self.seek_us() > 0 { Order::Elevator } else { Order::Touch }
    }

    /// Whether the rate of requests and the bandwidth are limits at the same time: several requests are in work, and the
    /// device, not the CPU, takes most of their time. It may be true of a rotational disk, too.
    pub(super) fn is_queued(&self) -> bool {
        self.depth > 1 && self.iops < CHEAP_IOPS
    }

    /// The read strategy for a pack with these ranges if gaps up to `gap_bytes` are read, too.
    pub fn read_strategy(&self, ranges: &Ranges, gap_bytes: u64) -> ReadStrategy {
        let ranges = &ranges.joined(gap_bytes);
        let batched = self.batched(ranges);
        if self.order() == Order::Elevator {
            // More threads would make the disk seek between their steps.
            let (order, threads) = (Order::Elevator, 1);
            let (step_bytes, seek) = (1 << 20, self.seek());
            return ReadStrategy {
                order,
                threads,
                step_bytes,
                gap_bytes,
                batched,
                seek,
                ..ReadStrategy::default()
            };
        }
        let one_by_one = self.depth == 1;
        ReadStrategy {
            order: Order::Touch,
            // Threads block when they look up the positions of files.
            threads: if one_by_one {
                2
            } else if self.latency_us >= 1000 {
                8
            } else {
                4
            },
            step_bytes: if one_by_one { 1 << 20 } else { 512 << 10 },
            gap_bytes,
            near_us: if one_by_one { u32::MAX } else { NEAR_US },
            batched,
            rows: if batched { None } else { self.rows(ranges, gap_bytes) },
            metadata_lead: Some(if one_by_one { ONE_BY_ONE_LEAD } else { LEAD }),
            in_flight: self.in_flight(),
            seek: None,
            in_passes: false,
        }
    }

    /// The in-flight limit: a few times what keeps the device busy, since later requests wait for
    /// all of it. At queue depth 1 there is no limit: more requests in flight are merged into
    /// fewer. Nor is there one where requests are cheap: nothing waits for long.
    fn in_flight(&self) -> Option<InFlight> {
        let in_work = u64::from(self.bandwidth_mb_s) * u64::from(self.latency_us);
        self.is_queued().then(|| InFlight {
            bytes: in_work.saturating_mul(IN_FLIGHT_TIMES).max(LEAST_IN_FLIGHT),
            steps: (self.depth as usize).saturating_mul(2).max(LEAST_STEPS_IN_FLIGHT),
        })
    }

    /// Whether batched readahead is better for small steps: if the number of requests is clearly the
    /// bottleneck. Otherwise it only delays them, except in elevator order, where a batch is a row of
    /// adjacent steps and waits for nothing.
    fn batched(&self, ranges: &Ranges) -> bool {
        if self.iops >= CHEAP_IOPS {
            return false;
        }
        match (self.order(), self.depth) {
            (Order::Elevator, _) => true,
            // Others are better read in rows there.
            (Order::Touch, 1) => ranges.are_small(),
            (Order::Touch, _) => {
                self.requests_us(ranges) > CLEARLY * self.transfer_us(ranges.bytes)
            }
        }
    }

    /// From how much in flight on steps wait for others: as long as the device is busy that delays
    /// nothing, and adjacent steps become fewer requests. It takes CPU time, so not where requests are
    /// far from being the bottleneck: where they take little of the time and gaps are not worth reading.
    /// At queue depth 1 the times of requests add to those of bytes.
    fn rows(&self, ranges: &Ranges, gap_bytes: u64) -> Option<InFlight> {
        if self.depth == 1 && self.iops < CHEAP_IOPS {
            return Some(ONE_BY_ONE_BUSY);
        }
        let limit = self.in_flight()?;
        let is_notable = self.requests_us(ranges) >= self.transfer_us(ranges.bytes) / NOTABLE_PART;
        (gap_bytes > 0 || is_notable).then_some(InFlight {
            bytes: limit.bytes / u64::from(BUSY_PART),
            steps: limit.steps / BUSY_PART as usize,
        })
    }

    /// How long the requests take at all, if each range is one.
    fn requests_us(&self, ranges: &Ranges) -> f64 {
        ranges.count as f64 * 1e6 / f64::from(self.request_rate())
    }

    /// How long it needs for so many bytes in so many requests, without seeks, in µs. Requests of a
    /// device with a queue overlap the transfer of bytes.
    pub fn read_us(&self, requests: u64, bytes: u64) -> u64 {
        let transfer_us = bytes / u64::from(self.bandwidth_mb_s.max(1));
        let requests_us = match self.order() {
            Order::Elevator => requests.saturating_mul(self.next_us.into()),
            Order::Touch => requests.saturating_mul(1_000_000) / u64::from(self.request_rate()),
        };
        let one_by_one = self.depth == 1 || self.order() == Order::Elevator;
        match one_by_one {
            true => requests_us.saturating_add(transfer_us),
            false => requests_us.max(transfer_us),
        }
    }

    /// What a random read takes besides the transfer of its bytes, in µs: the latency is that of a
    /// block with its transfer. At queue depth 1 it is taken from the request rate: that is of many reads
    /// that wait for each other, as those of a replay do, and the latency of a few single ones.
    pub fn request_us(&self) -> f64 {
        let block_us = match self.depth {
            0 | 1 => 1e6 / f64::from(self.request_rate()),
            _ => f64::from(self.latency_us),
        };
        (block_us - self.transfer_us(BLOCK)).max(0.0)
    }

    pub(super) fn transfer_us(&self, bytes: u64) -> f64 {
        bytes as f64 / f64::from(self.bandwidth_mb_s.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::super::ranges::LARGEST_GAP;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_rotational_disk_is_read_in_elevator_order_and_others_are_read_in_touch_order() {
        for (name, model, order, threads, step) in [
            ("hard disk", Model::of(8340, 140, 100, 1, 119), Order::Elevator, 1, 1024),
            ("eMMC", Model::of(330, 330, 150, 1, 3000), Order::Touch, 2, 1024),
            ("network volume", Model::of(1500, 1500, 125, 16, 3000), Order::Touch, 8, 512),
            ("lazy volume", Model::of(5000, 5000, 125, 16, 3000), Order::Touch, 8, 512),
            ("SSD", Model::of(80, 80, 500, 32, 50_000), Order::Touch, 4, 512),
            ("memory", Model::of(10, 10, 5000, 16, 400_000), Order::Touch, 4, 512),
            (
                "a cache that knows what comes",
                Model::of(300, 30, 400, 16, 20_000),
                Order::Touch,
                4,
                512,
            ),
        ] {
            let strategy =
                model.read_strategy(&Ranges { count: 10, bytes: 1 << 20, gaps: Vec::new() }, 0);
            assert_eq!(
                (strategy.order, strategy.threads, strategy.step_bytes >> 10),
                (order, threads, step),
                "{name}"
            );
            assert_eq!(strategy.seek.is_some(), order == Order::Elevator, "{name}");
            assert_eq!(strategy.in_passes().in_passes, order == Order::Elevator, "{name}");
        }
    }

    #[test]
    fn the_in_flight_limit_is_low_where_reads_queue_up() {
        for (name, model, lead, expected) in [
            ("hard disk", Model::of(8340, 140, 100, 1, 119), None, None),
            ("eMMC", Model::of(330, 330, 150, 1, 3000), Some(4 << 20), None),
            (
                "network volume",
                Model::of(1500, 1500, 125, 16, 3000),
                Some(1 << 20),
                Some((4 << 20, 64)),
            ),
            (
                "a fast one",
                Model::of(1000, 1000, 4000, 64, 90_000),
                Some(1 << 20),
                Some((16_000_000, 128)),
            ),
            ("memory", Model::of(10, 10, 5000, 16, 400_000), Some(1 << 20), None),
        ] {
            let strategy =
                model.read_strategy(&Ranges { count: 10, bytes: 1 << 20, gaps: Vec::new() }, 0);
            let in_flight = strategy.in_flight.map(|limit| (limit.bytes, limit.steps));
            assert_eq!((strategy.metadata_lead, in_flight), (lead, expected), "{name}");
        }
    }

    #[test]
    fn small_files_are_batched_where_requests_clearly_decide() {
        let few_large = Ranges { count: 2800, bytes: 109 << 20, gaps: Vec::new() };
        let many_small = Ranges { count: 20_000, bytes: 81 << 20, gaps: Vec::new() };
        for (name, model, expected) in [
            ("hard disk", Model::of(8340, 140, 100, 1, 119), (true, true)),
            ("eMMC", Model::of(330, 330, 150, 1, 3000), (false, true)),
            ("network volume", Model::of(1500, 1500, 125, 16, 3000), (false, true)),
            ("SSD", Model::of(80, 80, 500, 32, 50_000), (false, true)),
            ("memory", Model::of(10, 10, 5000, 16, 400_000), (false, false)),
        ] {
            let found = (
                model.read_strategy(&few_large, 0).batched,
                model.read_strategy(&many_small, 0).batched,
            );
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn steps_wait_for_others_where_requests_take_a_notable_part_of_the_time() {
        let ranges = |count, mib: u64| Ranges { count, bytes: mib << 20, gaps: Vec::new() };
        for (name, model, ranges, expected) in [
            ("hard disk", Model::of(8340, 140, 100, 1, 119), ranges(1200, 80), None),
            ("eMMC", Model::of(330, 330, 150, 1, 3000), ranges(1200, 80), Some((256 << 10, 2))),
            (
                "few large ranges there",
                Model::of(330, 330, 150, 1, 3000),
                ranges(40, 80),
                Some((256 << 10, 2)),
            ),
            (
                "files that are not small",
                Model::of(330, 330, 150, 1, 3000),
                ranges(5120, 80),
                Some((256 << 10, 2)),
            ),
            ("small ones, in batches", Model::of(330, 330, 150, 1, 3000), ranges(5121, 80), None),
            (
                "a fast one without a queue",
                Model::of(9, 9, 500, 1, 110_000),
                ranges(1200, 80),
                None,
            ),
            (
                "network volume",
                Model::of(1500, 1500, 125, 16, 3000),
                ranges(1200, 80),
                Some((1 << 20, 16)),
            ),
            ("few large ranges there", Model::of(1500, 1500, 125, 16, 3000), ranges(400, 80), None),
            (
                "few where the rate at another depth is higher",
                Model { iops: 1000, ..Model::of(1500, 1500, 125, 16, 3000) },
                ranges(400, 80),
                None,
            ),
            (
                "many small ones, in batches",
                Model::of(1500, 1500, 125, 16, 3000),
                ranges(9000, 80),
                None,
            ),
            ("SSD", Model::of(80, 80, 500, 32, 50_000), ranges(1200, 80), None),
            ("memory", Model::of(10, 10, 5000, 16, 400_000), ranges(1200, 80), None),
        ] {
            let strategy = model.read_strategy(&ranges, 0);
            let rows = strategy.rows.map(|rows| (rows.bytes, rows.steps));
            assert_eq!(rows, expected, "{name}");
            assert_eq!(strategy.opens_ahead(), rows.is_some() && model.depth == 1, "{name}");
        }
    }

    #[test]
    fn requests_take_as_long_as_the_rate_at_any_depth_tells() {
        let model = Model { iops: 1000, ..Model::of(1500, 1500, 125, 16, 3000) };
        assert_eq!((model.read_us(300, 0), model.read_us(300, 25_000_000)), (100_000, 200_000));
    }

    #[test]
    fn steps_wait_for_others_where_gaps_are_worth_reading() {
        let model = Model::of(1500, 1500, 125, 16, 3000);
        let ranges = Ranges { count: 500, bytes: 80 << 20, gaps: vec![4096; 400] };
        for gap_bytes in [0, 4096] {
            let strategy = model.read_strategy(&ranges, gap_bytes);
            assert_eq!(strategy.rows.is_some(), gap_bytes > 0);
        }
    }

    #[test]
    fn a_request_takes_its_latency_without_a_block_and_one_by_one_what_the_rate_tells() {
        // 4096 bytes take 41 µs at 100 MB/s.
        for (name, model, expected) in [
            ("with a queue", Model::of(1500, 1500, 100, 16, 3000), 1459),
            ("one by one", Model::of(360, 360, 100, 1, 3125), 279),
            (
                "one by one, and faster at another depth",
                Model { most_iops: 4000, ..Model::of(360, 360, 100, 1, 3125) },
                209,
            ),
            ("less than a block takes", Model::of(10, 10, 100, 16, 3000), 0),
        ] {
            assert_eq!(model.request_us().round() as u64, expected, "{name}");
        }
    }

    #[test]
    fn a_strategy_is_chosen_by_the_ranges_as_they_are_read() {
        // Otherwise these would be small enough for batches on each of the two.
        for (name, model) in [
            ("eMMC", Model::of(330, 330, 150, 1, 3000)),
            ("network volume", Model::of(1500, 1500, 125, 16, 3000)),
        ] {
            let ranges = Ranges { count: 6000, bytes: 80 << 20, gaps: vec![0; 4800] };
            let strategy = model.read_strategy(&ranges, 0);
            assert!(!strategy.batched && strategy.rows.is_some(), "{name}");
        }
    }

    proptest! {
        #[test]
        fn no_figures_make_a_strategy_that_can_not_be_used(
            figures in proptest::array::uniform5(any::<u32>()),
            count in any::<u64>(),
            bytes in any::<u64>(),
            mut gaps in proptest::collection::vec(0..=LARGEST_GAP, 0..9),
            gap_bytes in 0..=LARGEST_GAP,
        ) {
            let [latency, next, bandwidth, depth, iops] = figures;
            gaps.sort_unstable();
            let ranges = Ranges { count, bytes, gaps };
            let strategy = Model::of(latency, next, bandwidth, depth, iops).read_strategy(&ranges, gap_bytes);
            prop_assert!(strategy.threads > 0 && strategy.step_bytes >= 1 << 19);
            prop_assert_eq!(strategy.gap_bytes, gap_bytes);
            prop_assert!(strategy.in_flight.is_none_or(|i| i.bytes >= strategy.step_bytes && i.steps > 0));
        }
    }
}

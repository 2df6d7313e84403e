//! The benefit estimate: how long a cold start waits for a disk, and what a replay costs. Pure.

use super::frequency::Choice;
use super::model::Model;
use super::strategy::Order;
use crate::host::range::PageRange;
use crate::pack::Pack;
use serde::{Deserialize, Serialize};

/// What the kernel reads at once of a file, in bytes: its default readahead.
pub const WINDOW: u64 = 128 << 10;
/// Of metadata it reads hardly more than what is requested, in bytes.
const METADATA_WINDOW: u64 = 8 << 10;
/// The CPU time of a request by the program, in µs: a fault, or a read that sleeps and wakes up.
const WAKING_US: u64 = 80;
/// The program waits for at least one in this many requests for metadata: several threads may
/// read at once, and a block often serves the next name too.
const METADATA_PART: u64 = 8;
/// On a rotational disk a wait takes at least this part of a random seek: distances are short.
const SEEK_PART: u64 = 2;
/// The cost of headstart itself, in µs: another process, a pack, a thread.
const STARTING_US: u64 = 2000;
/// Opening and checking a file, in µs.
const OPENING_US: u64 = 15;
/// Requesting a range, in µs.
const REQUESTING_US: u64 = 10;

/// The cost of tracing, in µs: arming, and the events.
const LEARNING_US: u64 = 10_000;
/// The usual gain in percent of the largest possible gain.
pub const USUAL_PERCENT: u64 = 75;

/// The benefit estimate for a cold start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Expected {
    /// How often it waits for the disk without a replay, at most.
    pub waits: u64,
    /// How long it waits for the disk without a replay, at most, in µs.
    pub wait_us: u64,
    /// The same, at least.
    pub least_wait_us: u64,
    /// How long the disk needs for the requests of a replay, in µs.
    pub read_us: u64,
    /// How long the last learned start took, in µs.
    pub start_us: u64,
    /// What a replay costs, in µs.
    pub cost_us: u64,
}

impl Expected {
    /// Estimates the benefit of the chosen ranges of a pack on a device.
    pub fn of(pack: &Pack, choice: &Choice, model: &Model) -> Self {
        let page = pack.page_size();
        let chosen = pack.ranges.iter().filter(|r| choice.has(r));
        let chosen: Vec<_> = chosen.map(|r| (r.file, r.page_range())).collect();
        let of_metadata = pack.metadata.iter().filter(|r| choice.has_metadata(r));
        let of_metadata: Vec<_> =
            of_metadata.map(|r| (r.file_system.into(), r.page_range())).collect();
        let ranges = (chosen.len() + of_metadata.len()) as u64;
        let pages = chosen.iter().chain(&of_metadata).map(|(_, pages)| pages.count());
        let bytes = pages.fold(0, u64::saturating_add).saturating_mul(page);
        let moving_us = model.read_us(0, bytes);
        let mut files: Vec<_> = chosen.iter().map(|(file, _)| *file).collect();
        files.sort_unstable();
        files.dedup();
        let of_data = windows(chosen, WINDOW / page);
        let of_metadata = windows(of_metadata, METADATA_WINDOW / page);
        let waits = of_data.saturating_add(of_metadata);
        let at_least = of_data.saturating_add(of_metadata / METADATA_PART);
        let latency_us = u64::from(model.latency_us);
        let short_us = match model.order() {
            Order::Elevator => latency_us / SEEK_PART,
            Order::Touch => latency_us,
        };
        let waited_us = |waits: u64, each_us: u64| {
            waits.saturating_mul(each_us + WAKING_US).saturating_add(moving_us)
        };
        // Adjacent ranges become one request.
        let requests = ranges.min(waits);
        Self {
            waits,
            wait_us: waited_us(waits, latency_us),
            least_wait_us: waited_us(at_least, short_us),
            read_us: model.read_us(requests, bytes),
            start_us: pack.origin.duration_us,
            cost_us: STARTING_US + files.len() as u64 * OPENING_US + ranges * REQUESTING_US,
        }
    }

    /// By how much a cold start is shorter, in µs: at least, if nothing is read while the program
    /// computes, and at most.
    pub fn gain_us(&self) -> (u64, u64) {
        (self.least_wait_us.saturating_sub(self.read_us), self.wait_us)
    }

    /// The same as a share of the start, 0 to 1.
    pub fn gain(&self) -> (f64, f64) {
        let (least, most) = self.gain_us();
        let part =
            |gain: u64, wait: u64| gain as f64 / self.start_us.saturating_add(wait).max(1) as f64;
        (part(least, self.least_wait_us), part(most, self.wait_us))
    }

    /// Whether prefetching costs less than what is usually gained.
    pub fn has_benefit(&self) -> bool {
        self.usual_gain_us() > self.cost_us
    }

    /// Whether prefetching and learning from the start together cost less than that.
    pub fn should_record(&self) -> bool {
        self.usual_gain_us() > self.cost_us.saturating_add(LEARNING_US)
    }

    /// How long a start would have waited for the disk without a replay. `share` is the part of
    /// the expected reads that the replay did in time.
    pub fn avoided_wait(&self, share: f64) -> AvoidedWait {
        let part = |us: u64| (us as f64 * share.clamp(0.0, 1.0)) as u64;
        let least = self.least_wait_us;
        AvoidedWait { least_us: part(least), usual_us: part(self.usual_gain_us().max(least)) }
    }

    fn usual_gain_us(&self) -> u64 {
        self.gain_us().1 / 100 * USUAL_PERCENT
    }
}

/// How long a start would have waited for the disk without its replay, in µs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AvoidedWait {
    /// At least.
    pub least_us: u64,
    /// The usual value.
    pub usual_us: u64,
}

impl AvoidedWait {
    /// How much shorter a start was that waited this long for the disk and for headstart, in µs;
    /// `None` if it may not have been shorter.
    pub fn saved_us(self, waited_us: u64) -> Option<u64> {
        (self.least_us > waited_us).then(|| self.usual_us.saturating_sub(waited_us))
    }
}

/// How many windows of so many pages hold all ranges of files, each beginning with one.
fn windows(mut ranges: Vec<(u32, PageRange)>, pages: u64) -> u64 {
    ranges.sort_unstable();
    let (mut count, mut reached) = (0u64, (u32::MAX, 0));
    let pages = pages.max(1);
    for (file, PageRange { first, end }) in ranges {
        let from = if reached.0 == file { first.max(reached.1) } else { first };
        if from < end {
            let more = (end - from).div_ceil(pages);
            count = count.saturating_add(more);
            reached = (file, from.saturating_add(more.saturating_mul(pages)));
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::usage::How;
    use crate::pack::{File, History, MetadataRange, Origin, Range};
    use crate::replay::frequency::Frequency;
    use proptest::prelude::*;

    const NVME: Model = Model::of(10, 10, 5000, 16, 400_000);
    const EMMC: Model = Model::of(330, 330, 150, 1, 3000);
    const ROTATIONAL: Model = Model::of(8340, 140, 100, 1, 119);

    /// As many ranges of a page, each of a file of its own, and one of metadata.
    fn pack(files: u32, duration_us: u64) -> Pack {
        let range = |file| Range {
            file,
            first: 0,
            pages: 1,
            at_us: 0,
            how: How::READ,
            history: History(1),
        };
        Pack {
            origin: Origin { page_shift: 12, starts: 1, duration_us, ..Origin::default() },
            files: vec![File::default(); files as usize],
            ranges: (0..files).map(range).collect(),
            metadata: vec![MetadataRange {
                file_system: 0,
                first: 0,
                pages: 1,
                at_us: 0,
                history: History(1),
            }],
            ..Pack::default()
        }
    }

    fn expected(pack: &Pack, model: &Model) -> Expected {
        Expected::of(pack, &Frequency::EVER.choice(pack), model)
    }

    #[test]
    fn a_small_program_on_a_fast_device_has_no_expected_benefit() {
        for (name, files, model, benefit) in [
            ("few files from memory", 15, NVME, false),
            ("few files", 15, EMMC, true),
            ("many files from memory", 500, NVME, true),
            ("two files on a rotational disk", 2, ROTATIONAL, true),
            ("nothing", 0, NVME, false),
        ] {
            assert_eq!(expected(&pack(files, 1000), &model).has_benefit(), benefit, "{name}");
        }
        // Learning costs more, but not of a program that gains much.
        for (files, learning) in [(15, false), (100, true)] {
            let found = expected(&pack(files, 1000), &EMMC);
            assert!(found.has_benefit());
            assert_eq!(found.should_record(), learning, "{files} files");
        }
    }

    #[test]
    fn the_gain_is_what_is_not_waited_for() {
        let found = expected(&pack(99, 56_270), &EMMC);
        assert_eq!((found.waits, found.wait_us), (100, 100 * (330 + 80) + 2730));
        let (least, most) = found.gain();
        assert!((most - 0.4373).abs() < 0.001 && (0.07..0.1).contains(&least), "{least} {most}");
    }

    #[test]
    fn what_was_saved_is_stated_only_where_the_start_waited_less_than_it_would_have_at_least() {
        // Waits 1.0 to 1.2 s for what is read in 0.2 s.
        let found = Expected {
            waits: 3000,
            wait_us: 1_200_000,
            least_wait_us: 1_000_000,
            read_us: 200_000,
            start_us: 100_000,
            cost_us: 10_000,
        };
        for (share, waited_us, saved) in [
            (1.0, 0, Some(1_000_000)),
            (1.0, 5_000, Some(995_000)),
            (0.5, 5_000, Some(495_000)),
            (0.01, 10_000, None),
            (0.0, 0, None),
            (1.0, 1_000_000, None),
            (f64::NAN, 0, None),
        ] {
            assert_eq!(found.avoided_wait(share).saved_us(waited_us), saved, "{share} {waited_us}");
        }
        let likely = Expected { wait_us: 2_000_000, ..found };
        assert_eq!(likely.avoided_wait(1.0).saved_us(100_000), Some(1_400_000));
    }

    #[test]
    fn what_lies_in_a_window_is_one_request() {
        for (name, ranges, expected) in [
            ("apart", vec![(0, 0, 1), (0, 32, 1)], 2),
            ("near", vec![(0, 0, 1), (0, 31, 1)], 1),
            ("other files", vec![(0, 0, 1), (1, 0, 1)], 2),
            ("long", vec![(0, 0, 65)], 3),
            ("over the edge", vec![(0, 0, 1), (0, 20, 20)], 2),
            ("none", vec![], 0),
        ] {
            let ranges = ranges.into_iter().map(|(file, at, n)| (file, PageRange::of(at, n)));
            assert_eq!(windows(ranges.collect(), 32), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn no_figures_break_it_and_a_gain_is_a_part_of_the_start(
            figures in proptest::array::uniform5(any::<u32>()),
            ranges in proptest::collection::vec((0u32..3, any::<u32>(), 1u32..), 0..20),
            duration in any::<u64>(),
        ) {
            let [latency_us, next_us, bandwidth_mb_s, depth, iops] = figures;
            let model = Model::of(latency_us, next_us, bandwidth_mb_s, depth, iops);
            let mut pack = pack(3, duration);
            pack.ranges = ranges
                .iter()
                .map(|&(file, first, pages)| Range {
                    file, first: first.into(), pages, ..pack.ranges[0]
                })
                .collect();
            let found = expected(&pack, &model);
            let (least, most) = found.gain();
            prop_assert!(0.0 <= least && least <= most && most <= 1.0);
        }
    }
}

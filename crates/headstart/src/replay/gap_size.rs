//! Up to which size a replay reads gaps with the ranges around them, because requests take longer. Pure;
//! [`super::portions`] joins ranges, and [`super::gaps`] skips gaps that lie elsewhere.

use super::model::Model;
use super::portions::{PlannedRange, joined};
use super::queue::{Run, answered_us};
use super::ranges::{LARGEST_GAP, Ranges};
use super::strategy::{Order, ReadStrategy};
use crate::host::range::{ByteRange, PageRange};
use crate::pack::Pack;

const KIB: u64 = 1 << 10;
/// The sizes that are tried on devices with a queue, in bytes.
const SIZES: [u64; 8] =
    [4 * KIB, 8 * KIB, 12 * KIB, 16 * KIB, 24 * KIB, 32 * KIB, 48 * KIB, LARGEST_STILL_GAP];
/// A size is as good as the best if it takes longer by no more than this part.
const AS_GOOD_PART: u64 = 100;
/// No larger size is tried than one that takes longer than the best by more than this part.
const LONGER_PART: u64 = 50;
/// The largest gap that is considered to be read on devices that are not rotational, in bytes.
const LARGEST_STILL_GAP: u64 = 64 * KIB;
/// The gaps that are read are at most this part of the ranges, since memory is limited.
const GAPS_PART: u64 = 4;
/// A seek within a pass takes this part of a random one: a short distance, but half a revolution.
const SHORT_SEEK_PART: u32 = 2;
/// The least CPU time of a request, in µs.
const REQUEST_CPU_US: f64 = 10.0;
/// So many ranges, and so many bytes, touched first, are enough to choose a size: a start waits for that.
const MOST_RANGES: usize = 10_000;
const MOST_BYTES: u64 = 4 << 30;

/// The largest gap that is better read than skipped in a replay of a pack with these ranges, in bytes.
pub(super) fn gap_size(model: &Model, pack: &Pack, ranges: &Ranges) -> u64 {
    if model.is_queued() && model.order() == Order::Touch {
        of_a_queue(model, pack, ranges)
    } else {
        of_sums(model, ranges)
    }
}

/// The largest gap that takes less time than a request, where the times of requests and bytes add up.
fn of_sums(model: &Model, ranges: &Ranges) -> u64 {
    let (largest, request_us) = match model.order() {
        Order::Elevator => (LARGEST_GAP, f64::from(model.seek_us() / SHORT_SEEK_PART)),
        // Where the device costs hardly anything, the CPU does both.
        Order::Touch => {
            (LARGEST_STILL_GAP, (1e6 / f64::from(model.iops.max(1))).max(REQUEST_CPU_US))
        }
    };
    let (mut bytes, mut found) = (ranges.bytes, 0);
    // All gaps of a size are read, or none.
    for same in ranges.gaps.chunk_by(|a, b| a == b) {
        bytes = same.iter().fold(bytes, |sum, gap| sum.saturating_add(*gap));
        if same[0] > largest || model.transfer_us(same[0]) >= request_us || !fits(ranges, bytes) {
            break;
        }
        found = same[0];
    }
    found
}

/// The size with which the model answers the last request of a replay first, where requests and bytes overlap as far
/// as the in-flight limit reaches; the smallest that is as good.
fn of_a_queue(model: &Model, pack: &Pack, ranges: &Ranges) -> u64 {
    let page = pack.page_size();
    let bytes = |pages: PageRange| pages.bytes(page);
    let data = pack.ranges.iter().map(|r| (r.file, bytes(r.page_range()), r.at_us));
    let data = beginning(data.collect());
    let blocks = pack.metadata.iter();
    let blocks = blocks.map(|r| (r.file_system.into(), bytes(r.page_range()), r.at_us));
    let blocks = beginning(blocks.collect());
    let strategy = model.read_strategy(ranges, 0);
    let replay_us = |gap_bytes| {
        let strategy = ReadStrategy { gap_bytes, ..strategy };
        let mut all = portions(blocks.clone(), strategy.metadata_gap_bytes(), &strategy);
        all.extend(portions(data.clone(), gap_bytes, &strategy));
        all.sort_by_key(|(touched_us, _)| *touched_us);
        let runs = all.into_iter().map(|(_, run)| run);
        answered_us(model, strategy.in_flight, runs).last().copied().unwrap_or(0)
    };
    let (mut tried, mut least_us, mut count) = (Vec::new(), u64::MAX, ranges.joined(0).count);
    let longer = |us: u64, part| us.saturating_add(us / part);
    for size in SIZES {
        let joined = ranges.joined(size);
        if joined.count == count {
            continue;
        }
        if !fits(ranges, joined.bytes) {
            break;
        }
        if tried.is_empty() {
            least_us = replay_us(0);
            tried.push((0, least_us));
        }
        let us = replay_us(size);
        tried.push((size, us));
        if us > longer(least_us, LONGER_PART) {
            break;
        }
        (least_us, count) = (us.min(least_us), joined.count);
    }
    let is_as_good = |(_, us): &&(u64, u64)| *us <= longer(least_us, AS_GOOD_PART);
    tried.iter().find(is_as_good).map_or(0, |(size, _)| *size)
}

/// What is touched first of ranges of targets, with when that is, sorted by place, as [`joined`] has it.
fn beginning(mut ranges: Vec<(u32, ByteRange, u32)>) -> Vec<PlannedRange> {
    ranges.sort_unstable_by_key(|(_, _, at_us)| *at_us);
    ranges.truncate(MOST_RANGES);
    let mut left = MOST_BYTES;
    let planned = |(target, bytes, at_us): (u32, ByteRange, u32)| {
        let bytes = ByteRange::of(bytes.offset, bytes.length().min(left));
        left -= bytes.length();
        PlannedRange::new(target, bytes, at_us)
    };
    let planned = ranges.into_iter().map(planned);
    let mut found: Vec<_> = planned.filter(|range| !range.bytes.is_empty()).collect();
    found.sort_unstable_by_key(|range| (range.target, range.bytes.offset));
    found
}

/// What is requested at once if gaps up to this size are read, with when it is touched, in touch order.
fn portions(wanted: Vec<PlannedRange>, gap: u64, strategy: &ReadStrategy) -> Vec<(u32, Run)> {
    let (joined, _) = joined(wanted, gap, strategy.step_bytes, strategy.near_us);
    let run = |range: PlannedRange| {
        let (length, step) = (range.bytes.length(), strategy.step_bytes);
        (range.order, Run { count: length.div_ceil(step), length: length.min(step) })
    };
    joined.into_iter().map(run).collect()
}

/// Whether memory is used well enough if so many bytes are read with the gaps.
fn fits(ranges: &Ranges, bytes: u64) -> bool {
    bytes <= ranges.bytes.saturating_add(ranges.bytes / GAPS_PART)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::usage::How;
    use crate::pack::{History, MetadataRange, Origin, Range};
    use proptest::prelude::*;

    const CLOUD: Model = Model::of(1500, 1500, 125, 16, 3000);

    /// A file with ranges of so many pages, each with the gap before it and when it is touched, in ms.
    fn file(number: u32, ranges: &[(u64, u32, u32)]) -> Vec<Range> {
        let mut end = 0;
        let range = |&(gap, pages, at_ms): &(u64, u32, u32)| {
            let first = end + gap;
            end = first + u64::from(pages);
            let at_us = at_ms * 1000;
            Range { file: number, first, pages, at_us, how: How::READ, history: History(1) }
        };
        ranges.iter().map(range).collect()
    }

    fn pack(ranges: Vec<Range>) -> Pack {
        Pack { origin: Origin { page_shift: 12, ..Origin::default() }, ranges, ..Pack::default() }
    }

    fn of(model: &Model, pack: &Pack) -> u64 {
        gap_size(model, pack, &Ranges::of(pack))
    }

    #[test]
    fn gaps_are_read_that_take_less_time_than_a_request_where_both_add_up() {
        let gaps = [4 * KIB, 8 * KIB, 32 * KIB, 60 * KIB, 200 * KIB];
        let one = Model::of(330, 330, 150, 1, 3000);
        let wide = Model::of(330, 330, 900, 1, 3000);
        let seek = Model::of(8340, 140, 100, 1, 119);
        let memory = Model::of(10, 10, 5000, 16, 400_000);
        for (name, model, bytes, expected) in [
            ("the CPU does it, 49 KiB are as long as a request", memory, 1 << 20, 32),
            ("each request is waited for, 49 KiB are as long as one", one, 1 << 20, 32),
            ("none that is larger than 64 KiB", wide, 1 << 20, 60),
            ("a rotational disk passes over them", seek, 2 << 20, 200),
            ("also one with a queue", Model { depth: 4, ..seek }, 2 << 20, 200),
            ("a quarter of the bytes at most", seek, 1 << 20, 60),
            ("as many bytes as that", seek, 1216 << 10, 200),
        ] {
            let ranges = Ranges { count: 100, bytes, gaps: gaps.to_vec() };
            assert_eq!(gap_size(&model, &Pack::default(), &ranges) / KIB, expected, "{name}");
        }
        // As long as a request.
        let ranges = Ranges { count: 100, bytes: 1 << 20, gaps: vec![50_000] };
        assert_eq!(gap_size(&one, &Pack::default(), &ranges), 0);
        // Of those of a size all are read, or none.
        let ranges = Ranges { count: 100, bytes: 1 << 20, gaps: vec![4 * KIB; 65] };
        assert_eq!(gap_size(&seek, &Pack::default(), &ranges), 0);
    }

    #[test]
    fn gaps_are_read_from_a_device_with_a_queue_where_requests_run_out_before_bytes() {
        let small = file(0, &[(1, 4, 0); 1000]);
        let apart = file(0, &[(1, 4, 0), (1, 4, 30)].repeat(500));
        let little = [small.clone(), file(1, &[(2, 4, 0); 4])].concat();
        // The gaps of the large ones take more time.
        let larger = [file(0, &[(1, 120, 1000); 20]), file(1, &[(2, 6, 0); 1000])].concat();
        // All bytes take longer than all requests, but in the beginning requests are the limit.
        let both = [small.clone(), file(1, &[(0, 128, 1000); 300])].concat();
        let bytes = pack(both.clone()).data_bytes();
        assert!(CLOUD.read_us(both.len() as u64, 0) < CLOUD.read_us(0, bytes));
        for (name, ranges, expected) in [
            ("no gaps", file(0, &[(0, 10, 0)]), 0),
            ("requests are the limit", small, 4),
            ("they are, but by less than the gaps take", file(0, &[(2, 10, 0); 1000]), 0),
            ("bytes are the limit", file(0, &[(2, 120, 0); 100]), 0),
            ("more than a quarter of the bytes", file(0, &[(2, 4, 0); 1000]), 0),
            ("ranges that are not touched together", apart, 0),
            ("the first size takes longer, the second does not", larger, 8),
            ("the second gains less than 1 %", little, 4),
            ("first requests are the limit, then bytes", both, 4),
        ] {
            assert_eq!(of(&CLOUD, &pack(ranges)) / KIB, expected, "{name}");
        }
    }

    #[test]
    fn the_rate_at_any_depth_decides_which_gaps_are_read() {
        let ranges = pack(file(0, &[(1, 8, 0), (2, 8, 0)].repeat(300)));
        for (iops, most_iops, expected) in
            [(3000, 3000, 4), (1000, 3000, 4), (1000, 1000, 8), (1000, 0, 8)]
        {
            let model = Model { iops, most_iops, ..CLOUD };
            assert_eq!(of(&model, &ranges) / KIB, expected, "{iops} {most_iops}");
        }
    }

    #[test]
    fn no_gap_of_more_than_64_kib_is_read_from_a_device_with_a_queue() {
        let slow = Model::of(1500, 1500, 125, 16, 100);
        for (pages, expected) in [(8, 32), (9, 48), (13, 64), (16, 64), (17, 0)] {
            let ranges = file(0, &[(pages, 80, 0); 100]);
            assert_eq!(of(&slow, &pack(ranges)) / KIB, expected, "{pages}");
        }
    }

    #[test]
    fn what_is_touched_first_decides_for_large_packs() {
        let requests = file(0, &[(1, 4, 0); 2000]);
        // Behind that, requests are the limit by less than the gaps take.
        let rest = file(1, &[(1, 10, 1000); 60_000]);
        let all = pack([requests, rest.clone()].concat());
        assert_eq!((of(&CLOUD, &all) / KIB, of(&CLOUD, &pack(rest)) / KIB), (4, 0));
        // As many ranges of a file, or bytes, as a pack may name.
        let ranges = vec![(1 << 20, u32::MAX, 0), (1, 4, 1), (1, 4, 2)];
        assert_eq!(of(&CLOUD, &pack(file(0, &ranges))), 0);
        let (all, _) = joined(beginning(vec![(0, ByteRange::of(0, u64::MAX), 0)]), 0, 1 << 20, 0);
        assert_eq!(all.iter().map(|range| range.bytes.length()).sum::<u64>(), MOST_BYTES);
        assert_eq!(beginning(vec![(0, ByteRange::of(0, 1), 0); 20_000]).len(), MOST_RANGES);
    }

    #[test]
    fn metadata_that_is_read_meanwhile_takes_requests_too() {
        let touched = |n: u32| n / 10;
        let ranges: Vec<_> = (0..1000).map(|n| (1, 10, touched(n))).collect();
        let mut pack = pack(file(0, &ranges));
        assert_eq!(of(&CLOUD, &pack), 0);
        let block = |n: u32| MetadataRange {
            file_system: 0,
            first: u64::from(n) * 1000,
            pages: 1,
            at_us: touched(n) * 1000,
            history: History(1),
        };
        pack.metadata = (0..900).map(block).collect();
        assert_eq!(of(&CLOUD, &pack) / KIB, 4);
    }

    proptest! {
        #[test]
        fn no_pack_and_no_figures_break_it(
            figures in proptest::array::uniform4(any::<u32>()),
            depth in 0u32..70,
            iops in 0u32..200_000,
            ranges in prop::collection::vec((0u64..40, any::<u32>(), any::<u32>()), 0..20),
        ) {
            let [latency_us, next_us, bandwidth_mb_s, most_iops] = figures;
            let model = Model { latency_us, next_us, bandwidth_mb_s, depth, iops, most_iops };
            let range = |&(gap, pages, at): &(u64, u32, u32)| (gap, pages >> (at % 32), at >> 10);
            let ranges: Vec<_> = ranges.iter().map(range).collect();
            let pack = pack(file(0, &ranges));
            let (found, ranges) = (of(&model, &pack), Ranges::of(&pack));
            let largest = match model.order() {
                Order::Touch => LARGEST_STILL_GAP,
                Order::Elevator => LARGEST_GAP,
            };
            prop_assert!(found <= largest);
            prop_assert!(fits(&ranges, ranges.joined(found).bytes));
        }
    }
}

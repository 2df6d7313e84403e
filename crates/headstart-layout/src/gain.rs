//! What a layout saves: extents, requests and time, by the device model. Pure.

use super::extents::joined;
use super::metadata::Metadata;
use headstart::replay::elevator::{DevicePosition, read_us};
use headstart::replay::model::{Model, Ranges};
use headstart::replay::strategy::Order;
use headstart_sys::fiemap::Extent;
use serde::Serialize;

/// Blocks that hold the extents of files are read when files are opened, many at a time: the nearest of
/// them next, so that one takes this part of a seek.
const TREE_PART: u64 = 4;
/// Larger steps are requested one by one, except in elevator order (`replay/engine/submission`).
const SMALL: u64 = 128 << 10;
/// A layout must save at least one in this many parts of the time; less can't be measured.
const LEAST_PART: u64 = 50;

/// How fast one CPU unpacks zstd in btrfs, in 10^6 bytes a second of what comes out (doc/layout.md).
const UNPACKED_MB_S: u64 = 1000;

/// How the ranges of a start are read from where they lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Reading {
    /// Extents of all ranges.
    pub extents: u64,
    /// Places at which the next range, in touch order, does not begin where the last one ends.
    pub jumps: u64,
    /// Requests of a replay, for the data.
    pub requests: u64,
    /// Files whose extents do not fit into their inodes: each has a block more to read.
    pub trees: u64,
    /// How long the device needs for a replay, in µs; `None` without a model.
    pub replay_us: Option<u64>,
}

/// Before and after.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Gain {
    /// As it is.
    pub before: Reading,
    /// With the layout.
    pub after: Reading,
}

/// Where the ranges of a start lie.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Places {
    /// In touch order, each with its extents.
    pub ranges: Vec<Vec<Extent>>,
    /// As in [`Reading::trees`].
    pub trees: u64,
}

impl Gain {
    /// From places to places. `metadata` is what is read too and stays.
    pub fn of(before: &Places, after: &Places, metadata: &Metadata, model: Option<&Model>) -> Self {
        // Seeks are compared over one distance, that of both.
        let all = || before.ranges.iter().chain(&after.ranges).flatten();
        let low = all().map(|e| e.physical).min().unwrap_or(0);
        let high = all().map(|e| e.physical.saturating_add(e.length)).max().unwrap_or(0);
        let span = high.saturating_sub(low);
        let reading = |places| reading(places, metadata, model, span);
        Self { before: reading(before), after: reading(after) }
    }

    /// The same of ranges that are compressed then: so many bytes have to be unpacked after reading. A
    /// replay does so on all of these CPUs while it reads on.
    pub fn unpacked(mut self, bytes: u64, cpus: u32) -> Self {
        let us = bytes / UNPACKED_MB_S;
        let replay = &mut self.after.replay_us;
        *replay = replay.map(|read| read.max(us / u64::from(cpus.max(1))));
        self
    }

    /// Whether the layout is expected to save time; without a model, requests.
    pub fn is_expected(&self) -> bool {
        let Self { before, after } = self;
        let (before, after) = match before.replay_us.zip(after.replay_us) {
            Some(times) => times,
            None => (before.requests, after.requests),
        };
        before.checked_sub(after).is_some_and(|saved| saved > before / LEAST_PART)
    }
}

fn reading(places: &Places, metadata: &Metadata, model: Option<&Model>, span: u64) -> Reading {
    let Places { ranges: pieces, trees } = places;
    let mut sorted: Vec<Extent> = pieces.iter().flatten().copied().collect();
    let bytes = sorted.iter().fold(0, |sum, e| e.length.saturating_add(sum));
    let extents = sorted.len() as u64;
    let in_touch_order = sorted.clone();
    let touched = adjacent(&sorted);
    sorted.sort_unstable_by_key(|e| e.physical);
    let ranges = Ranges { count: pieces.len() as u64, bytes, gaps: Vec::new() };
    let strategy = model.map(|model| model.read_strategy(&ranges));
    // Requests for several files become one only in a batch.
    let is_batched = strategy.map_or(ranges.are_small(), |strategy| strategy.batched);
    let step = strategy.unwrap_or_default().step_bytes;
    let requests = match is_batched {
        true if model.is_some_and(|m| m.order() == Order::Elevator) => batched(&sorted, step, step),
        true => batched(&in_touch_order, step, SMALL),
        false => count(&sorted, step),
    };
    let place = |e: &Extent| (DevicePosition { dev: 0, offset: e.physical }, e.length);
    let replay_us = |m: &Model| {
        let Some(seek) = m.seek() else {
            let all = requests.saturating_add(*trees).saturating_add(metadata.places);
            return m.read_us(all, bytes.saturating_add(metadata.bytes));
        };
        let parts: Vec<_> = sorted.iter().map(place).collect();
        let of_trees = trees.saturating_mul(u64::from(seek.seek_us) / TREE_PART);
        (read_us(&parts, seek, span) as u64)
            .saturating_add(of_trees)
            .saturating_add(metadata.us.unwrap_or(0))
    };
    Reading {
        extents,
        jumps: (touched.len() as u64).saturating_sub(1),
        requests,
        trees: *trees,
        replay_us: model.map(replay_us),
    }
}

/// The same with those joined that follow each other on the device.
fn adjacent(extents: &[Extent]) -> Vec<Extent> {
    let mut at = 0u64;
    let one_file = extents.iter().map(|extent| {
        let extent = Extent { logical: at, ..*extent };
        at = at.saturating_add(extent.length);
        extent
    });
    joined(one_file.collect())
}

/// Requests of at most `most` bytes for extents that are requested in one batch: the block layer joins
/// what continues the last request. Of extents above `largest` nothing is joined.
fn batched(extents: &[Extent], most: u64, largest: u64) -> u64 {
    let (mut requests, mut last, mut ends) = (0u64, u64::MAX, None);
    for extent in extents.iter().filter(|extent| extent.length > 0) {
        let (first, rest) = (extent.length.min(most), extent.length % most);
        let may_join = first <= largest;
        let is_joined =
            may_join && ends == Some(extent.physical) && last.saturating_add(first) <= most;
        requests = requests.saturating_add(extent.length.div_ceil(most) - u64::from(is_joined));
        last = match (may_join, extent.length > most, is_joined) {
            (false, ..) => u64::MAX,
            (true, true, _) => {
                if rest == 0 {
                    most
                } else {
                    rest
                }
            }
            (true, false, true) => last + first,
            (true, false, false) => first,
        };
        ends = extent.physical.checked_add(extent.length);
    }
    requests
}

/// Requests of at most so many bytes.
fn count(extents: &[Extent], most: u64) -> u64 {
    extents.iter().map(|extent| extent.length.div_ceil(most)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HDD: Model =
        Model { latency_us: 8340, next_us: 140, bandwidth_mb_s: 100, depth: 1, iops: 119 };
    const EMMC: Model =
        Model { latency_us: 330, next_us: 330, bandwidth_mb_s: 150, depth: 1, iops: 3000 };
    const NVME: Model =
        Model { latency_us: 10, next_us: 10, bandwidth_mb_s: 5000, depth: 16, iops: 400_000 };

    /// Files of one size, each in so many extents of its own, all far apart.
    fn scattered(files: u64, extents: u64, length: u64) -> Vec<Vec<Extent>> {
        let file = |n: u64| {
            let extent = |k: u64| Extent {
                logical: k * length,
                physical: ((n * extents + k) * 7919 % 1000) * (16 << 20),
                length,
            };
            (0..extents).map(extent).collect()
        };
        (0..files).map(file).collect()
    }

    fn gain(before: &[Vec<Extent>], after: &[Vec<Extent>], model: Option<&Model>) -> Gain {
        let places = |ranges: &[Vec<Extent>]| Places { ranges: ranges.to_vec(), trees: 0 };
        Gain::of(&places(before), &places(after), &Metadata::default(), model)
    }

    fn packed(files: u64, length: u64) -> Vec<Vec<Extent>> {
        let file = |n| vec![Extent { logical: 0, physical: (20 << 30) + n * length, length }];
        (0..files).map(file).collect()
    }

    #[test]
    fn a_layout_gains_where_seeks_or_requests_are_the_limit_and_not_where_they_are_free() {
        let large = 8 << 20;
        for (name, before, after, model, expected) in [
            ("hard disk", scattered(40, 4, 16384), packed(40, 65536), Some(HDD), true),
            (
                "a hard disk that is in order",
                packed(40, 65536),
                packed(40, 65536),
                Some(HDD),
                false,
            ),
            ("eMMC", scattered(40, 4, 16384), packed(40, 65536), Some(EMMC), true),
            ("large files on eMMC", scattered(4, 1, large), packed(4, large), Some(EMMC), false),
            ("large files in memory", scattered(4, 1, large), packed(4, large), Some(NVME), false),
            ("no model", scattered(40, 4, 16384), packed(40, 65536), None, true),
            ("nothing", vec![], vec![], Some(HDD), false),
        ] {
            let found = gain(&before, &after, model.as_ref());
            assert_eq!(found.is_expected(), expected, "{name}: {found:?}");
        }
    }

    #[test]
    fn adjacent_files_are_one_request_in_a_batch() {
        let Gain { before, after } = gain(&scattered(40, 4, 16384), &packed(40, 65536), Some(&HDD));
        assert_eq!((before.extents, before.jumps, before.requests), (160, 159, 160));
        assert_eq!((after.extents, after.jumps, after.requests), (40, 0, 3));
        let found = gain(&scattered(40, 4, 16384), &packed(40, 65536), Some(&EMMC));
        assert_eq!((found.before.requests, found.after.requests), (160, 3));
        // Larger ones only on a rotational disk, where 160 KiB are read at a time.
        for (model, requests) in [(HDD, 7), (EMMC, 40)] {
            let large = packed(40, 160 << 10);
            assert_eq!(gain(&large, &large, Some(&model)).after.requests, requests);
        }
        // One seek and 26 ms of transfer.
        assert_eq!(after.replay_us, Some(34_414));
        assert!(before.replay_us > Some(600_000));
    }

    #[test]
    fn metadata_and_blocks_of_extents_take_their_time_too() {
        for (model, metadata, tree) in [(HDD, 9000, 2050), (EMMC, 1000, 333)] {
            let found = |trees, places| {
                let places_of = Places { ranges: packed(40, 65536), trees };
                let metadata = Metadata { places, bytes: 0, us: (places > 0).then_some(9000) };
                Gain::of(&places_of, &places_of, &metadata, Some(&model)).after.replay_us.unwrap()
            };
            let none = found(0, 0);
            assert_eq!((found(0, 3) - none, found(1, 0) - none), (metadata, tree));
        }
    }

    proptest! {
        #[test]
        fn no_extents_and_no_figures_break_it(
            lists in prop::collection::vec(
                prop::collection::vec((any::<u64>(), any::<u64>()), 0..5), 0..5),
            figures in proptest::array::uniform5(any::<u32>()),
        ) {
            let [latency_us, next_us, bandwidth_mb_s, depth, iops] = figures;
            let model = Model { latency_us, next_us, bandwidth_mb_s, depth, iops };
            let extent = |&(physical, length): &(u64, u64)| Extent {
                logical: 0, physical, length: length >> 8,
            };
            let lists: Vec<Vec<Extent>> =
                lists.iter().map(|list| list.iter().map(extent).collect()).collect();
            let found = gain(&lists, &lists, Some(&model));
            prop_assert_eq!(found.before, found.after);
            prop_assert!(!found.is_expected());
        }
    }
}

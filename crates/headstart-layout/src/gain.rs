//! What a layout saves: extents, requests and time, by the device model. Pure.

use super::extents::as_one_file;
use super::metadata::Metadata;
use super::reads::{ReadStep, Replayed};
use super::start::Start;
use headstart::host::range::ByteRange;
use headstart::replay::elevator::{DevicePosition, SeekCost, read_us};
use headstart::replay::model::Model;
use headstart::replay::queue::{answered_in_start_us, answered_us};
use headstart_sys::fiemap::Extent;
use serde::Serialize;

/// Blocks that hold the extents of files are read with other metadata, or when files are opened, many at a
/// time: the nearest of them next, so that one takes this part of a seek, or of a request.
const TREE_PART: u64 = 4;
/// A layout must save at least one in this many parts of the time; less can't be measured.
const LEAST_PART: u64 = 50;

/// How fast one CPU unpacks zstd in btrfs, in 10^6 bytes a second of what comes out (doc/layout.md).
const UNPACKED_MB_S: u64 = 1000;

/// How the ranges of a start are read from where they lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Reading {
    /// Extents of all ranges.
    pub extents: u64,
    /// Places at which the next range, in touch order, does not begin where the last one ends.
    pub jumps: u64,
    /// Requests of a replay, with those for directories, inode tables and extent trees; of several packs
    /// those of their replays one after the other.
    pub requests: u64,
    /// Files whose extents do not fit into their inodes: each has a block more to read.
    pub trees: u64,
    /// How long the device needs for a replay, in µs; `None` without a model.
    pub replay_us: Option<u64>,
    /// How long a prefetched start takes, in µs ([`super::start`]); of several packs their starts one after the other.
    /// What lies on other file systems counts as in memory.
    /// `None` without a model, on a rotational disk, whose passes are not modelled, and where it is not known how long
    /// one of them computes.
    pub start_us: Option<u64>,
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
    /// What the replays of the packs read of that.
    pub replays: Vec<Replayed>,
    /// How long all CPUs need to unpack what is compressed there, in µs: a replay unpacks while it reads on.
    pub unpacking_us: u64,
}

/// The device that is read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Device {
    /// How fast it is, if it was measured.
    pub model: Option<Model>,
    /// The largest request that it takes, in bytes.
    pub largest_request: u64,
}

/// How long so many CPUs need to unpack so many bytes, in µs.
pub fn unpacking_us(bytes: u64, cpus: u32) -> u64 {
    bytes / UNPACKED_MB_S / u64::from(cpus.max(1))
}

impl Gain {
    /// From places to places, those of a `donor`. `metadata` is what is read too and stays.
    pub fn of(
        before: &Places,
        after: &Places,
        donor: &[Extent],
        metadata: &Metadata,
        device: Device,
    ) -> Self {
        // Seeks are compared over one distance, that of both and of all that the donor has.
        let all = || before.ranges.iter().chain(&after.ranges).flatten().chain(donor);
        let low = all().map(|e| e.physical).min().unwrap_or(0);
        let high = all().map(|e| e.physical.saturating_add(e.length)).max().unwrap_or(0);
        let span = high.saturating_sub(low);
        let reading = |places| reading(places, metadata, device, span);
        Self { before: reading(before), after: reading(after) }
    }

    /// Whether requests fall by half or more, which helps others where their number is limited.
    pub fn halves_requests(&self) -> bool {
        self.before.requests > 0 && self.after.requests <= self.before.requests / 2
    }

    /// Whether this layout of the same ranges is expected to save time compared with another one.
    pub fn betters(&self, other: &Self) -> bool {
        Self { before: other.after, after: self.after }.is_expected()
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

fn reading(places: &Places, metadata: &Metadata, device: Device, span: u64) -> Reading {
    let Places { ranges, trees, replays, unpacking_us } = places;
    let Device { model, largest_request } = device;
    let in_touch_order: Vec<Extent> = ranges.iter().flatten().copied().collect();
    let touched = as_one_file(&in_touch_order);
    let of_trees = trees / TREE_PART;
    let mut count = of_trees;
    let (mut read_us, mut starts) = (0u64, Vec::with_capacity(replays.len()));
    for replayed in replays {
        let requests = replayed.requests(largest_request);
        let runs = || requests.iter().map(|one| one.run);
        count = runs().fold(count, |count, run| count.saturating_add(run.count));
        let Some(model) = model else { continue };
        let (us, start) = match model.seek() {
            Some(seek) => (seeks_us(&replayed.steps, seek, span), None),
            None => {
                let strategy = &replayed.strategy;
                let answered = answered_us(&model, strategy.in_flight, runs());
                let touched: Vec<_> = replayed.steps.iter().map(|step| step.touched_us).collect();
                let start = |computing_us| {
                    let answered = answered_in_start_us(&model, strategy, runs());
                    Start::of(computing_us, &requests, &answered, &touched)
                };
                (answered.last().copied().unwrap_or(0), replayed.computing_us.map(start))
            }
        };
        read_us = read_us.saturating_add(us);
        starts.push(start);
    }
    let replay_us = model.map(|model| {
        let more = match model.seek() {
            Some(seek) => {
                let of_trees = trees.saturating_mul(u64::from(seek.seek_us) / TREE_PART);
                of_trees.saturating_add(metadata.us.unwrap_or(0))
            }
            None => model.read_us(of_trees, 0),
        };
        read_us.saturating_add(more).max(*unpacking_us)
    });
    let start_us = replay_us.and_then(|replay_us| {
        // What is read or unpacked besides is spread over the replay.
        let slower = replay_us as f64 / read_us.max(1) as f64;
        let mut takes_us = starts.iter().map(|start| Some(start.as_ref()?.takes_us(slower)));
        takes_us.try_fold(0u64, |sum, us| Some(sum.saturating_add(us?)))
    });
    Reading {
        extents: in_touch_order.len() as u64,
        jumps: (touched.len() as u64).saturating_sub(1),
        requests: count,
        trees: *trees,
        replay_us,
        start_us,
    }
}

/// How long a rotational disk seeks and reads.
fn seeks_us(steps: &[ReadStep], seek: SeekCost, span: u64) -> u64 {
    let mut sorted: Vec<_> = steps.iter().flat_map(ReadStep::read).flatten().collect();
    sorted.sort_unstable();
    let place = |part: &ByteRange| (DevicePosition { dev: 0, offset: part.offset }, part.length());
    let placed: Vec<_> = sorted.iter().map(place).collect();
    read_us(&placed, seek, span) as u64
}

#[cfg(test)]
mod tests {
    use super::super::reads::MetadataStep;
    use super::*;
    use headstart::replay::ranges::Ranges;
    use headstart::replay::strategy::ReadStrategy;
    use proptest::prelude::*;

    const HDD: Model = Model::of(8340, 140, 100, 1, 119);
    const EMMC: Model = Model::of(330, 330, 150, 1, 3000);
    const CLOUD: Model = Model::of(1500, 1500, 125, 16, 3000);
    const NVME: Model = Model::of(10, 10, 5000, 16, 400_000);

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

    /// As a replay reads them, each in one step.
    fn places(ranges: &[Vec<Extent>], model: Option<Model>, trees: u64, blocks: u64) -> Places {
        let bytes = ranges.iter().flatten().fold(0, |sum, e| e.length.saturating_add(sum));
        let all = Ranges { count: ranges.len() as u64, bytes, gaps: Vec::new() };
        let unmeasured = ReadStrategy { batched: all.are_small(), ..ReadStrategy::default() };
        let strategy = model.map_or(unmeasured, |model| model.read_strategy(&all, 0));
        let step =
            |extents: &Vec<Extent>| ReadStep { extents: extents.clone(), ..ReadStep::default() };
        let metadata = blocks_of(blocks);
        let steps = ranges.iter().map(step).collect();
        let replays = vec![Replayed { strategy, steps, metadata, computing_us: None }];
        Places { ranges: ranges.to_vec(), trees, replays, unpacking_us: 0 }
    }

    /// So many blocks of metadata before all files.
    fn blocks_of(count: u64) -> Vec<MetadataStep> {
        let bytes = |n| ByteRange::of(n << 20, 0x1000);
        (0..count).map(|n| MetadataStep { files_before: 0, bytes: bytes(n) }).collect()
    }

    fn gain(before: &[Vec<Extent>], after: &[Vec<Extent>], model: Option<&Model>) -> Gain {
        let places = |ranges| places(ranges, model.copied(), 0, 0);
        let device = Device { model: model.copied(), largest_request: 512 << 10 };
        Gain::of(&places(before), &places(after), &[], &Metadata::default(), device)
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
    fn of_two_layouts_the_one_in_fewer_pieces_is_better() {
        let ranges = scattered(40, 4, 16384);
        let one = gain(&ranges, &packed(40, 65536), Some(&HDD));
        let many = gain(&ranges, &scattered(40, 1, 65536), Some(&HDD));
        assert!(one.betters(&many) && !many.betters(&one) && !one.betters(&one));
    }

    #[test]
    fn adjacent_files_are_one_request_in_a_batch() {
        let Gain { before, after } = gain(&scattered(40, 4, 16384), &packed(40, 65536), Some(&HDD));
        assert_eq!((before.extents, before.jumps, before.requests), (160, 159, 160));
        assert_eq!((after.extents, after.jumps, after.requests), (40, 0, 5));
        let found = gain(&scattered(40, 4, 16384), &packed(40, 65536), Some(&EMMC));
        assert_eq!((found.before.requests, found.after.requests), (160, 5));
        // On a device with a queue the first are not in rows, while it is not busy.
        for (model, requests) in [(HDD, 13), (EMMC, 13), (CLOUD, 7 + 13)] {
            let large = packed(40, 160 << 10);
            assert_eq!(gain(&large, &large, Some(&model)).after.requests, requests);
        }
        // One seek and 26 ms of transfer.
        assert_eq!(after.replay_us, Some(34_414));
        assert!(before.replay_us > Some(600_000));
    }

    #[test]
    fn metadata_and_blocks_of_extents_take_their_time_too() {
        for (model, metadata, tree, requests) in
            [(HDD, 9000, 4 * 2050, 4), (EMMC, 1000, 333, 4), (CLOUD, 1000, 333, 4)]
        {
            let found = |trees, blocks| {
                let places = places(&packed(40, 65536), Some(model), trees, blocks);
                let metadata =
                    Metadata { places: blocks, bytes: 0, us: (blocks > 0).then_some(9000) };
                let device = Device { model: Some(model), largest_request: 512 << 10 };
                Gain::of(&places, &places, &[], &metadata, device).after
            };
            let time = |trees, blocks| found(trees, blocks).replay_us.unwrap();
            assert_eq!((time(0, 3) - time(0, 0), time(4, 0) - time(0, 0)), (metadata, tree));
            assert_eq!(found(4, 3).requests - found(0, 0).requests, requests);
        }
    }

    fn gain_of(requests: (u64, u64), replay_us: Option<(u64, u64)>) -> Gain {
        let reading = |requests, replay_us| Reading { requests, replay_us, ..Reading::default() };
        let (before, after) = replay_us.unzip();
        Gain { before: reading(requests.0, before), after: reading(requests.1, after) }
    }

    #[test]
    fn a_gain_is_expected_of_more_than_a_fiftieth_of_the_time_or_without_a_model_of_requests() {
        for (requests, times, expected) in [
            ((1000, 980), None, false),
            ((1000, 979), None, true),
            ((1000, 1000), Some((1000, 980)), false),
            ((1000, 1000), Some((1000, 979)), true),
            ((1000, 1), Some((1000, 1001)), false),
        ] {
            let found = gain_of(requests, times).is_expected();
            assert_eq!(found, expected, "{requests:?} {times:?}");
        }
    }

    #[test]
    fn requests_are_halved_if_no_more_than_half_are_left() {
        for (before, after, expected) in
            [(10, 5, true), (11, 5, true), (10, 6, false), (1, 0, true), (0, 0, false)]
        {
            assert_eq!(gain_of((before, after), None).halves_requests(), expected, "{before}");
        }
    }

    #[test]
    fn what_is_compressed_takes_at_least_as_long_as_all_cpus_need_to_unpack_it() {
        for (bytes, cpus, expected) in [
            (0, 1, 0),
            (600_000, 2, 300),
            (600_000, 1, 600),
            (4_000_000, 4, 1000),
            (600_000, 0, 600),
        ] {
            assert_eq!(unpacking_us(bytes, cpus), expected, "{bytes} {cpus}");
        }
        let read = places(&packed(40, 65536), Some(EMMC), 0, 0);
        let device = Device { model: Some(EMMC), largest_request: 512 << 10 };
        for (unpacking_us, expected) in [(10_000, 19_006), (30_000, 30_000)] {
            let unpacked = Places { unpacking_us, ..read.clone() };
            let gain = Gain::of(&read, &unpacked, &[], &Metadata::default(), device);
            assert_eq!(gain.before.replay_us, Some(19_006));
            assert_eq!(gain.after.replay_us, Some(expected));
        }
    }

    #[test]
    fn a_start_is_predicted_where_it_is_known_how_long_it_computes() {
        let device = |model| Device { model, largest_request: 512 << 10 };
        let start_us = |places: &Places, model| {
            Gain::of(places, places, &[], &Metadata::default(), device(model)).after.start_us
        };
        for (model, trees, expected) in [
            (Some(HDD), 0, None),
            (None, 0, None),
            // The last of five requests is needed in the middle of 10 ms.
            (Some(EMMC), 0, Some(19_006 + 5000)),
            // What is read besides delays all of it.
            (Some(EMMC), 4, Some(19_006 + 333 + 5000)),
        ] {
            let mut places = places(&packed(40, 65536), model, trees, 0);
            assert_eq!(start_us(&places, model), None);
            let replay = &mut places.replays[0];
            replay.computing_us = Some(10_000);
            replay.steps.iter_mut().for_each(|step| step.touched_us = 5000);
            assert_eq!(start_us(&places, model), expected, "{model:?}");
            // Of two packs the starts follow each other, if both are known.
            let second = places.replays[0].clone();
            places.replays.push(second);
            let both = start_us(&places, model);
            assert_eq!(both.is_some(), expected.is_some());
            assert!(both > expected || both.is_none());
            places.replays[1].computing_us = None;
            assert_eq!(start_us(&places, model), None);
        }
    }

    #[test]
    fn a_start_from_a_device_with_a_queue_waits_longer_than_a_replay_takes() {
        // A replay reads large files while it waits for the rate of small ones, as far as its queue reaches.
        let ranges = [(8, 512 << 10), (200, 4096)].repeat(3);
        let ranges: Vec<_> =
            ranges.iter().flat_map(|&(n, length)| scattered(n, 1, length)).collect();
        for (model, waits) in [(CLOUD, true), (EMMC, false)] {
            let mut places = places(&ranges, Some(model), 0, 0);
            places.replays[0].computing_us = Some(0);
            let device = Device { model: Some(model), largest_request: 512 << 10 };
            let found = Gain::of(&places, &places, &[], &Metadata::default(), device).after;
            let more = found.start_us.unwrap() - found.replay_us.unwrap();
            assert_eq!(more > 1000, waits, "{model:?}: {more} us more");
        }
    }

    #[test]
    fn each_block_of_metadata_is_a_request_of_its_own() {
        for model in [HDD, EMMC, CLOUD] {
            let mut places = places(&packed(40, 65536), Some(model), 0, 0);
            let device = Device { model: Some(model), largest_request: 512 << 10 };
            let count = |places: &Places| {
                Gain::of(places, places, &[], &Metadata::default(), device).after.requests
            };
            let without = count(&places);
            places.replays[0].metadata = blocks_of(90);
            assert_eq!(count(&places) - without, 90);
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
            let model = Model::of(latency_us, next_us, bandwidth_mb_s, depth, iops);
            let extent = |&(physical, length): &(u64, u64)| Extent {
                logical: 0, physical, length: length >> 8,
            };
            let lists: Vec<Vec<Extent>> =
                lists.iter().map(|list| list.iter().map(extent).collect()).collect();
            let found = gain(&lists, &lists, Some(&model));
            prop_assert_eq!(found.before, found.after);
            prop_assert!(!found.is_expected());
            prop_assert!(!found.halves_requests());
        }
    }
}

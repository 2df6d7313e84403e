//! What a layout saves: extents, requests and time, by the device model. Pure.

use super::extents::joined;
use headstart::replay::elevator::{DevicePosition, read_us};
use headstart::replay::model::{Model, Ranges};
use headstart::replay::strategy::Order;
use headstart_sys::fiemap::Extent;
use serde::Serialize;

/// The kernel's readahead: a program without a replay makes requests of this size, in bytes.
const WINDOW: u64 = 128 << 10;
/// A request of so many bytes is sent, and no longer joined with the next (`BLK_PLUG_FLUSH_SIZE` of
/// block/blk.h).
const PLUG: u64 = 128 << 10;
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
    /// Requests of a replay.
    pub requests: u64,
    /// How long the device needs for a replay of the data, in µs; `None` without a model.
    pub replay_us: Option<u64>,
    /// How long it needs for a program that reads in touch order without one, in µs.
    pub program_us: Option<u64>,
}

/// Before and after.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Gain {
    /// As it is.
    pub before: Reading,
    /// With the layout.
    pub after: Reading,
}

impl Gain {
    /// Of ranges in touch order, each with its extents now and then.
    pub fn of(before: &[Vec<Extent>], after: &[Vec<Extent>], model: Option<&Model>) -> Self {
        // Seeks are compared over one distance, that of both.
        let all = || before.iter().chain(after).flatten();
        let low = all().map(|e| e.physical).min().unwrap_or(0);
        let high = all().map(|e| e.physical.saturating_add(e.length)).max().unwrap_or(0);
        let span = high.saturating_sub(low);
        Self { before: reading(before, model, span), after: reading(after, model, span) }
    }

    /// The same of ranges that are compressed then: so many bytes have to be unpacked after reading. A
    /// replay does so on all of these CPUs while it reads on, a program waits for each.
    pub fn unpacked(mut self, bytes: u64, cpus: u32) -> Self {
        let us = bytes / UNPACKED_MB_S;
        let (replay, program) = (&mut self.after.replay_us, &mut self.after.program_us);
        *replay = replay.map(|read| read.max(us / u64::from(cpus.max(1))));
        *program = program.map(|read| read.saturating_add(us));
        self
    }

    /// Whether the layout is expected to save time; without a model, requests.
    pub fn is_expected(&self) -> bool {
        let saves = |before: u64, after: u64| {
            before.checked_sub(after).is_some_and(|saved| saved > before / LEAST_PART)
        };
        let (before, after) = (&self.before, &self.after);
        match (before.replay_us.zip(after.replay_us), before.program_us.zip(after.program_us)) {
            (Some((replay, then)), Some((program, later))) => {
                saves(replay, then) || saves(program, later)
            }
            _ => saves(before.requests, after.requests),
        }
    }
}

fn reading(pieces: &[Vec<Extent>], model: Option<&Model>, span: u64) -> Reading {
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
        true if model.is_some_and(|m| m.order() == Order::Elevator) => batched(&sorted, step),
        true => batched(&in_touch_order, step),
        false => count(&sorted, step),
    };
    let place = |e: &Extent| (DevicePosition { dev: 0, offset: e.physical }, e.length);
    let seeks = |list: &[Extent], model: &Model| {
        let parts: Vec<_> = list.iter().map(place).collect();
        Some(read_us(&parts, model.seek()?, span) as u64)
    };
    let replay_us = |m: &Model| seeks(&sorted, m).unwrap_or_else(|| m.read_us(requests, bytes));
    let waits: u64 = pieces.iter().map(|piece| count(piece, WINDOW)).sum();
    let program_us = |m: &Model| {
        let waited = waits.saturating_mul(m.latency_us.into());
        seeks(&touched, m).unwrap_or_else(|| waited.saturating_add(m.read_us(0, bytes)))
    };
    Reading {
        extents,
        jumps: (touched.len() as u64).saturating_sub(1),
        requests,
        replay_us: model.map(replay_us),
        program_us: model.map(program_us),
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

/// Requests of at most so many bytes for extents that are requested in one batch: the block layer joins
/// what continues the last request until that has [`PLUG`] bytes.
fn batched(extents: &[Extent], most: u64) -> u64 {
    let (mut requests, mut last, mut ends) = (0u64, u64::MAX, None);
    for extent in extents.iter().filter(|extent| extent.length > 0) {
        let first = extent.length.min(most);
        let is_joined = ends == Some(extent.physical) && last < PLUG && last + first <= most;
        requests = requests.saturating_add(extent.length.div_ceil(most) - u64::from(is_joined));
        last = match (extent.length > most, is_joined) {
            (true, _) => (extent.length - 1) % most + 1,
            (false, true) => last + first,
            (false, false) => first,
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
            let gain = Gain::of(&before, &after, model.as_ref());
            assert_eq!(gain.is_expected(), expected, "{name}: {gain:?}");
        }
    }

    #[test]
    fn adjacent_files_are_one_request_in_a_batch_and_the_program_waits_for_each_file() {
        let gain = Gain::of(&scattered(40, 4, 16384), &packed(40, 65536), Some(&HDD));
        let Gain { before, after } = gain;
        assert_eq!((before.extents, before.jumps, before.requests), (160, 159, 160));
        // On a disk whose bytes take longer than its requests, these are not batched.
        assert_eq!((after.extents, after.jumps, after.requests), (40, 0, 40));
        // On an eMMC they are, two files each.
        let gain = Gain::of(&scattered(40, 4, 16384), &packed(40, 65536), Some(&EMMC));
        assert_eq!((gain.before.requests, gain.after.requests), (160, 20));
        // One seek and 26 ms of transfer.
        assert_eq!((after.replay_us, after.program_us), (Some(34_414), Some(34_414)));
        assert!(before.program_us > before.replay_us && before.replay_us > Some(600_000));
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
            let gain = Gain::of(&lists, &lists, Some(&model));
            prop_assert_eq!(gain.before, gain.after);
            prop_assert!(!gain.is_expected());
        }
    }
}

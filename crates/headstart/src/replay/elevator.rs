//! The order in which a rotational disk reads steps. Pure.
//!
//! It is one pass, which begins where that suits the start best, or several passes, each with what
//! is touched later than all of the pass before.
//!
//! In one pass, what a start touches first arrives only when the disk's head gets there, while the
//! start waits. To begin there, and to return for what lies before it, costs one seek; each further
//! pass costs a seek back. The choice is computed: by how much the steps come too late, for each
//! beginning, or for all borders between a few parts of the touches. For several passes the times
//! of touches must not contain waits ([`crate::profile::pace`]); for one it made no difference.

use super::detours::with_detours;
use super::step::Step;
use crate::host::range::ByteRange;
use serde::Serialize;

/// What a seek costs.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
pub struct SeekCost {
    /// A random seek on the average, in µs.
    pub seek_us: u32,
    /// Bandwidth, in MB/s.
    pub mb_s: u32,
}

/// Where a step lies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DevicePosition {
    /// The number of its device.
    pub dev: u64,
    /// The position there, in bytes.
    pub offset: u64,
}

/// Steps are divided into so many parts by their touches, and passes consist of whole parts.
const PARTS: usize = 16;
/// Steps that may be gone through for all trials: some 10 ms. With more there are fewer parts.
const EFFORT: usize = 1_000_000;
/// Times are not exact: a longer order must make the latest step earlier by at least this part of
/// the additional time.
const CARE: f64 = 0.25;

/// In which passes steps are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passes {
    /// In one, which the disk makes of all requests.
    One,
    /// In one with detours, of few requests at a time.
    Detours,
    /// In several.
    Several,
}

/// A step with a known position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub(super) step: Step,
    pub(super) place: DevicePosition,
}

/// Sorts steps into the order in which they are read. `place` returns the position of each; steps
/// without one come last and keep their order. Without a seek cost it is one pass from the lowest
/// position; with one, a single pass begins where that is best.
pub fn order(
    steps: &[Step],
    place: impl Fn(&Step) -> Option<DevicePosition>,
    seek: Option<SeekCost>,
    passes: Passes,
) -> Vec<Step> {
    let (mut spots, mut rest) = (Vec::with_capacity(steps.len()), Vec::new());
    for &step in steps {
        match place(&step) {
            Some(place) => spots.push(Spot { step, place }),
            None => rest.push(step),
        }
    }
    spots.sort_by_key(|spot| spot.place);
    if let Some(seek) = seek {
        spots = Disk::new(spots, seek).ordered(passes);
    }
    spots.into_iter().map(|spot| spot.step).chain(rest).collect()
}

/// How long a disk needs to read these parts in this order, each given by position and bytes, in µs.
/// Seeks grow with their distance, as far as `span`, the size in bytes of the area that is read from.
pub fn read_us(parts: &[(DevicePosition, u64)], seek: SeekCost, span: u64) -> f64 {
    let spot = |&(place, length): &(DevicePosition, u64)| {
        let step = Step { target: 0, bytes: ByteRange::of(0, length), touched_us: 0 };
        Spot { step, place }
    };
    let disk = Disk::new(parts.iter().map(spot).collect(), seek);
    let disk = Disk { span: (span as f64).max(1.0), ..disk };
    disk.pass(&vec![0; disk.spots.len()], 0..1).takes
}

/// What a pass comes to, in µs.
#[derive(Clone, Copy, Debug)]
struct Cost {
    takes: f64,
    /// By how much a step comes later than it is touched, at most, if the pass begins with
    /// the start.
    late: f64,
}

/// When a step comes in elevator order, in µs.
#[derive(Clone, Copy, Debug)]
struct Coming {
    /// When all of it has come.
    at: f64,
    /// By how much that is after its touch.
    late: f64,
    /// The seek to it, in µs.
    moved: f64,
}

/// Passes over the first parts.
#[derive(Clone, Debug)]
struct Course {
    takes: f64,
    late: f64,
    /// The parts at which passes end.
    ends: Vec<usize>,
}

/// Steps as they lie on the disk.
struct Disk {
    /// In the order of their places.
    spots: Vec<Spot>,
    seek_us: f64,
    bytes_per_us: f64,
    /// The largest distance between two of them.
    span: f64,
}

impl Disk {
    /// From steps in the order of their positions.
    fn new(spots: Vec<Spot>, seek: SeekCost) -> Self {
        let end = spots.iter().map(|spot| spot.end().offset).max().unwrap_or(0);
        let begin = spots.iter().map(|spot| spot.place.offset).min().unwrap_or(0);
        Self {
            spots,
            seek_us: f64::from(seek.seek_us),
            bytes_per_us: f64::from(seek.mb_s.max(1)),
            span: (end.saturating_sub(begin) as f64).max(1.0),
        }
    }

    /// The steps in the order in which they are read.
    fn ordered(mut self, passes: Passes) -> Vec<Spot> {
        let detours = match passes {
            Passes::Detours => with_detours(&self.spots, |a, b| self.is_apart(a, b)),
            Passes::One | Passes::Several => None,
        };
        if let Some(spots) = detours {
            return spots;
        }
        if passes == Passes::Several {
            let ends = self.passes();
            // The order on the disk stays within each.
            self.spots.sort_by_key(|spot| ends.partition_point(|&end| end < spot.step.touched_us));
        } else {
            let begin = self.begin();
            self.spots.rotate_left(begin);
        }
        self.spots
    }

    /// Whether the head moves from one step to a later one, and does not read what lies between.
    fn is_apart(&self, a: &Spot, b: &Spot) -> bool {
        let between = b.place.offset.saturating_sub(a.end().offset) as f64 / self.bytes_per_us;
        a.place.dev != b.place.dev || self.seek_us(Some(a.end()), b.place) < between
    }

    /// The best step to begin a single pass with: it continues up the disk, then from the lowest
    /// position.
    fn begin(&self) -> usize {
        let (Some(lowest), Some(highest)) = (self.spots.first(), self.spots.last()) else {
            return 0;
        };
        // If the lowest is the first.
        let (mut head, mut takes) = (None, 0.0);
        let come = |spot: &Spot| {
            let moved = self.seek_us(head, spot.place);
            head = Some(spot.end());
            takes += moved + self.passing_us(spot);
            Coming { at: takes, late: takes - f64::from(spot.step.touched_us), moved }
        };
        let comes: Vec<Coming> = self.spots.iter().map(come).collect();
        // The latest of each and all behind it.
        let latest = |latest: &mut f64, coming: &Coming| {
            *latest = latest.max(coming.late);
            Some(*latest)
        };
        let mut above: Vec<f64> = comes.iter().rev().scan(f64::NEG_INFINITY, latest).collect();
        above.reverse();
        let back = self.seek_us(Some(highest.end()), lowest.place);
        let (mut best, mut found) = (f64::INFINITY, 0);
        let (mut passed, mut below) = (0.0, f64::NEG_INFINITY);
        for (number, (coming, above)) in comes.iter().zip(above).enumerate() {
            // What lies above comes so much sooner, and what lies below behind all of that: the
            // distances between its steps stay as they are.
            let sooner = passed + coming.moved - self.seek_us;
            let behind = takes - sooner + back - self.seek_us;
            let longer = if number == 0 { 0.0 } else { back - coming.moved };
            let cost = (above - sooner).max(behind + below) + CARE * longer;
            if cost < best {
                (best, found) = (cost, number);
            }
            (passed, below) = (coming.at, below.max(coming.late));
        }
        found
    }

    /// The last touches of all passes but the last one.
    fn passes(&self) -> Vec<u32> {
        let borders = self.borders();
        let parts = borders.len() + 1;
        let number = |spot: &Spot| borders.partition_point(|&end| end < spot.step.touched_us);
        let part_of: Vec<usize> = self.spots.iter().map(number).collect();
        // The best courses to each part: of two that take no longer the one that is later
        // is no use.
        let mut best = vec![vec![Course::default()]];
        for end in 1..=parts {
            let mut courses = Vec::new();
            for (begin, before) in best.iter().enumerate() {
                let cost = self.pass(&part_of, begin..end);
                courses.extend(before.iter().map(|course| course.and(cost, end)));
            }
            courses.sort_by(|a, b| a.takes.total_cmp(&b.takes));
            let mut least = f64::INFINITY;
            courses.retain(|course| {
                let is_better = course.late < least;
                least = least.min(course.late);
                is_better
            });
            best.push(courses);
        }
        let done = best.pop().unwrap_or_default();
        let cost = |course: &Course| course.late + CARE * course.takes;
        let best = done.into_iter().min_by(|a, b| cost(a).total_cmp(&cost(b)));
        let ends = best.map(|course| course.ends).unwrap_or_default();
        ends.iter().filter_map(|&end| borders.get(end - 1).copied()).collect()
    }

    /// The last touches of all parts but the last one.
    fn borders(&self) -> Vec<u32> {
        let mut touches: Vec<u32> = self.spots.iter().map(|spot| spot.step.touched_us).collect();
        touches.sort_unstable();
        let count = touches.len();
        // With n parts there are n² / 2 passes to compute.
        let parts = PARTS.min((2 * EFFORT / count.max(1)).isqrt());
        let mut borders: Vec<u32> =
            (1..parts).filter_map(|part| touches.get(count * part / parts).copied()).collect();
        borders.dedup();
        borders.retain(|border| Some(border) != touches.last());
        borders
    }

    /// A pass over these parts.
    fn pass(&self, part_of: &[usize], parts: std::ops::Range<usize>) -> Cost {
        let (mut head, mut takes, mut late) = (None, 0.0, f64::NEG_INFINITY);
        let spots = self.spots.iter().zip(part_of).filter(|(_, part)| parts.contains(*part));
        for (spot, _) in spots {
            takes += self.seek_us(head, spot.place) + self.passing_us(spot);
            late = f64::max(late, takes - f64::from(spot.step.touched_us));
            head = Some(spot.end());
        }
        Cost { takes, late }
    }

    /// How long a step passes below the head.
    fn passing_us(&self, spot: &Spot) -> f64 {
        spot.step.bytes.length() as f64 / self.bytes_per_us
    }

    /// The seek from the end of one step to the beginning of another: half of it is settling
    /// and rotation, half grows with the root of the distance, which is a third of the disk on
    /// the average. A short gap ahead is read.
    fn seek_us(&self, from: Option<DevicePosition>, to: DevicePosition) -> f64 {
        let Some(from) = from.filter(|from| from.dev == to.dev) else { return self.seek_us };
        let distance = from.offset.abs_diff(to.offset) as f64;
        let seek_us = self.seek_us / 2.0 * (1.0 + (3.0 * distance / self.span).sqrt());
        match to.offset >= from.offset {
            true => seek_us.min(distance / self.bytes_per_us),
            false => seek_us,
        }
    }
}

impl Default for Course {
    /// No pass.
    fn default() -> Self {
        Self { takes: 0.0, late: f64::NEG_INFINITY, ends: Vec::new() }
    }
}

impl Course {
    /// The same with one more pass, up to this part.
    fn and(&self, pass: Cost, end: usize) -> Self {
        let takes = self.takes + pass.takes;
        let late = self.late.max(self.takes + pass.late);
        Self { takes, late, ends: self.ends.iter().copied().chain([end]).collect() }
    }
}

impl Spot {
    fn end(&self) -> DevicePosition {
        let offset = self.place.offset.saturating_add(self.step.bytes.length());
        DevicePosition { offset, ..self.place }
    }
}

#[cfg(test)]
#[path = "elevator_tests.rs"]
mod tests;

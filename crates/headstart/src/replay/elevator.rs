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

/// A step with a known position.
#[derive(Clone, Copy, Debug)]
struct Spot {
    step: Step,
    place: DevicePosition,
}

/// Sorts steps into the order in which they are read. `place` returns the position of each; steps
/// without one come last and keep their order. Without a seek cost it is one pass from the lowest
/// position; with one, the pass begins where that is best, or there are `several` passes.
pub fn order(
    steps: &[Step],
    place: impl Fn(&Step) -> Option<DevicePosition>,
    seek: Option<SeekCost>,
    several: bool,
) -> Vec<Step> {
    let (mut spots, mut rest) = (Vec::with_capacity(steps.len()), Vec::new());
    for &step in steps {
        match place(&step) {
            Some(place) => spots.push(Spot { step, place }),
            None => rest.push(step),
        }
    }
    spots.sort_by_key(|spot| spot.place);
    match seek {
        Some(seek) if several => {
            let disk = Disk::new(spots, seek);
            let ends = disk.passes();
            spots = disk.spots;
            // The order on the disk stays within each.
            spots.sort_by_key(|spot| ends.partition_point(|&end| end < spot.step.touched_us));
        }
        Some(seek) => {
            let disk = Disk::new(spots, seek);
            let begin = disk.begin();
            spots = disk.spots;
            spots.rotate_left(begin);
        }
        None => {}
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
mod tests {
    use super::*;
    use crate::host::range::ByteRange;
    use proptest::prelude::*;

    const ROTATIONAL: SeekCost = SeekCost { seek_us: 8000, mb_s: 100 };
    const MIB: u64 = 1 << 20;

    /// Steps of so many bytes, touched at these times, that lie at `place` MiB; the index of
    /// each is its target.
    fn steps(list: &[(u64, u64, u32)]) -> (Vec<Step>, Vec<Option<DevicePosition>>) {
        let step = |(target, &(_, length, touched_us))| {
            let target = u32::try_from(target).unwrap();
            Step { target, bytes: ByteRange::of(0, length), touched_us }
        };
        let place =
            |&(place, ..): &(u64, u64, u32)| Some(DevicePosition { dev: 7, offset: place * MIB });
        (list.iter().enumerate().map(step).collect(), list.iter().map(place).collect())
    }

    const NO_SEEK_COST: (Option<SeekCost>, bool) = (None, false);
    const ONE: (Option<SeekCost>, bool) = (Some(ROTATIONAL), false);
    const SEVERAL: (Option<SeekCost>, bool) = (Some(ROTATIONAL), true);

    fn targets(
        (steps, places): (&[Step], &[Option<DevicePosition>]),
        (seek, several): (Option<SeekCost>, bool),
    ) -> Vec<u32> {
        let ordered = order(steps, |step| places[step.target as usize], seek, several);
        ordered.iter().map(|step| step.target).collect()
    }

    fn disk(steps: &[Step], places: &[Option<DevicePosition>]) -> Disk {
        let spot = |&step: &Step| Some(Spot { step, place: places[step.target as usize]? });
        let mut spots: Vec<Spot> = steps.iter().filter_map(spot).collect();
        spots.sort_by_key(|spot| spot.place);
        Disk::new(spots, ROTATIONAL)
    }

    #[test]
    fn without_an_arm_steps_go_up_each_device_and_those_without_a_place_come_last() {
        let (steps, mut places) = steps(&[(9, 8, 0), (1, 8, 1), (5, 8, 2), (3, 8, 3), (0, 8, 4)]);
        places[3] = None;
        places[4] = Some(DevicePosition { dev: 2, offset: 90 * MIB });
        assert_eq!(targets((&steps, &places), NO_SEEK_COST), [4, 1, 2, 0, 3]);
    }

    #[test]
    fn a_new_pass_begins_where_what_is_touched_first_gains_more_than_the_seeks_cost() {
        for (name, list, expected) in [
            (
                "a large late file before what is wanted at once",
                &[(0, 40 * MIB, 400_000), (50, MIB, 0), (60, MIB, 100), (70, MIB, 200)][..],
                &[1, 2, 3, 0][..],
            ),
            (
                "all is wanted at once",
                &[(0, 40 * MIB, 30), (50, MIB, 0), (60, MIB, 10), (70, MIB, 20)],
                &[0, 1, 2, 3],
            ),
            (
                "three groups, each while the one before is computed with",
                &[
                    (0, 20 * MIB, 900_000),
                    (30, 20 * MIB, 300_000),
                    (60, 20 * MIB, 0),
                    (61, 20 * MIB, 900_001),
                    (90, 20 * MIB, 300_001),
                ],
                &[2, 1, 4, 0, 3],
            ),
            (
                "the same of a start that computes for seconds first",
                &[(0, 40 * MIB, 9_400_000), (50, MIB, 9_000_000), (60, MIB, 9_000_100)],
                &[1, 2, 0],
            ),
        ] {
            let (steps, places) = steps(list);
            assert_eq!(targets((&steps, &places), SEVERAL), expected, "{name}");
        }
    }

    #[test]
    fn a_pass_begins_where_the_start_does_and_goes_back_for_the_rest() {
        for (name, list, expected) in [
            (
                "what is wanted at once lies behind a large late file",
                &[(0, 40 * MIB, 400_000), (50, MIB, 0), (60, MIB, 100), (70, MIB, 200)][..],
                &[1, 2, 3, 0][..],
            ),
            ("all is wanted at once", &[(0, 40 * MIB, 0), (50, MIB, 0), (60, MIB, 0)], &[0, 1, 2]),
            (
                "what is wanted at once lies first",
                &[(0, MIB, 0), (50, 40 * MIB, 400_000), (95, MIB, 500_000)],
                &[0, 1, 2],
            ),
            ("nothing", &[], &[]),
        ] {
            let (steps, places) = steps(list);
            assert_eq!(targets((&steps, &places), ONE), expected, "{name}");
        }
    }

    #[test]
    fn a_move_is_passing_by_where_that_is_shorter_and_grows_with_its_way() {
        let list = [(0, MIB - 4096, 0), (1, MIB, 0), (9, MIB, 0), (300, MIB, 0)];
        let (steps, places) = steps(&list);
        let disk = disk(&steps, &places);
        let from =
            |at: usize, to: usize| disk.seek_us(Some(disk.spots[at].end()), disk.spots[to].place);
        assert_eq!(from(0, 1), 4096.0 / 100.0);
        let (short, long, back) = (from(1, 2), from(1, 3), from(3, 0));
        assert!(4000.0 < short && short < long && long <= back, "{short} {long} {back}");
        assert!(long > 8000.0 && long < 12_000.0, "{long}");
    }

    proptest! {
        #[test]
        fn every_step_is_read_once_and_passes_go_up_the_disk(
            list in prop::collection::vec((0u64..2000, 0..4 * MIB, 0u32..2_000_000), 0..60),
            devices in prop::collection::vec(prop::option::of(0u64..2), 60),
        ) {
            let (steps, mut places) = steps(&list);
            for (place, device) in places.iter_mut().zip(&devices) {
                *place = place.zip(*device).map(|(at, dev)| DevicePosition { dev, ..at });
            }
            let read = targets((&steps, &places), SEVERAL);
            let placed: Vec<u32> =
                read.iter().copied().filter(|&t| places[t as usize].is_some()).collect();
            prop_assert_eq!(&read[..placed.len()], &placed);
            let disk = disk(&steps, &places);
            let ends = disk.passes();
            let of = |t: u32| ends.partition_point(|&end| end < steps[t as usize].touched_us);
            for pair in placed.windows(2) {
                let key = |t: u32| (of(t), places[t as usize]);
                prop_assert!(key(pair[0]) <= key(pair[1]));
            }
            // One pass begins somewhere, and goes on from the lowest place.
            let one = targets((&steps, &places), ONE);
            let ups: Vec<_> = one.iter().filter_map(|&t| places[t as usize]).collect();
            let downs = ups.windows(2).filter(|pair| pair[1] < pair[0]).count();
            prop_assert!(downs == 0 || downs == 1 && ups.last() <= ups.first());
            for mut all in [read, one] {
                all.sort_unstable();
                prop_assert!(all.iter().copied().eq(0..list.len() as u32));
            }
        }

        #[test]
        fn no_other_begin_of_one_pass_is_better_as_far_as_computed(
            list in prop::collection::vec((0u64..2000, 1..4 * MIB, 0u32..2_000_000), 1..40),
            devices in prop::collection::vec(0u64..2, 40),
        ) {
            let (steps, mut places) = steps(&list);
            for (place, device) in places.iter_mut().zip(devices) {
                *place = place.map(|at| DevicePosition { dev: device, ..at });
            }
            let disk = disk(&steps, &places);
            let cost = |begin: usize| {
                let mut spots = disk.spots.clone();
                spots.rotate_left(begin);
                let cost = Disk { spots, ..disk }.pass(&vec![0; list.len()], 0..1);
                cost.late + CARE * cost.takes
            };
            let found = cost(disk.begin());
            for begin in 0..list.len() {
                prop_assert!(found <= cost(begin) + 1e-3, "{begin}: {found} {}", cost(begin));
            }
        }

        #[test]
        fn no_course_is_later_than_one_pass_as_far_as_computed(
            list in prop::collection::vec((0u64..2000, 1..4 * MIB, 0u32..2_000_000), 1..60),
        ) {
            let (steps, places) = steps(&list);
            let disk = disk(&steps, &places);
            let ends = disk.passes();
            let part_of: Vec<usize> = disk.spots.iter()
                .map(|spot| ends.partition_point(|&end| end < spot.step.touched_us)).collect();
            let course = (0..=ends.len()).fold(Course::default(), |course, n| {
                course.and(disk.pass(&part_of, n..n + 1), n + 1)
            });
            let one = Course::default().and(disk.pass(&vec![0; part_of.len()], 0..1), 1);
            prop_assert!(course.late <= one.late + 1e-6 && course.takes >= 0.0);
        }
    }
}

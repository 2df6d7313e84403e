//! In which order a disk with an arm reads steps: in one sweep, or in two, of which the
//! second reads what is touched late and lies together. Pure.
//!
//! A sweep brings what a program touches first only when the arm comes there, and the
//! program computes nothing meanwhile. What it touches late is therefore left for a
//! second sweep, where that saves the first one more than the arm needs to come back;
//! what lies between early steps is read in passing. Which touch counts as late is
//! decided by computing when the program would be through.

use super::plan::Step;
use serde::Serialize;

/// What moving an arm costs.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
pub struct Arm {
    /// A move to anywhere on the average, in µs.
    pub move_us: u32,
    /// What passes below it meanwhile, in MB/s.
    pub mb_s: u32,
}

/// Where a step lies: the number of its device, and the position there in bytes.
pub type Place = (u64, u64);

/// Longer between two touches a program does not compute but wait, in µs, as far as
/// that can be told: it was seen in starts that waited for an arm.
const WAITS_US: u32 = 20_000;
/// Touches are divided into so many parts; the begin of each but the first is tried as the
/// border between early and late.
const PARTS: usize = 16;
/// Half moves that leaving a stretch for later has to save, as tried.
const WORTH: [u32; 3] = [0, 1, 2];
/// Steps that may be gone through for all trials: some 10 ms. With more the order stays
/// that of one sweep.
const EFFORT: usize = 500_000;
/// Computed gains below this part of the time are not worth leaving the order of the disk.
const CLEARLY: f64 = 0.01;

/// A step with a place.
#[derive(Clone, Copy, Debug)]
struct Spot {
    step: Step,
    place: Place,
    /// What the program has computed when it touches it, in µs.
    computed: f64,
}

/// Puts steps into the order in which they are read. `place` tells where each lies; those
/// without one come last and keep their order. Without an arm it is one sweep.
pub fn order(
    steps: &[Step],
    place: impl Fn(&Step) -> Option<Place>,
    arm: Option<Arm>,
) -> Vec<Step> {
    let (mut spots, mut rest) = (Vec::with_capacity(steps.len()), Vec::new());
    for &step in steps {
        match place(&step) {
            Some(place) => spots.push(Spot { step, place, computed: 0.0 }),
            None => rest.push(step),
        }
    }
    spots.sort_by_key(|spot| spot.place);
    if let Some(arm) = arm {
        let disk = Disk::new(spots, arm);
        let order = disk.two_sweeps();
        spots = match order {
            Some(order) => order.into_iter().map(|at| disk.spots[at]).collect(),
            None => disk.spots,
        };
    }
    spots.into_iter().map(|spot| spot.step).chain(rest).collect()
}

/// Steps as they lie on the disk.
struct Disk {
    /// In the order of their places.
    spots: Vec<Spot>,
    /// Their indices as they are touched.
    touched: Vec<usize>,
    half_move: f64,
    bytes_per_us: f64,
    /// How far apart they lie at most.
    span: f64,
}

impl Disk {
    /// Of steps in the order of their places.
    fn new(mut spots: Vec<Spot>, arm: Arm) -> Self {
        let mut touched: Vec<usize> = (0..spots.len()).collect();
        touched.sort_by_key(|&at| spots[at].step.touched_us);
        let (mut last, mut computed) = (0, 0.0);
        for &at in &touched {
            let now = spots[at].step.touched_us;
            computed += f64::from((now - last).min(WAITS_US));
            (last, spots[at].computed) = (now, computed);
        }
        let end = spots.iter().map(|spot| spot.end().1).max().unwrap_or(0);
        let begin = spots.iter().map(|spot| spot.place.1).min().unwrap_or(0);
        Self {
            spots,
            touched,
            half_move: f64::from(arm.move_us) / 2.0,
            bytes_per_us: f64::from(arm.mb_s.max(1)),
            span: (end.saturating_sub(begin) as f64).max(1.0),
        }
    }

    /// The order of the best two sweeps, as indices; `None` where one is as good.
    fn two_sweeps(&self) -> Option<Vec<usize>> {
        let one: Vec<usize> = (0..self.spots.len()).collect();
        if one.is_empty() {
            return None;
        }
        let parts = PARTS.min(EFFORT / (one.len() * WORTH.len()));
        let mut best = (self.through_at(&one) * (1.0 - CLEARLY), None);
        for part in 1..parts {
            let late = self.spots[self.touched[one.len() * part / parts]].computed;
            for worth in WORTH {
                let order = self.split(late, f64::from(worth) * self.half_move);
                let through = self.through_at(&order);
                if through < best.0 {
                    best = (through, Some(order));
                }
            }
        }
        best.1
    }

    /// Two sweeps: what is touched late comes second, as far as each stretch of it that
    /// lies between early steps saves the first sweep more than `worth`, in µs.
    fn split(&self, late: f64, worth: f64) -> Vec<usize> {
        let (mut first, mut second) = (Vec::with_capacity(self.spots.len()), Vec::new());
        let mut at = 0;
        while at < self.spots.len() {
            let is_late = |at: &usize| self.spots[*at].computed > late;
            let end = (at..self.spots.len()).find(|at| !is_late(at)).unwrap_or(self.spots.len());
            let stretch = at..end;
            if self.saved_by_passing(first.last().copied(), stretch.clone()) > worth {
                second.extend(stretch);
            } else {
                first.extend(stretch);
            }
            first.extend((end < self.spots.len()).then_some(end));
            at = end + 1;
        }
        first.append(&mut second);
        first
    }

    /// What the first sweep saves by passing a stretch after what it read `before`.
    fn saved_by_passing(&self, before: Option<usize>, stretch: std::ops::Range<usize>) -> f64 {
        let next = Some(stretch.end).filter(|&at| at < self.spots.len());
        let (mut head, mut reading) = (before, 0.0);
        for at in stretch {
            reading += self.move_us(head, at) + self.transfer_us(at);
            head = Some(at);
        }
        let to_next = |head| next.map_or(0.0, |next| self.move_us(head, next));
        reading + to_next(head) - to_next(before)
    }

    /// When a program that waits for each step in the order of its touches is through, in
    /// µs, when they are read in this order.
    fn through_at(&self, order: &[usize]) -> f64 {
        let mut arrivals = vec![0.0; self.spots.len()];
        let (mut head, mut now) = (None, 0.0);
        for &at in order {
            now += self.move_us(head, at) + self.transfer_us(at);
            (head, arrivals[at]) = (Some(at), now);
        }
        let (mut clock, mut last): (f64, f64) = (0.0, 0.0);
        for &at in &self.touched {
            let computed = self.spots[at].computed;
            clock = (clock + computed - last).max(arrivals[at]);
            last = computed;
        }
        clock
    }

    fn transfer_us(&self, at: usize) -> f64 {
        self.spots[at].step.length as f64 / self.bytes_per_us
    }

    /// The move from the end of one step to the begin of another: half of it is settling
    /// and turning, half grows with the root of the way, which is a third of the disk on
    /// the average. A short way ahead is passed by reading.
    fn move_us(&self, from: Option<usize>, to: usize) -> f64 {
        let to = self.spots[to].place;
        let Some(from) = from.map(|at| self.spots[at].end()) else { return self.half_move };
        if from.0 != to.0 {
            return 2.0 * self.half_move;
        }
        let way = from.1.abs_diff(to.1) as f64;
        let moved = self.half_move * (1.0 + (3.0 * way / self.span).sqrt());
        match to.1 >= from.1 {
            true => moved.min(way / self.bytes_per_us),
            false => moved,
        }
    }
}

impl Spot {
    fn end(&self) -> Place {
        (self.place.0, self.place.1.saturating_add(self.step.length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ARM: Arm = Arm { move_us: 8000, mb_s: 100 };
    const MIB: u64 = 1 << 20;

    /// Steps of so many bytes, touched at these times, that lie at `place` MiB; the index of
    /// each is its target.
    fn steps(list: &[(u64, u64, u32)]) -> (Vec<Step>, Vec<Option<Place>>) {
        let step = |(target, &(_, length, touched_us))| {
            let target = u32::try_from(target).unwrap();
            Step { target, offset: 0, length, touched_us }
        };
        let place = |&(place, ..): &(u64, u64, u32)| Some((7, place * MIB));
        (list.iter().enumerate().map(step).collect(), list.iter().map(place).collect())
    }

    fn targets(steps: &[Step], places: &[Option<Place>], arm: Option<Arm>) -> Vec<u32> {
        let ordered = order(steps, |step| places[step.target as usize], arm);
        ordered.iter().map(|step| step.target).collect()
    }

    fn disk(steps: &[Step], places: &[Option<Place>]) -> Disk {
        let spot =
            |&step: &Step| Some(Spot { step, place: places[step.target as usize]?, computed: 0.0 });
        let mut spots: Vec<Spot> = steps.iter().filter_map(spot).collect();
        spots.sort_by_key(|spot| spot.place);
        Disk::new(spots, ARM)
    }

    #[test]
    fn without_an_arm_steps_go_up_each_device_and_those_without_a_place_come_last() {
        let (steps, mut places) = steps(&[(9, 8, 0), (1, 8, 1), (5, 8, 2), (3, 8, 3), (0, 8, 4)]);
        places[3] = None;
        places[4] = Some((2, 90 * MIB));
        assert_eq!(targets(&steps, &places, None), [4, 1, 2, 0, 3]);
    }

    #[test]
    fn what_is_touched_late_waits_where_the_arm_gains_more_than_its_way_back() {
        for (name, list, expected) in [
            (
                "a large late file before what is wanted at once",
                &[(0, 40 * MIB, 400_000), (50, MIB, 0), (60, MIB, 100), (70, MIB, 200_000)][..],
                &[1, 2, 3, 0][..],
            ),
            (
                "a small one is read in passing",
                &[(51, 4096, 400_000), (50, MIB, 0), (60, MIB, 100), (70, MIB, 200_000)],
                &[1, 0, 2, 3],
            ),
            (
                "all is wanted at once",
                &[(0, 40 * MIB, 30), (50, MIB, 0), (60, MIB, 10), (70, MIB, 20)],
                &[0, 1, 2, 3],
            ),
        ] {
            let computing = (0..20).map(|i| (51, 0, i * 20_000));
            let list: Vec<_> = list.iter().copied().chain(computing).collect();
            let (steps, places) = steps(&list);
            let mut read = targets(&steps, &places, Some(ARM));
            read.retain(|&target| steps[target as usize].length > 0);
            assert_eq!(read, expected, "{name}");
        }
    }

    #[test]
    fn a_long_time_without_a_touch_counts_as_waiting() {
        let list = [(0, 40 * MIB, 4_000_000), (50, MIB, 0), (60, MIB, 100)];
        let (steps, places) = steps(&list);
        let disk = disk(&steps, &places);
        assert_eq!(disk.spots[0].computed, 100.0 + f64::from(WAITS_US));
    }

    #[test]
    fn a_move_is_passing_by_where_that_is_shorter_and_grows_with_its_way() {
        let list = [(0, MIB - 4096, 0), (1, MIB, 0), (9, MIB, 0), (300, MIB, 0)];
        let (steps, places) = steps(&list);
        let disk = disk(&steps, &places);
        assert_eq!(disk.move_us(Some(0), 1), 4096.0 / 100.0);
        let [short, long, back] =
            [(1, 2), (1, 3), (3, 0)].map(|(from, to)| disk.move_us(Some(from), to));
        assert!(4000.0 < short && short < long && long <= back, "{short} {long} {back}");
        assert!(long > 8000.0 && long < 12_000.0, "{long}");
    }

    proptest! {
        #[test]
        fn every_step_is_read_once_and_never_later_than_in_one_sweep_as_far_as_computed(
            list in proptest::collection::vec((0u64..2000, 0..4 * MIB, 0u32..900_000), 0..60),
            without in proptest::collection::vec(any::<bool>(), 60),
        ) {
            let (steps, mut places) = steps(&list);
            for (place, without) in places.iter_mut().zip(&without) {
                *place = place.filter(|_| !without);
            }
            let mut read = targets(&steps, &places, Some(ARM));
            read.sort_unstable();
            prop_assert!(read.iter().copied().eq(0..list.len() as u32));
            let disk = disk(&steps, &places);
            let one: Vec<usize> = (0..disk.spots.len()).collect();
            if let Some(two) = disk.two_sweeps() {
                prop_assert!(disk.through_at(&two) < disk.through_at(&one));
            }
        }
    }
}

//! Tests of the order in which a rotational disk reads.

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

const NO_SEEK_COST: (Option<SeekCost>, Passes) = (None, Passes::One);
const ONE: (Option<SeekCost>, Passes) = (Some(ROTATIONAL), Passes::One);
const SEVERAL: (Option<SeekCost>, Passes) = (Some(ROTATIONAL), Passes::Several);
const DETOURS: (Option<SeekCost>, Passes) = (Some(ROTATIONAL), Passes::Detours);

fn targets(
    (steps, places): (&[Step], &[Option<DevicePosition>]),
    (seek, passes): (Option<SeekCost>, Passes),
) -> Vec<u32> {
    let ordered = order(steps, |step| places[step.target as usize], seek, passes);
    ordered.iter().map(|step| step.target).collect()
}

fn disk(steps: &[Step], places: &[Option<DevicePosition>]) -> Disk {
    let spot = |&step: &Step| Some(Spot { step, place: places[step.target as usize]? });
    let mut spots: Vec<Spot> = steps.iter().filter_map(spot).collect();
    spots.sort_by_key(|spot| spot.place);
    Disk::new(spots, ROTATIONAL)
}

#[test]
fn without_a_seek_cost_steps_go_up_each_device_and_those_without_a_place_come_last() {
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
fn with_few_requests_at_a_time_what_lies_apart_is_read_when_it_is_needed() {
    for (name, list, expected) in [
        (
            "an area apart",
            &[(0, MIB, 375_000), (90, 9 * MIB, 0), (99, 9 * MIB, 200_000), (108, MIB, 400_000)][..],
            &[1, 2, 0, 3][..],
        ),
        (
            "a gap that is read is no area of its own",
            &[(89, MIB - 8192, 300_000), (90, 9 * MIB, 0), (99, 9 * MIB, 200_000)],
            &[0, 1, 2],
        ),
        (
            "all lie apart, so that it begins where that is best",
            &[(0, 40 * MIB, 400_000), (50, 39 * MIB, 0), (110, MIB, 100), (170, MIB, 200)],
            &[1, 2, 3, 0],
        ),
    ] {
        let (steps, mut places) = steps(list);
        assert_eq!(targets((&steps, &places), DETOURS), expected, "{name}");
        places[0] = places[0].map(|place| DevicePosition { dev: 2, ..place });
        assert_eq!(targets((&steps, &places), DETOURS).len(), list.len(), "{name}");
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

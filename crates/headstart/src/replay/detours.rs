//! A pass over a rotational disk with detours: small areas apart from the one that holds most are read when
//! the start needs them, and not before or behind all of it. Pure.
//!
//! This takes a disk that has few requests at a time: of many it serves the nearest first.

use super::elevator::Spot;
use std::cmp::Reverse;

/// With more areas than this apart from the largest it is a pass without detours: each costs two seeks.
const MOST: usize = 16;
/// Detours with fewer bytes of the largest area between them are made at once.
const TOGETHER: u64 = 4 << 20;
/// A start may come to an area by so much earlier than it did before, or the pass be behind it, in µs.
const EARLIER_US: u32 = 150_000;

/// An area that is read apart from the largest.
struct Detour<'a> {
    /// Before which spot of the largest.
    before: usize,
    spots: &'a [Spot],
}

/// The order with detours of spots in the order of their places; `None` if it takes too many, or no area holds most
/// bytes. `is_apart`: whether the disk moves between two spots.
pub(super) fn with_detours(
    spots: &[Spot],
    is_apart: impl Fn(&Spot, &Spot) -> bool,
) -> Option<Vec<Spot>> {
    let areas: Vec<&[Spot]> = spots.chunk_by(|a, b| !is_apart(a, b)).collect();
    let largest =
        (0..areas.len()).max_by_key(|number| (bytes(areas[*number]), Reverse(*number)))?;
    let main = areas[largest];
    if areas.len() > MOST + 1 || bytes(main) < bytes(spots) / 2 {
        return None;
    }
    let others = areas.iter().enumerate().filter(|(number, _)| *number != largest);
    let mut detours: Vec<_> = others
        .map(|(_, area)| Detour { before: place_between(main, first_touch(area)), spots: area })
        .collect();
    // Those of one place stay in the order of the disk.
    detours.sort_by_key(|detour| detour.before);
    let mut last = 0;
    for detour in &mut detours {
        if bytes(&main[last..detour.before]) < TOGETHER {
            detour.before = last;
        }
        last = detour.before;
    }
    let (mut out, mut done) = (Vec::with_capacity(spots.len()), 0);
    for detours in detours.chunk_by_mut(|a, b| a.before == b.before) {
        out.extend_from_slice(&main[done..detours[0].before]);
        done = detours[0].before;
        detours.sort_by_key(|detour| detour.spots[0].place);
        detours.iter().for_each(|detour| out.extend_from_slice(detour.spots));
    }
    out.extend_from_slice(&main[done..]);
    Some(out)
}

/// Before which spot what is touched `at` fits best: the fewest bytes are on the wrong side.
fn place_between(main: &[Spot], at: u32) -> usize {
    let is_later = |spot: &Spot| spot.step.touched_us > at.saturating_sub(EARLIER_US);
    let signed = |spot: &Spot| {
        let bytes = i128::from(spot.step.bytes.length());
        if is_later(spot) { bytes } else { -bytes }
    };
    // How many bytes more are wrong than before the first.
    let (mut wrong, mut least, mut best) = (0, 0, 0);
    for (number, spot) in (1..).zip(main) {
        wrong += signed(spot);
        if wrong < least {
            (least, best) = (wrong, number);
        }
    }
    best
}

fn bytes(spots: &[Spot]) -> u64 {
    spots.iter().fold(0, |sum, spot| spot.step.bytes.length().saturating_add(sum))
}

fn first_touch(spots: &[Spot]) -> u32 {
    spots.iter().map(|spot| spot.step.touched_us).min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::elevator::DevicePosition;
    use super::super::step::Step;
    use super::*;
    use crate::host::range::ByteRange;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;
    const MS: u32 = 1000;

    /// Spots at `place` MiB, of so many MiB, touched at these times in ms.
    fn spots(list: &[(u64, u64, u32)]) -> Vec<Spot> {
        let spot = |(number, &(place, length, at)): (usize, &(u64, u64, u32))| Spot {
            step: Step {
                target: number as u32,
                bytes: ByteRange::of(0, length * MIB),
                touched_us: at * MS,
            },
            place: DevicePosition { dev: 7, offset: place * MIB },
        };
        list.iter().enumerate().map(spot).collect()
    }

    fn is_apart(a: &Spot, b: &Spot) -> bool {
        a.place.offset + a.step.bytes.length() + MIB < b.place.offset
    }

    fn targets(spots: &[Spot]) -> Option<Vec<u32>> {
        let found = with_detours(spots, is_apart)?;
        Some(found.iter().map(|spot| spot.step.target).collect())
    }

    #[test]
    fn what_lies_apart_is_read_when_it_is_needed() {
        let area: Vec<_> = (0..6).map(|n| (100 + 5 * n, 5, n as u32 * 100)).collect();
        let with = |others: &[(u64, u64, u32)]| {
            let mut list: Vec<_> = area.iter().chain(others).copied().collect();
            list.sort_unstable();
            list
        };
        let halves = vec![(0, 5, 0), (20, 4, 0), (40, 5, 0)];
        let many: Vec<_> = (0..18).map(|n| (5 * n, 1, 0)).collect();
        for (name, list, expected) in [
            ("nothing lies apart", area.clone(), Some(vec![0, 1, 2, 3, 4, 5])),
            ("before it", with(&[(10, 1, 420)]), Some(vec![1, 2, 3, 0, 4, 5, 6])),
            ("behind it", with(&[(200, 1, 420)]), Some(vec![0, 1, 2, 6, 3, 4, 5])),
            ("of the beginning", with(&[(200, 1, 120)]), Some(vec![0, 6, 1, 2, 3, 4, 5])),
            ("last of all", with(&[(10, 1, 1000)]), Some(vec![1, 2, 3, 4, 5, 6, 0])),
            (
                "two at about the same time, in the order of the disk",
                with(&[(10, 1, 425), (200, 1, 420)]),
                Some(vec![1, 2, 3, 0, 7, 4, 5, 6]),
            ),
            (
                "two at different times",
                with(&[(10, 1, 540), (200, 1, 220)]),
                Some(vec![1, 7, 2, 3, 4, 0, 5, 6]),
            ),
            ("no area holds most", halves, None),
            ("too many lie apart", with(&many), None),
            ("nothing", vec![], None),
        ] {
            assert_eq!(targets(&spots(&list)), expected, "{name}");
        }
    }

    #[test]
    fn detours_with_little_between_them_are_made_at_once() {
        let mut list: Vec<_> = (0..40).map(|n| (100 + n, 1, n as u32 * 100)).collect();
        // Three MiB of the area between the first two, and eleven between the last two.
        list.splice(0..0, [(10, 1, 1150), (20, 1, 1450), (30, 1, 2250)]);
        let found = targets(&spots(&list)).unwrap();
        let at = |target| found.iter().position(|found| *found == target).unwrap();
        assert_eq!((at(0), at(1), at(2)), (11, 12, 24), "{found:?}");
    }

    proptest! {
        #[test]
        fn every_spot_is_read_once_and_the_largest_area_goes_up(
            list in prop::collection::vec((0u64..400, 0u64..9, 0u32..2000), 0..60),
        ) {
            let mut list = list;
            list.sort_unstable();
            let all = spots(&list);
            let Some(found) = with_detours(&all, is_apart) else { return Ok(()) };
            let mut targets: Vec<u32> = found.iter().map(|spot| spot.step.target).collect();
            let areas: Vec<&[Spot]> = all.chunk_by(|a, b| !is_apart(a, b)).collect();
            for area in areas {
                let places: Vec<_> = found.iter().filter(|spot| {
                    area.iter().any(|of| of.step.target == spot.step.target)
                }).map(|spot| spot.place).collect();
                prop_assert!(places.is_sorted());
            }
            targets.sort_unstable();
            prop_assert!(targets.into_iter().eq(0..list.len() as u32));
        }
    }
}

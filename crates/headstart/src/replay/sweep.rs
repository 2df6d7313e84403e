//! In which order a disk with an arm reads steps: in one sweep. Pure.
//!
//! It does not ask what is touched late: leaving that for a second sweep lost where it was
//! tried with packs of the same disk (doc/replay.md).

use super::plan::Step;

/// Where a step lies: the number of its device, and the position there in bytes.
pub type Place = (u64, u64);

/// Puts steps into the order in which they are read. `place` tells where each lies; those
/// without one come last and keep their order.
pub fn order(steps: &[Step], place: impl Fn(&Step) -> Option<Place>) -> Vec<Step> {
    let mut placed: Vec<(Option<Place>, Step)> =
        steps.iter().map(|step| (place(step), *step)).collect();
    placed.sort_by_key(|(place, _)| (place.is_none(), *place));
    placed.into_iter().map(|(_, step)| step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn step(target: u32) -> Step {
        Step { target, offset: 0, length: 8, touched_us: target }
    }

    fn targets(places: &[Option<Place>]) -> Vec<u32> {
        let steps: Vec<Step> = (0..).zip(places).map(|(target, _)| step(target)).collect();
        let ordered = order(&steps, |step| places[step.target as usize]);
        ordered.iter().map(|step| step.target).collect()
    }

    #[test]
    fn steps_go_up_each_device_and_those_without_a_place_come_last() {
        let places = [Some((7, 9)), None, Some((7, 1)), Some((7, 5)), None, Some((2, 90))];
        assert_eq!(targets(&places), [5, 2, 3, 0, 1, 4]);
    }

    proptest! {
        #[test]
        fn each_step_comes_once(places in prop::collection::vec(
            prop::option::of((0u64..3, 0u64..1000)), 0..50,
        )) {
            let mut found = targets(&places);
            found.sort_unstable();
            prop_assert_eq!(found, (0..).take(places.len()).collect::<Vec<u32>>());
        }
    }
}

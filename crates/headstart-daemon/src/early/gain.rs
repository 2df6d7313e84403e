//! Whether a program that may start is prefetched now: only if that gains more than it costs, as the
//! model of the device has it. Pure.
//!
//! The program would be prefetched at its start, too. What is gained is the part of the device's time
//! that the start still waits for then: in `doc/replay.md` ("Starts above the bound") prefetched starts
//! take 0.51 to 0.96 of that time longer than hot ones. What it costs is its CPU time, and the device's
//! time if the program does not start.

use headstart::replay::benefit::Expected;

/// The part of the device's time that a prefetched start waits for.
const WAITED: f64 = 0.5;

/// Whether the gain of a program that starts with this chance exceeds the cost.
pub fn pays_off(chance: f64, expected: &Expected) -> bool {
    let read_us = expected.read_us as f64;
    let gain_us = chance * WAITED * read_us;
    let cost_us = expected.cost_us as f64 + (1.0 - chance) * read_us;
    gain_us > cost_us
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn expected(read_us: u64, cost_us: u64) -> Expected {
        Expected { waits: 0, wait_us: 0, least_wait_us: 0, read_us, start_us: 0, cost_us }
    }

    #[test]
    fn only_what_takes_a_while_and_very_likely_starts_is_prefetched() {
        for (what, chance, read_us, wanted) in [
            ("very likely", 0.8, 1_000_000, true),
            ("as likely as not", 0.5, 1_000_000, false),
            ("two of three, and the CPU time", 0.667, 1_000_000, false),
            ("read in no time", 0.94, 10_000, false),
            ("nothing to read", 1.0, 0, false),
            ("a wrong chance", f64::NAN, 1_000_000, false),
        ] {
            assert_eq!(pays_off(chance, &expected(read_us, 5000)), wanted, "{what}");
        }
    }

    proptest! {
        #[test]
        fn a_larger_chance_never_makes_it_worse_and_below_two_of_three_it_never_pays(
            chance in 0.0f64..=1.0, more in 0.0f64..=1.0, read_us: u32, cost_us: u32
        ) {
            let expected = expected(read_us.into(), cost_us.into());
            let better = chance + (1.0 - chance) * more;
            prop_assert!(!pays_off(chance, &expected) || pays_off(better, &expected));
            prop_assert!(chance > 2.0 / 3.0 || !pays_off(chance, &expected));
        }
    }
}

//! How much time a prefetched start saved: the estimate by the device's model, corrected by how long
//! the program's starts took, where they ended while they were looked at. Pure.
//!
//! The model knows bounds of what was waited for, not how much of it the program spent computing
//! meanwhile. A cold start and a prefetched one tell that, but may have done different jobs, so
//! what they say is kept within the bounds.

use super::Program;

/// In this many parts the correction is counted.
const WHOLE: u64 = 1000;

/// What the model says, in µs.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Estimate {
    /// Saved at least.
    pub least_us: u64,
    /// Saved usually.
    pub usual_us: u64,
    /// Saved at most.
    pub most_us: u64,
}

impl Estimate {
    /// The part of it that was prefetched in time, 0 to 1. All may have been of use, late or not.
    pub fn in_time(self, share: f64) -> Self {
        let part = |us: u64| (us as f64 * share.clamp(0.0, 1.0)) as u64;
        Self { least_us: part(self.least_us), usual_us: part(self.usual_us), ..self }
    }
}

impl Program {
    /// A slow start that was not prefetched took this long until its end, in µs.
    pub fn note_cold(&mut self, lasted_us: u64) {
        self.cold_us = lasted_us;
    }

    /// A cold start that was prefetched and has ended saved this, in µs. `estimate` is
    /// that of a start for which all comes in time.
    pub fn note_gain(&mut self, estimate: Estimate, saved_us: u64) {
        if self.cold_us > 0 && estimate.usual_us > 0 {
            let parts = u128::from(saved_us) * u128::from(WHOLE) / u128::from(estimate.usual_us);
            // Nothing saved is measured, too.
            self.gain_permille = u32::try_from(parts).unwrap_or(u32::MAX).max(1);
        }
    }

    /// How much a prefetched start saved, in µs. `lasted_us` is how long it took, if it has ended.
    pub fn saved(&self, estimate: Estimate, lasted_us: Option<u64>) -> u64 {
        if let Some(saved_us) = lasted_us.and_then(|lasted| self.measured(estimate, lasted)) {
            return saved_us;
        }
        let parts = match self.gain_permille {
            0 => WHOLE,
            known => u64::from(known),
        };
        let usual = u128::from(estimate.usual_us) * u128::from(parts) / u128::from(WHOLE);
        u64::try_from(usual).unwrap_or(u64::MAX).min(estimate.most_us)
    }

    fn measured(&self, estimate: Estimate, lasted_us: u64) -> Option<u64> {
        let Estimate { least_us, most_us, .. } = estimate;
        (self.cold_us > 0)
            .then(|| self.cold_us.saturating_sub(lasted_us).clamp(least_us.min(most_us), most_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MODEL: Estimate = Estimate { least_us: 100, usual_us: 750, most_us: 1000 };

    #[test]
    fn a_start_saved_what_the_model_says_until_a_cold_and_a_prefetched_one_have_ended() {
        let unknown = Program::default();
        let mut known = Program::default();
        known.note_gain(MODEL, 500);
        assert_eq!(known, unknown, "no cold start has ended");
        known.note_cold(1500);
        for (lasted, saved) in [(None, 750), (Some(600), 900), (Some(100), 1000), (Some(1490), 100)]
        {
            assert_eq!((unknown.saved(MODEL, lasted), known.saved(MODEL, lasted)), (750, saved));
        }
        known.note_gain(MODEL, 900);
        assert_eq!(known.gain_permille, 1200);
        assert_eq!(known.saved(MODEL, None), 900);
        let half = Estimate { least_us: 50, usual_us: 375, most_us: 500 };
        assert_eq!(known.saved(half, None), 450);
        known.note_gain(Estimate::default(), 900);
        assert_eq!(known.gain_permille, 1200);
        known.note_gain(MODEL, 0);
        assert_eq!(known.saved(MODEL, None), 0, "one that saved nothing is known");
    }

    #[test]
    fn what_came_too_late_lowers_the_least_and_the_usual_time() {
        let expected = Estimate { least_us: 50, usual_us: 375, most_us: 1000 };
        assert_eq!(MODEL.in_time(0.5), expected);
        assert_eq!(MODEL.in_time(7.0), MODEL);
    }

    proptest! {
        #[test]
        fn no_start_saves_more_than_the_most(
            (least_us, usual_us, most_us) in any::<(u64, u64, u64)>(),
            (cold_us, gain_permille, lasted) in any::<(u64, u32, Option<u64>)>()
        ) {
            let estimate = Estimate { least_us, usual_us, most_us };
            let mut program = Program { cold_us, gain_permille, ..Program::default() };
            prop_assert!(program.saved(estimate, lasted) <= most_us);
            program.note_gain(estimate, most_us);
            prop_assert!(program.saved(estimate, None) <= most_us);
        }
    }
}

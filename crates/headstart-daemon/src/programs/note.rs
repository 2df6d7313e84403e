//! What came of a start, for the table. Pure.

use super::Program;

/// Hot starts in a row before the first one is skipped.
const PATIENCE: u32 = 3;
/// A program is not looked at for this long at most: one that was never slow, and one that is
/// learned, in milliseconds.
const LONGEST_UNKNOWN_MS: u64 = 5 * 60 * 1000;
const LONGEST_LEARNED_MS: u64 = 60 * 1000;
/// A program that gains nothing is tried again after this time, in seconds.
const USELESS: u64 = 24 * 60 * 60;

/// What a prefetched start gained and cost.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Prefetched {
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that the program itself had to read, as far as that is known.
    pub missed_bytes: u64,
    /// Time that was saved, as estimated, in µs.
    pub saved_us: u64,
    /// Whether its device was never measured, so that it was taken for a usual one.
    pub is_assumed: bool,
    /// Bytes that were prefetched and not touched, if the start was recorded.
    pub wasted_bytes: Option<u64>,
}

/// After so many wasteful starts in a row a program is not prefetched for a while.
const WASTEFUL: u32 = 2;

/// Less than this is hot, in bytes: changed configuration files and the like.
const HOT_BYTES: u64 = 256 << 10;

impl Prefetched {
    /// Whether more was read than a few files, by whomever.
    pub fn is_cold(&self) -> bool {
        self.read_bytes.saturating_add(self.missed_bytes) >= HOT_BYTES
    }

    /// Whether more than half of it was wasted; not known of little, and of a start that was not
    /// recorded.
    fn is_wasteful(&self) -> Option<bool> {
        let wasted = self.wasted_bytes.filter(|_| self.read_bytes >= HOT_BYTES)?;
        Some(wasted > self.read_bytes / 2)
    }
}

impl Program {
    /// A start was looked at.
    pub fn note_start(&mut self, now: u64) {
        self.starts = self.starts.saturating_add(1);
        self.started_at = now;
        self.note_may_lead();
    }

    /// A start was only watched.
    pub fn note_watched(&mut self, is_cold: bool, now_ms: u64) {
        if is_cold {
            self.cold_starts = self.cold_starts.saturating_add(1);
            self.hot_streak = 0;
            self.quiet_until_ms = 0;
        } else {
            self.note_hot(now_ms, LONGEST_UNKNOWN_MS);
        }
    }

    /// What a prefetched start wasted, in bytes: what was measured, or the same share as in the
    /// latest start of the program where it was.
    pub fn waste(&self, what: Prefetched) -> Option<u64> {
        let estimated = || {
            let (wasted, of) = (self.last_wasted_bytes, self.last_measured_bytes);
            (of > 0).then(|| (what.read_bytes as f64 * (wasted as f64 / of as f64)) as u64)
        };
        Some(what.wasted_bytes.or_else(estimated)?.min(what.read_bytes))
    }

    /// A start was prefetched. With less than a few files to read it was hot.
    pub fn note_prefetched(&mut self, what: Prefetched, now_ms: u64) {
        self.saved_us = self.saved_us.saturating_add(what.saved_us);
        self.read_bytes = self.read_bytes.saturating_add(what.read_bytes);
        if let Some(wasted) = what.wasted_bytes.filter(|_| what.read_bytes >= HOT_BYTES) {
            self.last_measured_bytes = what.read_bytes;
            self.last_wasted_bytes = wasted.min(what.read_bytes);
        }
        let wasted = self.waste(what).unwrap_or(0);
        self.wasted_bytes = self.wasted_bytes.saturating_add(wasted);
        if let Some(is_wasteful) = what.is_wasteful() {
            self.wasteful_streak =
                if is_wasteful { self.wasteful_streak.saturating_add(1) } else { 0 };
        }
        if !what.is_cold() {
            return self.note_hot(now_ms, LONGEST_LEARNED_MS);
        }
        self.prefetched = self.prefetched.saturating_add(1);
        self.hot_streak = 0;
        self.quiet_until_ms = 0;
    }

    /// A start was learned, or the rest of one.
    pub fn note_learned(&mut self, now: u64, is_rest: bool) {
        self.has_rest_only = is_rest && (self.learned == 0 || self.has_rest_only);
        self.learned = self.learned.saturating_add(1);
        self.learned_at = now;
    }

    /// Whether its starts have too little in common: one that reads the files of its arguments
    /// wastes what others read.
    pub fn is_wasteful(&self) -> bool {
        self.wasteful_streak >= WASTEFUL
    }

    /// There is a pack of it that was learned then, by somebody else.
    pub fn note_found(&mut self, learned_at: u64) {
        if self.learned == 0 {
            (self.learned, self.learned_at) = (1, learned_at);
        }
    }

    /// Its pack holds so many starts.
    pub fn note_pack(&mut self, starts: u32) {
        self.learned = self.learned.max(starts.into());
    }

    /// Prefetching gains nothing here.
    pub fn note_useless(&mut self, now: u64) {
        self.wasteful_streak = 0;
        self.useless_until = now.saturating_add(USELESS);
    }

    /// Its pack is gone.
    pub fn note_forgotten(&mut self) {
        (self.learned, self.learned_at, self.useless_until) = (0, 0, 0);
        self.has_rest_only = false;
    }

    fn note_hot(&mut self, now_ms: u64, longest: u64) {
        self.hot_streak = self.hot_streak.saturating_add(1);
        let Some(beyond) = self.hot_streak.checked_sub(PATIENCE) else { return };
        let pause = 1000u64.checked_shl(beyond.min(32)).unwrap_or(longest).min(longest);
        self.quiet_until_ms = now_ms.saturating_add(pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_program_that_is_always_hot_is_looked_at_ever_less_often_and_a_cold_start_ends_that() {
        let mut program = Program::default();
        let pauses: Vec<_> = (0..14)
            .map(|_| {
                program.note_watched(false, 1000);
                program.quiet_until_ms.saturating_sub(1000) / 1000
            })
            .collect();
        assert_eq!(pauses, [0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        program.note_watched(true, 1000);
        assert_eq!((program.quiet_until_ms, program.hot_streak, program.cold_starts), (0, 0, 1));
    }

    #[test]
    fn a_learned_program_is_looked_at_once_a_minute_at_least() {
        let mut program = Program { learned: 3, ..Program::default() };
        for _ in 0..40 {
            program.note_prefetched(Prefetched::default(), 0);
        }
        assert_eq!((program.quiet_until_ms, program.prefetched), (LONGEST_LEARNED_MS, 0));
    }

    #[test]
    fn a_program_that_wastes_most_of_what_was_prefetched_twice_in_a_row_is_given_a_rest() {
        let start = |wasted: u64| Prefetched {
            read_bytes: 1 << 20,
            wasted_bytes: Some(wasted),
            ..Prefetched::default()
        };
        let (good, bad) = (start(1 << 19), start((1 << 19) + 1));
        let small = Prefetched { read_bytes: 4096, ..bad };
        let unknown = Prefetched { wasted_bytes: None, ..bad };
        for (starts, expected) in [
            (&[bad][..], false),
            (&[bad, bad], true),
            (&[bad, good, bad], false),
            (&[bad, small, unknown, bad], true),
        ] {
            let mut program = Program::default();
            starts.iter().for_each(|start| program.note_prefetched(*start, 0));
            assert_eq!(program.is_wasteful(), expected, "{starts:?}");
            program.note_useless(5);
            assert!(!program.is_wasteful() && program.useless_until > 5);
        }
    }

    #[test]
    fn the_rest_of_a_start_is_all_that_is_known_until_a_whole_one_is_learned() {
        for (learned, expected) in [
            (&[][..], false),
            (&[true], true),
            (&[true, true], true),
            (&[true, false], false),
            (&[true, false, true], false),
            (&[false, true], false),
        ] {
            let mut program = Program::default();
            learned.iter().for_each(|is_rest| program.note_learned(5, *is_rest));
            assert_eq!(program.has_rest_only, expected, "{learned:?}");
            assert_eq!(program.learned, learned.len() as u64);
            program.note_forgotten();
            assert!(!program.has_rest_only);
        }
    }

    #[test]
    fn a_start_that_is_not_recorded_wastes_as_much_as_the_latest_one_that_was() {
        let mut program = Program::default();
        let start = Prefetched { read_bytes: 1 << 20, saved_us: 7, ..Prefetched::default() };
        let measured = |wasted| Prefetched { wasted_bytes: Some(wasted), ..start };
        let small = Prefetched { read_bytes: 4096, wasted_bytes: Some(4096), ..start };
        assert_eq!((program.waste(start), program.waste(measured(5))), (None, Some(5)));
        for (note, expected) in [
            (start, None),
            (measured(1 << 18), Some(1 << 18)),
            (start, Some(1 << 18)),
            (small, Some(1 << 18)),
            (measured(2 << 20), Some(1 << 20)),
            (measured(0), Some(0)),
        ] {
            program.note_prefetched(note, 0);
            assert_eq!(program.waste(start), expected, "{note:?}");
        }
        program.note_prefetched(measured(1 << 18), 0);
        assert_eq!(program.waste(Prefetched { read_bytes: 1 << 10, ..start }), Some(1 << 8));
        assert_eq!((program.prefetched, program.saved_us), (6, 49));
        // A quarter of 1 MiB three times, 4 KiB, and 1 MiB.
        assert_eq!(program.wasted_bytes, (3 << 18) + 4096 + (1 << 20));
    }

    proptest! {
        #[test]
        fn no_more_is_wasted_than_was_read(
            starts in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<Option<u64>>()), 0..9)
        ) {
            let mut program = Program::default();
            for (read_bytes, saved_us, wasted_bytes) in starts {
                let missed_bytes = saved_us;
                let start = Prefetched { read_bytes, missed_bytes, saved_us, is_assumed: false, wasted_bytes };
                program.note_prefetched(start, u64::MAX);
                prop_assert!(program.waste(start).is_none_or(|wasted| wasted <= read_bytes));
                prop_assert!(program.wasted_bytes <= program.read_bytes);
            }
        }
    }
}

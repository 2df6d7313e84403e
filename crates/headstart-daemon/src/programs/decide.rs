//! What is done for a start. Pure.

use super::Program;
use headstart::launch::policy::WELL_KNOWN;

/// A well known program is recorded once in this time, in case that it has changed, in seconds.
const LEARN_AGAIN: u64 = 24 * 60 * 60;

/// Of the prefetched cold starts of a well known program one in so many is recorded too: what is said of
/// waste and gain then holds for all starts, not only for the first ones.
const SAMPLED: u64 = 16;

/// What is done for a start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Nothing.
    Skip,
    /// A few looks tell whether it waits for disks.
    Watch,
    /// It is recorded, and learned from.
    Record,
    /// Its pack is prefetched; and it is recorded, if so.
    Prefetch {
        /// Whether it is recorded too.
        record: bool,
    },
}

/// What holds for all programs at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conditions {
    /// Milliseconds of the monotonic clock.
    pub now_ms: u64,
    /// Seconds of Unix time.
    pub now: u64,
    /// Whether programs are learned: as configured, and there is no overload.
    pub may_record: bool,
}

/// What is done for a start of this program.
pub fn decide(program: &Program, at: Conditions) -> Decision {
    let is_useless = program.useless_until > at.now;
    if !program.pinned && (program.quiet_until_ms > at.now_ms || is_useless) {
        return Decision::Skip;
    }
    if program.learned > 0 {
        let is_new = program.learned < u64::from(WELL_KNOWN);
        // A time in the future comes from a wrong clock.
        let age = at.now.checked_sub(program.learned_at);
        let is_old = age.is_none_or(|age| age >= LEARN_AGAIN);
        // Of hot ones nothing is to be learned.
        let is_sampled = program.prefetched % SAMPLED == SAMPLED - 1 && program.hot_streak == 0;
        // A second one like it ends its prefetching, and that is known of recorded starts only.
        let is_doubtful = program.wasteful_streak > 0;
        let is_due = is_new || is_old || is_sampled || is_doubtful;
        return Decision::Prefetch { record: at.may_record && is_due };
    }
    match (program.cold_starts > 0 || program.pinned, at.may_record) {
        (true, true) => Decision::Record,
        (true, false) => Decision::Skip,
        (false, _) => Decision::Watch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_a_program_says_what_is_done_for_its_start() {
        let at = Conditions { now_ms: 50, now: 1_000_000, may_record: true };
        let overload = Conditions { may_record: false, ..at };
        let unknown = Program::default();
        let slow = Program { cold_starts: 1, ..unknown.clone() };
        let learned = Program { learned: 1, learned_at: at.now, ..slow.clone() };
        let well_known = Program { learned: 3, ..learned.clone() };
        let sampled = Program { prefetched: 2 * SAMPLED - 1, ..well_known.clone() };
        let hot = Program { hot_streak: 1, ..sampled.clone() };
        let after = Program { prefetched: 2 * SAMPLED, ..well_known.clone() };
        let wasteful = Program { wasteful_streak: 1, ..well_known.clone() };
        let old = Program { learned_at: at.now - LEARN_AGAIN, ..well_known.clone() };
        let ahead = Program { learned_at: at.now + 5, ..well_known.clone() };
        let quiet = Program { quiet_until_ms: 51, ..well_known.clone() };
        let useless = Program { useless_until: at.now + 1, ..well_known.clone() };
        let pinned = |of: &Program| Program { pinned: true, ..of.clone() };
        let prefetch = |record| Decision::Prefetch { record };
        for (name, program, at, expected) in [
            ("unknown", &unknown, at, Decision::Watch),
            ("unknown, overload", &unknown, overload, Decision::Watch),
            ("one cold start", &slow, at, Decision::Record),
            ("one cold start, overload", &slow, overload, Decision::Skip),
            ("learned once", &learned, at, prefetch(true)),
            ("learned once, overload", &learned, overload, prefetch(false)),
            ("well known", &well_known, at, prefetch(false)),
            ("well known, in the sample", &sampled, at, prefetch(true)),
            ("well known, in the sample, overload", &sampled, overload, prefetch(false)),
            ("well known, in the sample, hot before", &hot, at, prefetch(false)),
            ("well known, behind one of the sample", &after, at, prefetch(false)),
            ("well known, wasteful the last time", &wasteful, at, prefetch(true)),
            ("well known, wasteful, overload", &wasteful, overload, prefetch(false)),
            ("learned long ago", &old, at, prefetch(true)),
            ("learned in the future", &ahead, at, prefetch(true)),
            ("always hot", &quiet, at, Decision::Skip),
            ("always hot and pinned", &pinned(&quiet), at, prefetch(false)),
            ("without a benefit", &useless, at, Decision::Skip),
            ("without a benefit and pinned", &pinned(&useless), at, prefetch(false)),
            ("unknown and pinned", &pinned(&unknown), at, Decision::Record),
        ] {
            assert_eq!(decide(program, at), expected, "{name}");
        }
    }
}

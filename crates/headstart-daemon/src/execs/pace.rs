//! How long the reader of execs sleeps so that execs gather: waking it is most of what an exec costs,
//! so on a machine that executes many programs it is woken less often. Pure: times are given.

use std::time::Duration;

/// In nanoseconds.
const WINDOW: u64 = 1_000_000_000;
/// From so many execs within [`WINDOW`] on they are gathered, so that there are hardly more wake-ups: these
/// cost 80 µs each, 0.2 % of a CPU.
const MANY: u64 = 25;
/// For so long: a program that is started meanwhile is prefetched so much later.
const GATHER: Duration = Duration::from_millis(40);

/// Counts execs of this window and the last.
#[derive(Clone, Copy, Default, Debug)]
pub struct Pace {
    began: u64,
    count: u64,
    before: u64,
}

impl Pace {
    /// So many execs were read now: how long the reader sleeps before it reads again, if it does.
    pub fn after(&mut self, execs: u64, now: u64) -> Option<Duration> {
        let age = now.saturating_sub(self.began);
        if age >= WINDOW {
            let is_next = age < 2 * WINDOW;
            (self.began, self.before, self.count) = (now, if is_next { self.count } else { 0 }, 0);
        }
        self.count = self.count.saturating_add(execs);
        (self.count.max(self.before) >= MANY).then_some(GATHER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn execs_are_gathered_while_there_are_many_a_second() {
        let mut pace = Pace::default();
        let mut pauses = |execs: u64, second: u64| pace.after(execs, second * WINDOW).is_some();
        for (execs, second, expected) in [
            (1, 10, false),
            (MANY - 2, 10, false),
            (1, 10, true),
            (1, 11, true),
            (1, 12, false),
            (10 * MANY, 13, true),
            (1, 15, false),
        ] {
            assert_eq!(pauses(execs, second), expected, "{second}");
        }
    }

    #[test]
    fn a_clock_that_goes_back_is_no_trouble() {
        let mut pace = Pace::default();
        assert_eq!(pace.after(1, u64::MAX), None);
        assert_eq!(pace.after(1, 0), None);
    }
}

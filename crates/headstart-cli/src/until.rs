//! When a recording is over: at the program's end, when reading has died down, or when its time is
//! up. Pure; `helper` observes and waits.

use std::time::Duration;

/// Reading has died down after this time with hardly any page added or first accessed.
pub const IDLE: Duration = Duration::from_secs(2);
/// The shortest default time of a start, unless the program ends: many programs wait for something
/// and go on.
const USUAL: Duration = Duration::from_secs(10);
/// A start that goes on reading is over then.
const LONGEST: Duration = Duration::from_secs(5 * 60);

/// What ends a start before its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Until {
    /// When the program has ended
    Exit,
    /// When the program has ended, or has hardly read anything for two seconds
    Idle,
    /// After the time of --for, even if the program ends earlier
    Time,
}

/// The time of a start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordingWindow {
    /// What ends it earlier.
    pub until: Until,
    /// When it is over, if the user says.
    pub limit: Option<Duration>,
}

impl RecordingWindow {
    /// When the start is over at the latest.
    pub fn latest(self) -> Duration {
        self.limit.unwrap_or(if self.until == Until::Time { USUAL } else { LONGEST })
    }

    /// From when on a lack of I/O ends it.
    fn may_idle_from(self) -> Duration {
        match (self.until, self.limit) {
            (Until::Idle, _) => Duration::ZERO,
            (Until::Exit, None) => USUAL,
            (Until::Exit, Some(_)) | (Until::Time, _) => self.latest(),
        }
    }

    /// From when on the activity detector is used, since it costs time.
    fn watched_from(self) -> Duration {
        self.may_idle_from().saturating_sub(IDLE)
    }

    /// Whether the start is over after `elapsed`. `idle_for` is asked only if it matters.
    pub fn is_over(self, elapsed: Duration, idle_for: impl FnOnce() -> Duration) -> bool {
        let is_idle = elapsed >= self.watched_from() && idle_for() >= IDLE;
        elapsed >= self.latest() || (is_idle && elapsed >= self.may_idle_from())
    }

    /// How long only the program's end has to be awaited after `elapsed`; `check` is the interval
    /// of the activity detector.
    pub fn nap(self, elapsed: Duration, check: Duration) -> Duration {
        let left = self.latest().saturating_sub(elapsed);
        match self.watched_from().saturating_sub(elapsed) {
            Duration::ZERO => left.min(check),
            before => left.min(before),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);
    const ASKED: RecordingWindow =
        RecordingWindow { until: Until::Exit, limit: Some(Duration::from_secs(60)) };
    const USUALLY: RecordingWindow = RecordingWindow { until: Until::Exit, limit: None };
    const IDLY: RecordingWindow = RecordingWindow { until: Until::Idle, limit: None };
    const FIXED: RecordingWindow = RecordingWindow { until: Until::Time, limit: None };

    #[test]
    fn a_start_goes_on_until_reading_has_died_down_and_no_longer_than_its_time() {
        for (name, window, elapsed, idle, over) in [
            ("idle early", USUALLY, 5, 3, false),
            ("idle", USUALLY, 10, 2, true),
            ("it reads on", USUALLY, 10, 1, false),
            ("for minutes", USUALLY, 299, 0, false),
            ("too long", USUALLY, 300, 0, true),
            ("idle, but time was given", ASKED, 59, 30, false),
            ("time is up", ASKED, 60, 0, true),
            ("idle, wanted", IDLY, 3, 2, true),
            ("not idle, wanted", IDLY, 11, 1, false),
            ("a fixed time", FIXED, 9, 9, false),
            ("a fixed time is up", FIXED, 10, 0, true),
        ] {
            assert_eq!(window.is_over(S * elapsed, || S * idle), over, "{name}");
        }
    }

    #[test]
    fn reading_is_not_watched_before_it_matters() {
        for (window, elapsed, watched) in [
            (USUALLY, 7, false),
            (USUALLY, 8, true),
            (IDLY, 0, true),
            (ASKED, 50, false),
            (ASKED, 58, true),
        ] {
            let mut asked = false;
            let idle_for = || {
                asked = true;
                Duration::ZERO
            };
            assert!(!window.is_over(S * elapsed, idle_for));
            assert_eq!(asked, watched, "{window:?} after {elapsed} s");
        }
    }

    #[test]
    fn naps_end_where_something_is_to_be_looked_at() {
        for (window, elapsed, expected) in [
            (USUALLY, 0, S * 8),
            (USUALLY, 9, S / 4),
            (IDLY, 0, S / 4),
            (ASKED, 1, S * 57),
            (FIXED, 10, Duration::ZERO),
        ] {
            assert_eq!(window.nap(S * elapsed, S / 4), expected, "{window:?} after {elapsed} s");
        }
    }
}

//! What a week gained and wasted, as one line for the journal. Pure.

use crate::early::settle::Settled;
use crate::programs::note::Prefetched;
use serde::{Deserialize, Serialize};

/// Seconds of a week.
pub const WEEK: u64 = 7 * 24 * 60 * 60;

/// Sums since the last line.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Week {
    /// When it began, in seconds of Unix time; 0 for never.
    pub since: u64,
    /// Starts for which something was read.
    pub prefetched: u64,
    /// Starts that were learned.
    pub learned: u64,
    /// Time that was saved, as estimated, in µs.
    pub saved_us: u64,
    /// Of that time, what was saved on devices that were never measured.
    pub assumed_us: u64,
    /// Bytes that were prefetched.
    pub read_bytes: u64,
    /// Of the bytes that were prefetched for recorded starts, those that were not touched.
    pub wasted_bytes: u64,
    /// Bytes that were prefetched for recorded starts.
    pub measured_bytes: u64,
}

impl Week {
    /// Adds a start that was prefetched.
    pub fn note(&mut self, start: Prefetched) {
        self.prefetched = self.prefetched.saturating_add(u64::from(start.read_bytes > 0));
        self.saved_us = self.saved_us.saturating_add(start.saved_us);
        if start.is_assumed {
            self.assumed_us = self.assumed_us.saturating_add(start.saved_us);
        }
        self.read_bytes = self.read_bytes.saturating_add(start.read_bytes);
        if let Some(wasted) = start.wasted_bytes {
            self.wasted_bytes = self.wasted_bytes.saturating_add(wasted.min(start.read_bytes));
            self.measured_bytes = self.measured_bytes.saturating_add(start.read_bytes);
        }
    }

    /// Adds a replay before a start, whose use is known.
    pub fn note_early(&mut self, read_bytes: u64, settled: Settled) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.saved_us, settled.saved_us);
        add(&mut self.read_bytes, read_bytes);
        add(&mut self.measured_bytes, read_bytes);
        add(&mut self.wasted_bytes, settled.wasted_bytes.min(read_bytes));
    }

    /// The line, and a new week, if this one is over.
    pub fn end(&mut self, now: u64) -> Option<String> {
        // A clock that was set back begins a week, too.
        if self.since == 0 || self.since > now {
            self.since = now;
        }
        if now - self.since < WEEK {
            return None;
        }
        let days = (now - self.since) / (24 * 60 * 60);
        let line = self.line(days);
        *self = Self { since: now, ..Self::default() };
        Some(line)
    }

    fn line(&self, days: u64) -> String {
        let Self { prefetched, learned, .. } = self;
        let (saved, read) = (self.saved_us as f64 / 1e6, self.read_bytes as f64 / 1e6);
        let assumed = self.assumed();
        let wasted = self.wasted();
        format!(
            "in {days} days: about {saved:.0} s saved{assumed} in {prefetched} starts, {read:.0} MB \
             read, {wasted}, {learned} starts learned"
        )
    }

    /// What to say of time that was saved on devices that were never measured; nothing without.
    pub fn assumed(&self) -> String {
        let seconds = self.assumed_us as f64 / 1e6;
        if self.assumed_us == 0 {
            return String::new();
        }
        format!(" ({seconds:.1} s of it on disks that were never measured)")
    }

    /// What to say of waste. Recorded starts are mostly the first ones of a program, which waste more
    /// than others: so there is no share of all that was read.
    pub fn wasted(&self) -> String {
        let [wasted, measured] = [self.wasted_bytes, self.measured_bytes].map(|b| b as f64 / 1e6);
        match self.measured_bytes {
            0 => "how much of it was wasted was not measured".into(),
            _ => format!("{wasted:.0} MB wasted of the {measured:.0} MB where that was measured"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_week_ends_once_with_its_sums() {
        let mut week = Week::default();
        assert_eq!(week.end(1000), None);
        let start =
            Prefetched { read_bytes: 50_000_000, saved_us: 2_500_000, ..Prefetched::default() };
        week.note(start);
        week.note(Prefetched { wasted_bytes: Some(2_500_000), ..start });
        week.note(Prefetched::default());
        assert_eq!(week.assumed(), "");
        let mut other = week;
        other.note(Prefetched { is_assumed: true, ..start });
        assert_eq!(other.assumed(), " (2.5 s of it on disks that were never measured)");
        week.note_early(25_000_000, Settled { wasted_bytes: 5_000_000, saved_us: 1_000_000 });
        week.learned = 1;
        assert_eq!(week.end(1000 + WEEK - 1), None);
        assert_eq!(
            week.end(1000 + WEEK).unwrap(),
            "in 7 days: about 6 s saved in 2 starts, 125 MB read, 8 MB wasted of the 75 MB \
             where that was measured, 1 starts learned"
        );
        assert_eq!(week, Week { since: 1000 + WEEK, ..Week::default() });
        let line = week.end(1000 + 3 * WEEK).unwrap();
        assert!(line.starts_with("in 14 days: about 0 s saved in 0 starts"), "{line}");
        assert!(line.contains("was not measured"), "{line}");
    }

    #[test]
    fn a_clock_that_was_set_back_begins_a_week() {
        let mut week = Week { since: 5000, ..Week::default() };
        assert_eq!((week.end(10), week.since), (None, 10));
    }
}

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
    /// Of the bytes that were prefetched, those that were not touched, as far as that is known.
    pub wasted_bytes: u64,
    /// The bytes of which that is known: measured, or estimated by the program's latest recorded
    /// start.
    pub judged_bytes: u64,
    /// Of those, the bytes of recorded starts, of logins and predictions, where it was measured.
    pub measured_bytes: u64,
}

impl Week {
    /// Adds a start that was prefetched, and what it wasted in bytes, if that can be said.
    pub fn note(&mut self, start: Prefetched, wasted: Option<u64>) {
        add(&mut self.prefetched, u64::from(start.read_bytes > 0));
        add(&mut self.saved_us, start.saved_us);
        if start.is_assumed {
            add(&mut self.assumed_us, start.saved_us);
        }
        self.note_read(start.read_bytes, wasted, start.wasted_bytes.is_some());
    }

    /// Adds a replay before a start, whose use is known.
    pub fn note_early(&mut self, read_bytes: u64, settled: Settled) {
        add(&mut self.saved_us, settled.saved_us);
        self.note_read(read_bytes, Some(settled.wasted_bytes), true);
    }

    fn note_read(&mut self, bytes: u64, wasted: Option<u64>, is_measured: bool) {
        add(&mut self.read_bytes, bytes);
        let Some(wasted) = wasted else { return };
        add(&mut self.judged_bytes, bytes);
        add(&mut self.wasted_bytes, wasted.min(bytes));
        if is_measured {
            add(&mut self.measured_bytes, bytes);
        }
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

    /// What to say of waste.
    pub fn wasted(&self) -> String {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        let Self { wasted_bytes, judged_bytes, measured_bytes, .. } = *self;
        if judged_bytes == 0 {
            return "how much of it was wasted is not known".into();
        }
        let (wasted, judged, measured) = (
            megabytes(wasted_bytes.min(judged_bytes)),
            megabytes(judged_bytes),
            megabytes(measured_bytes),
        );
        let percent = 100.0 * wasted / judged;
        format!(
            "about {wasted:.0} MB ({percent:.1} %) wasted of the {judged:.0} MB where that is known, \
             measured in {measured:.0} MB"
        )
    }
}

fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
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
        week.note(start, None);
        week.note(Prefetched { wasted_bytes: Some(2_500_000), ..start }, Some(2_500_000));
        week.note(start, Some(2_500_000));
        week.note(Prefetched::default(), None);
        assert_eq!(week.assumed(), "");
        let mut other = week;
        other.note(Prefetched { is_assumed: true, ..start }, None);
        assert_eq!(other.assumed(), " (2.5 s of it on disks that were never measured)");
        week.note_early(25_000_000, Settled { wasted_bytes: 5_000_000, saved_us: 1_000_000 });
        week.learned = 1;
        assert_eq!(week.end(1000 + WEEK - 1), None);
        assert_eq!(
            week.end(1000 + WEEK).unwrap(),
            "in 7 days: about 8 s saved in 3 starts, 175 MB read, about 10 MB (8.0 %) wasted of the \
             125 MB where that is known, measured in 75 MB, 1 starts learned"
        );
        assert_eq!(week, Week { since: 1000 + WEEK, ..Week::default() });
        let line = week.end(1000 + 3 * WEEK).unwrap();
        assert!(line.starts_with("in 14 days: about 0 s saved in 0 starts"), "{line}");
        assert!(line.contains("is not known"), "{line}");
    }

    #[test]
    fn a_clock_that_was_set_back_begins_a_week() {
        let mut week = Week { since: 5000, ..Week::default() };
        assert_eq!((week.end(10), week.since), (None, 10));
    }
}

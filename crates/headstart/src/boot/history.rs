//! The record of each boot, which records are kept, and what they say of the gain. Pure;
//! [`super::machine`] reads and writes the files.

use crate::outcome::counts::PageCounts;
use serde::{Deserialize, Serialize};

/// How many boots are kept.
pub const KEPT: usize = 8;

/// The form of a record.
pub const SCHEMA: &str = "headstart/boot/1";

/// One boot.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BootRecord {
    /// [`SCHEMA`].
    pub schema: String,
    /// The kernel's name of this boot.
    pub boot_id: String,
    /// When it was recorded, in seconds of Unix time, as far as the clock was right.
    pub recorded_at: u64,
    /// Kernel release and machine.
    pub kernel: String,
    /// Where the trace came from, in words.
    pub source: String,
    /// User space that had run unrecorded, in ms.
    pub missed_ms: u64,
    /// Trace events.
    pub events: u64,
    /// Trace events that were lost.
    pub lost_events: u64,
    /// From the beginning of the boot until local file systems were mounted, in ms.
    pub local_fs_ms: Option<f64>,
    /// From the beginning of the boot until the default target was reached, in ms.
    pub default_target_ms: Option<f64>,
    /// Whether there was a pack to prefetch.
    pub replayed: bool,
    /// From the end of the recording until all packs were written, in ms.
    pub learn_ms: f64,
    /// The phases, in order.
    pub phases: Vec<PhaseRecord>,
    /// What could not be done.
    pub problems: Vec<String>,
}

/// A time of a record, in ms, as the whole µs that it was made of. It is rounded: truncated, 8.171 ms
/// are 8170 µs.
pub fn us_of_ms(ms: f64) -> u64 {
    (ms * 1000.0).round() as u64
}

/// One phase of a boot.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PhaseRecord {
    /// Its name.
    pub name: String,
    /// When it began, from the beginning of the boot, in ms.
    pub begin_ms: Option<f64>,
    /// When it ended, from the beginning of the boot, in ms.
    pub end_ms: Option<f64>,
    /// Whether one of its packs was written.
    pub learned: bool,
    /// Bytes that were prefetched for it.
    pub prefetched_bytes: u64,
    /// Requests that were made for that.
    pub requests: u64,
    /// The classification of its pages.
    pub outcome: PageCounts,
}

impl BootRecord {
    /// The classification of the pages of all phases.
    pub fn outcome(&self) -> PageCounts {
        self.phases.iter().map(|phase| phase.outcome).sum()
    }

    /// Bytes that were prefetched.
    pub fn prefetched_bytes(&self) -> u64 {
        self.phases.iter().fold(0, |sum, phase| sum.saturating_add(phase.prefetched_bytes))
    }
}

/// A record from its document; `None` when it is no such document.
pub fn parse(document: &[u8]) -> Option<BootRecord> {
    let record: BootRecord = serde_json::from_slice(document).ok()?;
    (record.schema == SCHEMA).then_some(record)
}

/// The name of a record's file. It has a number, since the clock may be wrong at boot.
pub fn file_name(number: u64) -> String {
    format!("{number:06}.json")
}

/// The name of the boot's timeline file.
pub fn timeline_name(number: u64) -> String {
    format!("{number:06}.timeline.json")
}

/// The number of a record, by the name of its file.
pub fn number(file_name: &str) -> Option<u64> {
    let digits = file_name.strip_suffix(".json")?;
    let plain = digits.len() >= 6 && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok())?
}

/// The number of the next record, and the numbers of those that are removed for it.
pub fn rotate(mut numbers: Vec<u64>) -> (u64, Vec<u64>) {
    numbers.sort_unstable();
    numbers.dedup();
    let next = numbers.last().map_or(1, |last| last.saturating_add(1));
    numbers.truncate((numbers.len() + 1).saturating_sub(KEPT));
    (next, numbers)
}

/// What prefetching gained, by the boots that are kept.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Gain {
    /// Boots with something prefetched.
    pub with: usize,
    /// Boots without.
    pub without: usize,
    /// Median time until the default target of those with, in ms.
    pub with_ms: f64,
    /// Median time until the default target of those without, in ms.
    pub without_ms: f64,
}

impl Gain {
    /// The gain of these boots; `None` unless there are boots with and without prefetching.
    pub fn of<'a>(records: impl IntoIterator<Item = &'a BootRecord>) -> Option<Self> {
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for record in records {
            let times = if record.replayed { &mut with } else { &mut without };
            times.extend(record.default_target_ms);
        }
        let (with_ms, without_ms) = (median(&mut with)?, median(&mut without)?);
        Some(Self { with: with.len(), without: without.len(), with_ms, without_ms })
    }
}

/// The median of these times without NaN; `None` without a time.
fn median(times: &mut Vec<f64>) -> Option<f64> {
    times.retain(|ms| ms.is_finite());
    times.sort_by(f64::total_cmp);
    let low = times.get(times.len().checked_sub(1)? / 2)?;
    let high = times.get(times.len() / 2)?;
    Some(low * 0.5 + high * 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn records_are_told_from_other_files_by_their_names() {
        for (name, expected) in [
            ("000001.json", Some(1)),
            ("1000000.json", Some(1_000_000)),
            ("1.json", None),
            ("+00001.json", None),
            ("000001.json.bak", None),
            ("000001.timeline.json", None),
            ("99999999999999999999.json", None),
        ] {
            assert_eq!(number(name), expected, "{name}");
        }
        assert_eq!(number(&file_name(7)), Some(7));
    }

    #[test]
    fn a_time_of_a_record_is_the_microseconds_that_it_was_made_of() {
        for us in 0..100_000_u64 {
            assert_eq!(us_of_ms(us as f64 / 1000.0), us);
        }
        assert_eq!((us_of_ms(-1.0), us_of_ms(f64::NAN), us_of_ms(f64::MAX)), (0, 0, u64::MAX));
    }

    #[test]
    fn the_gain_needs_boots_of_either_kind() {
        let boot =
            |replayed, ms| BootRecord { replayed, default_target_ms: ms, ..BootRecord::default() };
        let without = [boot(false, Some(9.0)), boot(false, Some(5.0)), boot(false, Some(7.0))];
        assert_eq!(Gain::of(&without), None);
        let unfinished = [without.to_vec(), vec![boot(true, None)]].concat();
        assert_eq!(Gain::of(&unfinished), None);
        let both = [without.to_vec(), vec![boot(true, Some(3.0))]].concat();
        let gain = Gain { with: 1, without: 3, with_ms: 3.0, without_ms: 7.0 };
        assert_eq!(Gain::of(&both), Some(gain));
    }

    proptest! {
        #[test]
        fn the_last_eight_are_kept_whatever_was_there(
            numbers in proptest::collection::vec(0u64..40, 0..30)
        ) {
            let (next, gone) = rotate(numbers.clone());
            let mut left = numbers.clone();
            left.retain(|n| !gone.contains(n));
            left.push(next);
            left.sort_unstable();
            left.dedup();
            let mut all = numbers;
            all.push(next);
            all.sort_unstable();
            all.dedup();
            prop_assert!(left.len() <= KEPT && left.len() == all.len().min(KEPT));
            prop_assert_eq!(&left[..], &all[all.len() - left.len()..]);
            prop_assert_eq!(left.last(), Some(&next));
        }

        #[test]
        fn any_numbers_give_one_that_is_not_less(numbers in proptest::collection::vec(any::<u64>(), 0..12)) {
            let (next, _) = rotate(numbers.clone());
            prop_assert!(numbers.iter().all(|n| *n <= next));
        }
    }
}

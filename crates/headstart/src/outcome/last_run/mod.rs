//! The record of the last start: the classification of its pages, page by page and over time, in a
//! small document next to its pack.
//!
//! [`timeline`] makes it, [`mod@file`] keeps it. It is for people who study a start; nothing that
//! is prefetched depends on it. Pure but for [`mod@file`].

pub mod file;
pub mod timeline;

use crate::host::id::Dev;
use crate::host::json_path::JsonPath;
use crate::host::mounts::MountTable;
use crate::outcome::waited::{self, Waited};
use crate::pack::Pack;
use serde::{Deserialize, Serialize};
use std::path::Path;
use thiserror::Error;

/// The schema name of the document.
pub const SCHEMA: &str = "headstart/last-run/3";
/// Intervals of equal length into which the start is divided.
pub const BINS: usize = 240;
/// Files that are named, those with the most pages first.
pub const MAX_FILES: usize = 500;
/// Ranges that are kept of all files together.
pub const MAX_RANGES: usize = 8000;

/// At most one in this many pages that a start touches is read from a device if its files are in memory.
const IN_MEMORY_PART: u64 = 100;
/// File systems that are remembered as searched without result.
const MAX_WALKS: usize = 32;

/// One start.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LastRun {
    /// [`SCHEMA`].
    pub schema: String,
    /// The name of what was started.
    pub name: String,
    /// Starts in the pack, this one included.
    pub starts: u32,
    /// When the pack was learned, in seconds of Unix time.
    pub learned_at: u64,
    /// Bytes of a page.
    pub page_size: u64,
    /// How long it took, in µs.
    pub duration_us: u64,
    /// Whether anything was prefetched in it.
    pub replayed: bool,
    /// Events that were lost: pages may be missing from all figures.
    pub lost_events: u64,
    /// Whether the program went on reading after the recording.
    #[serde(default)]
    pub cut_off: bool,
    /// File systems, by number and kind, that were searched for names without result, so that they
    /// are not searched again.
    #[serde(default)]
    pub walked_without_result: Vec<(u32, String)>,
    /// Pages in all.
    pub totals: Totals,
    /// Pages over time.
    pub over_time: OverTime,
    /// The files with the most pages that were late, missing or wasted.
    pub files: Vec<FileRun>,
    /// Files like these for which there was no room.
    pub files_skipped: u64,
    /// Ranges of the files above for which there was no room.
    pub ranges_skipped: u64,
    /// What it waited for, if that was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited: Option<Waited>,
}

/// Pages of a start, by their class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Pages of files that were touched.
    pub touched: u64,
    /// Of those, resident or in flight before.
    pub ready: u64,
    /// Of those, in the pack, but the program requested them first.
    pub late: u64,
    /// Of those, not in the pack, and brought in by the program.
    pub missing: u64,
    /// Pages of files that were prefetched.
    pub prefetched: u64,
    /// Of those, not touched.
    pub wasted: u64,
    /// Of those again, not in the pack either: gaps that were read because
    /// that is faster than skipping them.
    pub gaps: u64,
    /// Pages that the program brought in and did not touch.
    pub untouched: u64,
    /// Pages of metadata that the program brought in.
    pub metadata: u64,
}

/// Pages over time, one entry for each interval of [`Self::bin_us`].
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct OverTime {
    /// Length of an interval, in µs.
    pub bin_us: u64,
    /// Ready, when they were first touched.
    pub ready: Vec<u64>,
    /// Late, when they were first touched.
    pub late: Vec<u64>,
    /// Missing, when they were first touched.
    pub missing: Vec<u64>,
    /// Brought in by the program and not touched, by the time of the request.
    pub untouched: Vec<u64>,
    /// Metadata that the program brought in.
    pub metadata: Vec<u64>,
    /// Prefetched, when they were requested; before the start counts as its beginning.
    pub prefetched: Vec<u64>,
    /// Of those, not touched.
    pub wasted: Vec<u64>,
    /// How long before their first touch pages had been requested, in µs: the
    /// median of those touched then; negative when the program was first.
    pub lead_us: Vec<Option<i64>>,
}

impl OverTime {
    fn pages(&self) -> [&Vec<u64>; 7] {
        let Self { ready, late, missing, untouched, metadata, prefetched, wasted, .. } = self;
        [ready, late, missing, untouched, metadata, prefetched, wasted]
    }

    /// The number of intervals.
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// When an interval begins, in ms.
    pub fn ms(&self, bin: usize) -> f64 {
        self.bin_us as f64 * bin as f64 / 1000.0
    }
}

/// One file.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FileRun {
    /// Its path.
    #[serde(flatten)]
    pub path: JsonPath,
    /// Pages that were late.
    pub late: u64,
    /// By how much at most, in µs, as far as that is known.
    pub late_by_us: Option<u64>,
    /// Pages that were missing.
    pub missing: u64,
    /// Pages that were prefetched and not touched.
    pub wasted: u64,
    /// Its ranges.
    pub ranges: Vec<RangeRun>,
}

/// The class of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PageClass {
    /// The program requested it first.
    Late,
    /// It was not in the pack.
    Missing,
    /// It was prefetched and not touched.
    Wasted,
}

/// A range of pages of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RangeRun {
    /// The class of its pages.
    pub class: PageClass,
    /// First page.
    pub first: u64,
    /// Number of pages.
    pub pages: u64,
    /// When it was touched or prefetched, in µs of the start.
    pub at_us: u64,
}

/// A document that can't be used.
#[derive(Debug, Error)]
pub enum ParseError {
    /// It is no such document.
    #[error("it is no such document")]
    Json(#[from] serde_json::Error),
    /// It is one of another version.
    #[error("it is {found:?}, and this headstart reads {read:?}")]
    Schema {
        /// Which.
        found: String,
        /// The one that is read.
        read: &'static str,
    },
    /// It contradicts itself.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
}

impl LastRun {
    /// Notes the state of the pack after this start.
    pub fn describe(&mut self, pack: &Pack, lost_events: u64) {
        self.name.clone_from(&pack.origin.name);
        self.starts = pack.origin.starts;
        self.learned_at = pack.origin.learned_at;
        self.page_size = pack.page_size();
        self.lost_events = lost_events;
    }

    /// Notes which file systems were searched for names without result.
    pub fn note_walks(&mut self, devices: &[Dev], mounts: &MountTable) {
        let kind = |dev: Dev| Some(mounts.visible_of(dev).first()?.fstype.to_string_lossy());
        let known = devices.iter().filter_map(|dev| Some((dev.0, kind(*dev)?.into_owned())));
        self.walked_without_result = known.take(MAX_WALKS).collect();
    }

    /// Those of them that are still mounted. After a boot, a number may belong to another.
    pub fn walked_without_result(&self, mounts: &MountTable) -> Vec<Dev> {
        let is_it = |dev: Dev, kind: &str| {
            mounts.visible_of(dev).iter().any(|mount| mount.fstype.to_string_lossy() == kind)
        };
        let devices = self.walked_without_result.iter().map(|(dev, kind)| (Dev(*dev), kind));
        devices.filter(|(dev, kind)| is_it(*dev, kind)).map(|(dev, _)| dev).collect()
    }

    /// How long it took, in µs, if its files were in memory, so that it waited for no device.
    pub fn in_memory_us(&self) -> Option<u64> {
        let Totals { touched, late, missing, prefetched, metadata, .. } = self.totals;
        let read =
            [late, missing, prefetched, metadata].iter().fold(0u64, |a, b| a.saturating_add(*b));
        let is_in_memory = touched > 0 && read <= touched / IN_MEMORY_PART;
        (is_in_memory && !self.cut_off).then_some(self.duration_us)
    }

    /// Reads a document.
    ///
    /// # Errors
    /// It is no such document, or contradicts itself.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        let head: Head = serde_json::from_slice(bytes)?;
        if head.schema != SCHEMA {
            return Err(ParseError::Schema { found: head.schema, read: SCHEMA });
        }
        let run: Self = serde_json::from_slice(bytes)?;
        let bins = run.over_time.len();
        let same = run.over_time.pages().iter().all(|list| list.len() == bins);
        if !same || run.over_time.lead_us.len() != bins || bins > BINS {
            return Err(ParseError::Damaged("its stretches of time do not match"));
        }
        if bins > 0 && run.over_time.bin_us == 0 {
            return Err(ParseError::Damaged("its stretches of time have no length"));
        }
        if run.files.len() > MAX_FILES {
            return Err(ParseError::Damaged("it has too many files"));
        }
        if run.waited.as_ref().is_some_and(|waited| waited.files.len() > waited::MAX_FILES) {
            return Err(ParseError::Damaged("it waited for too many files"));
        }
        Ok(run)
    }
}

impl FileRun {
    pub(super) fn named(path: &Path) -> Self {
        Self { path: path.into(), ..Self::default() }
    }

    /// Pages that were late, missing or wasted.
    pub fn pages(&self) -> u64 {
        self.late.saturating_add(self.missing).saturating_add(self.wasted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_record_of_a_start_is_refused_with_the_reason() {
        let good = LastRun { schema: SCHEMA.into(), ..LastRun::default() };
        let text = |run: &LastRun| serde_json::to_string(run).unwrap();
        assert_eq!(LastRun::parse(text(&good).as_bytes()).unwrap(), good);
        let uneven = OverTime { bin_us: 1, ready: vec![1], ..OverTime::default() };
        let zero = vec![0];
        let timeless = OverTime {
            bin_us: 0,
            ready: zero.clone(),
            late: zero.clone(),
            missing: zero.clone(),
            untouched: zero.clone(),
            metadata: zero.clone(),
            prefetched: zero.clone(),
            wasted: zero,
            lead_us: vec![None],
        };
        for (input, why) in [
            (String::new(), "no such document"),
            ("{\"schema\":\"headstart/show/1\"}".into(), "this headstart reads"),
            (text(&LastRun { over_time: uneven, ..good.clone() }), "do not match"),
            (text(&LastRun { over_time: timeless, ..good.clone() }), "no length"),
            (
                text(&LastRun { files: vec![FileRun::default(); MAX_FILES + 1], ..good }),
                "too many files",
            ),
        ] {
            let message = LastRun::parse(input.as_bytes()).unwrap_err().to_string();
            assert!(message.contains(why), "{input}: {message}");
        }
    }

    #[test]
    fn it_is_known_how_long_a_start_takes_whose_files_are_in_memory() {
        let totals = Totals { touched: 400, ready: 400, ..Totals::default() };
        let four = Totals { late: 1, missing: 1, prefetched: 1, metadata: 1, ..totals };
        for (name, totals, cut_off, expected) in [
            ("all of it", totals, false, Some(7)),
            ("a hundredth is read", four, false, Some(7)),
            ("more is late", Totals { late: 2, ..four }, false, None),
            ("more is missing", Totals { missing: 2, ..four }, false, None),
            ("more is prefetched", Totals { prefetched: 2, ..four }, false, None),
            ("more is metadata", Totals { metadata: 2, ..four }, false, None),
            ("it was not seen to its end", totals, true, None),
            ("it touched nothing", Totals::default(), false, None),
        ] {
            let run = LastRun { totals, cut_off, duration_us: 7, ..LastRun::default() };
            assert_eq!(run.in_memory_us(), expected, "{name}");
        }
    }
}

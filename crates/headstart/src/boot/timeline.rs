//! A boot over time, kept beside its record: a document of bounded size. Pure; [`super::machine`]
//! reads and writes the file.

use super::bins::{Bins, Row};
use super::phases::Interval;
use super::unit_times::{self, UnitTimes};
use crate::host::id::{Dev, InodeId};
use crate::outcome::last_run::{OverTime, ParseError};
use crate::pack::FileSystem;
use crate::profile::fold::Observation;
use crate::profile::learn::may_be_read;
use crate::profile::resolve::Resolution;
use crate::profile::spans::Spans;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::ops::{Range, RangeInclusive};

/// The schema name of the document.
pub const SCHEMA: &str = "headstart/boot-timeline/2";

/// One boot over time. All times count from its beginning, in µs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Timeline {
    /// [`SCHEMA`].
    pub schema: String,
    /// What came into memory before this was not seen.
    pub recorded_from_us: u64,
    /// When the recording ended.
    pub recorded_until_us: u64,
    /// Whether it is known what was touched; else nothing counts as wasted.
    pub has_access_events: bool,
    /// What came in, in bytes.
    pub bins: Bins,
    /// The units of systemd, in the order in which they were started.
    pub units: Vec<UnitTimes>,
    /// Units for which there was no room.
    pub units_skipped: u64,
}

/// Who saw what came in.
#[derive(Debug)]
pub struct Sight<'a> {
    /// What the boot itself did.
    pub boot: &'a Observation,
    /// What the threads did that prefetch.
    pub ahead: &'a Observation,
    /// The names of its files.
    pub names: &'a Resolution,
    /// The file systems of named files.
    pub file_systems: &'a HashMap<Dev, FileSystem>,
    /// When the boot was, in nanoseconds of Unix time.
    pub during: RangeInclusive<i64>,
    /// Bytes of a page.
    pub page_size: u64,
    /// From nanoseconds of the trace clock to µs of the boot.
    pub clock: Clock,
}

/// Brings the trace clock to that of the boot.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// What the trace clock is ahead of the monotonic one, in nanoseconds.
    pub ahead_ns: i128,
    /// When the boot began, in µs of the monotonic clock.
    pub began_us: u64,
}

impl Clock {
    fn us(self, trace_ns: u64) -> u64 {
        let us = (i128::from(trace_ns) - self.ahead_ns) / 1000 - i128::from(self.began_us);
        u64::try_from(us.max(0)).unwrap_or(u64::MAX)
    }

    /// When something was on the trace clock; nothing if it was not.
    pub(super) fn window(self, span: Option<Interval>) -> Range<u64> {
        let trace_ns = |us: u64| {
            let ns = i128::from(us) * 1000 + self.ahead_ns;
            u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
        };
        span.map_or(0..0, |span| trace_ns(span.begin)..trace_ns(span.end))
    }
}

impl Timeline {
    /// Enters what came in: what was written in this boot, or is no file system's on a
    /// disk, was not read.
    pub fn enter(&mut self, sight: &Sight<'_>) {
        self.has_access_events = sight.boot.has_access_events;
        let named = sight.names.files.iter();
        let written: HashSet<InodeId> = named
            .filter(|(_, file)| sight.during.contains(&file.mtime_ns))
            .map(|(id, _)| *id)
            .collect();
        let is_read =
            |id: &InodeId| may_be_read(sight.file_systems, id.dev) && !written.contains(id);
        for (row, seen) in [(Row::Demand, sight.boot), (Row::Prefetched, sight.ahead)] {
            for (_, pages) in seen.files.iter().filter(|(id, _)| is_read(id)) {
                self.count(row, &pages.inserted, seen.began, sight);
            }
            for pages in seen.metadata.values() {
                self.count(row, &pages.inserted, seen.began, sight);
            }
        }
        if !self.has_access_events {
            return;
        }
        // Looks at metadata are not always reported, so none of it counts as wasted.
        let none = Spans::default();
        for (id, pages) in sight.ahead.files.iter().filter(|(id, _)| is_read(id)) {
            let touched = sight.boot.files.get(id).map_or(&none, |pages| &pages.touched);
            self.count(Row::Wasted, &pages.inserted.without(touched), sight.ahead.began, sight);
        }
    }

    fn count(&mut self, row: Row, spans: &Spans, began: u64, sight: &Sight<'_>) {
        for span in spans.iter() {
            let at = sight.clock.us(began.saturating_add(span.at));
            self.bins.add(row, at, (span.pages.count()).saturating_mul(sight.page_size));
        }
    }

    /// Enters what of a phase was late or missing. `phase` is in µs of the monotonic
    /// clock.
    pub fn enter_phase(&mut self, phase: Interval, run: &OverTime, began_us: u64, page_size: u64) {
        for (row, pages) in [(Row::Late, &run.late), (Row::Missing, &run.missing)] {
            for (bin, pages) in pages.iter().enumerate().filter(|(_, pages)| **pages > 0) {
                let from = phase.begin.saturating_sub(began_us);
                let from = from.saturating_add(run.bin_us.saturating_mul(bin as u64));
                self.bins.spread(row, from, run.bin_us, pages.saturating_mul(page_size));
            }
        }
    }

    /// Reads a document.
    ///
    /// # Errors
    /// It is no such document, or contradicts itself.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let timeline: Self = serde_json::from_slice(bytes)?;
        if timeline.schema != SCHEMA {
            return Err(ParseError::Schema { found: timeline.schema, read: SCHEMA });
        }
        if !timeline.bins.is_sound() {
            return Err(ParseError::Damaged("its stretches of time do not match"));
        }
        if timeline.units.len() > unit_times::MOST {
            return Err(ParseError::Damaged("it has too many units"));
        }
        Ok(timeline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::bins::FINEST_US;
    use crate::host::range::PageRange;
    use crate::profile::fold::{Rules, fold};
    use crate::profile::resolve::{FileKind, ResolvedFile};
    use crate::trace::{Event, EventKind};
    use proptest::prelude::*;
    use std::path::PathBuf;

    const DISK: Dev = Dev::new(8, 1);
    const TMPFS: Dev = Dev::new(0, 30);
    const MS: u64 = 1_000_000;

    fn id(dev: Dev, ino: u64) -> InodeId {
        InodeId { dev, ino }
    }

    fn event(ms: u64, tid: i32, kind: EventKind, id: InodeId, first: u64, pages: u64) -> Event {
        Event { time: ms * MS, tid, kind, id, pages: PageRange::of(first, pages) }
    }

    fn named(id: InodeId, mtime_ns: i64) -> (InodeId, ResolvedFile) {
        let path = PathBuf::from(format!("/{}", id.ino));
        let kind = FileKind::Regular;
        (
            id,
            ResolvedFile {
                path,
                size: 1 << 20,
                mtime_ns,
                ctime_ns: 0,
                born_ns: None,
                kind,
                mode: 0,
            },
        )
    }

    #[test]
    fn what_was_prefetched_read_by_the_boot_and_read_without_result_is_entered_when_it_came_in() {
        let (file, written, other) = (id(DISK, 1), id(DISK, 2), id(TMPFS, 3));
        let block = id(Dev::new(0, 9), u64::from(DISK.0));
        let events = [
            event(1000, 7, EventKind::Insert, file, 0, 8),
            event(1020, 1, EventKind::Read, file, 0, 6),
            event(1030, 1, EventKind::Insert, file, 20, 2),
            event(1040, 1, EventKind::Insert, written, 0, 4),
            event(1041, 1, EventKind::Insert, other, 0, 4),
            event(1050, 1, EventKind::Insert, block, 0, 1),
            event(1060, 7, EventKind::Insert, block, 5, 1),
        ];
        let rules = |ignored: &[i32]| Rules {
            block_devices: [DISK].into(),
            ignored_tids: ignored.iter().copied().collect(),
            has_access_events: true,
            ..Rules::default()
        };
        let (boot, ahead) = (fold(events, &rules(&[7])), fold(events, &rules(&[1])));
        let names = Resolution {
            files: vec![named(file, 50), named(written, 101), named(other, 50)],
            ..Resolution::default()
        };
        let fs = |kind: &str| FileSystem { uuid: None, kind: kind.into(), source: vec![] };
        let file_systems = [(DISK, fs("ext4")), (TMPFS, fs("tmpfs"))].into();
        let mut timeline = Timeline::default();
        timeline.enter(&Sight {
            boot: &boot,
            ahead: &ahead,
            names: &names,
            file_systems: &file_systems,
            during: 100..=i64::MAX,
            page_size: 4096,
            // The trace clock is 400 ms ahead, and the boot began at 500 ms.
            clock: Clock { ahead_ns: 400 * i128::from(MS), began_us: 500_000 },
        });
        let came = |row| -> Vec<(usize, u64)> {
            let bytes = timeline.bins.row(row).iter().copied().enumerate();
            bytes.filter(|(_, bytes)| *bytes > 0).map(|(bin, bytes)| (bin, bytes / 4096)).collect()
        };
        assert_eq!(came(Row::Prefetched), [(10, 8), (16, 1)]);
        assert_eq!(came(Row::Wasted), [(10, 2)]);
        assert_eq!(came(Row::Demand), [(13, 2), (15, 1)]);
    }

    #[test]
    fn what_was_late_in_a_phase_is_entered_in_its_time() {
        let run = OverTime {
            bin_us: 25_000,
            late: vec![0, 5],
            missing: vec![3, 0],
            ..OverTime::default()
        };
        let mut timeline = Timeline::default();
        timeline.enter_phase(Interval { begin: 600_000, end: 650_000 }, &run, 500_000, 4096);
        assert_eq!(timeline.bins.sum(Row::Late), 5 * 4096);
        assert_eq!(timeline.bins.late[12..], [10_240, 10_240]);
        assert_eq!(timeline.bins.missing[10..12], [6144, 6144]);
    }

    #[test]
    fn what_is_no_timeline_is_refused_with_the_reason() {
        let good = Timeline { schema: SCHEMA.into(), ..Timeline::default() };
        let text = |timeline: &Timeline| serde_json::to_string(timeline).unwrap();
        assert_eq!(Timeline::parse(text(&good).as_bytes()).unwrap(), good);
        let uneven = Bins { prefetched: vec![1], ..Bins::default() };
        let timeless = Bins { bin_us: 0, ..Bins::default() };
        let units = vec![UnitTimes::default(); unit_times::MOST + 1];
        for (json, why) in [
            ("[".to_owned(), "no such document"),
            ("{}".to_owned(), "it is \"\""),
            (
                text(&Timeline { schema: "headstart/boot-timeline/9".into(), ..good.clone() }),
                "reads",
            ),
            (text(&Timeline { bins: uneven, ..good.clone() }), "do not match"),
            (text(&Timeline { bins: timeless, ..good.clone() }), "do not match"),
            (text(&Timeline { units, ..good.clone() }), "too many units"),
        ] {
            let error = Timeline::parse(json.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn the_largest_is_still_small() {
        let mut bins = Bins::default();
        for bin in 0..super::super::bins::MOST as u64 {
            Row::ALL.iter().for_each(|row| bins.add(*row, bin * FINEST_US, 123_456));
        }
        let name = "x".repeat(200);
        let at = Some(60_000_000);
        let unit = UnitTimes {
            name,
            activating_us: at,
            active_us: at,
            deactivating_us: at,
            inactive_us: at,
        };
        let units = vec![unit; unit_times::MOST];
        let timeline = Timeline { schema: SCHEMA.into(), bins, units, ..Timeline::default() };
        let bytes = serde_json::to_vec(&timeline).unwrap();
        assert!(bytes.len() < 1 << 20, "{}", bytes.len());
        assert_eq!(Timeline::parse(&bytes).unwrap(), timeline);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,60}") {
            let _ = Timeline::parse(text.as_bytes());
            let _ = Timeline::parse(format!("{{\"schema\":\"{SCHEMA}\",\"bins\":{text}}}").as_bytes());
        }
    }
}

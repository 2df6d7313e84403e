//! What learning of all kinds of launches has in common: the classification of the pages, the pages
//! that the next start may need, and whether the replay was complete. [`super::learn`] uses it for
//! a program, [`crate::boot`] for each phase of a boot. It writes nothing.

use super::policy::{Learning, WELL_KNOWN};
use crate::host::id::Dev;
use crate::host::mounts::MountTable;
use crate::outcome::classify::{PrefetchedPages, classify};
use crate::outcome::counts::PageCounts;
use crate::outcome::last_run::LastRun;
use crate::pack::merge::Rule;
use crate::pack::subcommand;
use crate::pack::{FileSystem, Pack};
use crate::profile::code::code_of;
use crate::profile::fold::Observation;
use crate::profile::learn::{Start, pack_of_start};
use crate::profile::seen::{self, Seen};
use crate::replay::engine::Log;
use crate::replay::report::Report;
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

/// A replay counts as complete if this share of the touched pages was ready.
const COMPLETE_SHARE: f64 = 0.9;
/// Touches of a well-known pack that move by less than this part of a start keep their times.
const MOVED_PART: u32 = 4;

/// A recorded launch.
#[derive(Debug)]
pub struct RecordedLaunch {
    /// Its pages and the names of its files.
    pub seen: Seen,
    /// The file systems that it touched.
    pub file_systems: HashMap<Dev, FileSystem>,
    /// When it was, in nanoseconds of Unix time.
    pub during: RangeInclusive<i64>,
    /// When its times begin, in nanoseconds of Unix time, if the clock of the trace is known.
    began_ns: Option<i64>,
    /// The mounts at its end.
    pub mounts: MountTable,
    policy: Learning,
}

/// What was prefetched of the pages that are learned.
#[derive(Clone, Debug, Default)]
pub struct Prefetched<'a> {
    /// The packs that these pages had before.
    pub packs: Vec<&'a Pack>,
    /// What of packs was prefetched, if anything was.
    pub read: Option<Cow<'a, Pack>>,
    /// The figures of the replays.
    pub reports: Vec<Report>,
    /// What was requested, if that was kept.
    pub log: Option<&'a Log>,
    /// When the program was let go, in µs on the clock of the log.
    pub released_us: u64,
}

impl Prefetched<'_> {
    /// Whether a pack keeps the order of its ranges: a well-known one, if it is read in touch order. Starts
    /// differ in their order, and each new one costs requests where files lie side by side in the old one, as after
    /// a layout. In elevator order the times count, and not the order.
    fn keeps_order(&self, pack: &Pack) -> bool {
        let in_touch_order = self.reports.iter().any(|report| report.in_touch_order);
        pack.origin.starts >= WELL_KNOWN && in_touch_order
    }

    /// Whether the start used so little of what was prefetched that it did another job than the
    /// packs' starts. False if files were replaced, which no job uses.
    pub fn is_another_job(&self, outcome: &PageCounts) -> bool {
        let is_current = self.reports.iter().all(Report::is_current);
        self.read.as_ref().filter(|_| is_current).is_some_and(|read| {
            let wasted = outcome.wasted_pages.saturating_mul(read.page_size());
            subcommand::is_another_job(wasted, read.data_bytes())
        })
    }

    /// Whether the packs were prefetched as a whole and nearly all touched pages were ready.
    pub fn was_complete(&self, outcome: &PageCounts) -> bool {
        !self.reports.is_empty()
            && self.reports.iter().all(Report::is_whole)
            && outcome.ready_share() >= COMPLETE_SHARE
    }
}

impl RecordedLaunch {
    /// Of a launch that `lasted` until now.
    pub fn new(seen: Seen, mounts: MountTable, lasted: Duration, policy: Learning) -> Self {
        let file_systems = seen.file_systems(&mounts);
        let during = seen::the_last(lasted);
        let began_ns = seen.began_ago_ns().map(|ago| during.end().saturating_sub(ago));
        Self { seen, file_systems, during, began_ns, mounts, policy }
    }

    /// The classification of these pages of the launch, in all and over time.
    pub fn classify(
        &self,
        pages: &Observation,
        prefetched: &Prefetched<'_>,
    ) -> (PageCounts, LastRun) {
        let replayed = PrefetchedPages {
            pack: prefetched.read.as_deref(),
            log: prefetched.log,
            released_us: prefetched.released_us,
        };
        classify(pages, &self.seen.names, &self.file_systems, replayed)
    }

    /// The pack of only these pages. `was_complete`: the replay was complete, so pages that the
    /// launch brought in without an access event are its own readahead.
    pub fn pack(
        &self,
        name: &str,
        command: Vec<u8>,
        pages: Cow<'_, Observation>,
        was_complete: bool,
    ) -> Pack {
        let pages = match self.policy.without_waits {
            true => pages.without_waits(),
            false => pages.into_owned(),
        };
        let mut origin = self.seen.origin(name, command);
        origin.duration_us = pages.duration / 1000;
        origin.has_access_events = pages.has_access_events;
        let start = Start {
            origin,
            file_systems: self.file_systems.clone(),
            during: self.during.clone(),
            keep_untouched: was_complete,
            began_ns: self.began_ns.filter(|_| !self.policy.without_waits),
        };
        let mounts = &self.mounts;
        // Reading the file would wait for its server.
        let code = |path: &Path| if mounts.path_answers(path) { code_of(path) } else { Vec::new() };
        pack_of_start(pages, &self.seen.names, start, code)
    }

    /// How that pack is joined into those before it. `known` is the one before it, if its times count waits as
    /// these do.
    pub fn rule(
        &self,
        pages: &Observation,
        prefetched: &Prefetched<'_>,
        known: Option<&Pack>,
    ) -> Rule {
        let by_replay = prefetched.reports.iter().map(|report| report.metadata_bytes).sum();
        let packs = prefetched.packs.iter().copied();
        let metadata_seen =
            self.seen.metadata_was_cold(pages, packs, &self.file_systems, by_replay);
        let keeps_times = known.is_some_and(|known| prefetched.keeps_order(known));
        let duration_us = u32::try_from(pages.duration / 1000).unwrap_or(u32::MAX);
        let keep_time_us = if keeps_times { duration_us / MOVED_PART } else { 0 };
        Rule::NextStart { keep: self.policy.keep, metadata_seen, keep_time_us }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::usage::How;
    use crate::pack::{History, Origin, Range};

    #[test]
    fn a_replay_was_complete_when_each_pack_was_whole_and_nearly_all_was_ready() {
        let whole = Report { complete: true, bytes: 1, ..Report::default() };
        let cut = Report { complete: false, ..whole };
        for (name, reports, ready_pages, expected) in [
            ("nothing was prefetched", vec![], 100, false),
            ("all was found", vec![whole], 100, true),
            ("nearly all", vec![whole, whole], 90, true),
            ("too little", vec![whole], 89, false),
            ("one of two was not whole", vec![whole, cut], 100, false),
        ] {
            let outcome = PageCounts { touched_pages: 100, ready_pages, ..PageCounts::default() };
            let prefetched = Prefetched { reports, ..Prefetched::default() };
            assert_eq!(prefetched.was_complete(&outcome), expected, "{name}");
        }
    }

    #[test]
    fn a_well_known_pack_that_is_read_in_touch_order_keeps_its_order() {
        let pack =
            |starts| Pack { origin: Origin { starts, ..Origin::default() }, ..Pack::default() };
        let (new, known) = (pack(WELL_KNOWN - 1), pack(WELL_KNOWN));
        let touch = Report { in_touch_order: true, ..Report::default() };
        let other = Report::default();
        for (name, pack, reports, expected) in [
            ("little was known", &new, vec![touch], false),
            ("well known", &known, vec![touch], true),
            ("one of two replays", &known, vec![other, touch], true),
            ("in elevator order", &known, vec![other], false),
            ("nothing was prefetched", &known, vec![], false),
        ] {
            let prefetched = Prefetched { reports, ..Prefetched::default() };
            assert_eq!(prefetched.keeps_order(pack), expected, "{name}");
        }
    }

    #[test]
    fn a_start_that_uses_little_of_packs_that_are_still_current_did_another_job() {
        let how = How::READ;
        let range = Range { file: 0, first: 0, pages: 1000, at_us: 0, how, history: History(1) };
        let origin = Origin { page_shift: 12, ..Origin::default() };
        let read = Pack { origin, ranges: vec![range], ..Pack::default() };
        let report = Report { bytes: 4 << 20, ..Report::default() };
        let replaced = Report { dropped_bytes: 1 << 20, ..report };
        for (name, read, report, wasted_pages, expected) in [
            ("nothing was prefetched", None, report, 900, false),
            ("it used half", Some(&read), report, 500, false),
            ("it used less", Some(&read), report, 501, true),
            ("its files were replaced", Some(&read), replaced, 900, false),
        ] {
            let prefetched = Prefetched {
                read: read.map(Cow::Borrowed),
                reports: vec![report],
                ..Prefetched::default()
            };
            let outcome = PageCounts { wasted_pages, ..PageCounts::default() };
            assert_eq!(prefetched.is_another_job(&outcome), expected, "{name}");
        }
    }
}

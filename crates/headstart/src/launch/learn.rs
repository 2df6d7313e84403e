//! Learns an ended recording: classifies the pages that were prefetched, and writes the pack.

use super::LaunchError;
use super::found_pack::FoundPack;
use super::listing::{Kept, Listing};
use super::policy::{FREQUENT, Learning};
use super::record::{Coverage, Recorded};
use super::recorded_launch::{Prefetched, RecordedLaunch};
use super::retention;
use crate::host::clock::micros;
use crate::host::error::causes;
use crate::host::json_path::JsonPath;
use crate::host::mounts::MountTable;
use crate::host::names;
use crate::host::outputs;
use crate::host::proc;
use crate::outcome::counts::PageCounts;
use crate::outcome::last_run::{LastRun, file as last_run};
use crate::outcome::waited::Waited;
use crate::pack::join::{Joined, join};
use crate::pack::key::Key;
use crate::pack::share::keep_shared;
use crate::pack::store;
use crate::pack::{Dropped, EarlierNames, Pack};
use crate::profile::fault_around::drop_fault_around;
use crate::profile::seen::{self, Decoded, Seen};
use crate::profile::unseen::add_unseen;
use crate::replay::engine::Log;
use crate::replay::models::Models;
use crate::replay::report::Report;
use crate::trace::exact::Processes;
use crate::trace::file::{Capture, is_trace};
use serde::Serialize;
use std::borrow::Cow;
use std::ffi::OsString;
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Starts after whose absence a range is dropped.
pub const DEFAULT_KEEP: u32 = 4;

/// The problem when `--exact` recorded no page exactly.
const NOT_EXACT: &str = "pages are learned with fault-around pages: `record --exact` needs \
    x86-64, Linux 6.7 with events of page uses, and no seccomp filter";

/// The problem when `--exact` recorded only a part of the start.
const CUT_OFF: &str = "pages are learned with fault-around pages: the program went on when its \
    time was over; give it more with --for, or a server --until idle";

/// The problem when the program went on reading after the recording.
const END_NOT_SEEN: &str = "its end is not learned: the program read files for longer, or more \
    of them, than is recorded; see --for";

/// A pack that starts are joined into.
#[derive(Clone, Debug)]
pub struct PackTarget {
    /// The program's name, for people.
    pub name: String,
    /// Its command line.
    pub command: Vec<OsString>,
    /// Where its pack is or will be.
    pub pack: PathBuf,
}

impl PackTarget {
    /// Of a program with this key.
    pub fn of(key: &Key, pack: PathBuf) -> Self {
        Self { name: key.name.clone(), command: key.words.clone(), pack }
    }
}

/// How a recording is learned.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The pack that is known, or will be.
    pub target: PackTarget,
    /// The pack of this subcommand, for a start that does another job than those in `target`.
    pub narrower: Option<PackTarget>,
    /// Starts after whose absence a range is dropped.
    pub keep: u32,
    /// Whether file systems may be walked for names.
    pub walk: bool,
    /// Where the raw trace is kept, if it is.
    pub trace_out: Option<PathBuf>,
    /// Where its accesses are listed, if they are.
    pub events: Option<Listing>,
    /// Whether these may replace any file.
    pub force: bool,
    /// Whether other users get a copy of its pack.
    pub share: bool,
    /// Whether its directory is the store: no other user can change it, and its number of packs is
    /// bounded. A directory that the user named may belong to anybody.
    pub bounded: bool,
    /// Threads that are recorded and do not belong to the program.
    pub ignored_tids: Vec<i32>,
}

impl Settings {
    /// The defaults, for the pack of a program or service in the store.
    pub fn of(target: PackTarget) -> Self {
        Self {
            target,
            narrower: None,
            keep: DEFAULT_KEEP,
            walk: true,
            trace_out: None,
            events: None,
            force: false,
            share: false,
            bounded: true,
            ignored_tids: Vec::new(),
        }
    }
}

/// Figures of a learned start.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Learned {
    /// The pack that was written.
    pub pack: JsonPath,
    /// Whether it was written: a start with lost events does not replace a clean pack.
    pub written: bool,
    /// Bytes of the pack file.
    pub pack_bytes: u64,
    /// Starts that the pack has learned.
    pub starts: u32,
    /// Files in the pack.
    pub files: usize,
    /// Ranges in the pack.
    pub ranges: usize,
    /// Bytes of files in the pack.
    pub data_bytes: u64,
    /// Bytes of metadata in the pack.
    pub metadata_bytes: u64,
    /// Trace events of this start.
    pub events: u64,
    /// Trace events that were lost.
    pub lost_events: u64,
    /// Pages in large folios, whose accesses are not reported and that are kept in the pack.
    pub unseen_pages: u64,
    /// Pages that were only mapped by fault-around, and are removed.
    pub fault_around_pages: u64,
    /// Inodes of this start that are not in the pack.
    pub dropped: Dropped,
    /// Directory entries that were read in the search for names.
    pub walked_entries: u64,
    /// Time for resolving names, in µs.
    pub resolve_us: u64,
    /// Time from the end of the recording to the written pack, in µs.
    pub learn_us: u64,
    /// Whether the end of the start before was not learned, which may explain missing pages.
    pub after_cut_off: bool,
    /// Other packs that were forgotten because the store was full.
    pub forgotten_packs: usize,
    /// Errors that did not keep the start from being learned.
    pub problems: Vec<String>,
}

/// What is known of a start beside its recording.
#[derive(Debug, Default)]
pub struct LaunchFacts {
    /// The program's pack before the start.
    pub found: FoundPack,
    /// The figures of its replay, if there was one.
    pub replay: Option<Report>,
    /// What that requested, if it was kept.
    pub log: Option<Log>,
    /// When the program was let go, in µs on the clock of the log.
    pub released_us: u64,
    /// How much of the start was recorded.
    pub coverage: Coverage,
    /// What it waited for, if that was recorded.
    pub waited: Option<Waited>,
}

/// Measures the device of a pack that was just learned, if it never was. That
/// takes a moment, once, after the program has ended.
pub fn know_device(pack: &Path, models: &Models) {
    // The next replay reports why it can't be read.
    if let Ok(pack) = store::read(pack, rustix::process::geteuid().as_raw()) {
        models.measure_new(&pack);
    }
}

/// Joins a start, which `began` then, into its pack and classifies the pages. May wait
/// for a file system that does not answer; a [`super::learner::Learner`] does not. Of a large start each
/// part takes megabytes, so each is dropped when it was used.
///
/// # Errors
/// The recording can't be decoded, or the pack not be written.
pub fn learn(
    recorded: Recorded,
    began: Instant,
    settings: &Settings,
    mut facts: LaunchFacts,
    uid: u32,
) -> Result<(Learned, PageCounts), LaunchError> {
    let from = Instant::now();
    let Recorded { capture, followed } = recorded;
    let policy = Learning::of_start(settings.keep);
    let (seen, mounts, kept) = decoded(capture, settings)?;
    // Not beside the raw events.
    let known = mem::take(&mut facts.found).into_pack();
    let pack = known.as_ref();
    let is_whole = facts.coverage == Coverage::Whole;
    let is_cut_off = facts.coverage == Coverage::CutOff;
    // Without a readable record nothing is known about the start before.
    let before = pack.and_then(|pack| last_run::read(&settings.target.pack, pack, uid).ok());
    // Pages that were not observed must not count as not needed.
    let exact = is_whole && followed.is_some_and(|processes| processes.registered > 0);
    let mut earlier = pack.map(Pack::names).unwrap_or_default();
    // Names that the replay saw are newer, and come first.
    for (ino, mut paths) in facts.log.iter().flat_map(Log::names) {
        let known = earlier.entry(ino).or_default();
        paths.append(known);
        *known = paths;
    }
    let mut seen = named(seen, &mounts, settings, &earlier, before.as_ref(), policy.names_limit);
    let unseen_pages = pack.map_or(0, |pack| add_unseen(&mut seen.pages, &seen.names, pack, exact));
    let fault_around = drop_fault_around(&mut seen.pages, &seen.names, pack, exact);

    let mut launch = RecordedLaunch::new(seen, mounts, began.elapsed(), policy);
    let RecordedLaunch { seen, .. } = &launch;
    let prefetched = facts.prefetched(pack);
    let (outcome, mut last_run) = launch.classify(&seen.pages, &prefetched);
    last_run.cut_off = is_cut_off;
    last_run.waited.clone_from(&facts.waited);
    last_run.note_walks(&seen.names.walked_without_result, &launch.mounts);
    let own =
        settings.narrower.as_ref().filter(|_| is_whole && prefetched.is_another_job(&outcome));
    let target = own.unwrap_or(&settings.target);
    let words: Vec<&[u8]> = target.command.iter().map(|word| word.as_bytes()).collect();
    let was_complete = prefetched.was_complete(&outcome);
    let rule = launch.rule(&seen.pages, &prefetched, pack.filter(|_| own.is_none()));
    let pages = Cow::Owned(mem::take(&mut launch.seen.pages));
    let new = launch.pack(&target.name, words.join(&0), pages, was_complete);
    let RecordedLaunch { seen, .. } = &launch;

    let mut learned = Learned {
        pack: target.pack.as_path().into(),
        events: seen.tally.events,
        lost_events: seen.tally.lost,
        unseen_pages,
        fault_around_pages: fault_around.skipped,
        dropped: new.origin.dropped,
        walked_entries: seen.names.walked_entries,
        resolve_us: micros(seen.names.elapsed),
        after_cut_off: before.is_some_and(|before| before.cut_off),
        problems: seen.names.problems.iter().map(|p| causes(p)).collect(),
        ..Learned::default()
    };
    learned.problems.extend(why_not_exact(followed, is_whole, fault_around.exact_files));
    learned.problems.extend(is_cut_off.then(|| END_NOT_SEEN.into()));
    drop(prefetched);
    let known = known.filter(|_| own.is_none());
    drop(facts);
    let listed = kept.map(|kept| (kept, launch.seen));
    let locked = match settings.bounded {
        true => store::lock_trusted(&target.pack)?,
        false => store::lock(&target.pack)?,
    };
    let joined = join(locked, uid, new, known, rule, |_| |_: &mut _| ())?;
    learned.note_joined(&joined, last_run);
    if settings.bounded && learned.written {
        learned.share(&joined, &target.pack, settings.share, uid);
    }
    drop(joined);
    if settings.bounded && learned.written {
        match retention::bound(&target.pack, uid) {
            Ok(forgotten) => learned.forgotten_packs = forgotten,
            Err(error) => learned.problems.push(causes(&error)),
        }
    }
    learned.learn_us = micros(from.elapsed());
    // Last: its reader may be slow.
    if let (Some(listing), Some((kept, seen))) = (&settings.events, listed)
        && let Err(error) = listing.write(&seen, &kept, settings.force)
    {
        learned.problems.push(format!("its accesses are not listed: {}", causes(&error)));
    }
    Ok((learned, outcome))
}

/// The recorded start, and the capture if its accesses are listed.
fn decoded(
    mut capture: Capture,
    settings: &Settings,
) -> Result<(Decoded, MountTable, Option<Kept>), LaunchError> {
    let mounts = seen::complete(&mut capture)?;
    // In another namespace these are the numbers of other threads.
    if proc::in_first_pid_namespace() {
        capture.description.ignored_tids.extend(proc::own_threads());
    }
    capture.description.ignored_tids.extend(&settings.ignored_tids);
    if let Some(path) = &settings.trace_out {
        let failed = |source| LaunchError::Write { path: path.clone(), source };
        let bytes = capture.to_bytes()?;
        let known = outputs::Known::ByContent(is_trace);
        outputs::replace(path, &bytes, known, settings.force).map_err(failed)?;
    }
    Ok(match &settings.events {
        Some(_) => {
            let kept = Kept::now(capture);
            (Decoded::of_kept(&kept.capture)?, mounts, Some(kept))
        }
        None => (Decoded::of(capture)?, mounts, None),
    })
}

/// The same with the names of its files, and without our own accesses.
fn named(
    decoded: Decoded,
    mounts: &MountTable,
    settings: &Settings,
    earlier: &EarlierNames,
    before: Option<&LastRun>,
    limit: Duration,
) -> Seen {
    let without_result =
        before.map(|before| before.walked_without_result(mounts)).unwrap_or_default();
    let walk = settings.walk.then_some(&without_result[..]);
    let mut seen = decoded.named(mounts, earlier, walk, limit);
    if let Ok(own) = std::env::current_exe() {
        seen.remove_file(&own);
    }
    seen
}

/// Why a start with `--exact` has only this many exact files, if there is a reason.
fn why_not_exact(followed: Option<Processes>, whole: bool, exact_files: u64) -> Option<String> {
    match followed? {
        Processes { failed, .. } if exact_files > 0 && failed > 0 => {
            Some(format!("{failed} processes could not be learned exactly"))
        }
        _ if !whole => Some(CUT_OFF.into()),
        _ if exact_files == 0 => Some(NOT_EXACT.into()),
        _ => None,
    }
}

impl LaunchFacts {
    fn prefetched<'a>(&'a self, pack: Option<&'a Pack>) -> Prefetched<'a> {
        let read = pack.filter(|_| self.replay.is_some());
        Prefetched {
            packs: pack.into_iter().collect(),
            read: read.map(|pack| FREQUENT.chosen(pack)),
            reports: self.replay.into_iter().collect(),
            log: self.log.as_ref(),
            released_us: self.released_us,
        }
    }
}

impl Learned {
    /// Notes the result of the join, and writes the record next to the pack.
    fn note_joined(&mut self, joined: &Joined, mut last_run: LastRun) {
        let Joined { pack, written, replaced, locked } = joined;
        if let Some(error) = replaced {
            self.problems.push(format!("{}; it is replaced", causes(error)));
        }
        self.written = written.is_some();
        self.pack_bytes = written.unwrap_or(0);
        self.starts = pack.origin.starts;
        self.files = pack.files.len();
        self.ranges = pack.ranges.len();
        self.data_bytes = pack.data_bytes();
        self.metadata_bytes = pack.metadata_bytes();
        if !self.written {
            self.problems.push("events were lost, so the clean pack stays as it is".into());
            return;
        }
        last_run.describe(pack, self.lost_events);
        // Nothing depends on it.
        if let Err(error) = last_run::write(locked, &last_run) {
            let why = format!("`show --last-run` has nothing of this start: {error}");
            self.problems.push(why);
        }
    }

    /// Updates or removes the copy for other users.
    fn share(&mut self, joined: &Joined, path: &Path, wanted: bool, uid: u32) {
        if let Err(error) = keep_shared(path, &joined.pack, wanted, uid) {
            self.problems.push(format!("{} is not shared: {error}", names::path(path)));
        }
    }
}

/// The path of a command's program, found by `$PATH` as execvp(3) does, with symbolic links
/// resolved.
pub fn locate(program: &std::ffi::OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return std::fs::canonicalize(program).ok();
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let is_program = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    let found =
        std::env::split_paths(&path).map(|dir| dir.join(program)).find(|p| is_program(p))?;
    std::fs::canonicalize(found).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_that_was_not_exact_says_why_once() {
        let processes = |failed| Some(Processes { registered: 2, failed });
        for (name, followed, whole, exact_files, expected) in [
            ("it was not to be", None, true, 0, None),
            ("it was", processes(0), true, 3, None),
            ("some processes failed", processes(1), true, 3, Some("1 processes")),
            ("and it was cut off", processes(1), false, 3, Some("1 processes")),
            ("it was cut off", processes(0), false, 0, Some(CUT_OFF)),
            ("nothing was", processes(1), true, 0, Some(NOT_EXACT)),
        ] {
            let why = why_not_exact(followed, whole, exact_files);
            assert_eq!(why.is_some(), expected.is_some(), "{name}");
            assert!(why.unwrap_or_default().starts_with(expected.unwrap_or("")), "{name}");
        }
    }

    #[test]
    fn of_a_pack_only_what_a_replay_reads_was_prefetched() {
        for (name, replay, expected) in
            [("no replay", None, 0), ("one", Some(Report::default()), 1)]
        {
            let (pack, facts) = (Pack::default(), LaunchFacts { replay, ..LaunchFacts::default() });
            let prefetched = facts.prefetched(Some(&pack));
            assert_eq!(prefetched.packs.len(), 1, "{name}");
            assert_eq!(prefetched.reports.len(), expected, "{name}");
            assert_eq!(prefetched.read.is_some(), expected == 1, "{name}");
        }
    }
}

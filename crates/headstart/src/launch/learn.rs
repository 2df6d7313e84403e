//! Learning: from a recording that has ended to a written pack, and to what became of the
//! pages that were read ahead.

use super::LaunchError;
use super::policy::FREQUENT;
use super::record::Recorded;
use crate::host::error::causes;
use crate::host::json_path::JsonPath;
use crate::host::names;
use crate::host::proc;
use crate::outcome::classify::{Replayed, classify};
use crate::outcome::counts::Outcome;
use crate::outcome::last_run::file as last_run;
use crate::pack::join::join;
use crate::pack::merge::Rule;
use crate::pack::share::{self, keep_shared};
use crate::pack::store;
use crate::pack::{Dropped, Pack};
use crate::profile::code::code_of;
use crate::profile::fault_around::drop_fault_around;
use crate::profile::learn::{Start, pack_of_start};
use crate::profile::resolve::WalkProgress;
use crate::profile::seen::{self, Seen};
use crate::profile::unseen::add_unseen;
use crate::replay::engine::Log;
use crate::replay::models::Models;
use crate::replay::report::Report;
use crate::trace::exact::Processes;
use crate::trace::tracefs::Instance;
use serde::Serialize;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Starts after whose absence a range is dropped.
pub const DEFAULT_KEEP: u32 = 4;
/// A replay counts as complete when this share of what was touched was ready.
const COMPLETE_SHARE: f64 = 0.9;

/// Said when a start that was to be exact was not.
const NOT_EXACT: &str = "pages are learned with fault-around pages: `record --exact` needs \
    x86-64, Linux 6.7 with events of page uses, and no seccomp filter";

/// Said when a start that was to be exact was only seen in part.
const CUT_OFF: &str = "pages are learned with fault-around pages: the program went on when its \
    time was over; give it more with --for, or a server --until idle";

/// What a learner is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program's name, for people.
    pub name: String,
    /// Its command line.
    pub command: Vec<OsString>,
    /// Where its pack is or will be.
    pub pack: PathBuf,
    /// Starts after whose absence a range is dropped.
    pub keep: u32,
    /// Whether file systems may be walked for names.
    pub walk: bool,
    /// Where the raw trace is kept, if it is.
    pub trace_out: Option<PathBuf>,
    /// Whether other users get a copy of its pack.
    pub share: bool,
    /// Threads that are recorded and whose doings are not the program's.
    pub ignored_tids: Vec<i32>,
}

/// Figures of a learned start.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Learned {
    /// The pack that was written.
    pub pack: JsonPath,
    /// Whether it was: a lossy start does not replace a clean pack.
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
    /// Pages in large folios, of which no use is seen, that were taken to be used again.
    pub unseen_pages: u64,
    /// Pages that were only mapped as neighbours of others, and are left out.
    pub fault_around_pages: u64,
    /// Inodes of this start that got no place in the pack.
    pub dropped: Dropped,
    /// Directory entries looked at in search of names.
    pub walked_entries: u64,
    /// Time for names, in µs.
    pub resolve_us: u64,
    /// Time from the end of the recording to the written pack, in µs.
    pub learn_us: u64,
    /// Things that did not work and were worked around.
    pub problems: Vec<String>,
}

/// What was known before the start that is learned.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known<'a> {
    /// The program's pack.
    pub pack: Option<&'a Pack>,
    /// What became of its replay, if there was one.
    pub replay: Option<Report>,
    /// What that asked for, if it was kept.
    pub log: Option<&'a Log>,
    /// When the program was let go, in µs on the clock of the log.
    pub released_us: u64,
    /// Whether it was seen until the program ended, or nothing was read any more.
    pub whole: bool,
}

/// Measures the device of a pack that was just learned, if it never was. That
/// takes a moment, once, after the program has ended.
pub fn know_device(pack: &Path, models: &Models) {
    // What keeps it from being read is said when it is to be replayed.
    if let Ok(pack) = store::read(pack, rustix::process::geteuid().as_raw()) {
        models.measure_new(&pack);
    }
}

/// Joins a start, which `began` then, into its pack and says what became of the pages. The
/// instance is handed back for removal. `progress` is told of a walk for names.
///
/// # Errors
/// The recording can't be decoded, or the pack not be written.
pub fn learn(
    recorded: Recorded,
    began: Instant,
    settings: &Settings,
    known: Known<'_>,
    uid: u32,
    progress: Option<&dyn Fn(WalkProgress)>,
) -> Result<(Learned, Outcome, Instance), LaunchError> {
    let from = Instant::now();
    let Recorded { mut capture, instance, followed } = recorded;
    // What was not seen of a file must not look like what the program does not need.
    let exact = known.whole && followed.is_some_and(|processes| processes.registered > 0);
    let mounts = seen::complete(&mut capture)?;
    // Elsewhere these are the numbers of others.
    if proc::in_first_pid_namespace() {
        capture.description.ignored_tids.extend(proc::own_threads());
    }
    capture.description.ignored_tids.extend(&settings.ignored_tids);
    if let Some(path) = &settings.trace_out {
        let failed = |source| LaunchError::Write { path: path.clone(), source };
        std::fs::write(path, capture.to_bytes()?).map_err(failed)?;
    }
    let earlier = known.pack.map(Pack::names).unwrap_or_default();
    let mut seen = Seen::of(capture, &mounts, &earlier, settings.walk, progress)?;
    if let Ok(own) = std::env::current_exe() {
        seen.leave_out(&own);
    }
    let unseen_pages =
        known.pack.map_or(0, |pack| add_unseen(&mut seen.pages, &seen.names, pack, exact));
    let neighbours = drop_fault_around(&mut seen.pages, &seen.names, known.pack, exact);

    let file_systems = seen.file_systems(&mounts);
    let planned = known.pack.filter(|_| known.replay.is_some()).map(planned);
    let replayed =
        Replayed { pack: planned.as_ref(), log: known.log, released_us: known.released_us };
    let (outcome, mut last_run) = classify(&seen.pages, &seen.names, &file_systems, replayed);
    let metadata_seen = seen.metadata_was_cold(
        &seen.pages,
        known.pack.into_iter(),
        &file_systems,
        known.replay.map_or(0, |r| r.metadata_bytes),
    );
    let words: Vec<&[u8]> = settings.command.iter().map(|word| word.as_bytes()).collect();
    let start = Start {
        origin: seen.origin(&settings.name, words.join(&0)),
        file_systems,
        during: seen::the_last(began.elapsed()),
        keep_untouched: was_complete(known, &outcome),
    };
    let new = pack_of_start(&seen.pages, &seen.names, start, code_of);
    let rule = Rule::NextStart { keep: settings.keep, metadata_seen };

    let mut learned = Learned {
        pack: settings.pack.as_path().into(),
        events: seen.tally.events,
        lost_events: seen.tally.lost,
        unseen_pages,
        fault_around_pages: neighbours.left_out,
        dropped: new.origin.dropped,
        walked_entries: seen.names.walked_entries,
        resolve_us: micros(seen.names.elapsed),
        problems: seen.names.problems.iter().map(|p| causes(p)).collect(),
        ..Learned::default()
    };
    match followed {
        Some(Processes { failed, .. }) if neighbours.exact_files > 0 && failed > 0 => {
            learned.problems.push(format!("{failed} processes could not be learned exactly"));
        }
        Some(_) if !known.whole => learned.problems.push(CUT_OFF.into()),
        Some(_) if neighbours.exact_files == 0 => learned.problems.push(NOT_EXACT.into()),
        _ => {}
    }
    let joined = join(&settings.pack, uid, new, known.pack, rule, |_, _| ())?;
    if let Some(error) = joined.replaced {
        learned.problems.push(format!("{}; it is replaced", causes(&error)));
    }
    learned.written = joined.written.is_some();
    learned.pack_bytes = joined.written.unwrap_or(0);
    if learned.written {
        if let Err(error) = keep_shared(&settings.pack, &joined.pack, settings.share) {
            let copy = share::path_of(&settings.pack);
            learned.problems.push(format!("can't write {}: {error}", names::path(&copy)));
        }
        last_run.describe(&joined.pack, seen.tally.lost);
        // Only people look at it.
        if let Err(error) = last_run::write(&joined.locked, &last_run) {
            let why = format!("`show --last-run` has nothing of this start: {error}");
            learned.problems.push(why);
        }
    } else {
        learned.problems.push("events were lost, so the clean pack stays as it is".into());
    }
    describe(&mut learned, &joined.pack);
    learned.learn_us = micros(from.elapsed());
    Ok((learned, outcome, instance))
}

fn describe(learned: &mut Learned, pack: &Pack) {
    learned.starts = pack.origin.starts;
    learned.files = pack.files.len();
    learned.ranges = pack.ranges.len();
    learned.data_bytes = pack.data_bytes();
    learned.metadata_bytes = pack.metadata_bytes();
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// What of a pack was to be read ahead.
fn planned(pack: &Pack) -> Pack {
    let choice = FREQUENT.choice(pack);
    let mut pack = pack.clone();
    pack.ranges.retain(|range| choice.has(range));
    pack
}

/// Whether all of a pack was read ahead and nearly all of the start found.
fn was_complete(known: Known<'_>, outcome: &Outcome) -> bool {
    known.replay.is_some_and(|report| report.is_whole()) && outcome.ready_share() >= COMPLETE_SHARE
}

/// Where a program is that a command names, symbolic links followed: by
/// `$PATH`, as execvp(3) looks for it.
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

//! From a recorded boot to the packs of its phases and its record.
//!
//! The driver behind [`super::record`]: it names files once for the whole boot, cuts,
//! and joins each phase into its packs, what was touched of each file system into one.

use super::away::forgotten;
use super::choose::{chosen, settle};
use super::cut::cut;
use super::early;
use super::history::{BootRecord, PhaseRecord, SCHEMA};
use super::machine::Machine;
use super::mounted::Mounted;
use super::packs::{self, Known};
use super::phases::{DEFAULT_TARGET, Moments, Phase, Span, spans};
use super::record::RecordError;
use super::replayed::{self, Replayed, monotonic_us};
use super::split::{is_empty, split, with_untouched};
use super::timeline::{self, Clock, Sight, Timeline};
use super::unit_times::UnitTimes;
use crate::host::error::causes;
use crate::host::id::Dev;
use crate::host::names;
use crate::host::proc::in_first_pid_namespace;
use crate::outcome::classify::{Replayed as ReadAhead, classify};
use crate::outcome::counts::Outcome;
use crate::outcome::last_run::OverTime;
use crate::pack::history::HISTORY_STARTS;
use crate::pack::join::{Joined, join};
use crate::pack::merge::{Rule, merge};
use crate::pack::store::{self, StoreError};
use crate::pack::{EarlierNames, FileSystem, Pack};
use crate::profile::code::code_of;
use crate::profile::fold::{Observation, Rules, fold};
use crate::profile::learn::{Start, pack_of_start};
use crate::profile::seen::{self, Seen, SeenError};
use crate::replay::frequency::Frequency;
use crate::trace::file::Capture;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A replay counts as complete when this share of what was touched was ready.
const COMPLETE_SHARE: f64 = 0.9;

/// A boot as it was recorded.
#[derive(Debug)]
pub(super) struct Recorded {
    pub capture: Capture,
    /// What the trace clock was ahead of the monotonic one, in nanoseconds.
    pub clock_ahead: i128,
    /// When the recording began, in µs of the monotonic clock.
    pub began: u64,
    /// Processes that were started to follow the boot.
    pub askers: Vec<i32>,
    pub source: &'static str,
    pub missed_ms: u64,
    pub ended: Instant,
    /// All units and how many had no room, if systemd told.
    pub units: io::Result<(Vec<UnitTimes>, u64)>,
}

/// What the phases share.
struct Boot<'a> {
    machine: &'a Machine,
    seen: Seen,
    file_systems: HashMap<Dev, FileSystem>,
    /// When it was, in nanoseconds of Unix time.
    during: RangeInclusive<i64>,
    /// All of it, by file system.
    whole: Vec<(FileSystem, Pack)>,
    /// The packs that there were before it was learned.
    known: Vec<Known>,
    replays: Vec<Replayed>,
    /// From the trace clock to that of the boot.
    clock: Clock,
    /// When the recording ended, in µs of the monotonic clock.
    ended_us: u64,
}

/// Learns a boot.
pub(super) fn learn(
    machine: &Machine,
    phases: &[Phase],
    moments: &Moments,
    recorded: Recorded,
) -> Result<BootRecord, RecordError> {
    let Recorded { mut capture, clock_ahead, began, askers, source, missed_ms, ended, units } =
        recorded;
    let ended_us = monotonic_us().saturating_sub(ended.elapsed().as_micros() as u64);
    let replays = replayed::all(machine);
    let mounts = seen::complete(&mut capture)?;
    if in_first_pid_namespace() {
        capture.description.ignored_tids.extend(askers);
    }
    let readers = replayed::threads(&replays);
    let ahead = brought_in_by(&readers, &capture)?;
    capture.description.ignored_tids.extend(readers);
    let (mut mounted, mut problems) = (Mounted::default(), Vec::new());
    mounted.look()?;
    let names: Vec<&str> = phases.iter().map(|phase| phase.name.as_str()).collect();
    let known = packs::known(machine, &names, &mut mounted, &mut problems);
    // A walk would read all directories of a disk that has just become quiet.
    let seen = Seen::of(capture, &mounts, &earlier_names(&known), false, None)?;
    let file_systems = seen.file_systems(&mounts);
    let running = Duration::from_micros(monotonic_us().saturating_sub(moments.began));
    let mut boot = Boot {
        machine,
        file_systems,
        during: seen::the_last(running),
        whole: Vec::new(),
        known,
        seen,
        replays,
        ended_us,
        clock: Clock { ahead_ns: clock_ahead, began_us: moments.began },
    };
    boot.whole = split(&boot.pack("boot", &boot.seen.pages, false));

    let spans = spans(phases, moments);
    let window = |span: &Option<Span>| -> Range<u64> {
        let trace_ns = |us: u64| {
            let ns = i128::from(us) * 1000 + clock_ahead;
            u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
        };
        span.map_or(0..0, |span| trace_ns(span.begin)..trace_ns(span.end))
    };
    let windows: Vec<_> = spans.iter().map(window).collect();
    let mut record = BootRecord {
        schema: SCHEMA.into(),
        boot_id: boot_id(machine),
        recorded_at: u64::try_from(seen::now_ns() / 1_000_000_000).unwrap_or(0),
        kernel: boot.seen.description.kernel.clone(),
        source: source.into(),
        missed_ms,
        events: boot.seen.tally.events,
        lost_events: boot.seen.tally.lost,
        local_fs_ms: since_begin(moments, "local-fs.target"),
        default_target_ms: since_begin(moments, DEFAULT_TARGET),
        replayed: !boot.replays.is_empty(),
        problems: boot.seen.names.problems.iter().map(|p| causes(p)).chain(problems).collect(),
        ..BootRecord::default()
    };
    let mut timeline = boot.timeline(&ahead, began);
    match units {
        Ok((units, left_out)) => (timeline.units, timeline.units_left_out) = (units, left_out),
        Err(error) => record.problems.push(format!("the times of units are not known: {error}")),
    }
    for ((phase, span), part) in phases.iter().zip(spans).zip(cut(&boot.seen.pages, &windows)) {
        let ms = |us: u64| us.saturating_sub(moments.began) as f64 / 1000.0;
        let mut of_phase = PhaseRecord {
            name: phase.name.clone(),
            begin_ms: span.map(|span| ms(span.begin)),
            end_ms: span.map(|span| ms(span.end)),
            ..PhaseRecord::default()
        };
        // What was over before is not known.
        let was_seen = span.is_some_and(|span| span.begin < span.end && span.end > began);
        match boot.learn_phase(&part, was_seen, &mut of_phase, &mut record.problems) {
            Ok(over_time) => {
                if let Some((span, run)) = span.zip(over_time) {
                    timeline.enter_phase(span, &run, moments.began, boot.page_size());
                }
            }
            Err(error) => record.problems.push(causes(&error)),
        }
        record.phases.push(of_phase);
    }
    boot.forget_some(&names, &mut record.problems);
    if let Err(error) = early::keep(machine) {
        record.problems.push(causes(&error));
    }
    record.learn_ms = ended.elapsed().as_secs_f64() * 1000.0;
    machine.keep(&mut record, Some(&timeline))?;
    Ok(record)
}

/// The names in the packs of what is mounted.
fn earlier_names(known: &[Known]) -> EarlierNames {
    let mut names = EarlierNames::new();
    let here = known.iter().filter(|known| known.is_mounted);
    for (ino, paths) in here.flat_map(|known| known.pack.names()) {
        names.entry(ino).or_default().extend(paths);
    }
    names
}

impl Boot<'_> {
    /// The pack of these pages of the boot alone.
    fn pack(&self, name: &str, pages: &Observation, keep_untouched: bool) -> Pack {
        let mut origin = self.seen.origin(name, Vec::new());
        origin.duration_us = pages.duration / 1000;
        let start = Start {
            origin,
            file_systems: self.file_systems.clone(),
            during: self.during.clone(),
            keep_untouched,
        };
        pack_of_start(pages, &self.seen.names, start, code_of)
    }

    /// Joins a phase into its packs, if it `was_seen`.
    fn learn_phase(
        &self,
        part: &Observation,
        was_seen: bool,
        record: &mut PhaseRecord,
        problems: &mut Vec<String>,
    ) -> Result<Option<OverTime>, StoreError> {
        let known = self.known(&record.name);
        let replays = self.replays.iter().filter(|replayed| replayed.phase == record.name);
        let replays: Vec<&Replayed> = replays.collect();
        record.read_ahead_bytes = replays.iter().map(|r| r.report.bytes).sum();
        record.requests = replays.iter().map(|r| r.report.requests).sum();
        if !was_seen {
            return Ok(None);
        }
        let read = read_ahead(&replays);
        let read = ReadAhead { pack: read.as_ref(), ..ReadAhead::default() };
        let (outcome, run) = classify(part, &self.seen.names, &self.file_systems, read);
        record.outcome = outcome;
        let nothing = part.files.is_empty() && part.metadata.is_empty();
        if nothing && known.is_empty() {
            return Ok(None);
        }
        let metadata_read = replays.iter().map(|r| r.report.metadata_bytes).sum();
        let packs = known.iter().map(|known| &known.pack);
        let keep_untouched = was_complete(&replays, &record.outcome);
        // How long the boot waited depends on how it was read ahead.
        let new = self.pack(&record.name, &part.without_waits(), keep_untouched);
        let rule = Rule::NextStart {
            keep: HISTORY_STARTS,
            metadata_seen: self.seen.metadata_was_cold(
                part,
                packs,
                &self.file_systems,
                metadata_read,
            ),
        };
        let mut stays = false;
        for (of, new) in with_untouched(&new, known.iter().map(|known| &known.of)) {
            let known = known.iter().find(|known| known.of.is(&of)).map(|known| &known.pack);
            match self.join(&record.name, &of, new, known, rule) {
                Ok(joined) => {
                    record.learned |= joined.written.is_some();
                    stays |= joined.written.is_none();
                    if let Some(error) = joined.replaced.map(|error| causes(&error)) {
                        // It was told that it can't be read.
                        problems.retain(|told| *told != error);
                        problems.push(format!("{error}; it is replaced"));
                    }
                }
                // Nor could the others be.
                Err(error @ StoreError::Write { .. }) => return Err(error),
                Err(error) => problems.push(causes(&error)),
            }
        }
        if stays {
            let name = &record.name;
            problems.push(format!("events were lost, so clean packs of {name} stay"));
        }
        // Before anything was read ahead, all was missing.
        Ok(Some(run.over_time).filter(|_| run.replayed))
    }

    /// Joins what a phase touched of a file system into its pack there.
    fn join(
        &self,
        phase: &str,
        of: &FileSystem,
        new: Pack,
        known: Option<&Pack>,
        rule: Rule,
    ) -> Result<Joined, StoreError> {
        let path = self.machine.pack(phase, of);
        let nothing = Pack::default();
        let whole = self.whole.iter().find(|(touched, _)| touched.is(of));
        let whole = whole.map_or(&nothing, |(_, pack)| pack);
        let joined = join(&path, 0, new, known, rule, |before, pack| settle(pack, before, whole))?;
        if joined.written.is_some() && is_empty(&joined.pack) {
            // All of it was forgotten.
            fs::remove_file(&path).map_err(|source| StoreError::Write { path, source })?;
        }
        Ok(joined)
    }

    /// Removes packs of file systems that are not mounted, where there are too many.
    fn forget_some(&self, phases: &[&str], problems: &mut Vec<String>) {
        for phase in phases {
            let is_away = |known: &&Known| {
                known.file.phase == *phase && known.file.is_own && !known.is_mounted
            };
            let away = self.known.iter().filter(is_away);
            let away = away.map(|known| (known.pack.origin.learned_at, &known.file.path));
            for path in forgotten(away.collect()) {
                problems.push(match fs::remove_file(path) {
                    Ok(()) => format!(
                        "{} is removed: there are newer packs of other file systems that \
                         are not mounted",
                        names::path(path)
                    ),
                    Err(source) => causes(&StoreError::Write { path: path.clone(), source }),
                });
            }
        }
    }

    fn page_size(&self) -> u64 {
        self.seen.description.page_size
    }

    /// What came in when, but for what belongs to a phase. `began` is when it began to be
    /// recorded, in µs of the monotonic clock.
    fn timeline(&self, ahead: &Observation, began: u64) -> Timeline {
        let since_begin = |us: u64| us.saturating_sub(self.clock.began_us);
        let mut timeline = Timeline {
            schema: timeline::SCHEMA.into(),
            recorded_from_us: since_begin(began),
            recorded_until_us: since_begin(self.ended_us),
            ..Timeline::default()
        };
        timeline.enter(&Sight {
            boot: &self.seen.pages,
            ahead,
            names: &self.seen.names,
            file_systems: &self.file_systems,
            during: self.during.clone(),
            page_size: self.page_size(),
            clock: self.clock,
        });
        timeline
    }

    /// The packs of a phase as the replay of this boot found them, of each file system that
    /// is mounted the one that was learned here or else that of the image. Others are not of
    /// this boot, and stay as they are.
    fn known(&self, phase: &str) -> Vec<&Known> {
        let mut out: Vec<&Known> = Vec::new();
        for known in self.known.iter().filter(|known| known.is_mounted) {
            let is_new = !out.iter().any(|better| better.of.is(&known.of));
            if known.file.phase == phase && is_new {
                out.push(known);
            }
        }
        out
    }
}

/// What these replays read of the packs that they name.
fn read_ahead(replays: &[&Replayed]) -> Option<Pack> {
    let mut paths: Vec<&PathBuf> = replays.iter().flat_map(|replayed| &replayed.packs).collect();
    paths.sort();
    paths.dedup();
    let packs = paths.iter().filter_map(|path| store::read(path, 0).ok());
    let read = packs.map(|pack| chosen(&pack, Frequency::TWO_OF_THREE));
    read.reduce(|one, other| merge(&one, &other, Rule::Union))
}

/// What these threads brought into memory.
fn brought_in_by(threads: &HashSet<i32>, capture: &Capture) -> Result<Observation, SeenError> {
    let rules = Rules {
        block_devices: capture.description.block_devices.iter().map(|dev| Dev(*dev)).collect(),
        ..Rules::default()
    };
    Ok(fold(capture.events()?.filter(|event| threads.contains(&event.tid)), &rules))
}

/// Whether all of a pack was read ahead and nearly all of the phase found.
fn was_complete(replays: &[&Replayed], outcome: &Outcome) -> bool {
    let whole = |replayed: &&Replayed| replayed.report.is_whole();
    !replays.is_empty() && replays.iter().all(whole) && outcome.ready_share() >= COMPLETE_SHARE
}

/// From the begin of the boot until a unit was active, in ms.
fn since_begin(moments: &Moments, unit: &str) -> Option<f64> {
    let at = moments.units.get(unit)?;
    Some(at.saturating_sub(moments.began) as f64 / 1000.0)
}

fn boot_id(machine: &Machine) -> String {
    let path = machine.place("/proc/sys/kernel/random/boot_id");
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

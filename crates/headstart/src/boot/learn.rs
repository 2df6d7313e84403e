//! Learns a recorded boot: the packs of its phases, and its record. The driver behind
//! [`super::record`].
//!
//! It resolves names once for the whole boot, cuts it into phases, and joins each phase into its
//! packs, one for each file system.

use super::across_phases::settle;
use super::cut::cut;
use super::history::{BootRecord, PhaseRecord, SCHEMA};
use super::machine::Machine;
use super::mounted::Mounted;
use super::packs::{self, KnownPack};
use super::phases::{DEFAULT_TARGET, Interval, Moments, Phase, spans};
use super::record::RecordError;
use super::replay_records::{self, ReplayRecord};
use super::root_copies;
use super::split::{is_empty, split, with_untouched};
use super::timeline::{self, Clock, Sight, Timeline};
use super::unit_times::UnitTimes;
use crate::host::clock::{micros, monotonic_us};
use crate::host::contents;
use crate::host::error::causes;
use crate::host::id::Dev;
use crate::host::names;
use crate::host::proc::in_first_pid_namespace;
use crate::launch::policy::{FREQUENT_IN_BOOTS, Learning};
use crate::launch::recorded_launch::{Prefetched, RecordedLaunch};
use crate::outcome::last_run::OverTime;
use crate::pack::join::{Joined, join};
use crate::pack::merge::{Rule, merge};
use crate::pack::store::{self, StoreError};
use crate::pack::{EarlierNames, FileSystem, Pack};
use crate::profile::fold::{Observation, Rules, fold};
use crate::profile::seen::{self, Decoded, Seen, SeenError};
use crate::trace::file::Capture;
use std::borrow::Cow;
use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A boot as it was recorded.
#[derive(Debug)]
pub(super) struct RecordedBoot {
    pub capture: Capture,
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
    launch: RecordedLaunch,
    /// All of it, by file system.
    whole: Vec<(FileSystem, Pack)>,
    /// The packs that there were before it was learned.
    known: Vec<KnownPack>,
    replays: Vec<ReplayRecord>,
    /// From the trace clock to that of the boot.
    clock: Clock,
    /// From when until when it was recorded, in µs of the monotonic clock.
    recorded: Interval,
}

/// Learns a boot.
pub(super) fn learn(
    machine: &Machine,
    phases: &[Phase],
    moments: &Moments,
    recorded: RecordedBoot,
) -> Result<BootRecord, RecordError> {
    let RecordedBoot { capture, began, askers, source, missed_ms, ended, units } = recorded;
    let end = monotonic_us().saturating_sub(micros(ended.elapsed()));
    let recorded = Interval { begin: began, end };
    let ahead_ns = capture.description.clock_ahead_ns.ok_or(RecordError::Clock)?;
    let clock = Clock { ahead_ns: ahead_ns.into(), began_us: moments.began };
    let names: Vec<&str> = phases.iter().map(|phase| phase.name.as_str()).collect();
    let mut problems = Vec::new();
    let (boot, ahead) =
        Boot::of(machine, capture, &askers, &names, clock, recorded, &mut problems)?;
    let spans = spans(phases, moments);
    let mut record = boot.record(moments, problems);
    (record.source, record.missed_ms) = (source.into(), missed_ms);
    let mut timeline = boot.timeline(&ahead);
    match units {
        Ok((units, skipped)) => (timeline.units, timeline.units_skipped) = (units, skipped),
        Err(error) => record.problems.push(format!("the times of units are not known: {error}")),
    }
    let windows: Vec<_> = spans.iter().map(|span| clock.window(*span)).collect();
    for ((phase, span), part) in phases.iter().zip(spans).zip(cut(boot.pages(), &windows)) {
        let mut of_phase = boot.record_of(phase, span);
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
    if let Err(error) = root_copies::keep(machine) {
        record.problems.push(causes(&error));
    }
    record.learn_ms = ended.elapsed().as_secs_f64() * 1000.0;
    machine.keep(&mut record, Some(&timeline))?;
    Ok(record)
}

/// The names in the packs of what is mounted.
fn earlier_names(known: &[KnownPack]) -> EarlierNames {
    let mut names = EarlierNames::new();
    let here = known.iter().filter(|known| known.is_mounted);
    for (ino, paths) in here.flat_map(|known| known.pack.names()) {
        names.entry(ino).or_default().extend(paths);
    }
    names
}

impl Boot<'_> {
    /// A boot that was captured, with the packs of these phases, and what our replays brought
    /// in.
    fn of<'a>(
        machine: &'a Machine,
        mut capture: Capture,
        askers: &[i32],
        phases: &[&str],
        clock: Clock,
        recorded: Interval,
        problems: &mut Vec<String>,
    ) -> Result<(Boot<'a>, Observation), RecordError> {
        let replays = replay_records::all(machine);
        let mounts = seen::complete(&mut capture)?;
        if in_first_pid_namespace() {
            capture.description.ignored_tids.extend(askers);
        }
        let readers = replay_records::threads(&replays);
        let ahead = brought_in_by(&readers, &capture)?;
        capture.description.ignored_tids.extend(readers);
        let mut mounted = Mounted::default();
        mounted.look()?;
        let known = packs::known(machine, phases, &mut mounted, problems);
        // A walk would read all directories of a disk that has just become quiet.
        let decoded = Decoded::of(capture)?;
        let limit = Learning::BOOT.names_limit;
        let seen = decoded.named(&mounts, &earlier_names(&known), None, limit);
        let lasted = Duration::from_micros(monotonic_us().saturating_sub(clock.began_us));
        let launch = RecordedLaunch::new(seen, mounts, lasted, Learning::BOOT);
        let whole =
            split(&launch.pack("boot", Vec::new(), Cow::Borrowed(&launch.seen.pages), false));
        Ok((Boot { machine, launch, whole, known, replays, clock, recorded }, ahead))
    }

    /// What is kept of the boot but for its phases.
    fn record(&self, moments: &Moments, problems: Vec<String>) -> BootRecord {
        let Seen { names, tally, description, .. } = &self.launch.seen;
        BootRecord {
            schema: SCHEMA.into(),
            boot_id: boot_id(self.machine),
            recorded_at: u64::try_from(seen::now_ns() / 1_000_000_000).unwrap_or(0),
            kernel: description.kernel.clone(),
            events: tally.events,
            lost_events: tally.lost,
            local_fs_ms: since_begin(moments, "local-fs.target"),
            default_target_ms: since_begin(moments, DEFAULT_TARGET),
            replayed: !self.replays.is_empty(),
            problems: names.problems.iter().map(|p| causes(p)).chain(problems).collect(),
            ..BootRecord::default()
        }
    }

    /// What is kept of a phase before it is learned.
    fn record_of(&self, phase: &Phase, span: Option<Interval>) -> PhaseRecord {
        let ms = |us: u64| us.saturating_sub(self.clock.began_us) as f64 / 1000.0;
        let replays = self.replays_of(&phase.name);
        PhaseRecord {
            name: phase.name.clone(),
            begin_ms: span.map(|span| ms(span.begin)),
            end_ms: span.map(|span| ms(span.end)),
            prefetched_bytes: replays.clone().map(|replayed| replayed.report.bytes).sum(),
            requests: replays.map(|replayed| replayed.report.requests).sum(),
            ..PhaseRecord::default()
        }
    }

    fn pages(&self) -> &Observation {
        &self.launch.seen.pages
    }

    fn replays_of(&self, phase: &str) -> impl Iterator<Item = &ReplayRecord> + Clone {
        self.replays.iter().filter(move |replayed| replayed.phase == phase)
    }

    /// What these replays read of the packs that they name.
    fn prefetched<'a>(
        &self,
        replays: impl Iterator<Item = &'a ReplayRecord>,
    ) -> Option<Cow<'_, Pack>> {
        let paths: HashSet<&PathBuf> = replays.flat_map(|replayed| &replayed.packs).collect();
        let packs = self.known.iter().filter(|known| paths.contains(&known.file.path));
        let read = packs.map(|known| FREQUENT_IN_BOOTS.chosen(&known.pack));
        read.reduce(|one, other| Cow::Owned(merge(&*one, &*other, Rule::Union)))
    }

    /// Joins a phase into its packs, if it `was_seen`.
    fn learn_phase(
        &self,
        part: &Observation,
        was_seen: bool,
        record: &mut PhaseRecord,
        problems: &mut Vec<String>,
    ) -> Result<Option<OverTime>, StoreError> {
        if !was_seen {
            return Ok(None);
        }
        let known = self.known(&record.name);
        let replays = self.replays_of(&record.name);
        let ahead = Prefetched {
            packs: known.iter().map(|known| &known.pack).collect(),
            read: self.prefetched(replays.clone()),
            reports: replays.map(|replayed| replayed.report).collect(),
            ..Prefetched::default()
        };
        let (outcome, run) = self.launch.classify(part, &ahead);
        record.outcome = outcome;
        let nothing = part.files.is_empty() && part.metadata.is_empty();
        if nothing && known.is_empty() {
            return Ok(None);
        }
        let was_complete = ahead.was_complete(&outcome);
        let new = self.launch.pack(&record.name, Vec::new(), Cow::Borrowed(part), was_complete);
        // The times of boots are without waits.
        let rule = self.launch.rule(part, &ahead, None);
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
        // Before anything was prefetched, all was missing.
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
        let locked = store::lock(&path)?;
        let settle = |before: Option<&Pack>| {
            let before = before.cloned();
            move |pack: &mut Pack| settle(pack, before.as_ref(), whole)
        };
        let joined = join(locked, 0, new, known.cloned(), rule, settle)?;
        if joined.written.is_some() && is_empty(&joined.pack) {
            // All of it was forgotten.
            fs::remove_file(&path).map_err(|source| StoreError::Write { path, source })?;
        }
        Ok(joined)
    }

    /// Removes packs of file systems that are not mounted, where there are too many.
    fn forget_some(&self, phases: &[&str], problems: &mut Vec<String>) {
        for phase in phases {
            let is_away = |known: &&KnownPack| {
                known.file.phase == *phase && known.file.is_own && !known.is_mounted
            };
            let away = self.known.iter().filter(is_away);
            let away = away.map(|known| (known.pack.origin.learned_at, &known.file.path));
            for path in packs::forgotten(away.collect()) {
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
        self.launch.seen.description.page_size
    }

    /// What came in when, but for what belongs to a phase.
    fn timeline(&self, ahead: &Observation) -> Timeline {
        let since_begin = |us: u64| us.saturating_sub(self.clock.began_us);
        let mut timeline = Timeline {
            schema: timeline::SCHEMA.into(),
            recorded_from_us: since_begin(self.recorded.begin),
            recorded_until_us: since_begin(self.recorded.end),
            ..Timeline::default()
        };
        timeline.enter(&Sight {
            boot: self.pages(),
            ahead,
            names: &self.launch.seen.names,
            file_systems: &self.launch.file_systems,
            during: self.launch.during.clone(),
            page_size: self.page_size(),
            clock: self.clock,
        });
        timeline
    }

    /// The packs of a phase as the replay of this boot found them, of each file system that
    /// is mounted the one that was learned here or else that of the image. Others are not of
    /// this boot, and stay as they are.
    fn known(&self, phase: &str) -> Vec<&KnownPack> {
        let mut out: Vec<&KnownPack> = Vec::new();
        for known in self.known.iter().filter(|known| known.is_mounted) {
            let is_new = !out.iter().any(|better| better.of.is(&known.of));
            if known.file.phase == phase && is_new {
                out.push(known);
            }
        }
        out
    }
}

/// What these threads brought into memory.
fn brought_in_by(threads: &HashSet<i32>, capture: &Capture) -> Result<Observation, SeenError> {
    let rules = Rules {
        block_devices: capture.description.block_devices.iter().map(|dev| Dev(*dev)).collect(),
        ..Rules::default()
    };
    Ok(fold(capture.events()?.filter(|event| threads.contains(&event.tid)), &rules))
}

/// From the beginning of the boot until a unit was active, in ms.
fn since_begin(moments: &Moments, unit: &str) -> Option<f64> {
    let at = moments.units.get(unit)?;
    Some(at.saturating_sub(moments.began) as f64 / 1000.0)
}

fn boot_id(machine: &Machine) -> String {
    let path = machine.place("/proc/sys/kernel/random/boot_id");
    contents::text(path).unwrap_or_default().trim().to_owned()
}

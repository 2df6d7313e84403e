//! Learns a start while it happens and joins it into its pack: from an armed
//! recorder to a written file. Prints nothing but the progress of a walk.

use crate::output;
use anyhow::Context;
use headstart::id::Dev;
use headstart::measure::outcome::Outcome;
use headstart::pack::build::Parts;
use headstart::pack::merge::{Rule, accepts, merge};
use headstart::pack::paths::PathInterner;
use headstart::pack::store::{self, StoreError};
use headstart::pack::{FileSystem, Origin, Pack};
use headstart::proc;
use headstart::profile::code::code_of;
use headstart::profile::fold::{Observation, Rules, fold};
use headstart::profile::fsid;
use headstart::profile::learn::{Start, pack_of_start};
use headstart::profile::mounts::MountTable;
use headstart::profile::resolve::{LiveNames, Resolution, ResolveOptions, WalkProgress, resolve};
use headstart::profile::spans::Spans;
use headstart::replay::models::Models;
use headstart::replay::report::Report;
use headstart::trace::Kind;
use headstart::trace::capture::{BufferSize, Recorder, Scope};
use headstart::trace::decode::Tally;
use headstart::trace::file::Capture;
use headstart::trace::tracefs::{Instance, Tracefs};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Starts after whose absence a range is dropped.
pub const DEFAULT_KEEP: u32 = 4;
/// A replay counts as complete when this share of what was touched was ready.
const COMPLETE_SHARE: f64 = 0.9;

/// The UUID of a file system that was made without one.
const NIL: [u8; 16] = [0; 16];

/// What a learner is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program's name, for people.
    pub name: String,
    /// The file name of its pack.
    pub file_name: String,
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
}

/// Figures of a learned start.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Learned {
    /// The pack that was written.
    pub pack: PathBuf,
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
    /// Inodes of this start that got no place in the pack.
    pub dropped: headstart::pack::Dropped,
    /// Directory entries looked at in search of names.
    pub walked_entries: u64,
    /// Time for names, in µs.
    pub resolve_us: u64,
    /// Time from the end of the start to the written pack, in µs.
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
}

/// A recorder, or why there is none.
pub enum Armed {
    /// It records.
    Recorder(Recorder),
    /// It was not there in time. The thread ends when it has been cleared
    /// away.
    Late(JoinHandle<()>),
}

/// Arms a recorder for a process that waits, or for the whole machine, unless
/// that takes longer than `patience`.
pub fn arm(
    scope: Scope,
    buffer: BufferSize,
    watch: bool,
    patience: Duration,
) -> anyhow::Result<Armed> {
    // Without a buffer: it is received, or it comes back.
    let (sender, receiver) = sync_channel(0);
    let arm = move || {
        if let Err(unwanted) = sender.send(arm_now(scope, buffer, watch)) {
            let _ = unwanted.0.map(give_up);
        }
    };
    let thread =
        thread::Builder::new().name("arm".into()).spawn(arm).context("Can't start a thread")?;
    match receiver.recv_timeout(patience) {
        Ok(armed) => armed.map(Armed::Recorder),
        Err(RecvTimeoutError::Timeout) => Ok(Armed::Late(thread)),
        Err(RecvTimeoutError::Disconnected) => anyhow::bail!("The arming thread died"),
    }
}

/// Arms a recorder on the calling thread, as [`Scope::Descendants`] needs it.
pub fn arm_now(scope: Scope, buffer: BufferSize, watch: bool) -> anyhow::Result<Recorder> {
    let tracefs = Tracefs::locate()?;
    if tracefs.mounted_now {
        output::message("mounted tracefs on /sys/kernel/tracing, where recording needs it");
    }
    Ok(Recorder::start(&tracefs, scope, buffer, watch)?)
}

/// Ends a recording that nobody wants.
pub fn give_up(recorder: Recorder) {
    // After a failure it has gone by itself.
    if let Ok((_, instance)) = recorder.finish() {
        remove(instance);
    }
}

/// Removes an instance that has served its purpose.
pub fn remove(instance: Instance) {
    // Elsewhere a background process may end with its namespace, so dropping
    // the instance waits for the removal.
    if proc::in_first_pid_namespace() {
        instance.remove_in_background();
    }
}

/// Removes the trace instances that killed headstarts left behind. It takes
/// the kernel a while, so it is done beside the program.
pub fn remove_orphans() {
    // Where there is no tracefs, or none for us, there is nothing to remove.
    if let Ok(Some(tracefs)) = Tracefs::mounted() {
        tracefs.remove_orphans();
    }
}

/// Measures the device of a pack that was just learned, if it never was. That
/// takes a moment, once, after the program has ended.
pub fn know_device(pack: &Path, models: &Models) {
    // What keeps it from being read is said when it is to be replayed.
    if let Ok(pack) = store::read(pack, rustix::process::geteuid().as_raw()) {
        models.measure_new(&pack);
    }
}

/// The moment before a start, to tell later what was written during it.
pub fn now_ns() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}

/// Ends the recording of a start, joins it into its pack and says what became
/// of the pages. The instance is handed back for removal.
pub fn learn(
    recorder: Recorder,
    began_ns: i64,
    settings: &Settings,
    known: Known<'_>,
    uid: u32,
) -> anyhow::Result<(Learned, Outcome, Instance)> {
    let from = Instant::now();
    let (mut capture, instance) = recorder.finish()?;
    let mounts = MountTable::read()?;
    let devices: HashSet<Dev> =
        mounts.mounts().iter().map(|m| m.dev).filter(|dev| dev.major() != 0).collect();
    capture.description.block_devices = devices.iter().map(|dev| dev.0).collect();
    capture.description.ignored_tids.extend(own_threads());
    if let Some(path) = &settings.trace_out {
        let bytes = capture.to_bytes()?;
        std::fs::write(path, bytes).with_context(|| format!("Can't write {}", path.display()))?;
    }
    let (seen, tally) = observe(&capture, devices)?;
    if tally.events == 0 {
        anyhow::bail!("The kernel reported no events of the program");
    }
    drop_raw(&mut capture);

    let mut live = LiveNames::new();
    let tids: Vec<i32> = seen.tids.iter().copied().collect();
    live.observe(&tids);
    let earlier = known.pack.map(names_of).unwrap_or_default();
    let names = find_names(&seen, &mounts, &live, &earlier, settings.walk);
    let resolve_us = micros(names.elapsed);

    let outcome = outcome(&seen, &names, known.pack.filter(|_| known.replay.is_some()));
    let start = Start {
        origin: origin(settings, &capture, &seen, tally.lost),
        file_systems: file_systems(&seen, &names, &mounts),
        began_ns,
        keep_untouched: was_complete(known, &outcome),
    };
    let new = pack_of_start(&seen, &names, start, code_of);
    let seen_metadata = metadata_was_cold(&seen, &capture, known);
    let rule = Rule::NextStart { keep: settings.keep, metadata_seen: seen_metadata };

    let mut learned = Learned {
        pack: settings.pack.clone(),
        events: tally.events,
        lost_events: tally.lost,
        dropped: new.origin.dropped,
        walked_entries: names.walked_entries,
        resolve_us,
        problems: names.problems.iter().map(|p| output::causes(p)).collect(),
        ..Learned::default()
    };
    let locked = store::lock(&settings.pack)?;
    // Another start may have been learned since this one began.
    let old = match store::read(&settings.pack, uid) {
        Ok(old) => Some(old),
        // What came with an image is the begin of what is learned here.
        Err(StoreError::Missing(_)) => known.pack.cloned(),
        Err(error @ StoreError::Content { .. }) => {
            learned.problems.push(format!("{}; it is replaced", output::causes(&error)));
            None
        }
        Err(error) => return Err(error.into()),
    };
    // Pages of another size can't be told apart by number.
    let old = old.filter(|old| old.origin.page_shift == new.origin.page_shift);
    let pack = match old {
        Some(old) if !accepts(&old, tally.lost) => {
            learned.problems.push("events were lost, so the clean pack stays as it is".into());
            describe(&mut learned, &old);
            learned.learn_us = micros(from.elapsed());
            return Ok((learned, outcome, instance));
        }
        Some(old) => merge(&old, &new, rule),
        None => new,
    };
    learned.pack_bytes = locked.write(&pack)?;
    learned.written = true;
    describe(&mut learned, &pack);
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

/// The raw pages are no longer needed, and may be large.
fn drop_raw(capture: &mut Capture) {
    capture.bytes = Vec::new();
    capture.pages = Vec::new();
}

fn own_threads() -> Vec<i32> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks.filter_map(|t| t.file_name().to_str()?.parse().ok()).collect()
}

/// Decodes and folds a capture.
fn observe(capture: &Capture, block_devices: HashSet<Dev>) -> anyhow::Result<(Observation, Tally)> {
    let rules = Rules {
        block_devices,
        ignored_tids: capture.description.ignored_tids.iter().copied().collect(),
        has_access_events: capture.has_access_events(),
    };
    let mut events = capture.events()?;
    let seen = fold(&mut events, &rules);
    Ok((seen, events.tally()))
}

/// The names in a pack, by inode number.
fn names_of(pack: &Pack) -> HashMap<u64, Vec<PathBuf>> {
    let mut names: HashMap<_, Vec<_>> = HashMap::new();
    for file in &pack.files {
        names.entry(file.identity.ino).or_default().push(pack.paths.path(file.node));
    }
    names
}

fn find_names(
    seen: &Observation,
    mounts: &MountTable,
    live: &LiveNames,
    earlier: &HashMap<u64, Vec<PathBuf>>,
    walk: bool,
) -> Resolution {
    let ids: Vec<_> = seen.files.keys().copied().collect();
    let terminal = std::io::stderr().is_terminal();
    let progress = |p: WalkProgress| {
        if terminal {
            output::progress(&format!("looking for {} files: {} names seen", p.wanted, p.entries));
        }
    };
    let mut options = ResolveOptions::new(mounts);
    options.walk = walk;
    options.live = Some(live);
    options.earlier = Some(earlier);
    options.progress = Some(&progress);
    let names = resolve(&ids, &options);
    if terminal && names.walked_entries > 0 {
        output::progress("");
    }
    names
}

/// The file systems that the start touched.
fn file_systems(
    seen: &Observation,
    names: &Resolution,
    mounts: &MountTable,
) -> HashMap<Dev, FileSystem> {
    let devices: HashSet<Dev> =
        names.files.iter().map(|(id, _)| id.dev).chain(seen.metadata.keys().copied()).collect();
    let describe = |dev: Dev| {
        let mount = *mounts.visible_of(dev).first()?;
        Some(FileSystem {
            // Without one the file system is told by its type and source.
            uuid: fsid::uuid(mount).ok().flatten().map(|uuid| uuid.0).filter(|id| *id != NIL),
            kind: mount.fstype.to_string_lossy().into_owned(),
            source: mount.source.as_bytes().to_vec(),
        })
    };
    devices.into_iter().filter_map(|dev| Some((dev, describe(dev)?))).collect()
}

fn origin(settings: &Settings, capture: &Capture, seen: &Observation, lost: u64) -> Origin {
    let words: Vec<&[u8]> = settings.command.iter().map(|word| word.as_bytes()).collect();
    Origin {
        name: settings.name.clone(),
        command: words.join(&0),
        kernel: capture.description.kernel.clone(),
        page_shift: capture.description.page_size.trailing_zeros() as u8,
        starts: 1,
        learned_at: u64::try_from(now_ns() / 1_000_000_000).unwrap_or(0),
        lost_events: lost,
        has_access_events: seen.has_access_events,
        buffer_kb: capture.description.buffer_kb,
        duration_us: seen.duration / 1000,
        dropped: headstart::pack::Dropped::default(),
    }
}

/// What became of the pages that were planned and touched.
fn outcome(seen: &Observation, names: &Resolution, pack: Option<&Pack>) -> Outcome {
    let mut paths = PathInterner::default();
    let mut planned = pack.map(|pack| Parts::of(pack, &mut paths)).unwrap_or_default();
    let mut outcome = Outcome::default();
    let none = Spans::default();
    let mut named = HashSet::new();
    for (id, file) in &names.files {
        let Some(pages) = seen.files.get(id) else { continue };
        named.insert(*id);
        let node = paths.find(&file.path);
        let part =
            node.and_then(|node| planned.files.remove(&node)).filter(|p| p.identity.ino == id.ino);
        let spans = part.map(|p| spans_of(&p.pieces)).unwrap_or_default();
        let page = rustix::param::page_size() as u64;
        let mut touched = pages.touched.clone();
        touched.cut(file.size.div_ceil(page));
        outcome.add(&touched, &pages.inserted, &spans);
    }
    for (_, pages) in seen.files.iter().filter(|(id, _)| !named.contains(id)) {
        outcome.add(&pages.touched, &pages.inserted, &none);
    }
    for part in planned.files.values() {
        outcome.add(&none, &none, &spans_of(&part.pieces));
    }
    outcome
}

fn spans_of(pieces: &[headstart::pack::pieces::Piece]) -> Spans {
    let mut spans = Spans::default();
    for p in pieces {
        spans.touch(p.first, p.end - p.first, 0, p.how);
    }
    spans
}

/// Whether all of a pack was read ahead and nearly all of the start found.
fn was_complete(known: Known<'_>, outcome: &Outcome) -> bool {
    known.replay.is_some_and(|r| r.complete && r.over_budget_bytes == 0)
        && outcome.ready_share() >= COMPLETE_SHARE
}

/// Whether the metadata that the start needed was not in memory, so that what
/// it did not look at was not needed: at least half of what the pack has was
/// brought in, by the start or by the replay.
fn metadata_was_cold(seen: &Observation, capture: &Capture, known: Known<'_>) -> bool {
    let touches_known =
        capture.description.decoder().is_ok_and(|decoder| decoder.knows(Kind::Metadata));
    let in_pack = known.pack.map_or(0, Pack::metadata_bytes);
    let by_start: u64 = seen.metadata.values().map(|pages| pages.inserted.pages()).sum();
    let by_replay = known.replay.map_or(0, |r| r.metadata_bytes);
    let brought_in = by_start * capture.description.page_size + by_replay;
    touches_known && in_pack > 0 && brought_in * 2 >= in_pack
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

//! Records a boot from the kernel's begin, or from that of an early unit, until its last phase is
//! over. The driver: it takes over the trace, waits, and passes the recording to `learn`. The boot
//! never waits for it.

use super::learn::{RecordedBoot, learn};
use super::logins;
use super::machine::{Machine, MachineError};
use super::mounted::Mounted;
use super::phases::{DEFAULT_TARGET, Moments, Phase, spans};
use super::systemd::systemctl::Systemctl;
use super::systemd::{Activations, bus, finished, is_booted, unit_times, units_of};
use crate::boot::history::BootRecord;
use crate::host::clock::monotonic_us;
use crate::host::contents;
use crate::host::memory;
use crate::host::names;
use crate::host::proc::in_first_pid_namespace;
use crate::launch::LaunchError;
use crate::trace::capture::{CaptureError, Earlier, Recorder, RecordingLimits, Sizes};
use crate::trace::file::Capture;
use crate::trace::instance::Instance;
use crate::trace::tracefs::Tracefs;
use rustix::fs::FlockOperation;
use std::fs::{self, File};
use std::io;
use std::time::{Duration, Instant};
use thiserror::Error;

/// The trace instance that the kernel's command line is to make.
pub const INSTANCE: &str = "headstart-boot";
/// The file below `/run/headstart` that marks this boot as recorded.
const RECORDED: &str = "recorded";

/// How often the progress of the boot is checked.
const TICK: Duration = Duration::from_secs(2);
/// Bytes of raw trace that are kept, and what share of the memory at most.
const RAW_BYTES: std::ops::RangeInclusive<u64> = 16 << 20..=256 << 20;
const RAW_SHARE: u64 = 16;

/// Why a boot was not learned.
#[derive(Debug, Error)]
pub enum RecordError {
    /// Another recorder is at work.
    #[error("Another headstart records this boot; one is enough")]
    Busy,
    /// A recorder has ended before.
    #[error("This boot was recorded before, or its recorder was killed; the next boot is learned")]
    Again,
    /// The recorder came too late.
    #[error("This boot is over; `headstart boot enable` lets each further boot be recorded early")]
    Over,
    /// The errors of any launch.
    #[error(transparent)]
    Launch(LaunchError),
    /// A file of ours.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// There is no directory for packs.
    #[error("{} is not mounted, so this boot is not learned", names::path(.0))]
    NoState(std::path::PathBuf),
    /// The clock of its events can't be compared with the monotonic one.
    #[error("The trace clock can't be read any more, so this boot is not learned")]
    Clock,
    /// systemd did not report the ends of the phases.
    #[error("systemd did not report the progress of the boot, so it is not learned")]
    Systemd(#[source] io::Error),
}

impl<E: Into<LaunchError>> From<E> for RecordError {
    fn from(error: E) -> Self {
        Self::Launch(error.into())
    }
}

/// How a boot is to be recorded.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// The trace instance that may be there.
    pub instance: String,
    /// When to end even if a phase is not over.
    pub limit: Duration,
}

/// Where the trace came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    /// An instance that the kernel made.
    Adopted,
    /// The global instance until there was one of ours.
    Global,
    /// An instance of ours.
    Own,
}

impl Source {
    fn words(self) -> &'static str {
        match self {
            Self::Adopted => "the kernel's first page on (trace_instance)",
            Self::Global => "the kernel's first page on (trace_event)",
            Self::Own => "an early unit on",
        }
    }
}

/// A recording under way.
struct Recording {
    recorder: Recorder,
    source: Source,
    /// When it began, in µs of the monotonic clock; 0 for one that the kernel began.
    began: u64,
}

/// Waits for a while; whether the recording is asked to end.
pub type Wait<'a> = &'a dyn Fn(Duration) -> bool;

/// Records the boot of this machine and learns it: until it is over, or as far as it came
/// when the recording was asked to end.
///
/// # Errors
/// Why it is not learned.
pub fn record(
    machine: &Machine,
    options: &RecordOptions,
    wait: Wait<'_>,
) -> Result<BootRecord, RecordError> {
    let _alone = the_only_recorder(machine)?;
    let recorded = record_alone(machine, options, wait);
    if recorded.is_err() {
        discard(machine, &options.instance);
    }
    recorded
}

/// Removes the trace that the kernel's command line started and that is not wanted, so that it
/// costs nothing any more, and what killed recorders left.
pub fn discard(machine: &Machine, instance: &str) {
    let has_option = has_option(machine, &["trace_instance=", "trace_event="]);
    // It may not be mounted yet early in a boot.
    let tracefs = if has_option { Tracefs::locate().map(Some) } else { Tracefs::mounted() };
    // Where there is no tracefs there is nothing to remove.
    if let Ok(Some(tracefs)) = tracefs {
        tracefs.remove_orphans();
        // Immediately: a process in the background would end with our unit.
        drop(Instance::adopt(&tracefs, instance));
        let _ = of_global(machine, &tracefs);
    }
}

/// Whether the kernel's command line has a word that begins so.
fn has_option(machine: &Machine, begins: &[&str]) -> bool {
    let command_line = contents::text(machine.place("/proc/cmdline")).unwrap_or_default();
    let mut words = command_line.split_ascii_whitespace();
    words.any(|word| begins.iter().any(|begin| word.starts_with(begin)))
}

/// Removes the trace instances that killed headstarts left: those of starts, and that of a boot,
/// which no other recorder takes over in this boot. It takes the kernel a while, so it is done in
/// parallel with a program.
pub fn remove_orphans(machine: &Machine) {
    // Without tracefs there is nothing to remove.
    let Ok(Some(tracefs)) = Tracefs::mounted() else { return };
    tracefs.remove_orphans();
    let is_left = tracefs.has(INSTANCE) && machine.run().join(RECORDED).exists();
    if is_left && the_only_recorder(machine).is_ok() {
        discard(machine, INSTANCE);
    }
}

/// What the global trace holds, if the kernel's command line says that it is ours.
fn of_global(machine: &Machine, tracefs: &Tracefs) -> Result<Option<Earlier>, CaptureError> {
    if has_option(machine, &["trace_event="]) { Earlier::of_global(tracefs) } else { Ok(None) }
}

fn record_alone(
    machine: &Machine,
    options: &RecordOptions,
    wait: Wait<'_>,
) -> Result<BootRecord, RecordError> {
    mark(machine)?;
    let phases = machine.phases()?;
    let Recording { recorder, source, began } = begin(machine, options)?;
    let followed = follow(machine, options, &phases, (&recorder, began), wait);
    let ended = Instant::now();
    let (capture, instance): (Capture, Instance) = recorder.finish()?;
    remove(instance);
    let (moments, activations) = followed?;
    // Below the mount point it would hide what is learned later.
    let mut mounted = Mounted::default();
    mounted.look()?;
    if let Some(place) = machine.mounts_of_state().into_iter().find(|place| !mounted.at(place)) {
        return Err(RecordError::NoState(place));
    }
    // After the recording: such a long answer is no part of the boot.
    let units = unit_times(&Systemctl::of(machine), moments.began);
    let missed_us = began.saturating_sub(moments.user_space.unwrap_or(began));
    let recorded = RecordedBoot {
        capture,
        began,
        askers: activations.askers,
        source: source.words(),
        missed_ms: missed_us / 1000,
        ended,
        units,
    };
    learn(machine, &phases, &moments, recorded)
}

/// Keeps other recorders of this boot out.
fn the_only_recorder(machine: &Machine) -> Result<File, RecordError> {
    let path = machine.run().join("record.lock");
    let failed = |source| MachineError::Write { path: path.clone(), source };
    fs::create_dir_all(machine.run()).map_err(failed)?;
    let lock = File::options().create(true).append(true).open(&path).map_err(failed)?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(_) => Err(RecordError::Busy),
    }
}

/// Marks this boot as recorded: what a later recorder would learn is not a boot.
fn mark(machine: &Machine) -> Result<(), RecordError> {
    let path = machine.run().join(RECORDED);
    if path.exists() {
        return Err(RecordError::Again);
    }
    fs::write(&path, "").map_err(|source| MachineError::Write { path: path.clone(), source })?;
    Ok(())
}

/// Takes over what is recorded already, or begins.
fn begin(machine: &Machine, options: &RecordOptions) -> Result<Recording, RecordError> {
    let tracefs = Tracefs::locate()?;
    let most = memory::available().unwrap_or(0) / RAW_SHARE;
    let most = usize::try_from(most.clamp(*RAW_BYTES.start(), *RAW_BYTES.end()));
    let most = most.unwrap_or(usize::MAX);
    // This thread is no part of the boot, whatever its number in this namespace.
    let mut own = Vec::new();
    let (instance, source, earlier) = match Instance::adopt(&tracefs, &options.instance)? {
        Some(instance) => (instance, Source::Adopted, Earlier::default()),
        None => {
            let instance = Instance::create(&tracefs, None)?;
            if !in_first_pid_namespace() {
                own.extend(instance.own_tid());
            }
            instance.enable_events()?;
            let earlier = of_global(machine, &tracefs)?;
            let source = if earlier.is_some() { Source::Global } else { Source::Own };
            (instance, source, earlier.unwrap_or_default())
        }
    };
    // A boot whose clock can't be read is not worth recording.
    instance.now_ns()?;
    let began = if source == Source::Own { monotonic_us() } else { 0 };
    let bounds = RecordingLimits::here();
    let sizes = Sizes {
        // It is as large as the command line made it.
        may_change: source != Source::Adopted,
        bounds: Some(RecordingLimits { most, ..bounds }),
    };
    let recorder = Recorder::of(&tracefs, instance, own, earlier, sizes, true)?;
    Ok(Recording { recorder, source, began })
}

/// Waits until the last phase is over, or the time is up.
fn follow(
    machine: &Machine,
    options: &RecordOptions,
    phases: &[Phase],
    (recorder, began): (&Recorder, u64),
    wait: Wait<'_>,
) -> Result<(Moments, Activations), RecordError> {
    let units = units_of(phases);
    let since = Instant::now();
    let (socket, systemctl) = (machine.place(bus::SOCKET), Systemctl::of(machine));
    let systemd = (socket.as_path(), &systemctl);
    let in_container = machine.place("/run/systemd/container").exists();
    let mut activations = Activations::default();
    let mut moments = Moments::default();
    let mut first = true;
    loop {
        let is_stopped = wait(TICK.min(options.limit.saturating_sub(since.elapsed())));
        let answer = activations.query(systemd, &units);
        let out_of_time = is_stopped || since.elapsed() >= options.limit || recorder.is_full();
        if is_stopped
            && !is_booted(&activations)
            && let Ok(Some(at)) = finished(systemd)
        {
            activations.units.insert(DEFAULT_TARGET.to_owned(), at);
        }
        if let Err(error) = answer
            && out_of_time
            && activations.units.is_empty()
        {
            return Err(RecordError::Systemd(error));
        }
        if first && is_booted(&activations) && activations.units.values().all(|at| *at < began) {
            return Err(RecordError::Over);
        }
        first = first && activations.units.is_empty();
        moments.user_space = activations.user_space;
        moments.units.clone_from(&activations.units);
        moments.began = activations.user_space.filter(|_| in_container).unwrap_or(0);
        let login = logins::first(&machine.place("/run/systemd/sessions"));
        if let Some(login) = login
            && is_booted(&activations)
            && moments.session.is_none()
        {
            let idle = recorder.idle_for();
            moments.session = logins::quiet_since(login, monotonic_us(), idle);
        }
        let spans = spans(phases, &moments);
        for (phase, _) in phases.iter().zip(&spans).filter(|(_, span)| span.is_some()) {
            if !machine.is_over(&phase.name) {
                // Else its replay goes on for a while, which does little harm.
                let _ = machine.mark_over(&phase.name);
            }
        }
        if out_of_time || spans.iter().all(Option::is_some) {
            return Ok((moments, activations));
        }
    }
}

/// Removes an instance that has served its purpose, beside us where that can be.
fn remove(instance: Instance) {
    if in_first_pid_namespace() {
        instance.remove_in_background();
    }
}

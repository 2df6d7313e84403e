//! Records a boot from where the kernel or an early unit began, until its last phase is
//! over.
//!
//! The driver: it takes the trace over, waits, and hands out what there is to
//! [`super::learn`]. The boot never waits for it.

use super::learn::{Recorded, learn};
use super::logins;
use super::machine::{Machine, MachineError};
use super::phases::{Moments, Phase, spans};
use super::replayed::monotonic_us;
use super::systemd::{Told, is_booted, units_of};
use crate::boot::history::BootRecord;
use crate::pack::store::StoreError;
use crate::profile::mounts::MountsError;
use crate::profile::seen::SeenError;
use crate::replay::budget;
use crate::trace::capture::{Bounds, BufferSize, CaptureError, Earlier, Recorder};
use crate::trace::file::Capture;
use crate::trace::tracefs::{Instance, TraceError, Tracefs};
use rustix::fs::FlockOperation;
use std::fs::{self, File};
use std::io;
use std::thread;
use std::time::{Duration, Instant};
use thiserror::Error;

/// The trace instance that the kernel's command line is to make.
pub const INSTANCE: &str = "headstart-boot";

/// How often it is looked how far the boot is.
const TICK: Duration = Duration::from_secs(1);
/// How long reading has to have died down for a session to be there.
const QUIET: Duration = Duration::from_secs(2);
/// Bytes of raw trace that are kept, and what share of the memory at most.
const RAW_BYTES: std::ops::RangeInclusive<u64> = 16 << 20..=256 << 20;
const RAW_SHARE: u64 = 16;

/// Why a boot was not learned.
#[derive(Debug, Error)]
pub enum RecordError {
    /// Another recorder is at work.
    #[error("Another headstart records this boot; one is enough")]
    Busy,
    /// One was, and has ended.
    #[error("This boot was recorded before, or its recorder was killed; the next boot is learned")]
    Again,
    /// The recorder came too late.
    #[error("This boot is over; `headstart boot enable` lets each further boot be recorded early")]
    Over,
    /// Tracing is not to be had, or not to be read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// There is nothing in the trace.
    #[error(transparent)]
    Seen(#[from] SeenError),
    /// The mounts can't be read.
    #[error(transparent)]
    Mounts(#[from] MountsError),
    /// A file of ours.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// A pack.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Nobody told when the phases were over.
    #[error("systemd did not tell how far the boot is, so it is not learned")]
    Systemd(#[source] io::Error),
}

impl From<TraceError> for RecordError {
    fn from(error: TraceError) -> Self {
        Self::Capture(error.into())
    }
}

/// How a boot is to be recorded.
#[derive(Clone, Debug)]
pub struct Wanted {
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
    /// What the trace clock was ahead of the monotonic one, in nanoseconds.
    clock_ahead: i128,
    /// When it began, in µs of the monotonic clock.
    began: u64,
}

/// Records the boot of this machine and learns it.
///
/// # Errors
/// Why it is not learned.
pub fn record(machine: &Machine, wanted: &Wanted) -> Result<BootRecord, RecordError> {
    let phases = machine.phases()?;
    let _alone = alone(machine, wanted)?;
    let Recording { recorder, source, clock_ahead, began } = begin(wanted)?;
    let (moments, told) = match follow(machine, wanted, &phases, &recorder, began) {
        Ok(followed) => followed,
        Err(error) => {
            if let Ok((_, instance)) = recorder.finish() {
                remove(instance);
            }
            return Err(error);
        }
    };
    let ended = Instant::now();
    let (capture, instance): (Capture, Instance) = recorder.finish()?;
    remove(instance);
    let user_space = moments.user_space.unwrap_or(began);
    let missed_us = if source == Source::Own { began.saturating_sub(user_space) } else { 0 };
    let recorded = Recorded {
        capture,
        clock_ahead,
        began: if source == Source::Own { began } else { 0 },
        askers: told.askers,
        source: source.words(),
        missed_ms: missed_us / 1000,
        ended,
    };
    learn(machine, &phases, &moments, recorded)
}

/// Keeps other recorders of this boot out, also later ones: what they would learn is not
/// a boot.
fn alone(machine: &Machine, wanted: &Wanted) -> Result<File, RecordError> {
    let path = machine.run().join("record.lock");
    let failed = |source| MachineError::Write { path: path.clone(), source };
    fs::create_dir_all(machine.run()).map_err(failed)?;
    let lock = File::options().create(true).append(true).open(&path).map_err(failed)?;
    if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Err(RecordError::Busy);
    }
    let mark = machine.run().join("recorded");
    if mark.exists() {
        // What a killed recorder left in the kernel is of no use to anybody.
        if let Ok(Some(tracefs)) = Tracefs::mounted() {
            tracefs.remove_orphans();
            tracefs.adopt(&wanted.instance)?.into_iter().for_each(remove);
        }
        return Err(RecordError::Again);
    }
    fs::write(&mark, "").map_err(|source| MachineError::Write { path: mark.clone(), source })?;
    Ok(lock)
}

/// Takes over what is recorded already, or begins.
fn begin(wanted: &Wanted) -> Result<Recording, RecordError> {
    let tracefs = Tracefs::locate()?;
    let most = budget::memory().unwrap_or(0) / RAW_SHARE;
    let most = usize::try_from(most.clamp(*RAW_BYTES.start(), *RAW_BYTES.end()));
    let most = most.unwrap_or(usize::MAX);
    let (instance, source, earlier, buffer) = match tracefs.adopt(&wanted.instance)? {
        Some(instance) => {
            // As large as the command line made it.
            let buffer = BufferSize::Fixed(instance.buffer_kb()?);
            (instance, Source::Adopted, Earlier::default(), buffer)
        }
        None => {
            let instance = Instance::create(&tracefs, None)?;
            instance.enable_events()?;
            let earlier = Earlier::of_global(&tracefs)?;
            let source = if earlier.is_some() { Source::Global } else { Source::Own };
            (instance, source, earlier.unwrap_or_default(), BufferSize::Default)
        }
    };
    let began = monotonic_us();
    let clock_ahead = i128::from(instance.now_ns()?) - i128::from(monotonic_us()) * 1000;
    let bounds = Bounds { buffer, most };
    let recorder = Recorder::of(&tracefs, instance, Vec::new(), earlier, bounds, true)?;
    Ok(Recording { recorder, source, clock_ahead, began })
}

/// Waits until the last phase is over, or the time is up.
fn follow(
    machine: &Machine,
    wanted: &Wanted,
    phases: &[Phase],
    recorder: &Recorder,
    began: u64,
) -> Result<(Moments, Told), RecordError> {
    let units = units_of(phases);
    let since = Instant::now();
    let in_container = machine.place("/run/systemd/container").exists();
    let mut told = Told::default();
    let mut moments = Moments::default();
    let mut first = true;
    loop {
        thread::sleep(TICK.min(wanted.limit.saturating_sub(since.elapsed())));
        let answer = told.ask(&units);
        let out_of_time = since.elapsed() >= wanted.limit || recorder.is_full();
        if let Err(error) = answer
            && out_of_time
            && told.units.is_empty()
        {
            return Err(RecordError::Systemd(error));
        }
        if first && is_booted(&told) && told.units.values().all(|at| *at < began) {
            return Err(RecordError::Over);
        }
        first = first && told.units.is_empty();
        moments.user_space = told.user_space;
        moments.units.clone_from(&told.units);
        moments.began = told.user_space.filter(|_| in_container).unwrap_or(0);
        let login = logins::first(&machine.place("/run/systemd/sessions"));
        if login.is_some() && is_booted(&told) && recorder.idle_for() >= QUIET {
            let idle = u64::try_from(recorder.idle_for().as_micros()).unwrap_or(0);
            moments.session = Some(monotonic_us().saturating_sub(idle)).max(login);
        }
        if out_of_time || spans(phases, &moments).iter().all(Option::is_some) {
            return Ok((moments, told));
        }
    }
}

/// Removes an instance that has served its purpose, beside us where that can be.
fn remove(instance: Instance) {
    if crate::proc::in_first_pid_namespace() {
        instance.remove_in_background();
    }
}

//! One start of a service: prefetched, recorded and learned beside it.
//!
//! systemd starts the service when it is told that we are ready, or when we have ended.
//! Whatever fails here is one line in the journal and no failure of anything.

use super::{notify, pack_name};
use crate::ahead::remove_orphans;
use crate::exit::ExitStatus;
use crate::output;
use crate::summary::{Lesson, add_hitches, add_lesson, add_problems, add_report};
use anyhow::{Context, bail};
use headstart::boot::install;
use headstart::boot::machine::{Machine, Unwanted};
use headstart::boot::replayed::monotonic_us;
use headstart::boot::systemd::{self, bus};
use headstart::host::memory;
use headstart::host::proc;
use headstart::launch::learn::{DEFAULT_KEEP, Known, Settings, Target, know_device};
use headstart::launch::learner::Learner;
use headstart::launch::policy::Bounds;
use headstart::launch::prepare::{Ahead, Preparation, Prepared, WELL_KNOWN, Wanted};
use headstart::launch::record::{self, Recorded, Recording, buffer_of};
use headstart::pack::Pack;
use headstart::replay::engine::Replay;
use headstart::replay::models::Models;
use headstart::service::members::Members;
use headstart::trace::capture::Scope;
use headstart_sys::interrupt::Interrupt;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long the service may wait until it can be recorded: 5 ms are usual; more it takes
/// when the kernel is busy with other recordings, as when several services start at boot.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same for a service of which [`WELL_KNOWN`] starts were learned.
const SHORT_PATIENCE: Duration = Duration::from_millis(100);
/// How long it may wait until the pages that it needs first have been asked for.
const MAX_DELAY: Duration = Duration::from_millis(5);
/// How often it is looked whose the new processes are.
const LOOK: Duration = Duration::from_millis(100);
/// How often systemd is asked whether the service has started, if no process tells.
const ASK: Duration = Duration::from_secs(2);
/// How long a service may take to come, as at boot when it waits for others; and how long is
/// prefetched for one.
const LONGEST: Duration = Duration::from_secs(120);
/// The process that starts services.
const SYSTEMD: i32 = 1;

/// Follows the start of a service, by its full name.
pub fn follow(machine: &Machine, service: &str, limit: Duration) -> ExitStatus {
    let began = Instant::now();
    let mut parts = Vec::new();
    let start = Start { service, began, limit };
    if let Err(error) = start.follow(machine, &mut parts) {
        parts.push(format!("this start is not learned: {error:#}"));
    }
    output::message(parts.join("; "));
    ExitStatus::Done
}

struct Start<'a> {
    service: &'a str,
    began: Instant,
    limit: Duration,
}

/// Whose processes are recorded, and since when.
struct Watched {
    members: Members,
    since_us: u64,
    since: Instant,
}

impl Watched {
    fn begin(service: &str) -> Self {
        let (since_us, since) = (monotonic_us(), Instant::now());
        Self { members: Members::of(service), since_us, since }
    }
}

impl Start<'_> {
    fn follow(&self, machine: &Machine, parts: &mut Vec<String>) -> anyhow::Result<()> {
        if is_of_learned_boot(machine) {
            parts.push("this start is a part of the boot, which is learned as a whole".into());
            return ready();
        }
        let unwanted = machine.keeps_from_replay();
        if let Some(Unwanted(why)) = &unwanted {
            parts.push(format!("nothing is prefetched: {why}"));
        }
        let mut preparation = Preparation::beside(self.wanted(machine, unwanted.is_none()));
        let prepared = preparation.within(MAX_DELAY).map(|prepared| &*prepared);
        let is_learned = !prepared.is_some_and(|prepared| prepared.skip_recording);
        let pack = prepared.and_then(|prepared| prepared.pack.as_ref());
        let interrupt = Interrupt::catch().context("Can't catch signals");
        let mut watched = Watched::begin(self.service);
        let recording = is_learned.then(|| start_recording(pack));
        if let Some(replay) = prepared.and_then(|prepared| prepared.replay.as_ref()) {
            replay.wait_for_head(MAX_DELAY);
        }
        let released_us = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        ready()?;
        let interrupt = interrupt?;
        preparation.begin_late();
        remove_orphans();
        if matches!(recording, Some(Ok(Recording::Recorder(_)))) {
            self.wait(&mut watched, &interrupt);
        }
        let recorded = recording.map(|recording| match recording? {
            Recording::Recorder(recorder) => Ok(Recorded::end(recorder, || None)?),
            Recording::Late(thread) => {
                // It clears away what came too late.
                let _ = thread.join();
                bail!("tracing was busy");
            }
        });
        let Prepared { pack, path, notes, replay, device_known, .. } = preparation.finish();
        parts.extend(notes);
        // The service goes on, and what it will need is still being read.
        let is_read = || replay.as_ref().is_none_or(Replay::is_finished);
        let is_over = || self.began.elapsed() >= LONGEST;
        while !is_read() && !is_over() && !interrupt.wait(LOOK) {}
        let ended = replay.map(Replay::end);
        let report = ended.as_ref().map(|ended| ended.report);
        if let Some(report) = &report {
            add_report(parts, report);
            add_hitches(parts, report);
        }
        let Some(recorded) = recorded else { return Ok(()) };
        let (recorded, instance) = recorded?;
        let log = ended.map(|ended| ended.log);
        let known = Known { pack, replay: report, log, released_us, ..Known::default() };
        let lesson = self.learn(recorded, &watched, path, known, device_known, &interrupt);
        record::remove(instance);
        let lesson = lesson?;
        add_lesson(parts, &lesson, report.is_some());
        add_problems(parts, &lesson);
        Ok(())
    }

    /// What is prepared: what a program gets, if anything is to be prefetched, within the
    /// service's own limit of memory. Its control group may not be there yet, and ours, in which
    /// these pages count, has no limit.
    fn wanted(&self, machine: &Machine, replay: bool) -> Wanted {
        let socket = machine.place(bus::SOCKET);
        let limit = replay.then(|| systemd::memory_limit(&socket, self.service)).flatten();
        let ahead = Ahead {
            bounds: Bounds { budget: limit.map(memory::budget_within), ..Bounds::default() },
            always: false,
            learn: true,
            began: self.began,
            max_delay: MAX_DELAY,
        };
        let file_names = vec![pack_name(self.service)];
        Wanted { explicit: None, file_names, replay: replay.then_some(ahead) }
    }

    /// Waits for the start, until it is over or nobody wants to wait, and looks who is
    /// who.
    fn wait(&self, watched: &mut Watched, interrupt: &Interrupt) {
        let mut asked = self.began;
        let mut started = None;
        loop {
            watched.members.look();
            if started.is_none() && asked.elapsed() >= ASK {
                // Its processes may be short-lived. An answer may come next time.
                let known = self.has_started(watched).unwrap_or(false);
                started = known.then(Instant::now);
                asked = Instant::now();
            }
            started = started.or_else(|| watched.members.seen().then(Instant::now));
            let left = match started {
                Some(at) => self.limit.saturating_sub(at.elapsed()),
                None => LONGEST.saturating_sub(self.began.elapsed()),
            };
            if left.is_zero() || interrupt.wait(left.min(LOOK)) {
                return;
            }
        }
    }

    /// Whether systemd has started the service since the recording began.
    fn has_started(&self, watched: &Watched) -> io::Result<bool> {
        Ok(systemd::started(self.service)?.is_some_and(|at| at >= watched.since_us))
    }

    fn learn(
        &self,
        recorded: Recorded,
        watched: &Watched,
        pack: PathBuf,
        known: Known,
        device_known: bool,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Lesson> {
        let started = self.has_started(watched);
        if !matches!(started, Ok(true)) {
            started.context("Can't ask systemd about the service")?;
            bail!("{} did not start", self.service);
        }
        let settings = Settings {
            target: Target { name: self.service.into(), command: Vec::new(), pack: pack.clone() },
            narrower: None,
            keep: DEFAULT_KEEP,
            walk: false,
            share: false,
            bounded: true,
            trace_out: None,
            ignored_tids: watched.members.others(),
        };
        let learning = Learner::start(recorded, watched.since, settings, known, 0)?;
        let (learned, outcome) = learning.finish(|| interrupt.came())?;
        if learned.written && !device_known {
            know_device(&pack, &Models::here());
        }
        Ok(Lesson { learned, outcome })
    }
}

/// Lets the service start; without it, it does when our time is up.
fn ready() -> anyhow::Result<()> {
    let socket = std::env::var_os("NOTIFY_SOCKET");
    notify::ready(socket.as_deref()).context("Can't tell systemd that the service may start")
}

/// Whether the machine is in a boot that others of us prefetch and learn.
fn is_of_learned_boot(machine: &Machine) -> bool {
    const LAST: &str = "system";
    let is_learned = install::enabled(machine).len() == install::UNITS.len();
    // The recorder ends after that time, whether it has noted the end of the boot or not.
    let is_boot = Duration::from_micros(monotonic_us()) < LONGEST && !machine.is_over(LAST);
    is_learned && is_boot
}

/// Begins to record what systemd forks, if that is soon possible.
fn start_recording(pack: Option<&Pack>) -> anyhow::Result<Recording> {
    if !proc::in_first_pid_namespace() {
        bail!("in a container the kernel does not tell which process systemd is");
    }
    let starts = pack.map_or(0, |pack| pack.origin.starts);
    let patience = if starts >= WELL_KNOWN { SHORT_PATIENCE } else { PATIENCE };
    Ok(record::start_recording(Scope::Tree(SYSTEMD), buffer_of(pack), false, patience)?)
}

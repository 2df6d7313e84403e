//! One start of a service: prefetches it, records it, and learns it.
//!
//! systemd starts the service when headstart notifies it or has ended. A failure is one line in the
//! journal and fails nothing else.

use super::pack_name;
use crate::exit::ExitStatus;
use crate::output;
use crate::summary::{LearnedStart, add_hitches, add_learned, add_problems, add_report};
use crate::until::{IDLE, RecordingWindow, Until};
use anyhow::{Context, bail};
use headstart::boot::install;
use headstart::boot::machine::{Machine, Unwanted};
use headstart::boot::record::remove_orphans;
use headstart::boot::systemd::{self, bus};
use headstart::host::clock::monotonic_us;
use headstart::host::user::User;
use headstart::host::{memory, proc};
use headstart::launch::learn::{PackTarget, Settings};
use headstart::launch::lifecycle::{Armed, EndedLaunch, Launch};
use headstart::launch::policy::{Bounds, Patience};
use headstart::launch::prepare::{LaunchSpec, PrefetchOptions};
use headstart::launch::record::Coverage;
use headstart::service::members::Members;
use headstart::service::notify::{self, READY};
use headstart::trace::capture::{Recorder, Scope};
use headstart_sys::interrupt::Interrupt;
use std::io;
use std::time::{Duration, Instant};

/// How long the service waits until the pages that it needs first were requested.
const MAX_DELAY: Duration = Duration::from_millis(5);
/// How often new processes are assigned to services.
const LOOK: Duration = Duration::from_millis(100);
/// How often systemd is asked whether the service has started, if no process shows it.
const ASK: Duration = Duration::from_secs(2);
/// How long a service may take to start, as at boot when it waits for others; and the longest
/// replay for one.
const LONGEST: Duration = Duration::from_secs(120);
/// The process that starts services.
const SYSTEMD: i32 = 1;

/// Follows the start of a service, by its full name.
pub fn follow(machine: &Machine, service: &str, limit: Option<Duration>) -> ExitStatus {
    let began = Instant::now();
    let mut parts = Vec::new();
    let start = Start { service, began, window: RecordingWindow { until: Until::Exit, limit } };
    if let Err(error) = start.follow(machine, &mut parts) {
        parts.push(format!("this start is not learned: {error:#}"));
    }
    output::message(parts.join("; "));
    ExitStatus::Done
}

struct Start<'a> {
    service: &'a str,
    began: Instant,
    /// When the start is over.
    window: RecordingWindow,
}

/// Whose processes are recorded, and since when.
struct Watched {
    members: Members,
    since_us: u64,
}

impl Watched {
    fn begin(service: &str) -> Self {
        let since_us = monotonic_us();
        Self { members: Members::of(service), since_us }
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
        let mut launch = Launch::prepare(self.spec(machine, unwanted.is_none()));
        let is_learned = !launch.prepared().is_some_and(|prepared| prepared.skip_recording);
        let interrupt = Interrupt::catch().context("Can't catch signals");
        let mut watched = Watched::begin(self.service);
        let armed = if is_learned { start_recording(&mut launch) } else { Ok(()) };
        launch.wait_for_head();
        launch.release(ready)?;
        let interrupt = interrupt?;
        remove_orphans(machine);
        let coverage = match launch.recorder() {
            Some(recorder) => self.wait(&mut watched, recorder, &interrupt),
            None => Coverage::Partial,
        };
        // The service goes on, so the replay does too.
        let stops = || self.began.elapsed() >= LONGEST || interrupt.wait(LOOK);
        let mut ended = launch.end(false, || None, stops);
        parts.append(&mut ended.notes);
        if let Some(report) = &ended.report {
            add_report(parts, report);
            add_hitches(parts, report);
        }
        // It clears away what came too late.
        ended.clear_away();
        armed?;
        let start = self.learn(&mut ended, &watched, coverage, &interrupt);
        ended.remove_instance();
        if let Some(start) = start? {
            add_learned(parts, &start, ended.report.is_some());
            add_problems(parts, &start);
        }
        Ok(())
    }

    /// The launch as for a program, within the service's own memory limit: its control group may
    /// not exist yet, and ours, to which these pages are charged, has no limit.
    fn spec(&self, machine: &Machine, replay: bool) -> LaunchSpec {
        let socket = machine.place(bus::SOCKET);
        let limit = replay
            .then(|| systemd::memory_limit(&socket, self.service, memory::group_limit))
            .flatten();
        let bounds = Bounds { budget: limit.map(memory::budget_within), ..Bounds::default() };
        LaunchSpec {
            user: User::own(),
            explicit: None,
            file_names: vec![pack_name(self.service)],
            prefetch: replay.then_some(PrefetchOptions { bounds, ..PrefetchOptions::default() }),
            learn: true,
            set_aside: false,
            began: self.began,
            max_delay: MAX_DELAY,
        }
    }

    /// Waits until the start is over or interrupted, and assigns processes to services. The end of
    /// the main process does not end it: systemd may start other processes of the service.
    fn wait(&self, watched: &mut Watched, recorder: &Recorder, interrupt: &Interrupt) -> Coverage {
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
            let elapsed = started.map(|at| at.elapsed());
            let is_over = match elapsed {
                Some(elapsed) => self.window.is_over(elapsed, || recorder.idle_for()),
                None => self.began.elapsed() >= LONGEST,
            };
            if is_over || recorder.is_full() {
                let is_whole = recorder.idle_for() >= IDLE;
                // The user wants no more than the time of --for.
                let was_cut = self.window.limit.is_none() && started.is_some();
                return match (is_whole, was_cut) {
                    (true, _) => Coverage::Whole,
                    (false, true) => Coverage::CutOff,
                    (false, false) => Coverage::Partial,
                };
            }
            let nap = elapsed.map_or(LOOK, |elapsed| self.window.nap(elapsed, LOOK).min(LOOK));
            if interrupt.wait(nap) {
                return Coverage::Partial;
            }
        }
    }

    /// Whether systemd has started the service since the recording began.
    fn has_started(&self, watched: &Watched) -> io::Result<bool> {
        Ok(systemd::started(self.service)?.is_some_and(|at| at >= watched.since_us))
    }

    /// Learns the start, if it was recorded.
    fn learn(
        &self,
        ended: &mut EndedLaunch,
        watched: &Watched,
        coverage: Coverage,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Option<LearnedStart>> {
        if !ended.is_recorded() {
            return Ok(None);
        }
        let started = self.has_started(watched);
        if !matches!(started, Ok(true)) {
            started.context("Can't ask systemd about the service")?;
            bail!("{} did not start", self.service);
        }
        let pack = ended.path.clone();
        let target = PackTarget { name: self.service.into(), command: Vec::new(), pack };
        let ignored_tids = watched.members.others();
        let settings = Settings { walk: false, ignored_tids, ..Settings::of(target) };
        let learned = ended.learn(settings, 0, coverage, || interrupt.came());
        let Some(learned) = learned else { return Ok(None) };
        let (learned, outcome) = learned?;
        if learned.written {
            ended.know_device();
        }
        Ok(Some(LearnedStart { learned, outcome }))
    }
}

/// Lets the service start; otherwise systemd starts it after the unit's timeout.
fn ready() -> anyhow::Result<()> {
    let socket = std::env::var_os("NOTIFY_SOCKET");
    notify::tell(socket.as_deref(), READY)
        .context("Can't notify systemd that the service may start")
}

/// Whether the machine is in a boot that headstart prefetches and learns.
fn is_of_learned_boot(machine: &Machine) -> bool {
    const LAST: &str = "system";
    let is_learned = install::enabled(machine).len() == install::UNITS.len();
    // The recorder ends after that time, even if the boot is not over.
    let is_boot = Duration::from_micros(monotonic_us()) < LONGEST && !machine.is_over(LAST);
    is_learned && is_boot
}

/// Begins to record what systemd forks, if that is possible in time.
fn start_recording(launch: &mut Launch) -> anyhow::Result<()> {
    if !proc::in_first_pid_namespace() {
        bail!("in a container the process number of systemd is unknown");
    }
    match launch.arm(Scope::Tree(SYSTEMD), None, true, Patience::SERVICE)? {
        Armed::InTime => Ok(()),
        Armed::TooLate => {
            bail!("tracing was not ready when the service had to start; the next start tries again")
        }
    }
}

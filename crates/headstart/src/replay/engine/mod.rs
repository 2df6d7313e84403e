//! Carries out a plan: a small pool of threads that takes its steps in order.
//!
//! ```text
//! execute ──▶ targets ──▶ residency ──▶ submission ──▶ arrival
//! workers     open it     missing?      gathering      if waited for
//! in order                              backlog
//!                                       in_flight
//! ```
//!
//! The driver: it opens files (`targets`) and requests what is not in memory
//! (`submission`). It waits for data if it shall, between the batches of elevator order, and
//! at the in-flight limit (`in_flight`); it copies none but a byte of what it waits for. It
//! stops when it is stopped, and under memory `pressure`; `progress` knows that, and counts.
//!
//! Each part keeps its own state behind its own locks. The only part that it calls while it holds
//! one is `progress`, whose lock is the last. Where a part has two locks, it names their order.
//!
//! The files of each server have an engine of their own: its threads may wait for ever, and are
//! left behind then (`server`). Those of a server that another process waits for are skipped.

mod arrival;
mod backlog;
mod descriptors;
mod execute;
mod gathering;
mod in_flight;
mod log;
mod pressure;
mod progress;
mod residency;
mod server;
mod submission;
mod targets;
mod workers;
mod writes;

pub use log::{Log, Requested};
pub use residency::resident_pages;

use super::plan::Plan;
use super::report::Report;
use super::served::Served;
use crate::host::id::Dev;
use crate::host::mounts::Mounts;
use crate::pack::store::silent::Silent;
use crate::trace::kernel_tids::KernelTids;
use execute::Engine;
use server::Server;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a thread that is stopped may take for the step at hand, and how often it is
/// looked whether it has.
const STUCK: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// The same of a thread that waits for a file server, when all others have ended: more than most
/// servers take to answer. Whoever waits for the end should not wait for a silent one.
const SERVER_STUCK: Duration = Duration::from_millis(250);
/// How long a server may not answer before whoever waits for the whole replay leaves its
/// threads behind.
const SILENCE: Duration = Duration::from_secs(10);

/// How a plan is carried out.
#[derive(Clone, Default, Debug)]
pub struct Options {
    /// Whether to wait until the data is there, not only requested.
    pub wait: bool,
    /// When to stop, from the start of the replay.
    pub timeout: Option<Duration>,
    /// Whether every step is looked at. Else, while one after the other is found in
    /// memory, only a sample is: a hot start should not pay for what it needs not.
    pub check_all: bool,
    /// Whether a sample was in memory: then one thread looks at the steps, and the others
    /// come when something is missing after all.
    pub sampled: bool,
    /// Whether a file that was replaced by another of about the same size is read like the
    /// one that was learned.
    pub follow: bool,
    /// Whether it is kept what was requested, and when.
    pub log: bool,
    /// Tells the threads their numbers.
    pub tids: KernelTids,
}

/// A replay that has ended.
#[derive(Debug)]
pub struct Ended {
    /// The figures of the plan.
    pub report: Report,
    /// The threads that worked on it; those whose numbers can't be known are skipped.
    pub threads: Vec<i32>,
    /// What was requested, if that was kept.
    pub log: Log,
}

/// A replay under way.
#[derive(Debug)]
pub struct Replay {
    local: Running,
    /// Files that need a server, which may not answer: one for each.
    served: Vec<Running>,
    /// Files of servers that do not answer.
    skipped: Report,
}

/// A plan and the threads that carry it out.
#[derive(Debug)]
struct Running {
    engine: Arc<Engine>,
    lead: JoinHandle<()>,
    /// What its files need.
    server: Option<Server>,
}

impl Replay {
    /// Starts the threads. `began` is when the process began.
    ///
    /// # Errors
    /// When not a single thread can be started.
    pub fn start(plan: Plan, options: Options, mounts: Mounts, began: Instant) -> io::Result<Self> {
        let (plan, served) = match mounts.table() {
            Some(table) => plan.divided(table),
            None => (plan, Vec::new()),
        };
        let start = |plan, server| {
            let engine = Engine::new(plan, options.clone(), mounts.clone(), began);
            Running::start(engine, server)
        };
        let local = start(plan, None)?;
        let silent = Silent::here();
        let (skipped, served): (Vec<_>, Vec<_>) =
            served.into_iter().partition(|served| silent.any(&served.servers));
        let served = served.into_iter().map(|Served { servers, plan }| start(plan, Some(servers)));
        let served = served.collect::<io::Result<_>>()?;
        Ok(Self { local, served, skipped: report_of_skipped(&skipped) })
    }

    fn all(&self) -> impl Iterator<Item = &Running> {
        [&self.local].into_iter().chain(&self.served)
    }

    /// Waits until the head of the plan was requested, at most for `limit`, so
    /// that the program does not ask first.
    pub fn wait_for_head(&self, limit: Duration) {
        let until = Instant::now() + limit;
        self.all().for_each(|running| running.engine.progress.wait_for_head(left(until)));
    }

    /// Waits until the plan was looked at or something of it had to be requested, at most
    /// for `limit`. Whether all of it was in memory; what is beyond the budget can't be told.
    pub fn finds_all_in_memory(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let is_there = |Running { engine, .. }: &Running| {
            engine.progress.ends_without_requests(left(until)) && engine.plan.over_budget == 0
        };
        self.skipped.dropped_bytes == 0 && self.all().all(is_there)
    }

    /// How many bytes are to be in memory after it at most, and would be with a larger budget: gaps
    /// may be skipped.
    pub fn wanted_bytes(&self) -> u64 {
        let wanted = |plan: &Plan| plan.bytes().saturating_add(plan.over_budget);
        self.all().map(|running| wanted(&running.engine.plan)).fold(0, u64::saturating_add)
    }

    /// Makes the threads stop after the step at hand.
    pub fn stop(&self) {
        self.all().for_each(|running| running.engine.progress.stop());
    }

    /// Whether there is nothing more to do.
    pub fn is_finished(&self) -> bool {
        self.all().all(|running| running.lead.is_finished())
    }

    /// The threads that have worked on it, when it is finished; those whose numbers can't
    /// be known are skipped.
    pub fn threads(&self) -> Vec<i32> {
        self.all().flat_map(|running| running.engine.workers.tids()).collect()
    }

    /// Waits for the threads, and for the data if that was requested, and
    /// returns the replay's figures. Threads whose server has not answered for
    /// a while are left behind.
    pub fn finish(self) -> Report {
        // A thread that panicked has its steps missing from the counts.
        let _ = self.local.lead.join();
        let mut report = self.local.engine.report();
        report.add(&self.skipped);
        wait_for_answers(&self.served);
        for served in self.served {
            report.add(&served.end(Instant::now()).report);
        }
        report
    }

    /// Makes the threads stop, and returns the replay's figures. Threads that do not come
    /// back from a file are left behind, and then nothing is told of what they requested.
    pub fn end(self) -> Ended {
        self.stop();
        let until = Instant::now() + STUCK;
        let mut ended = self.local.end(until);
        ended.report.add(&self.skipped);
        let until = Instant::now() + SERVER_STUCK;
        for served in self.served.into_iter().map(|served| served.end(until)) {
            ended.report.add(&served.report);
            ended.threads.extend(served.threads);
            ended.log.add(served.log);
        }
        ended
    }
}

impl Running {
    /// Starts the threads, for files of these servers or of none.
    fn start(engine: Engine, servers: Option<Vec<Dev>>) -> io::Result<Self> {
        let engine = Arc::new(engine);
        let (server, call) = servers.map(|servers| Server::new(&servers)).unzip();
        let lead = engine.clone();
        let lead = workers::builder().spawn(move || {
            lead.run();
            // Its threads have all come back.
            drop((lead, call));
        })?;
        server.iter().for_each(|server| server.watch(&engine.progress));
        Ok(Self { engine, lead, server })
    }

    /// Waits until the threads have ended, or until then.
    fn end(self, until: Instant) -> Ended {
        while !self.lead.is_finished() && Instant::now() < until {
            thread::sleep(LOOK_AGAIN);
        }
        let threads = self.engine.workers.tids();
        if !self.lead.is_finished() {
            self.server.iter().for_each(Server::mark);
            let report = Report { stuck: true, ..self.engine.report() };
            return Ended { report, threads, log: Log::default() };
        }
        let _ = self.lead.join();
        let report = self.engine.report();
        let log = Arc::into_inner(self.engine).map(Engine::into_log).unwrap_or_default();
        Ended { report, threads, log }
    }
}

/// Waits until the threads have ended, or nothing has come of them for [`SILENCE`].
fn wait_for_answers(served: &[Running]) {
    let mut seen = vec![(0, Instant::now()); served.len()];
    let may_answer = |(running, seen): (&Running, &mut (u64, Instant))| {
        let activity = running.engine.progress.activity();
        if activity != seen.0 {
            *seen = (activity, Instant::now());
        }
        !running.lead.is_finished() && seen.1.elapsed() < SILENCE
    };
    // Each is looked at, also when one may still answer.
    while served.iter().zip(&mut seen).map(may_answer).fold(false, |any, may| any | may) {
        thread::sleep(LOOK_AGAIN);
    }
}

/// The figures of files that nothing was requested of.
fn report_of_skipped(skipped: &[Served]) -> Report {
    let mut report = Report { complete: true, ..Report::default() };
    for Served { plan, .. } in skipped {
        report.unserved_files += plan.files();
        report.dropped_bytes = report.dropped_bytes.saturating_add(plan.bytes());
    }
    report
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_ends_when_its_threads_do_and_not_when_it_is_asked_about() {
        let options = Options { check_all: true, ..Options::default() };
        let began = Instant::now();
        let replay = Replay::start(Plan::default(), options, Mounts::default(), began).unwrap();
        while !replay.is_finished() {
            thread::yield_now();
        }
        let ended = began.elapsed();
        while began.elapsed() < ended + LOOK_AGAIN {
            thread::yield_now();
        }
        assert!(u128::from(replay.finish().elapsed_us) <= ended.as_micros());
    }
}

//! Carries out a plan: a small pool of threads that takes its steps in order.
//!
//! ```text
//! execute ──▶ targets ──▶ residency ──▶ submission ──▶ arrival
//! workers     open it     missing?      gathering      if waited for
//! in order                              in_flight
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
//! Files that need a server have an engine of their own: its threads may wait for ever, and are
//! left behind then.

mod arrival;
mod descriptors;
mod execute;
mod gathering;
mod in_flight;
mod log;
mod pressure;
mod progress;
mod residency;
mod submission;
mod targets;
mod workers;

pub use log::{Asked, Log};

use super::plan::Plan;
use super::report::Report;
use crate::host::mounts::Mounts;
use crate::trace::kernel_tids::KernelTids;
use execute::Engine;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a thread that is stopped may take for the step at hand, and how often it is
/// looked whether it has.
const STUCK: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// How long a server may not answer before whoever waits for the whole replay leaves its
/// threads behind.
const SILENCE: Duration = Duration::from_secs(10);

/// How a plan is carried out.
#[derive(Clone, Default, Debug)]
pub struct Options {
    /// Whether to wait until the data is there, not only asked for.
    pub wait: bool,
    /// When to stop, from the start of the replay.
    pub timeout: Option<Duration>,
    /// Whether every step is looked at. Else, while one after the other is found in
    /// memory, only a sample is: a hot start should not pay for what it needs not.
    pub exact: bool,
    /// Whether a sample was in memory: then one thread looks at the steps, and the others
    /// come when something is missing after all.
    pub sampled: bool,
    /// Whether a file that was replaced by another of about the same size is read like the
    /// one that was learned.
    pub follow: bool,
    /// Whether it is kept what was asked for, and when.
    pub log: bool,
    /// Tells the threads their numbers.
    pub tids: KernelTids,
}

/// A replay that has ended.
#[derive(Debug)]
pub struct Ended {
    /// What became of the plan.
    pub report: Report,
    /// The threads that worked on it; those whose numbers can't be known are left out.
    pub threads: Vec<i32>,
    /// What was asked for, if that was kept.
    pub log: Log,
}

/// A replay under way.
#[derive(Debug)]
pub struct Replay {
    local: Running,
    /// Files that need a server, which may not answer.
    served: Option<Running>,
}

/// A plan and the threads that carry it out.
#[derive(Debug)]
struct Running {
    engine: Arc<Engine>,
    lead: JoinHandle<()>,
}

impl Replay {
    /// Starts the threads. `began` is when the process began.
    ///
    /// # Errors
    /// When not a single thread can be started.
    pub fn start(plan: Plan, options: Options, mounts: Mounts, began: Instant) -> io::Result<Self> {
        let (plan, served) = match mounts.table() {
            Some(table) => plan.divided(table),
            None => (plan, None),
        };
        let start = |plan| Running::start(plan, options.clone(), mounts.clone(), began);
        Ok(Self { local: start(plan)?, served: served.map(start).transpose()? })
    }

    fn all(&self) -> impl Iterator<Item = &Running> {
        [&self.local].into_iter().chain(&self.served)
    }

    /// Waits until the head of the plan was asked for, at most for `limit`, so
    /// that the program does not ask first.
    pub fn wait_for_head(&self, limit: Duration) {
        let until = Instant::now() + limit;
        self.all().for_each(|running| running.engine.progress.wait_for_head(left(until)));
    }

    /// Waits until the plan was looked at or something of it had to be asked for, at most
    /// for `limit`. Whether all of it was in memory; what is beyond the budget can't be told.
    pub fn finds_all_in_memory(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        self.all().all(|Running { engine, .. }| {
            engine.progress.ends_without_requests(left(until)) && engine.plan.over_budget == 0
        })
    }

    /// How many bytes are to be in memory after it, and would be with a larger budget.
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
    /// be known are left out.
    pub fn threads(&self) -> Vec<i32> {
        self.all().flat_map(|running| running.engine.workers.tids()).collect()
    }

    /// Waits for the threads, and for the data if that was asked for, and
    /// tells what became of the plan. Threads whose server has not answered for
    /// a while are left behind.
    pub fn finish(self) -> Report {
        // A thread that panicked has its steps missing from the counts.
        let _ = self.local.lead.join();
        let mut report = self.local.engine.report();
        if let Some(served) = self.served {
            served.wait_for_answers();
            report.add(&served.end(Instant::now()).report);
        }
        report
    }

    /// Makes the threads stop, and tells what became of the plan. Threads that do not come
    /// back from a file are left behind, and then nothing is told of what they asked for.
    pub fn end(self) -> Ended {
        self.stop();
        let until = Instant::now() + STUCK;
        let mut ended = self.local.end(until);
        if let Some(served) = self.served.map(|served| served.end(until)) {
            ended.report.add(&served.report);
            ended.threads.extend(served.threads);
            ended.log.add(served.log);
        }
        ended
    }
}

impl Running {
    fn start(plan: Plan, options: Options, mounts: Mounts, began: Instant) -> io::Result<Self> {
        let engine = Arc::new(Engine::new(plan, options, mounts, began));
        let lead = engine.clone();
        let lead = workers::builder().spawn(move || lead.run())?;
        Ok(Self { engine, lead })
    }

    /// Waits until the threads have ended, or nothing has come of them for [`SILENCE`].
    fn wait_for_answers(&self) {
        let (mut last, mut since) = (0, Instant::now());
        while !self.lead.is_finished() && since.elapsed() < SILENCE {
            let activity = self.engine.progress.activity();
            if activity != last {
                (last, since) = (activity, Instant::now());
            }
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// Waits until the threads have ended, or until then.
    fn end(self, until: Instant) -> Ended {
        while !self.lead.is_finished() && Instant::now() < until {
            thread::sleep(LOOK_AGAIN);
        }
        let threads = self.engine.workers.tids();
        if !self.lead.is_finished() {
            let report = Report { stuck: true, ..self.engine.report() };
            return Ended { report, threads, log: Log::default() };
        }
        let _ = self.lead.join();
        let report = self.engine.report();
        let log = Arc::into_inner(self.engine).map(Engine::into_log).unwrap_or_default();
        Ended { report, threads, log }
    }
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_ends_when_its_threads_do_and_not_when_it_is_asked_about() {
        let options = Options { exact: true, ..Options::default() };
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

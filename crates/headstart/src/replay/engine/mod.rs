//! Carries out a plan: a small pool of threads that takes its steps in order.
//!
//! The driver: it opens files (`targets`) and asks the kernel to read ahead
//! (`ask`). It waits for data when told to, between the batches of sweeps, and when much is
//! on its way (`flight`); it copies none but a byte of what it waits for, and stops when
//! told.

mod ask;
mod descriptors;
mod flight;
mod gathering;
mod log;
mod opened;
mod pressure;
mod targets;
mod wait;

pub use log::{Asked, Log};

use super::device::Portion;
use super::elevator;
use super::places::Place;
use super::plan::Plan;
use super::report::{Counters, Report, Stopped};
use super::step::Step;
use super::strategy::Order;
use crate::host::memory;
use crate::host::mounts::Mounts;
use crate::trace::kernel_tids::KernelTids;
use descriptors::Descriptors;
use flight::Flight;
use gathering::Gathering;
use opened::Slot;
use pressure::MemoryPressure;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Threads that look up where files lie before a sweep. The arm moves for each,
/// but the disk may choose the nearest.
const LOOKING_UP: usize = 4;
/// Steps of a sweep that are on their way at most, and their bytes: some 20 ms.
const BATCH_STEPS: usize = 16;
const BATCH_BYTES: u64 = 2 << 20;
/// How long a thread that is told to stop may take for the step at hand, and how often it is
/// looked whether it has.
const STUCK: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// Stack of each thread, in bytes.
const STACK: usize = 128 << 10;

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

/// What the threads of a replay share.
#[derive(Debug)]
struct Shared {
    plan: Plan,
    options: Options,
    mounts: Mounts,
    /// The block device of each file system by UUID; looked for once, by the first
    /// step that needs it, so that no other step waits.
    devices: OnceLock<HashMap<[u8; 16], PathBuf>>,
    slots: Vec<Mutex<Slot>>,
    /// Steps left for each target, so that it is closed after its last.
    left: Vec<AtomicU32>,
    /// Steps of files that were found in memory, one after the other.
    in_memory: AtomicUsize,
    /// Whether nothing was found yet that contradicts a sample in memory.
    calm: AtomicBool,
    /// Steps that were not looked at, because those before them were in memory, with
    /// their numbers.
    presumed: Mutex<Vec<(Step, usize)>>,
    /// Steps of the head that were carried out.
    done: AtomicUsize,
    /// Whether the head of the plan was asked for.
    head_sent: Mutex<bool>,
    head_news: Condvar,
    complete: AtomicBool,
    /// Held by everything that is open.
    open: Arc<()>,
    descriptors: Descriptors,
    stop: AtomicBool,
    /// Why it was stopped, if for want of memory.
    stopped: OnceLock<Stopped>,
    scarcity: MemoryPressure,
    portions: Mutex<HashMap<u64, Portion>>,
    gathering: Gathering,
    flight: Flight,
    asked: Mutex<Vec<Asked>>,
    /// Who we are.
    uid: u32,
    /// The threads that worked on it.
    threads: Mutex<HashSet<i32>>,
    counters: Counters,
    /// When the process began, for the time to the first request.
    began: Instant,
    started: Instant,
    first_request_us: AtomicU64,
    /// Since `started`, when the last thread had nothing more to do.
    ended_us: AtomicU64,
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
    shared: Arc<Shared>,
    lead: JoinHandle<()>,
}

impl Replay {
    /// Starts the threads. `began` is when the process began.
    ///
    /// # Errors
    /// When not a single thread can be started.
    pub fn start(plan: Plan, options: Options, mounts: Mounts, began: Instant) -> io::Result<Self> {
        let left: Vec<AtomicU32> = plan.targets.iter().map(|_| AtomicU32::new(0)).collect();
        for step in &plan.steps {
            left[step.target as usize].fetch_add(1 + u32::from(options.wait), Relaxed);
        }
        let shared = Arc::new(Shared {
            slots: plan.targets.iter().map(|_| Mutex::default()).collect(),
            left,
            in_memory: AtomicUsize::new(0),
            calm: AtomicBool::new(options.sampled),
            presumed: Mutex::default(),
            done: AtomicUsize::new(0),
            head_sent: Mutex::new(plan.head == 0),
            head_news: Condvar::new(),
            complete: AtomicBool::new(false),
            open: Arc::default(),
            descriptors: Descriptors::here(plan.way.threads),
            stop: AtomicBool::new(false),
            stopped: OnceLock::new(),
            scarcity: MemoryPressure::default(),
            portions: Mutex::default(),
            gathering: Gathering::default(),
            flight: Flight::default(),
            asked: Mutex::default(),
            uid: rustix::process::geteuid().as_raw(),
            threads: Mutex::default(),
            counters: Counters::default(),
            began,
            started: Instant::now(),
            first_request_us: AtomicU64::new(u64::MAX),
            ended_us: AtomicU64::new(0),
            plan,
            options,
            mounts,
            devices: OnceLock::new(),
        });
        let lead = shared.clone();
        let lead = builder().spawn(move || lead.carry_out_plan())?;
        Ok(Self { shared, lead })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.shared.plan
    }

    /// Waits until the head of the plan was asked for, at most for `limit`, so
    /// that the program does not ask first.
    pub fn wait_for_head(&self, limit: Duration) {
        let sent = self.shared.head_sent.lock().unwrap_or_else(PoisonError::into_inner);
        // A poisoned lock means that a thread died: the program must not wait.
        drop(self.shared.head_news.wait_timeout_while(sent, limit, |sent| !*sent));
    }

    /// Waits until the plan was looked at or something of it had to be asked for, at most
    /// for `limit`. Whether all of it was in memory; what is beyond the budget can't be told.
    pub fn finds_all_in_memory(&self, limit: Duration) -> bool {
        let shared = &self.shared;
        let is_through = || shared.complete.load(Relaxed);
        let guard = shared.head_sent.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = |_: &mut bool| !is_through() && !shared.has_asked();
        drop(shared.head_news.wait_timeout_while(guard, limit, is_open));
        let dropped = shared.counters.dropped_bytes.load(Relaxed);
        is_through() && !shared.has_asked() && dropped == 0 && shared.plan.over_budget == 0
    }

    /// Makes the threads stop after the step at hand.
    pub fn stop(&self) {
        self.shared.stop.store(true, Relaxed);
    }

    /// Whether there is nothing more to do.
    pub fn is_finished(&self) -> bool {
        self.lead.is_finished()
    }

    /// The threads that have worked on it, when it is finished; those whose numbers can't
    /// be known are left out.
    pub fn threads(&self) -> Vec<i32> {
        let threads = self.shared.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.iter().copied().collect()
    }

    /// Waits for the threads, and for the data if that was asked for, and
    /// tells what became of the plan.
    pub fn finish(self) -> Report {
        // A thread that panicked has its steps missing from the counts.
        let _ = self.lead.join();
        self.shared.report()
    }

    /// Makes the threads stop, and tells what became of the plan. Threads that do not come
    /// back from a file are left behind, and then nothing is told of what was asked for.
    pub fn end(self) -> Ended {
        self.stop();
        let until = Instant::now() + STUCK;
        while !self.is_finished() && Instant::now() < until {
            thread::sleep(LOOK_AGAIN);
        }
        let threads = self.threads();
        if !self.is_finished() {
            let report = Report { stuck: true, ..self.shared.report() };
            return Ended { report, threads, log: Log::default() };
        }
        let _ = self.lead.join();
        let report = self.shared.report();
        let log = Arc::into_inner(self.shared)
            .map(|shared| Log::of(shared.plan, shared.asked))
            .unwrap_or_default();
        Ended { report, threads, log }
    }
}

fn builder() -> thread::Builder {
    thread::Builder::new().name("replay".into()).stack_size(STACK)
}

impl Shared {
    fn carry_out_plan(&self) {
        let swept;
        let (metadata, mut data) = self.plan.steps.split_at(self.plan.metadata);
        let complete = match self.plan.way.order {
            Order::Touch => self.carry_out_all(&self.plan.steps),
            Order::Disk => {
                let complete = self.carry_out_all(metadata);
                self.release_head();
                swept = self.in_disk_order(data);
                data = &swept;
                complete
                    && match self.plan.way.in_passes {
                        true => self.carry_out_in_batches(data),
                        false => self.carry_out_all(data),
                    }
            }
        };
        self.flight.clear();
        self.complete.store(complete, Relaxed);
        // The replay was stopped, or there was less to do than the head.
        self.release_head();
        if self.options.wait {
            // Only now: a read that waits for one page before the others were
            // asked for would bring it in alone.
            for steps in [metadata, data] {
                self.each(self.plan.way.threads, steps.len(), |i| self.wait_for(&steps[i]));
            }
        }
        self.ended_us.store(micros(self.started.elapsed()), Relaxed);
    }

    /// Asks for steps in order; tells whether it came to the end.
    fn carry_out_all(&self, steps: &[Step]) -> bool {
        let complete =
            self.each(self.plan.way.threads, steps.len(), |i| self.carry_out(&steps[i], i));
        if complete {
            self.ask_for_gathered(true);
        }
        self.keep_presumed();
        complete
    }

    /// Asks for steps in order and waits for each few of them, so that what the program reads
    /// itself never has more than these before it; tells whether it came to the end.
    fn carry_out_in_batches(&self, steps: &[Step]) -> bool {
        let mut left = steps;
        while !left.is_empty() {
            let (batch, rest) = left.split_at(batch_of(left));
            if !self.carry_out_all(batch) {
                return false;
            }
            if let Some(last) = batch.last().filter(|_| self.has_asked())
                && let Some(target) = self.opened(last.target as usize)
            {
                self.see_arrive(&target, last);
            }
            left = rest;
        }
        true
    }

    /// Lets threads act on the numbers below `count` in order until all are done
    /// or the replay is stopped; tells whether they came to the end. This thread
    /// is one of them, and the only one as long as all is in memory, if a sample was,
    /// and if no other can be had.
    fn each(&self, threads: usize, count: usize, act: impl Fn(usize) + Sync) -> bool {
        let next = AtomicUsize::new(0);
        let note_thread = || {
            if let Some(own) = self.options.tids.own() {
                self.threads.lock().unwrap_or_else(PoisonError::into_inner).insert(own);
            }
        };
        let work = |alone: bool| {
            let goes_on = || !alone || self.calm.load(Relaxed);
            while goes_on() && !self.is_over() {
                let number = next.fetch_add(1, Relaxed);
                if number >= count {
                    break;
                }
                act(number);
            }
            // At the end, for it may take a moment.
            note_thread();
        };
        if self.calm.load(Relaxed) {
            // The processors are the program's.
            work(true);
        }
        let left = count.saturating_sub(next.load(Relaxed));
        thread::scope(|scope| {
            for _ in 1..threads.clamp(1, 256).min(left) {
                if builder().spawn_scoped(scope, || work(false)).is_err() {
                    break;
                }
            }
            work(false);
        });
        next.into_inner() >= count
    }

    /// These steps as an arm reads them; what is in memory comes last. The files are opened
    /// for that, which waits for the metadata that was asked for.
    fn in_disk_order(&self, steps: &[Step]) -> Vec<Step> {
        let places: Vec<_> = self.plan.targets.iter().map(|_| OnceLock::new()).collect();
        let mut targets: Vec<u32> = steps.iter().map(|step| step.target).collect();
        targets.sort_unstable();
        targets.dedup();
        self.each(LOOKING_UP, targets.len(), |i| {
            let target = targets[i] as usize;
            let opened = self.opened(target);
            let place = opened.and_then(|opened| Place::of(&opened.file, opened.dev));
            // Each target is there once.
            let _ = places[target].set(place);
        });
        let place = |step: &Step| {
            let place = places[step.target as usize].get()?.as_ref()?.find(step.offset);
            place.filter(|_| !self.is_in_memory(step))
        };
        let way = &self.plan.way;
        // Who waits for all of it gains nothing by what comes first.
        let arm = way.arm.filter(|_| !self.options.wait);
        elevator::order(steps, place, arm, way.in_passes)
    }

    /// Stops the replay when memory has become scarce.
    fn look_after_memory(&self) {
        let is_plenty = || memory::budget() > self.plan.bytes();
        if let Some(why) = self.scarcity.look(is_plenty) {
            // Only the first reason counts.
            let _ = self.stopped.set(why);
            self.stop.store(true, Relaxed);
        }
    }

    /// Notes that a step was asked for, or needs not be.
    fn note_done(&self, number: usize) {
        if number < self.plan.head && self.done.fetch_add(1, Relaxed) + 1 == self.plan.head {
            self.release_head();
        }
    }

    /// Notes that a step was asked for.
    fn note_asked(&self, step: &Step) {
        if self.options.log {
            let asked = Asked { step: *step, at_us: micros(self.began.elapsed()) };
            self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
        }
    }

    fn has_asked(&self) -> bool {
        self.first_request_us.load(Relaxed) != u64::MAX
    }

    fn release_head(&self) {
        *self.head_sent.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.head_news.notify_all();
    }

    /// Whether it was stopped, or its time is over.
    fn is_over(&self) -> bool {
        let timed_out = || self.options.timeout.is_some_and(|t| self.started.elapsed() >= t);
        self.stop.load(Relaxed) || timed_out()
    }

    fn report(&self) -> Report {
        let c = &self.counters;
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        let stopped = self.stopped.get().copied();
        let of_plan = [&c.bytes, &c.resident_bytes, &c.presumed_bytes, &c.dropped_bytes];
        let dealt_with = of_plan.into_iter().map(get).sum();
        let left = self.plan.bytes().saturating_sub(dealt_with);
        Report {
            requests: get(&c.requests),
            bytes: get(&c.bytes),
            metadata_bytes: get(&c.metadata_bytes),
            resident_bytes: get(&c.resident_bytes),
            presumed_bytes: get(&c.presumed_bytes),
            files: get(&c.files),
            stale_files: get(&c.stale_files),
            changing_files: get(&c.changing_files),
            followed_files: get(&c.followed_files),
            missing_files: get(&c.missing_files),
            forbidden_files: get(&c.forbidden_files),
            failed: get(&c.failed),
            closed_devices: get(&c.closed_devices),
            dropped_bytes: get(&c.dropped_bytes),
            over_budget_bytes: self.plan.over_budget,
            seldom_bytes: self.plan.seldom,
            stopped,
            stopped_bytes: if stopped.is_some() { left } else { 0 },
            complete: self.complete.load(Relaxed),
            stuck: false,
            first_request_us: Some(get(&self.first_request_us)).filter(|us| *us != u64::MAX),
            elapsed_us: get(&self.ended_us),
        }
    }
}

/// How many of these steps are a batch: at least one.
fn batch_of(steps: &[Step]) -> usize {
    let mut bytes = 0;
    let fits = |step: &&Step| {
        let is_first = bytes == 0;
        bytes += step.length;
        is_first || bytes <= BATCH_BYTES
    };
    steps.iter().take(BATCH_STEPS).take_while(fits).count().max(1)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_ends_when_its_threads_do_and_not_when_it_is_asked_about() {
        let options = Options { exact: true, ..Options::default() };
        let began = Instant::now();
        let replay = Replay::start(Plan::default(), options, Mounts::default(), began).unwrap();
        while !replay.lead.is_finished() {
            thread::yield_now();
        }
        let ended = micros(began.elapsed());
        while micros(began.elapsed()) < ended + 1000 {
            thread::yield_now();
        }
        assert!(replay.finish().elapsed_us <= ended);
    }

    #[test]
    fn a_batch_is_bounded_in_steps_and_bytes_and_never_empty() {
        for (name, lengths, expected) in [
            ("small ones", vec![4096; 40], BATCH_STEPS),
            ("large ones", vec![BATCH_BYTES / 2; 4], 2),
            ("one is too large", vec![BATCH_BYTES + 1, 4096], 1),
            ("the last", vec![4096], 1),
        ] {
            let step = |&length| Step { target: 0, offset: 0, length, touched_us: 0 };
            let steps: Vec<Step> = lengths.iter().map(step).collect();
            assert_eq!(batch_of(&steps), expected, "{name}");
        }
    }
}

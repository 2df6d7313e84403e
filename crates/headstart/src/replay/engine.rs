//! Carries out a plan: a small pool of threads that takes its steps in order.
//!
//! The driver: it opens files and asks the kernel to read ahead. It never
//! waits for data unless told to, never copies any, and stops when told.

use super::device::{Portion, portion};
use super::places::{self, Place};
use super::plan::{Plan, Step, Target};
use super::report::{Counters, NotRead, Report};
use super::way::Order;
use crate::cache::residency::resident_count;
use crate::id::Dev;
use crate::pack::{FileSystem, Identity};
use rustix::fs::{Advice, AtFlags, CWD, Mode, OFlags};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Threads that look up where files lie before a sweep. The arm moves for each,
/// but the disk may choose the nearest.
const LOOKING_UP: usize = 4;
/// Stack of each thread, in bytes.
const STACK: usize = 128 << 10;
/// Files that are kept open between their steps.
const MAX_OPEN: u32 = 512;

/// How a plan is carried out.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether to wait until the data is there, not only asked for.
    pub wait: bool,
    /// When to stop, from the start of the replay.
    pub timeout: Option<Duration>,
}

/// A target as the threads know it.
#[derive(Debug, Default)]
enum Slot {
    /// No step came to it yet.
    #[default]
    New,
    /// It is what was learned.
    Open(Arc<Opened>),
    /// It was closed for want of descriptors; it is opened again on demand.
    Closed,
    /// Nothing is read from it.
    Dropped,
}

#[derive(Debug)]
struct Opened {
    file: File,
    /// The device that it lies on, or is.
    dev: u64,
    portion: Portion,
    metadata: bool,
}

/// Leads from the UUIDs of file systems to their block devices.
pub type FindDevices = fn(&Plan) -> HashMap<[u8; 16], PathBuf>;

/// What the threads of a replay share.
#[derive(Debug)]
struct Shared {
    plan: Plan,
    options: Options,
    /// Finds the block device of each file system by UUID; asked once, by the
    /// first step that needs it, so that no other step waits.
    find_devices: FindDevices,
    devices: OnceLock<HashMap<[u8; 16], PathBuf>>,
    slots: Vec<Mutex<Slot>>,
    /// Steps left for each target, so that it is closed after its last.
    left: Vec<AtomicU32>,
    /// Steps that were carried out.
    done: AtomicU64,
    /// Whether the head of the plan was asked for.
    head_sent: Mutex<bool>,
    head_news: Condvar,
    complete: AtomicBool,
    open: AtomicU32,
    stop: AtomicBool,
    portions: Mutex<HashMap<u64, Portion>>,
    counters: Counters,
    /// When the process began, for the time to the first request.
    began: Instant,
    started: Instant,
    first_request_us: AtomicU64,
    /// Since `started`, when the last thread had nothing more to do.
    ended_us: AtomicU64,
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
    pub fn start(
        plan: Plan,
        options: Options,
        find_devices: FindDevices,
        began: Instant,
    ) -> io::Result<Self> {
        let left: Vec<AtomicU32> = plan.targets.iter().map(|_| AtomicU32::new(0)).collect();
        for step in &plan.steps {
            left[step.target as usize].fetch_add(1 + u32::from(options.wait), Relaxed);
        }
        let shared = Arc::new(Shared {
            slots: plan.targets.iter().map(|_| Mutex::default()).collect(),
            left,
            done: AtomicU64::new(0),
            head_sent: Mutex::new(plan.head == 0),
            head_news: Condvar::new(),
            complete: AtomicBool::new(false),
            open: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            portions: Mutex::default(),
            counters: Counters::default(),
            began,
            started: Instant::now(),
            first_request_us: AtomicU64::new(u64::MAX),
            ended_us: AtomicU64::new(0),
            plan,
            options,
            find_devices,
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

    /// Makes the threads stop after the step at hand.
    pub fn stop(&self) {
        self.shared.stop.store(true, Relaxed);
    }

    /// Waits for the threads, and for the data if that was asked for, and
    /// tells what became of the plan.
    pub fn finish(self) -> Report {
        // A thread that panicked has its steps missing from the counts.
        let _ = self.lead.join();
        self.shared.report()
    }
}

fn builder() -> thread::Builder {
    thread::Builder::new().name("replay".into()).stack_size(STACK)
}

impl Shared {
    fn carry_out_plan(&self) {
        let threads = self.plan.way.threads;
        let send = |step: &Step| {
            self.carry_out(step);
            self.note_done();
        };
        let swept;
        let (metadata, mut data) = self.plan.steps.split_at(self.plan.metadata);
        let complete = match self.plan.way.order {
            Order::Touch => self.each(threads, &self.plan.steps, send),
            Order::Disk => {
                let complete = self.each(threads, metadata, send);
                self.release_head();
                swept = self.in_disk_order(data);
                data = &swept;
                complete && self.each(threads, data, send)
            }
        };
        self.complete.store(complete, Relaxed);
        // The replay was stopped, or there was less to do than the head.
        self.release_head();
        if self.options.wait {
            // Only now: a read that waits for one page before the others were
            // asked for would bring it in alone.
            self.each(threads, metadata, |step| self.wait_for(step));
            self.each(threads, data, |step| self.wait_for(step));
        }
        self.ended_us.store(micros(self.started.elapsed()), Relaxed);
    }

    /// Lets threads take items in order until there are none or the replay is
    /// stopped; tells whether they came to the end. This thread is one of them,
    /// and the only one if no other can be had.
    fn each<T: Sync>(&self, threads: usize, items: &[T], act: impl Fn(&T) + Sync) -> bool {
        let next = AtomicUsize::new(0);
        let work = || {
            while !self.stop.load(Relaxed) && !self.timed_out() {
                let Some(item) = items.get(next.fetch_add(1, Relaxed)) else { return };
                act(item);
            }
        };
        thread::scope(|scope| {
            for _ in 1..threads.clamp(1, 256).min(items.len().max(1)) {
                if builder().spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            work();
        });
        next.into_inner() >= items.len()
    }

    /// These steps as they lie on their devices. The files are opened for that,
    /// which waits for the metadata that was asked for.
    fn in_disk_order(&self, steps: &[Step]) -> Vec<Step> {
        let places: Vec<_> = self.plan.targets.iter().map(|_| OnceLock::new()).collect();
        let mut targets: Vec<u32> = steps.iter().map(|step| step.target).collect();
        targets.sort_unstable();
        targets.dedup();
        self.each(LOOKING_UP, &targets, |&target| {
            let opened = self.opened(target as usize);
            let place = opened.and_then(|opened| Place::of(&opened.file, opened.dev));
            // Each target is there once.
            let _ = places[target as usize].set(place);
        });
        places::sorted(steps, |target| places[target as usize].get()?.as_ref())
    }

    fn note_done(&self) {
        let done = self.done.fetch_add(1, Relaxed) + 1;
        if done == self.plan.head as u64 {
            self.release_head();
        }
    }

    fn release_head(&self) {
        *self.head_sent.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.head_news.notify_all();
    }

    fn timed_out(&self) -> bool {
        self.options.timeout.is_some_and(|limit| self.started.elapsed() >= limit)
    }

    fn carry_out(&self, step: &Step) {
        match self.opened(step.target as usize) {
            Some(target) => self.ask_for(&target, step),
            None => {
                self.counters.dropped_bytes.fetch_add(step.length, Relaxed);
            }
        }
        self.note_use(step);
    }

    fn ask_for(&self, target: &Opened, step: &Step) {
        let page = rustix::param::page_size() as u64;
        let end = step.offset + step.length;
        let pages = end.div_ceil(page) - step.offset / page;
        // Without an answer the kernel sorts out by itself what it has.
        let resident = resident_count(&target.file, step.offset / page, pages).unwrap_or(0);
        let resident = (resident * page).min(step.length);
        self.counters.resident_bytes.fetch_add(resident, Relaxed);
        if resident == step.length {
            return;
        }
        let mut offset = step.offset;
        while offset < end {
            let length = target.portion.bytes.min(end - offset);
            self.note_first_request();
            match request(&target.file, offset, length, target.portion) {
                Ok(()) => self.counters.requests.fetch_add(1, Relaxed),
                Err(_) => self.counters.failed.fetch_add(1, Relaxed),
            };
            offset += length;
        }
        self.counters.bytes.fetch_add(step.length - resident, Relaxed);
        if target.metadata {
            self.counters.metadata_bytes.fetch_add(step.length - resident, Relaxed);
        }
    }

    /// Waits for every page of a step: what was asked for together lies in
    /// several places, and may come in any order. A page that is gone again is
    /// not read a second time.
    fn wait_for(&self, step: &Step) {
        if let Some(target) = self.opened(step.target as usize) {
            let page = rustix::param::page_size() as u64;
            let (first, end) = (step.offset / page, (step.offset + step.length).div_ceil(page));
            let there = |first, pages| {
                resident_count(&target.file, first, pages).map_or(true, |count| count == pages)
            };
            let all = there(first, end - first);
            for at in (first..end).filter(|at| all || there(*at, 1)) {
                // A read error is the program's to meet.
                let _ = rustix::io::pread(&target.file, &mut [0u8][..], at * page);
            }
        }
        self.note_use(step);
    }

    /// After the last use of a target it is closed.
    fn note_use(&self, step: &Step) {
        let target = step.target as usize;
        if self.left[target].fetch_sub(1, Relaxed) == 1 {
            self.close(target);
        }
    }

    fn note_first_request(&self) {
        if self.first_request_us.load(Relaxed) == u64::MAX {
            self.first_request_us.fetch_min(micros(self.began.elapsed()), Relaxed);
        }
    }

    fn slot(&self, target: usize) -> MutexGuard<'_, Slot> {
        self.slots[target].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The target, opened and checked; `None` when nothing is read from it.
    fn opened(&self, target: usize) -> Option<Arc<Opened>> {
        let mut slot = self.slot(target);
        let first_time = matches!(*slot, Slot::New);
        match &*slot {
            Slot::Open(opened) => return Some(opened.clone()),
            Slot::Dropped => return None,
            Slot::New | Slot::Closed => {}
        }
        let opened = match &self.plan.targets[target] {
            Target::File { node, identity } => {
                self.open_file(&self.plan.paths.path(*node), identity.as_ref())
            }
            Target::Device(fs) => self.open_device(fs),
        };
        match opened {
            Ok(opened) => {
                let opened = Arc::new(opened);
                if first_time && !opened.metadata {
                    self.counters.files.fetch_add(1, Relaxed);
                }
                *slot = if self.open.load(Relaxed) < MAX_OPEN {
                    self.open.fetch_add(1, Relaxed);
                    Slot::Open(opened.clone())
                } else {
                    Slot::Closed
                };
                Some(opened)
            }
            Err(_) if matches!(self.plan.targets[target], Target::Device(_)) => {
                self.counters.closed_devices.fetch_add(1, Relaxed);
                *slot = Slot::Dropped;
                None
            }
            Err(why) => {
                why.count(&self.counters).fetch_add(1, Relaxed);
                *slot = Slot::Dropped;
                None
            }
        }
    }

    fn close(&self, target: usize) {
        let mut slot = self.slot(target);
        if matches!(*slot, Slot::Open(_)) {
            self.open.fetch_sub(1, Relaxed);
            *slot = Slot::Closed;
        }
    }

    fn open_file(&self, path: &Path, identity: Option<&Identity>) -> Result<Opened, NotRead> {
        // Looked at before it is opened: opening a device could do something.
        let stat = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
        let regular = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
        if identity.is_some_and(|learned| *learned != identity_of(&stat)) {
            return Err(NotRead::Stale);
        }
        if !regular {
            return Err(NotRead::Failed);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        Ok(Opened { file, dev: stat.st_dev, portion: self.portion(stat.st_dev), metadata: false })
    }

    fn open_device(&self, fs: &FileSystem) -> Result<Opened, NotRead> {
        let devices = self.devices.get_or_init(|| (self.find_devices)(&self.plan));
        let path = fs.uuid.and_then(|uuid| devices.get(&uuid)).ok_or(NotRead::Missing)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let stat = rustix::fs::fstat(&file)?;
        Ok(Opened { file, dev: stat.st_rdev, portion: self.portion(stat.st_rdev), metadata: true })
    }

    fn portion(&self, dev: u64) -> Portion {
        let mut known = self.portions.lock().unwrap_or_else(PoisonError::into_inner);
        *known.entry(dev).or_insert_with(|| portion(Dev::from_stat(dev)))
    }

    fn report(&self) -> Report {
        let c = &self.counters;
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        Report {
            requests: get(&c.requests),
            bytes: get(&c.bytes),
            metadata_bytes: get(&c.metadata_bytes),
            resident_bytes: get(&c.resident_bytes),
            files: get(&c.files),
            stale_files: get(&c.stale_files),
            missing_files: get(&c.missing_files),
            forbidden_files: get(&c.forbidden_files),
            failed: get(&c.failed),
            closed_devices: get(&c.closed_devices),
            dropped_bytes: get(&c.dropped_bytes),
            over_budget_bytes: self.plan.over_budget,
            complete: self.complete.load(Relaxed),
            first_request_us: Some(get(&self.first_request_us)).filter(|us| *us != u64::MAX),
            elapsed_us: get(&self.ended_us),
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// What tells whether a file is still the one that was learned.
pub fn identity_of(stat: &rustix::fs::Stat) -> Identity {
    let nanoseconds = |seconds: i64, rest: u64| {
        seconds.wrapping_mul(1_000_000_000).wrapping_add(rest.cast_signed())
    };
    Identity {
        ino: stat.st_ino,
        size: stat.st_size.cast_unsigned(),
        mtime_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
        ctime_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
    }
}

/// Asks for one portion.
fn request(file: &File, offset: u64, length: u64, portion: Portion) -> io::Result<()> {
    if portion.by_reading {
        let mut scratch = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        let mut at = 0;
        while at < scratch.len() {
            match rustix::io::pread(file, &mut scratch[at..], offset + at as u64)? {
                0 => break,
                n => at += n,
            }
        }
        return Ok(());
    }
    Ok(rustix::fs::fadvise(file, offset, NonZeroU64::new(length), Advice::WillNeed)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_ends_when_its_threads_do_and_not_when_it_is_asked_about() {
        let options = Options { wait: false, timeout: None };
        let began = Instant::now();
        let replay =
            Replay::start(Plan::default(), options, |_| Default::default(), began).unwrap();
        while !replay.lead.is_finished() {
            thread::yield_now();
        }
        let ended = micros(began.elapsed());
        while micros(began.elapsed()) < ended + 1000 {
            thread::yield_now();
        }
        assert!(replay.finish().elapsed_us <= ended);
    }
}

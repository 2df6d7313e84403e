//! Carries out a plan: a small pool of threads that takes its steps in order.
//!
//! The driver: it opens files and asks the kernel to read ahead. It never
//! waits for data unless told to, never copies any, and stops when told.

use super::device::{Portion, portion};
use super::plan::{Plan, Step, Target};
use crate::cache::residency::resident_count;
use crate::id::Dev;
use crate::pack::{FileSystem, Identity};
use rustix::fs::{Advice, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Threads that issue requests. With the metadata in memory the calls hardly
/// block, and more threads would only take processor time from the program.
pub const DEFAULT_THREADS: usize = 4;
/// Files that are kept open between their steps.
const MAX_OPEN: u32 = 512;

/// How a plan is carried out.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of threads.
    pub threads: usize,
    /// Whether to wait until the data is there, not only asked for.
    pub wait: bool,
    /// When to stop, from the start of the replay.
    pub timeout: Option<Duration>,
}

/// What became of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Report {
    /// Calls that asked the kernel to read ahead.
    pub requests: u64,
    /// Bytes asked for that were not in memory.
    pub bytes: u64,
    /// Of `bytes`, those of file-system metadata.
    pub metadata_bytes: u64,
    /// Bytes of the plan that were in memory already.
    pub resident_bytes: u64,
    /// Files that were opened.
    pub files: u64,
    /// Files that are no longer what was learned.
    pub stale_files: u64,
    /// Files that are gone.
    pub missing_files: u64,
    /// Files that this user may not read.
    pub forbidden_files: u64,
    /// Files and requests that failed otherwise.
    pub failed: u64,
    /// Block devices that could not be opened, so that their metadata is left
    /// to the program.
    pub closed_devices: u64,
    /// Bytes of the plan that belong to the files and devices above.
    pub dropped_bytes: u64,
    /// Bytes that were not asked for because the budget was used up.
    pub over_budget_bytes: u64,
    /// Whether the end of the plan was reached.
    pub complete: bool,
    /// From the start of the process to the first request, in µs.
    pub first_request_us: Option<u64>,
    /// From the start of the replay to its end, in µs.
    pub elapsed_us: u64,
}

/// Counters that the threads share.
#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    bytes: AtomicU64,
    metadata_bytes: AtomicU64,
    resident_bytes: AtomicU64,
    files: AtomicU64,
    stale_files: AtomicU64,
    missing_files: AtomicU64,
    forbidden_files: AtomicU64,
    failed: AtomicU64,
    closed_devices: AtomicU64,
    dropped_bytes: AtomicU64,
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
    next: AtomicU64,
    /// Steps whose data was waited for.
    awaited: AtomicU64,
    /// Steps that were carried out.
    done: AtomicU64,
    /// Whether the head of the plan was asked for.
    head_sent: Mutex<bool>,
    head_news: Condvar,
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
    threads: Vec<JoinHandle<()>>,
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
        let count = options.threads.clamp(1, 256).min(plan.steps.len().max(1));
        let left: Vec<AtomicU32> = plan.targets.iter().map(|_| AtomicU32::new(0)).collect();
        for step in &plan.steps {
            left[step.target as usize].fetch_add(1 + u32::from(options.wait), Relaxed);
        }
        let shared = Arc::new(Shared {
            slots: plan.targets.iter().map(|_| Mutex::default()).collect(),
            left,
            next: AtomicU64::new(0),
            awaited: AtomicU64::new(0),
            done: AtomicU64::new(0),
            head_sent: Mutex::new(plan.head == 0),
            head_news: Condvar::new(),
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
        let threads = pool(&shared, count, |shared| {
            shared.each_step(&shared.next, |step| {
                shared.carry_out(step);
                shared.note_done();
            });
            // The replay was stopped, or there was less to do than the head.
            shared.release_head();
        })?;
        Ok(Self { shared, threads })
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
        let Self { shared, threads } = self;
        let count = threads.len();
        join(threads);
        if shared.options.wait {
            // Only now: a read that waits for one page before the others were
            // asked for would bring it in alone.
            let wait = |shared: &Shared| shared.each_step(&shared.awaited, |s| shared.wait_for(s));
            // Without threads the data arrives unwaited for.
            join(pool(&shared, count, wait).unwrap_or_default());
        }
        shared.report()
    }
}

/// Starts up to `count` threads that do the same.
fn pool(
    shared: &Arc<Shared>,
    count: usize,
    work: impl Fn(&Shared) + Copy + Send + 'static,
) -> io::Result<Vec<JoinHandle<()>>> {
    let mut threads = Vec::with_capacity(count);
    for _ in 0..count {
        let shared = shared.clone();
        let thread =
            thread::Builder::new().name("replay".into()).stack_size(128 << 10).spawn(move || {
                work(&shared);
                shared.ended_us.fetch_max(micros(shared.started.elapsed()), Relaxed);
            });
        match thread {
            Ok(thread) => threads.push(thread),
            Err(e) if threads.is_empty() => return Err(e),
            Err(_) => break,
        }
    }
    Ok(threads)
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        // A thread that panicked has its steps missing from the counts.
        let _ = thread.join();
    }
}

impl Shared {
    /// Takes steps in order until there are none or the replay is stopped.
    fn each_step(&self, cursor: &AtomicU64, act: impl Fn(&Step)) {
        while !self.stop.load(Relaxed) && !self.timed_out() {
            let at = cursor.fetch_add(1, Relaxed);
            let Some(step) = usize::try_from(at).ok().and_then(|at| self.plan.steps.get(at)) else {
                return;
            };
            act(step);
            let target = step.target as usize;
            if self.left[target].fetch_sub(1, Relaxed) == 1 {
                self.close(target);
            }
        }
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
        let Some(target) = self.opened(step.target as usize) else {
            self.counters.dropped_bytes.fetch_add(step.length, Relaxed);
            return;
        };
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

    /// Waits until the last page of a step is there; those before it came in
    /// with it or earlier. Beyond the file's end there is nothing to wait for.
    fn wait_for(&self, step: &Step) {
        if let Some(target) = self.opened(step.target as usize) {
            // A read error is the program's to meet.
            let at = last_page(step, rustix::param::page_size() as u64);
            let _ = rustix::io::pread(&target.file, &mut [0u8][..], at);
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
        Ok(Opened { file, portion: self.portion(stat.st_dev), metadata: false })
    }

    fn open_device(&self, fs: &FileSystem) -> Result<Opened, NotRead> {
        let devices = self.devices.get_or_init(|| (self.find_devices)(&self.plan));
        let path = fs.uuid.and_then(|uuid| devices.get(&uuid)).ok_or(NotRead::Missing)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let stat = rustix::fs::fstat(&file)?;
        Ok(Opened { file, portion: self.portion(stat.st_rdev), metadata: true })
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
            complete: get(&self.next) >= self.plan.steps.len() as u64,
            first_request_us: Some(get(&self.first_request_us)).filter(|us| *us != u64::MAX),
            elapsed_us: get(&self.ended_us),
        }
    }
}

/// Where the last page of a step begins. Its last byte may lie beyond the end of
/// the file, where a read does not wait.
fn last_page(step: &Step, page_size: u64) -> u64 {
    let last = (step.offset + step.length).saturating_sub(1);
    last - last % page_size
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Why a target is not read.
#[derive(Debug)]
enum NotRead {
    Stale,
    Missing,
    Forbidden,
    Failed,
}

impl NotRead {
    fn count(self, counters: &Counters) -> &AtomicU64 {
        match self {
            Self::Stale => &counters.stale_files,
            Self::Missing => &counters.missing_files,
            Self::Forbidden => &counters.forbidden_files,
            Self::Failed => &counters.failed,
        }
    }
}

impl From<Errno> for NotRead {
    fn from(e: Errno) -> Self {
        match e {
            Errno::NOENT | Errno::NOTDIR => Self::Missing,
            // A link took the file's place.
            Errno::LOOP => Self::Stale,
            Errno::ACCESS | Errno::PERM => Self::Forbidden,
            _ => Self::Failed,
        }
    }
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
    fn a_file_that_ends_within_a_page_is_waited_for() {
        for (offset, length, at) in [(0, 4096, 0), (0, 102_400, 98_304), (8192, 100, 8192)] {
            let step = Step { target: 0, offset, length };
            assert_eq!(last_page(&step, 4096), at, "{offset}+{length}");
        }
    }

    #[test]
    fn a_replay_ends_when_its_threads_do_and_not_when_it_is_asked_about() {
        let options = Options { threads: 1, wait: false, timeout: None };
        let began = Instant::now();
        let replay =
            Replay::start(Plan::default(), options, |_| Default::default(), began).unwrap();
        while !replay.threads.iter().all(JoinHandle::is_finished) {
            thread::yield_now();
        }
        let ended = micros(began.elapsed());
        while micros(began.elapsed()) < ended + 1000 {
            thread::yield_now();
        }
        assert!(replay.finish().elapsed_us <= ended);
    }
}

//! Asking for steps: one by one, or small ones of several files together.
//!
//! Small files often lie side by side on their disk. Asked for in one call and in
//! the order of their places they come in few requests; see `headstart_sys::willneed`.

use super::targets::{Kind, Opened};
use super::{Shared, micros};
use crate::cache::residency::resident_count;
use crate::replay::device::Portion;
use crate::replay::places;
use crate::replay::plan::Step;
use crate::replay::way::Order;
use headstart_sys::willneed::{Piece, will_need};
use rustix::fs::Advice;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The largest step that is asked for with others, in bytes: the kernel sends a
/// request off when it has grown to this (`BLK_PLUG_FLUSH_SIZE`, `block/blk-mq.c`).
const SMALL: u64 = 128 << 10;
/// The most steps that are asked for together.
const MOST: usize = 64;
/// How long a step waits for others, unless all threads wait for the disk.
const PATIENCE: Duration = Duration::from_millis(1);
/// A step whose file took longer to open than this is asked for at once: opening
/// waited for the disk, and so may those of the others.
const WAITED: Duration = Duration::from_micros(500);

/// Small steps that are about to be asked for together.
#[derive(Debug, Default)]
pub(super) struct Gathering(Mutex<Gathered>);

#[derive(Debug, Default)]
struct Gathered {
    wanted: Vec<Wanted>,
    /// When the first of them came.
    since: Option<Instant>,
}

/// A step that is to be asked for.
#[derive(Debug)]
struct Wanted {
    step: Step,
    /// Its place among all.
    number: usize,
    target: Arc<Opened>,
    /// Bytes of it that are not in memory.
    missing: u64,
}

impl Gathering {
    fn lock(&self) -> MutexGuard<'_, Gathered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a step; all of them when they are to be asked for now.
    fn add(&self, wanted: Wanted) -> Vec<Wanted> {
        let mut gathered = self.lock();
        gathered.wanted.push(wanted);
        let since = *gathered.since.get_or_insert_with(Instant::now);
        let now = gathered.wanted.len() >= MOST || since.elapsed() >= PATIENCE;
        if now { gathered.take() } else { Vec::new() }
    }

    /// What is there.
    fn take(&self) -> Vec<Wanted> {
        self.lock().take()
    }
}

impl Gathered {
    fn take(&mut self) -> Vec<Wanted> {
        self.since = None;
        std::mem::take(&mut self.wanted)
    }
}

impl Shared {
    /// Asks for a step, or leaves it to be asked for with others. `number` is its
    /// place among all.
    pub(super) fn carry_out(&self, step: &Step, number: usize) {
        let began = Instant::now();
        let opened = self.opened(step.target as usize);
        let waited = began.elapsed() >= WAITED;
        match opened.map(|target| (self.missing(&target, step), target)) {
            Some((0, _)) => self.note_done(1),
            Some((missing, target)) => {
                let may_join = self.plan.way.together && !waited && target.may_join(step);
                let wanted = Wanted { step: *step, number, target, missing };
                if may_join {
                    self.ask_for_all(self.gathering.add(wanted));
                } else {
                    self.ask_for(&wanted);
                    self.note_done(1);
                }
            }
            None => {
                self.counters.dropped_bytes.fetch_add(step.length, Relaxed);
                self.note_done(1);
            }
        }
        self.note_use(step);
        if waited {
            self.ask_for_gathered();
        }
    }

    /// Asks for what is still to be asked for.
    pub(super) fn ask_for_gathered(&self) {
        self.ask_for_all(self.gathering.take());
    }

    /// Asks for small steps together, those that lie side by side one after the
    /// other. In a sweep all come so.
    fn ask_for_all(&self, mut wanted: Vec<Wanted>) {
        if wanted.is_empty() {
            return;
        }
        if self.plan.way.order == Order::Touch {
            wanted = side_by_side(wanted);
        }
        self.note_first_request();
        let pieces: Vec<_> = wanted.iter().map(Wanted::piece).collect();
        if will_need(&pieces).is_ok() {
            self.counters.requests.fetch_add(wanted.len() as u64, Relaxed);
            let missing = wanted.iter().map(|wanted| wanted.missing).sum();
            self.counters.bytes.fetch_add(missing, Relaxed);
        } else {
            // This file system, or a limit of the address space, is against it.
            wanted.iter().for_each(|wanted| self.ask_for(wanted));
        }
        self.note_done(wanted.len());
    }

    /// Bytes of a step that are not in memory.
    fn missing(&self, target: &Opened, step: &Step) -> u64 {
        let page = rustix::param::page_size() as u64;
        let first = step.offset / page;
        let pages = (step.offset + step.length).div_ceil(page) - first;
        // Without an answer the kernel sorts out by itself what it has.
        let resident = resident_count(&target.file, first, pages).unwrap_or(0);
        let resident = (resident * page).min(step.length);
        self.counters.resident_bytes.fetch_add(resident, Relaxed);
        step.length - resident
    }

    fn ask_for(&self, Wanted { step, target, missing, .. }: &Wanted) {
        let end = step.offset + step.length;
        let mut offset = step.offset;
        self.note_first_request();
        while offset < end {
            let length = target.portion.bytes.min(end - offset);
            match request(&target.file, offset, length, target.portion) {
                Ok(()) => self.counters.requests.fetch_add(1, Relaxed),
                Err(_) => self.counters.failed.fetch_add(1, Relaxed),
            };
            offset += length;
        }
        self.counters.bytes.fetch_add(*missing, Relaxed);
        if target.kind == Kind::Device {
            self.counters.metadata_bytes.fetch_add(*missing, Relaxed);
        }
    }

    fn note_first_request(&self) {
        if self.first_request_us.load(Relaxed) == u64::MAX {
            self.first_request_us.fetch_min(micros(self.began.elapsed()), Relaxed);
        }
    }
}

impl Wanted {
    /// Where it lies, if that is known.
    fn place(&self) -> Option<(u64, u64)> {
        let Self { step, target, .. } = self;
        places::begin(&target.file, target.dev, step.offset, step.length)
    }

    fn piece(&self) -> Piece<'_> {
        let Self { step, target, .. } = self;
        Piece { file: target.file.as_fd(), offset: step.offset, length: step.length as usize }
    }
}

/// Puts steps that lie side by side one after the other, where the first of them
/// comes in the order of the plan.
fn side_by_side(wanted: Vec<Wanted>) -> Vec<Wanted> {
    let mut placed: Vec<_> = wanted.into_iter().map(|wanted| (wanted.place(), wanted)).collect();
    placed.sort_by_key(|(place, wanted)| (*place, wanted.number));
    let mut rows: Vec<Vec<Wanted>> = Vec::new();
    let mut next = None;
    for (place, wanted) in placed {
        let end = place.map(|(dev, at)| (dev, at + wanted.step.length));
        match rows.last_mut().filter(|_| place.is_some() && place == next) {
            Some(row) => row.push(wanted),
            None => rows.push(vec![wanted]),
        }
        next = end;
    }
    rows.sort_by_key(|row| row.iter().map(|wanted| wanted.number).min());
    rows.into_iter().flatten().collect()
}

impl Opened {
    /// Whether a step may be asked for with others: by a mapping, which begins
    /// with a page.
    fn may_join(&self, step: &Step) -> bool {
        self.kind == Kind::Unnoticed
            && !self.portion.by_reading
            && step.length <= SMALL.min(self.portion.bytes)
            && step.offset.is_multiple_of(rustix::param::page_size() as u64)
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

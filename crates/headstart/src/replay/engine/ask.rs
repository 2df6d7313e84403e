//! Asking for steps: one by one, or small ones of several files together.
//!
//! Small files often lie side by side on their disk. Asked for in one call and in
//! the order of their places they come in few requests; see `headstart_sys::willneed`.

use super::gathering::{Wanted, in_rows};
use super::opened::Opened;
use super::{Shared, micros};
use crate::cache::residency::resident_count;
use crate::host::open::Kind;
use crate::replay::device::Portion;
use crate::replay::step::Step;
use crate::replay::strategy::Order;
use headstart_sys::willneed::will_need;
use rustix::fs::Advice;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The largest step that is asked for with others, in bytes: what the kernel holds
/// back is sent off when a request has grown to this (`BLK_PLUG_FLUSH_SIZE`,
/// `block/blk-mq.c`).
const SMALL: u64 = 128 << 10;
/// From so many steps in memory one after the other on, the rest is presumed to be.
const SURELY: usize = 64;
/// Of which one of so many is looked at.
const SAMPLE: usize = 16;
/// A step whose file took longer to open than this is asked for at once: opening
/// waited for the disk, and so may those of the others.
const WAITED: Duration = Duration::from_micros(500);

impl Shared {
    /// Asks for a step, or leaves it to be asked for with others. `number` is its
    /// place among those that are carried out in order.
    pub(super) fn carry_out(&self, step: &Step, number: usize) {
        if self.is_presumed(step, number) {
            self.presumed().push((*step, number));
            // Another thread may have found one that is not in memory meanwhile.
            if !self.presumes() {
                self.take_back();
            }
            return;
        }
        self.look_at(step, number);
    }

    /// Asks for a step, if it is not in memory.
    fn look_at(&self, step: &Step, number: usize) {
        let began = Instant::now();
        let opened = self.opened(step.target as usize);
        let waited = began.elapsed() >= WAITED;
        let (mut joined, mut refuted) = (false, false);
        if let Some(target) = opened {
            let missing = self.missing(&target, step);
            refuted = missing > 0;
            if refuted {
                self.calm.store(false, Relaxed);
                self.in_memory.store(0, Relaxed);
            } else if target.kind != Kind::Device {
                // Metadata in memory says little of data.
                self.in_memory.fetch_add(1, Relaxed);
            }
            let wanted = Wanted { step: *step, number, target, missing };
            joined = missing > 0 && !waited && self.may_join(&wanted);
            if joined {
                self.gathering.add(wanted);
            } else if missing > 0 {
                // An arm would have to go back for what was gathered.
                self.ask_for_gathered(self.plan.way.order == Order::Disk);
                self.ask_for(&wanted);
            }
        } else {
            self.calm.store(false, Relaxed);
            self.counters.dropped_bytes.fetch_add(step.length, Relaxed);
        }
        if !joined {
            self.note_done(number);
        }
        self.note_use(step);
        self.ask_for_gathered(waited || number + 1 == self.plan.head);
        if refuted {
            self.take_back();
        }
        self.look_after_memory();
    }

    /// Whether a step is taken to be in memory, as those before it were. The program
    /// waits for those of the head, and data in memory says little of metadata, which is
    /// quickly looked at.
    fn is_presumed(&self, step: &Step, number: usize) -> bool {
        let is_data = self.plan.targets[step.target as usize].node().is_some();
        let may_be = is_data && !self.options.exact && number >= self.plan.head;
        may_be && !number.is_multiple_of(SAMPLE) && self.presumes()
    }

    fn presumes(&self) -> bool {
        self.in_memory.load(Relaxed) >= SURELY
    }

    fn presumed(&self) -> MutexGuard<'_, Vec<(Step, usize)>> {
        self.presumed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at all that was presumed after all: of a start from several file systems
    /// one may be in memory, as that of a container's launcher, and the others not.
    fn take_back(&self) {
        let presumed = std::mem::take(&mut *self.presumed());
        for (step, number) in presumed {
            self.look_at(&step, number);
        }
    }

    /// What is still presumed at the end was right, as far as anyone knows.
    pub(super) fn keep_presumed(&self) {
        for (step, _) in std::mem::take(&mut *self.presumed()) {
            self.counters.presumed_bytes.fetch_add(step.length, Relaxed);
            self.note_use(&step);
        }
    }

    /// Asks for what was gathered, if it `must` be now, or it is time.
    pub(super) fn ask_for_gathered(&self, must: bool) {
        let gathered = self.gathering.take(must);
        if gathered.is_empty() {
            return;
        }
        let wanted = in_rows(gathered, self.plan.way.order);
        self.note_first_request();
        let pieces: Vec<_> = wanted.iter().map(Wanted::piece).collect();
        // The address space may be limited.
        let left_out = will_need(&pieces).unwrap_or_else(|_| (0..wanted.len()).collect());
        for (number, wanted) in wanted.iter().enumerate() {
            if left_out.binary_search(&number).is_ok() {
                self.ask_for(wanted);
            } else {
                self.scarcity.note(&wanted.target, &wanted.step);
                self.counters.requests.fetch_add(1, Relaxed);
                self.counters.bytes.fetch_add(wanted.missing, Relaxed);
                self.note_asked(&wanted.step);
            }
            self.note_done(wanted.number);
        }
    }

    /// Whether a step may be asked for with others: by a mapping, which begins
    /// with a page.
    fn may_join(&self, Wanted { step, target, .. }: &Wanted) -> bool {
        self.plan.way.together
            && target.kind == Kind::Unnoticed
            && !target.portion.by_reading
            && step.length <= SMALL.min(target.portion.bytes)
            && step.offset.is_multiple_of(rustix::param::page_size() as u64)
            && self.open_files() < self.descriptors.gathered
    }

    /// Bytes of a step that are not in memory; the others are counted.
    fn missing(&self, target: &Opened, step: &Step) -> u64 {
        let resident = resident(target, step);
        self.counters.resident_bytes.fetch_add(resident, Relaxed);
        step.length - resident
    }

    /// Whether all of a step is in memory, as far as can be told.
    pub(super) fn is_in_memory(&self, step: &Step) -> bool {
        let opened = self.opened(step.target as usize);
        opened.is_some_and(|target| resident(&target, step) == step.length)
    }

    fn ask_for(&self, Wanted { step, target, missing, .. }: &Wanted) {
        let end = step.offset + step.length;
        let mut offset = step.offset;
        self.note_first_request();
        self.wait_for_room(*missing);
        self.note_asked(step);
        while offset < end {
            let length = target.portion.bytes.min(end - offset);
            match request(&target.file, offset, length, target.portion) {
                Ok(()) => self.counters.requests.fetch_add(1, Relaxed),
                Err(_) => self.counters.failed.fetch_add(1, Relaxed),
            };
            offset += length;
        }
        self.note_on_way(target, step, *missing);
        self.counters.bytes.fetch_add(*missing, Relaxed);
        self.scarcity.note(target, step);
        if target.kind == Kind::Device {
            self.counters.metadata_bytes.fetch_add(*missing, Relaxed);
        }
    }

    fn note_first_request(&self) {
        if !self.has_asked() {
            self.first_request_us.fetch_min(micros(self.began.elapsed()), Relaxed);
            // Whoever waits to see whether all is in memory has waited enough.
            drop(self.head_sent.lock());
            self.head_news.notify_all();
        }
    }
}

/// Bytes of a step that are in memory. Without an answer the kernel sorts out by itself what it
/// has.
fn resident(target: &Opened, step: &Step) -> u64 {
    let page = rustix::param::page_size() as u64;
    let first = step.offset / page;
    let pages = (step.offset + step.length).div_ceil(page) - first;
    (resident_count(&target.file, first, pages).unwrap_or(0) * page).min(step.length)
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

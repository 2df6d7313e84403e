//! Asking for steps: one by one, or small ones of several files together.
//!
//! Small files often lie side by side on their disk. Asked for in one call and in
//! the order of their places they come in few requests; see `headstart_sys::willneed`.

use super::targets::Opened;
use super::{Shared, micros};
use crate::cache::residency::resident_count;
use crate::host::open::Kind;
use crate::replay::device::Portion;
use crate::replay::places::{self, Stretch};
use crate::replay::step::Step;
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

/// The largest step that is asked for with others, in bytes: what the kernel holds
/// back is sent off when a request has grown to this (`BLK_PLUG_FLUSH_SIZE`,
/// `block/blk-mq.c`).
const SMALL: u64 = 128 << 10;
/// The most steps that are asked for together.
pub(super) const MOST: usize = 64;
/// How long a step waits for others, unless all threads wait for the disk.
const PATIENCE: Duration = Duration::from_millis(1);
/// From so many steps in memory one after the other on, the rest is presumed to be.
const SURELY: usize = 64;
/// Of which one of so many is looked at.
const SAMPLE: usize = 16;
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
    /// Its place among those that are carried out in order.
    number: usize,
    target: Arc<Opened>,
    /// Bytes of it that are not in memory.
    missing: u64,
}

impl Gathering {
    fn lock(&self) -> MutexGuard<'_, Gathered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a step.
    fn add(&self, wanted: Wanted) {
        let mut gathered = self.lock();
        gathered.since.get_or_insert_with(Instant::now);
        gathered.wanted.push(wanted);
    }

    /// What is there, if it `must` be asked for, or it is enough, or old enough.
    fn take(&self, must: bool) -> Vec<Wanted> {
        let mut gathered = self.lock();
        let is_old = gathered.since.is_some_and(|since| since.elapsed() >= PATIENCE);
        if !(must || is_old || gathered.wanted.len() >= MOST) {
            return Vec::new();
        }
        gathered.since = None;
        std::mem::take(&mut gathered.wanted)
    }
}

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

impl Wanted {
    fn piece(&self) -> Piece<'_> {
        let Self { step, target, .. } = self;
        Piece { file: target.file.as_fd(), offset: step.offset, length: step.length as usize }
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

/// Puts steps that lie side by side one after the other, where the first of them
/// comes in the order of the plan. In a sweep that is the order of the plan.
fn in_rows(mut wanted: Vec<Wanted>, order: Order) -> Vec<Wanted> {
    wanted.sort_by_key(|wanted| wanted.number);
    if order == Order::Disk {
        return wanted;
    }
    let stretch = |Wanted { step, target, .. }: &Wanted| {
        places::stretch(&target.file, target.dev, step.offset, step.length)
    };
    let stretches: Vec<_> = wanted.iter().map(stretch).collect();
    let mut wanted: Vec<_> = wanted.into_iter().map(Some).collect();
    rows(&stretches).into_iter().filter_map(|number| wanted[number].take()).collect()
}

/// The order in which stretches that begin where another ends follow it, and else
/// keep theirs, as far as the first of each row goes.
fn rows(stretches: &[Option<Stretch>]) -> Vec<usize> {
    let mut by_place: Vec<usize> = (0..stretches.len()).collect();
    by_place.sort_by_key(|&number| (stretches[number], number));
    let follows = |a: &usize, b: &usize| match (stretches[*a], stretches[*b]) {
        (Some(a), Some(b)) => (a.dev, a.end) == (b.dev, b.begin),
        _ => false,
    };
    let mut rows: Vec<_> = by_place.chunk_by(follows).collect();
    rows.sort_by_key(|row| row.iter().min());
    rows.concat()
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
    use proptest::prelude::*;

    fn stretch(dev: u64, begin: u64, end: u64) -> Option<Stretch> {
        Some(Stretch { dev, begin, end })
    }

    #[test]
    fn what_lies_side_by_side_follows_its_neighbour_and_the_rest_keeps_its_order() {
        for (name, stretches, expected) in [
            ("apart", vec![stretch(1, 90, 95), stretch(1, 10, 15)], vec![0, 1]),
            (
                "a row comes where its first is asked for",
                vec![stretch(1, 50, 60), stretch(1, 20, 30), stretch(1, 0, 9), stretch(1, 10, 20)],
                vec![0, 3, 1, 2],
            ),
            ("other devices", vec![stretch(1, 10, 20), None, stretch(2, 20, 30)], vec![0, 1, 2]),
            ("unknown places", vec![None, None], vec![0, 1]),
        ] {
            assert_eq!(rows(&stretches), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn each_stretch_is_asked_for_once_and_side_by_side_with_its_neighbour(
            places in proptest::collection::vec(proptest::option::of((0u64..2, 0u64..20)), 0..40)
        ) {
            let stretches: Vec<_> =
                places.iter().map(|p| p.and_then(|(dev, at)| stretch(dev, at, at + 1))).collect();
            let found = rows(&stretches);
            let mut sorted = found.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..stretches.len()).collect::<Vec<_>>());
            // Where one ends, one that begins there comes next, if there is one.
            for pair in found.windows(2) {
                let Some(first) = stretches[pair[0]] else { continue };
                let next = |s: &Option<Stretch>| {
                    s.is_some_and(|s| (s.dev, s.begin) == (first.dev, first.end))
                };
                let twins = stretches.iter().filter(|s| **s == Some(first)).count();
                if twins == 1 && stretches.iter().any(next) {
                    prop_assert!(next(&stretches[pair[1]]));
                }
            }
        }
    }
}

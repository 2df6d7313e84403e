//! The course of a replay: which step is handled when, and how. It has no state; each part of the
//! engine has its own.

use super::Options;
use super::arrival::{
    PATIENCE, Requested, wait_for_all_pages, wait_for_last_page, wait_for_order, wait_for_pages,
};
use super::gathering::PendingStep;
use super::log::Log;
use super::progress::Progress;
use super::residency::Residency;
use super::submission::Submission;
use super::targets::{Opened, Targets};
use super::workers::{LOOKING_UP, Workers};
use super::writes::wait_for_writes;
use crate::cache::residency::{are_resident, page_size};
use crate::host::id::Dev;
use crate::host::mounts::Mounts;
use crate::host::threads;
use crate::pack::paths::NodeId;
use crate::replay::elevator::{self, Passes};
use crate::replay::places::{FileLayout, in_pieces};
use crate::replay::plan::Plan;
use crate::replay::report::Report;
use crate::replay::step::Step;
use crate::replay::strategy::Order;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Steps of a batch in elevator order that are in flight at most, and their bytes: some 20 ms.
const BATCH_STEPS: usize = 16;
const BATCH_BYTES: u64 = 2 << 20;
/// How long a pass waits for writes in all, so that a program that writes all the time does not delay it further.
const WRITES_PATIENCE: Duration = Duration::from_secs(1);
/// A step whose file took longer to open than this is requested at once: opening
/// waited for the disk, and so may those of the others.
const WAITED: Duration = Duration::from_micros(500);

/// A plan with all that carries it out.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) plan: Arc<Plan>,
    /// Whether to wait until the data is there.
    wait: bool,
    pub(super) progress: Arc<Progress>,
    pub(super) targets: Targets,
    residency: Residency,
    submission: Submission,
    pub(super) workers: Workers,
    /// The inodes that changing files had when they were looked at, with their names, if that is kept.
    inodes: Option<Mutex<Vec<(u64, NodeId)>>>,
}

impl Engine {
    pub(super) fn new(plan: Plan, options: Options, mounts: Mounts, began: Instant) -> Self {
        let plan = Arc::new(plan);
        let progress = Arc::new(Progress::new(began, plan.head, options.timeout));
        // A step is used for the request, and again for the wait.
        let uses = 1 + u32::from(options.wait);
        let assumes_from = if options.check_all { usize::MAX } else { plan.head };
        let shared = || progress.clone();
        Self {
            wait: options.wait,
            targets: Targets::new(plan.clone(), uses, options.follow, mounts, shared()),
            residency: Residency::new(assumes_from, options.sampled, shared()),
            submission: Submission::new(plan.strategy, options.log, shared()),
            workers: Workers::new(options.tids, shared()),
            inodes: options.log.then(Mutex::default),
            progress,
            plan,
        }
    }

    /// Carries out the plan, with this thread and more.
    pub(super) fn run(&self) {
        let (metadata, data) = self.plan.steps.split_at(self.plan.metadata);
        let mut data = Cow::Borrowed(data);
        let complete = match self.plan.strategy.order {
            Order::Touch => {
                let complete = self.request_all(&self.plan.steps);
                self.plan.changing.iter().for_each(|target| self.note_inode(*target));
                complete
            }
            Order::Elevator => {
                let has_metadata = self.request_all(metadata);
                self.progress.release_head();
                data = self.in_elevator_order(&data).into();
                has_metadata
                    && match self.plan.strategy.in_passes {
                        true => self.request_in_batches(&data),
                        false => self.request_pass(&data),
                    }
            }
        };
        self.submission.end();
        self.progress.note_last_request(complete);
        if self.wait {
            // Only now: a read that waits for one page before the others were
            // requested would bring it in alone.
            for steps in [metadata, &data] {
                self.each(self.plan.strategy.threads, steps.len(), |i| self.wait_for(&steps[i]));
            }
        }
        self.progress.note_end();
    }

    /// Requests steps in order; returns whether it came to the end.
    fn request_all(&self, steps: &[Step]) -> bool {
        let threads = self.plan.strategy.threads;
        let request = |i: usize| self.visit(&steps[i], i);
        let complete = match self.plan.strategy.opens_ahead() {
            // A thread that waits for names and inodes would leave the device too little to do for rows.
            true => {
                let is_one_enough = || self.residency.sample_holds();
                let open = |i: usize| self.open_ahead(&steps[i]);
                self.workers.each_prepared(threads, steps.len(), is_one_enough, open, request)
            }
            false => self.each(threads, steps.len(), request),
        };
        if complete {
            self.submission.submit_gathered(true);
        }
        // Assumptions that no check contradicted count as right.
        for (step, _) in self.residency.take_assumed() {
            self.progress.count(|report| report.assumed_bytes += step.bytes.length());
            self.targets.note_use(&step);
        }
        complete
    }

    /// Requests steps in order and waits for each batch, so that the program's own reads never wait
    /// for more than a batch; returns whether it came to the end.
    fn request_in_batches(&self, steps: &[Step]) -> bool {
        let mut left = steps;
        while !left.is_empty() {
            let (batch, rest) = left.split_at(batch_of(left));
            if !self.request_all(batch) {
                return false;
            }
            self.wait_for_arrival(batch.last());
            left = rest;
        }
        true
    }

    /// Requests the steps of one pass; returns whether it came to the end. A disk serves next what lies ahead of
    /// its head, which the program may have moved past the beginning of the pass, or past a part of that: so
    /// all but two batches are requested when the disk has shown that it reads these in order, while it does.
    ///
    /// If it is throttled, two batches are in flight at most, and none is requested while the disk has a write
    /// in flight.
    fn request_pass(&self, steps: &[Step]) -> bool {
        let is_throttled = self.is_throttled();
        let (mut left, mut before) = (steps, Vec::<Requested>::new());
        let mut patience = WRITES_PATIENCE;
        for number in 0.. {
            let is_batch = number < 2 || is_throttled;
            let (batch, rest) = left.split_at(if is_batch { batch_of(left) } else { left.len() });
            // Before they are requested: after that they are closed. And nothing more is opened when it is over.
            let may_wait = !self.wait && (is_throttled || !rest.is_empty());
            let may_wait = may_wait && !self.progress.is_over();
            let awaited = batch.iter().filter(|_| may_wait);
            let awaited: Vec<Requested> = awaited
                .filter_map(|step| Some((self.targets.opened(step.target)?, *step)))
                .collect();
            if is_throttled {
                let devices: BTreeSet<u64> = awaited.iter().map(|(target, _)| target.dev).collect();
                for device in devices {
                    let began = Instant::now();
                    wait_for_writes(Dev::from_stat(device), patience, || self.progress.is_over());
                    patience = patience.saturating_sub(began.elapsed());
                }
            }
            if !self.request_all(batch) {
                return false;
            }
            if rest.is_empty() {
                break;
            }
            if !before.is_empty() && self.progress.has_requested() {
                let until = Instant::now() + PATIENCE;
                let is_over = || self.progress.is_over();
                match is_throttled {
                    true => wait_for_pages(&before, until, is_over),
                    false => wait_for_order(&before, &awaited, until, is_over),
                }
            }
            (left, before) = (rest, awaited);
        }
        true
    }

    /// Waits until a step has arrived.
    fn wait_for_arrival(&self, step: Option<&Step>) {
        if let Some(step) = step.filter(|_| self.progress.has_requested())
            && let Some(target) = self.targets.opened(step.target)
        {
            wait_for_last_page(&target, step, || self.progress.is_over());
        }
    }

    fn each(&self, threads: usize, count: usize, act: impl Fn(usize) + Sync) -> bool {
        self.workers.each(threads, count, || self.residency.sample_holds(), act)
    }

    /// Sorts steps in elevator order, resident ones last. This opens the files, which waits for the
    /// requested metadata.
    fn in_elevator_order(&self, steps: &[Step]) -> Vec<Step> {
        let places: Vec<_> = self.plan.targets.iter().map(|_| OnceLock::new()).collect();
        let mut read: Vec<u32> = steps.iter().map(|step| step.target).collect();
        read.sort_unstable();
        read.dedup();
        let is_read = |target: &u32| read.binary_search(target).is_ok();
        let others = self.plan.changing.iter().copied().filter(|target| !is_read(target));
        let mut targets: Vec<u32> = read.iter().copied().chain(others).collect();
        // The inodes of a file system lie on the disk in the order of their numbers.
        targets.sort_by_key(|target| self.plan.targets[*target as usize].inode());
        self.each(LOOKING_UP.min(threads::most()), targets.len(), |i| {
            self.note_inode(targets[i]);
            if !is_read(&targets[i]) {
                return;
            }
            let opened = self.targets.opened(targets[i]);
            let place = opened.and_then(|opened| FileLayout::of(&opened.file, opened.dev));
            // Each target is there once.
            let _ = places[targets[i] as usize].set(place);
        });
        let parts = |step: &Step| {
            let layout = places[step.target as usize].get().and_then(Option::as_ref);
            let existing = self.targets.existing(step);
            let Some(layout) = layout else {
                self.targets.note_division(step, existing.len());
                return existing;
            };
            // Each piece comes where it lies, and not where the first one does.
            let pieces = |part: &Step| {
                let pieces = in_pieces(part.bytes, &layout.extents, page_size());
                pieces
                    .into_iter()
                    .map(|bytes| self.plan.touches.part(step, bytes))
                    .collect::<Vec<_>>()
            };
            let divided = |step: &Step| {
                let parts = self.targets.divided(step, &layout.extents);
                self.note_skipped(step, &parts);
                parts
            };
            let parts: Vec<Step> =
                existing.iter().flat_map(divided).flat_map(|part| pieces(&part)).collect();
            self.targets.note_division(step, parts.len());
            parts
        };
        let steps: Vec<Step> = steps.iter().flat_map(parts).collect();
        let is_resident = |step: &Step| {
            let opened = self.targets.opened(step.target);
            opened.is_some_and(|target| are_resident(&target.file, step.pages()))
        };
        let place = |step: &Step| {
            let place = places[step.target as usize].get()?.as_ref()?.find(step.bytes.offset);
            place.filter(|_| !is_resident(step))
        };
        let strategy = &self.plan.strategy;
        // If all of it is awaited, it does not matter what comes first.
        let seek = strategy.seek.filter(|_| !self.wait);
        let passes = match (strategy.in_passes, self.is_throttled()) {
            (true, _) => Passes::Several,
            (false, true) => Passes::Detours,
            (false, false) => Passes::One,
        };
        elevator::order(&steps, place, seek, passes)
    }

    /// Whether few steps of a pass are requested at a time: a start that appends to files waits for its
    /// writes, and those come behind all that was requested. Whoever waits for all does not mind.
    fn is_throttled(&self) -> bool {
        self.plan.appends && !self.wait
    }

    /// Notes which inode a changing file has: when the start has replaced it, its name is not found otherwise.
    fn note_inode(&self, target: u32) {
        let target = &self.plan.targets[target as usize];
        if let Some(inodes) = &self.inodes
            && let Some(node) = target.node().filter(|_| target.is_changing())
            && let Ok(stat) = rustix::fs::lstat(self.plan.paths.path(node))
        {
            inodes.lock().unwrap_or_else(PoisonError::into_inner).push((stat.st_ino, node));
        }
    }

    /// The parts of a step that are read; in elevator order it was divided before.
    fn parts(&self, target: &Opened, step: &Step) -> Vec<Step> {
        match self.plan.strategy.order {
            Order::Touch => self.targets.parts(target, step),
            Order::Elevator => vec![*step],
        }
    }

    /// What there is of a step, which has [`Self::parts`].
    fn existing(&self, step: &Step) -> Vec<Step> {
        match self.plan.strategy.order {
            Order::Touch => self.targets.existing(step),
            Order::Elevator => vec![*step],
        }
    }

    /// Counts the gaps between the parts of a step.
    fn note_skipped(&self, step: &Step, parts: &[Step]) {
        if parts.len() > 1 {
            let read: u64 = parts.iter().map(|part| part.bytes.length()).sum();
            self.progress.count(|report| report.apart_bytes += step.bytes.length() - read);
        }
    }

    /// Opens the file of a step that comes soon, unless what is resident is not opened either.
    fn open_ahead(&self, step: &Step) {
        if !self.residency.is_row_long() {
            self.targets.opened(step.target);
        }
    }

    /// Requests a step, leaves it to be requested with others, or assumes that it is resident.
    /// `number` is its place among those that are gone through in order. Metadata is always
    /// looked up: that is quick, and data says little of it.
    fn visit(&self, step: &Step, number: usize) {
        let is_data = self.plan.targets[step.target as usize].node().is_some();
        if !(is_data && self.residency.assume(step, number)) {
            self.look_at(step, number);
        } else if !self.residency.is_row_long() {
            self.look_at_assumed();
        }
    }

    /// Checks all steps that were assumed to be resident: one file system of a start may be in
    /// memory, such as that of a container launcher, and the others not.
    fn look_at_assumed(&self) {
        for (step, number) in self.residency.take_assumed() {
            self.look_at(&step, number);
        }
    }

    /// Requests a step, if it is not resident.
    fn look_at(&self, step: &Step, number: usize) {
        let began = Instant::now();
        let opened = self.targets.opened(step.target).map(|target| {
            let parts = |step: &Step| {
                let parts = self.parts(&target, step);
                self.note_skipped(step, &parts);
                parts
            };
            let parts: Vec<Step> = self.existing(step).iter().flat_map(parts).collect();
            (target, parts)
        });
        // A busy device is waited for anyway.
        let has_waited = began.elapsed() >= WAITED && !self.submission.forms_rows();
        let mut is_missing = false;
        match opened {
            None => {
                self.residency.contradict_sample();
                self.progress.count(|report| report.dropped_bytes += step.bytes.length());
                self.progress.note_done(number);
            }
            Some((target, parts)) => {
                self.progress.note_division(number, parts.len());
                for part in parts {
                    is_missing |= self.request_missing(&target, part, number, !has_waited);
                }
            }
        }
        self.targets.note_use(step);
        self.submission.submit_gathered(has_waited || number + 1 == self.plan.head);
        if is_missing {
            self.look_at_assumed();
        }
        self.submission.look_for_pressure(|| self.plan.bytes());
    }

    /// Requests a part of a step if it is not resident, with others if it `may` wait for these;
    /// returns whether it was not.
    fn request_missing(&self, target: &Arc<Opened>, part: Step, number: usize, may: bool) -> bool {
        if part.bytes.is_empty() {
            self.progress.note_done(number);
            return false;
        }
        let missing = self.residency.missing(target, &part);
        let wanted = PendingStep { step: part, number, target: target.clone(), missing };
        if missing > 0 && may && self.submission.may_gather(&wanted) && self.targets.may_wait() {
            self.submission.gather(wanted);
            return true;
        }
        if missing > 0 {
            self.submission.submit(&wanted);
        }
        self.progress.note_done(number);
        missing > 0
    }

    fn wait_for(&self, step: &Step) {
        if let Some(target) = self.targets.opened(step.target) {
            let existing = self.existing(step);
            for part in existing.iter().flat_map(|step| self.parts(&target, step)) {
                wait_for_all_pages(&target, &part, || self.progress.note_activity());
            }
        }
        self.targets.note_use(step);
    }

    pub(super) fn report(&self) -> Report {
        let mut report = self.progress.report();
        report.over_budget_bytes = self.plan.over_budget;
        report.seldom_bytes = self.plan.seldom;
        report.in_touch_order = self.plan.strategy.order == Order::Touch;
        if report.stopped.is_some() {
            let Report { bytes, resident_bytes, assumed_bytes, .. } = report;
            let skipped = report.dropped_bytes + report.apart_bytes;
            let dealt_with = bytes + resident_bytes + assumed_bytes + skipped;
            report.stopped_bytes = self.plan.bytes().saturating_sub(dealt_with);
        }
        report
    }

    pub(super) fn into_log(self) -> Log {
        let Self { plan, targets, submission, inodes, .. } = self;
        // They share the plan.
        drop(targets);
        let inodes = inodes.unwrap_or_default();
        let inodes = inodes.into_inner().unwrap_or_else(PoisonError::into_inner);
        Log::of(Arc::unwrap_or_clone(plan), submission.into_log(), inodes)
    }
}

/// How many of these steps are a batch: at least one.
fn batch_of(steps: &[Step]) -> usize {
    let mut bytes = 0;
    let fits = |step: &&Step| {
        let is_first = bytes == 0;
        bytes += step.bytes.length();
        is_first || bytes <= BATCH_BYTES
    };
    steps.iter().take(BATCH_STEPS).take_while(fits).count().max(1).min(steps.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::range::ByteRange;

    #[test]
    fn a_batch_is_bounded_in_steps_and_bytes_and_never_empty() {
        for (name, lengths, expected) in [
            ("small ones", vec![4096; 40], BATCH_STEPS),
            ("large ones", vec![BATCH_BYTES / 2; 4], 2),
            ("one is too large", vec![BATCH_BYTES + 1, 4096], 1),
            ("the last", vec![4096], 1),
        ] {
            let step = |&length| Step { target: 0, bytes: ByteRange::of(0, length), touched_us: 0 };
            let steps: Vec<Step> = lengths.iter().map(step).collect();
            assert_eq!(batch_of(&steps), expected, "{name}");
        }
    }
}

//! Requests to the kernel: for one step at once, or for small steps of several files together.
//!
//! Small files are often adjacent on their disk. In one call and in the order of their positions
//! they become few requests; see `headstart_sys::willneed`.

use super::arrival::{has_arrived, wait_for_last_page};
use super::backlog::Backlog;
use super::gathering::{Due, Gathering, PendingStep, in_rows};
use super::in_flight::{Counted, StepsInFlight};
use super::log::Requested;
use super::pressure::MemoryPressure;
use super::progress::Progress;
use super::targets::Opened;
use crate::cache::residency::page_size;
use crate::host::memory;
use crate::host::open::Kind;
use crate::host::range::ByteRange;
use crate::replay::requests::SMALL;
use crate::replay::step::Step;
use crate::replay::strategy::{Order, ReadStrategy};
use headstart_sys::willneed::will_need;
use rustix::fs::Advice;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};

/// What is requested, together and in flight.
#[derive(Debug)]
pub(super) struct Submission {
    strategy: ReadStrategy,
    gathering: Gathering,
    backlog: Backlog<(Arc<Opened>, Step)>,
    in_flight: StepsInFlight<(Arc<Opened>, Step)>,
    pressure: MemoryPressure,
    /// What was requested, if that is kept.
    log: Option<Mutex<Vec<Requested>>>,
    progress: Arc<Progress>,
}

impl Submission {
    /// `log`: whether it is kept what was requested.
    pub(super) fn new(strategy: ReadStrategy, log: bool, progress: Arc<Progress>) -> Self {
        Self {
            strategy,
            gathering: Gathering::default(),
            backlog: Backlog::new(strategy.rows_while_busy()),
            in_flight: StepsInFlight::new(strategy.in_flight),
            pressure: MemoryPressure::default(),
            log: log.then(Mutex::default),
            progress,
        }
    }

    /// Whether steps are gathered only while the device is busy.
    pub(super) fn forms_rows(&self) -> bool {
        self.strategy.rows_while_busy().is_some()
    }

    /// Whether a step may be requested with others: by a mapping, which begins with a page. In rows
    /// these are adjacent, and any may be; else larger ones gain nothing.
    pub(super) fn may_gather(&self, PendingStep { step, target, .. }: &PendingStep) -> bool {
        let most = match self.strategy.order {
            Order::Touch if !self.forms_rows() => SMALL,
            _ => u64::MAX,
        };
        (self.strategy.batched || self.forms_rows())
            && target.kind == Kind::Unnoticed
            && !target.portion.by_reading
            && step.bytes.length() <= most.min(target.portion.bytes)
            && step.bytes.offset.is_multiple_of(page_size())
    }

    /// Gathers a step, to be requested with others.
    pub(super) fn gather(&self, wanted: PendingStep) {
        match self.strategy.order {
            Order::Touch => self.gathering.add(wanted),
            Order::Elevator => self.submit_together(self.gathering.add_to_row(wanted)),
        }
    }

    /// Requests what was gathered, if it `must` be now, or it is time.
    pub(super) fn submit_gathered(&self, must: bool) {
        if !self.forms_rows() {
            return self.submit_together(self.gathering.take(must));
        }
        let is_busy = || self.backlog.is_enough(|(target, step)| has_arrived(target, step));
        match self.gathering.due(must, is_busy) {
            Due::Later => return,
            Due::Now => {}
            // Another thread may take it meanwhile, or add more.
            Due::WithRoom(bytes) => self.wait_for_room(bytes),
        }
        self.submit_together(self.gathering.take(true));
    }

    fn submit_together(&self, gathered: Vec<PendingStep>) {
        if gathered.is_empty() {
            return;
        }
        let wanted = in_rows(gathered, self.strategy.order);
        self.progress.note_request();
        let pieces: Vec<_> = wanted.iter().map(|(wanted, _)| wanted.piece()).collect();
        // The address space may be limited.
        let skipped = will_need(&pieces).unwrap_or_else(|_| (0..wanted.len()).collect());
        let mut was_skipped = false;
        for (number, (wanted, continues)) in wanted.iter().enumerate() {
            let continues = *continues && !was_skipped;
            was_skipped = skipped.binary_search(&number).is_ok();
            if was_skipped {
                self.submit_now(wanted);
            } else {
                self.note_request(&wanted.step);
                if self.forms_rows() {
                    self.note_in_flight(wanted, continues);
                }
                self.note_submitted(wanted, 1, 0);
            }
            self.progress.note_done(wanted.number);
        }
    }

    /// Requests a step when there is room.
    pub(super) fn submit(&self, wanted: &PendingStep) {
        // A rotational disk would have to seek back for what was gathered.
        self.submit_gathered(self.strategy.order == Order::Elevator);
        self.submit_now(wanted);
    }

    fn submit_now(&self, wanted: &PendingStep) {
        let PendingStep { step, target, missing, .. } = wanted;
        self.progress.note_request();
        self.wait_for_room(*missing);
        self.note_request(step);
        let (mut rest, mut requests, mut failed) = (step.bytes, 0, 0);
        while !rest.is_empty() {
            let portion = ByteRange::of(rest.offset, target.portion.bytes.min(rest.length()));
            match request(&target.file, portion, target.portion.by_reading) {
                Ok(()) => requests += 1,
                Err(_) => failed += 1,
            }
            rest.offset = portion.end;
        }
        self.note_in_flight(wanted, false);
        self.note_submitted(wanted, requests, failed);
    }

    /// Notes a step that was requested, and whether it continues the request of the step before.
    fn note_in_flight(&self, wanted: &PendingStep, continues: bool) {
        let PendingStep { step, target, missing, .. } = wanted;
        if matches!(target.kind, Kind::Device | Kind::Unnoticed) {
            self.in_flight.add(|| (target.clone(), *step), Counted { bytes: *missing, continues });
        }
        // Of blocks of metadata it is not known when they arrive.
        if target.kind == Kind::Unnoticed {
            self.backlog.add(|| (target.clone(), *step), *missing);
        }
    }

    fn wait_for_room(&self, bytes: u64) {
        if !self.forms_rows() && !self.in_flight.has_room(bytes) {
            // What was gathered need not wait for this; before our turn, since what can't be
            // requested together waits for room itself.
            self.submit_gathered(true);
        }
        self.in_flight.wait_for_room(bytes, |(target, step)| {
            wait_for_last_page(target, step, || self.progress.is_over());
            !self.progress.is_over()
        });
    }

    fn note_submitted(&self, wanted: &PendingStep, requests: u64, failed: u64) {
        let PendingStep { step, target, missing, .. } = wanted;
        let is_metadata = target.kind == Kind::Device;
        self.pressure.note(target, step);
        self.progress.count(|report| {
            report.requests += requests;
            report.failed += failed;
            report.bytes += missing;
            report.metadata_bytes += if is_metadata { *missing } else { 0 };
        });
    }

    fn note_request(&self, step: &Step) {
        if let Some(log) = &self.log {
            let requested = self.progress.requested(step);
            log.lock().unwrap_or_else(PoisonError::into_inner).push(requested);
        }
    }

    /// Stops the replay under memory pressure, now and then when it is time to look; of a plan
    /// of so many bytes.
    pub(super) fn look_for_pressure(&self, bytes: impl Fn() -> u64) {
        if let Some(why) = self.pressure.look(|| memory::budget() > bytes()) {
            self.progress.stop_because(why);
        }
    }

    /// Forgets the steps in flight, when nothing more is requested.
    pub(super) fn end(&self) {
        self.in_flight.clear();
        self.backlog.clear();
    }

    /// What was requested, if that was kept.
    pub(super) fn into_log(self) -> Vec<Requested> {
        let log = self.log.unwrap_or_default();
        log.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Requests one portion.
fn request(file: &File, bytes: ByteRange, by_reading: bool) -> io::Result<()> {
    let length = bytes.length();
    if by_reading {
        let mut scratch = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        let mut at = 0;
        while at < scratch.len() {
            match rustix::io::pread(file, &mut scratch[at..], bytes.offset + at as u64)? {
                0 => break,
                n => at += n,
            }
        }
        return Ok(());
    }
    Ok(rustix::fs::fadvise(file, bytes.offset, NonZeroU64::new(length), Advice::WillNeed)?)
}

#[cfg(test)]
mod tests {
    use super::super::targets::tests::{opened, opened_in_one_piece};
    use super::*;
    use crate::replay::report::Report;
    use crate::replay::strategy::InFlight;
    use std::time::{Duration, Instant};

    const KIB: u64 = 1 << 10;

    fn submission(strategy: ReadStrategy) -> Submission {
        Submission::new(strategy, true, Arc::new(Progress::new(Instant::now(), 0, None)))
    }

    fn wanted(target: &Arc<Opened>, offset: u64, length: u64) -> PendingStep {
        let step = Step { target: 0, bytes: ByteRange::of(offset, length), touched_us: 0 };
        PendingStep { step, number: 0, target: target.clone(), missing: length }
    }

    /// But for times.
    fn report(submission: &Submission) -> Report {
        Report { first_request_us: None, ..submission.progress.report() }
    }

    #[test]
    fn a_step_is_requested_in_portions_and_counted() {
        for (name, kind, length, requests, metadata_bytes) in [
            ("one portion", Kind::File, 128 * KIB, 1, 0),
            ("several", Kind::Unnoticed, 300 * KIB, 3, 0),
            ("metadata", Kind::Device, 4 * KIB, 1, 4 * KIB),
            ("nothing", Kind::File, 0, 0, 0),
        ] {
            let (_dir, target) = opened(4096, kind);
            let submission = submission(ReadStrategy::default());
            submission.submit(&wanted(&target, 0, length));
            let expected = Report { requests, bytes: length, metadata_bytes, ..Report::default() };
            assert_eq!(report(&submission), expected, "{name}");
            assert!(submission.progress.has_requested(), "{name}");
            assert_eq!(submission.into_log().len(), 1, "{name}");
        }
    }

    #[test]
    fn small_steps_that_begin_with_a_page_may_be_gathered() {
        let batched = ReadStrategy { batched: true, ..ReadStrategy::default() };
        let in_rows = ReadStrategy { order: Order::Elevator, ..batched };
        let busy = InFlight { bytes: 1 << 20, steps: 16 };
        let while_busy = ReadStrategy { rows: Some(busy), ..ReadStrategy::default() };
        for (name, strategy, kind, offset, length, expected) in [
            ("small", batched, Kind::Unnoticed, 4096, SMALL, true),
            ("large", batched, Kind::Unnoticed, 4096, SMALL + 1, false),
            ("large, in a row", in_rows, Kind::Unnoticed, 4096, 2 * SMALL, true),
            ("larger than a request", in_rows, Kind::Unnoticed, 4096, 2 * SMALL + 1, false),
            ("large, while the device is busy", while_busy, Kind::Unnoticed, 4096, 2 * SMALL, true),
            ("in a page", batched, Kind::Unnoticed, 4097, 4096, false),
            ("its time of access would change", batched, Kind::File, 0, 4096, false),
            ("one by one", ReadStrategy::default(), Kind::Unnoticed, 0, 4096, false),
        ] {
            let (_dir, mut target) = opened(4096, kind);
            Arc::get_mut(&mut target).unwrap().portion.bytes = 2 * SMALL;
            let wanted = wanted(&target, offset, length);
            assert_eq!(submission(strategy).may_gather(&wanted), expected, "{name}");
        }
    }

    #[test]
    fn what_was_gathered_is_requested_when_it_must_be() {
        let (_dir, target) = opened(4 * 4096, Kind::Unnoticed);
        let progress = Arc::new(Progress::new(Instant::now(), 1, None));
        let strategy = ReadStrategy { batched: true, ..ReadStrategy::default() };
        let submission = Submission::new(strategy, false, progress.clone());
        submission.gather(wanted(&target, 0, 4096));
        submission.gather(PendingStep { number: 1, ..wanted(&target, 8192, 4096) });
        assert_eq!(report(&submission), Report::default());
        submission.submit_gathered(true);
        assert_eq!(report(&submission), Report { requests: 2, bytes: 8192, ..Report::default() });
        progress.wait_for_head(Duration::MAX);
        assert!(submission.into_log().is_empty(), "it is not kept");
    }

    #[test]
    fn what_waits_for_others_is_requested_at_once_when_the_device_is_not_busy() {
        let (_dir, target) = opened(4 * 4096, Kind::Unnoticed);
        let busy = InFlight { bytes: 4096, steps: 1 };
        let submission = submission(ReadStrategy { rows: Some(busy), ..ReadStrategy::default() });
        // What is in memory has arrived.
        for page in 0..4 {
            submission.gather(wanted(&target, page * 4096, 4096));
            submission.submit_gathered(false);
            let expected =
                Report { requests: page + 1, bytes: (page + 1) * 4096, ..Report::default() };
            assert_eq!(report(&submission), expected);
        }
    }

    #[test]
    fn of_the_in_flight_limit_a_row_takes_as_much_as_one_request() {
        let Some((_dir, target)) = opened_in_one_piece(8) else { return };
        let limit = InFlight { bytes: 1 << 20, steps: 2 };
        let (rows, in_flight) = (Some(limit), Some(limit));
        let strategy = ReadStrategy { rows, in_flight, ..ReadStrategy::default() };
        for (name, pages, has_room) in
            [("side by side", [0, 1, 2, 3], true), ("apart", [0, 2, 4, 6], false)]
        {
            let submission = submission(strategy);
            for page in pages {
                submission.gather(wanted(&target, page * 4096, 4096));
            }
            submission.submit_gathered(true);
            assert_eq!(submission.in_flight.has_room(4096), has_room, "{name}");
        }
    }

    #[test]
    fn steps_above_the_in_flight_limit_wait_for_those_before_them() {
        let limit = InFlight { bytes: 4096, steps: 1 };
        let (_dir, target) = opened(4 * 4096, Kind::Unnoticed);
        let submission =
            submission(ReadStrategy { in_flight: Some(limit), ..ReadStrategy::default() });
        for page in 0..4 {
            submission.submit(&wanted(&target, page * 4096, 4096));
            assert!(!submission.in_flight.has_room(1), "it is counted");
        }
        assert_eq!(report(&submission).requests, 4);
        submission.end();
        assert!(submission.in_flight.has_room(4096));
    }
}

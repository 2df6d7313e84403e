//! The progress of a replay: the head, the counts, the end, and why it was stopped. All parts
//! report to it, and whoever waits for a replay waits here.

use super::log::Requested;
use crate::host::clock::micros;
use crate::replay::report::{Report, Stopped};
use crate::replay::step::Step;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Its lock is the innermost.
#[derive(Debug)]
pub(super) struct Progress {
    /// When the process began, for the time to the first request.
    began: Instant,
    started: Instant,
    /// When to stop, from `started`.
    timeout: Option<Duration>,
    stop: AtomicBool,
    /// Grows with each count and with each awaited page.
    activity: AtomicU64,
    /// Steps that the program needs at once.
    head: usize,
    state: Mutex<State>,
    /// Notified when the head is done, and at the first request.
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Steps of the head that still have to be requested.
    head_left: usize,
    report: Report,
}

impl Progress {
    /// Of a plan with so many steps in its head. `began` is when the process began.
    pub(super) fn new(began: Instant, head: usize, timeout: Option<Duration>) -> Self {
        Self {
            began,
            started: Instant::now(),
            timeout,
            stop: AtomicBool::new(false),
            activity: AtomicU64::new(0),
            head,
            state: Mutex::new(State { head_left: head, ..State::default() }),
            news: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was counted so far.
    pub(super) fn report(&self) -> Report {
        self.state().report
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut Report)) {
        count(&mut self.state().report);
        self.note_activity();
    }

    /// Notes that a file has answered.
    pub(super) fn note_activity(&self) {
        self.activity.fetch_add(1, Relaxed);
    }

    /// Differs as long as files answer.
    pub(super) fn activity(&self) -> u64 {
        self.activity.load(Relaxed)
    }

    /// Notes that a step was requested, or need not be.
    pub(super) fn note_done(&self, number: usize) {
        if number < self.head {
            let mut state = self.state();
            state.head_left = state.head_left.saturating_sub(1);
            if state.head_left == 0 {
                self.news.notify_all();
            }
        }
    }

    /// Notes that a step that is not done yet was divided into so many.
    pub(super) fn note_division(&self, number: usize, parts: usize) {
        if number < self.head {
            self.state().head_left += parts - 1;
        }
    }

    /// Lets go who waits for the head.
    pub(super) fn release_head(&self) {
        self.state().head_left = 0;
        self.news.notify_all();
    }

    /// Notes that something is requested now. Whoever waits to see whether all is resident has
    /// waited enough.
    pub(super) fn note_request(&self) {
        let mut state = self.state();
        if state.report.first_request_us.is_none() {
            state.report.first_request_us = Some(micros(self.began.elapsed()));
            self.news.notify_all();
        }
    }

    pub(super) fn has_requested(&self) -> bool {
        self.report().first_request_us.is_some()
    }

    /// This step, requested now.
    pub(super) fn requested(&self, step: &Step) -> Requested {
        Requested { step: *step, at_us: micros(self.began.elapsed()) }
    }

    /// Notes that nothing more is requested; `complete` when the plan came to its end. If not,
    /// or if the plan was shorter than its head, its head is done all the same.
    pub(super) fn note_last_request(&self, complete: bool) {
        self.count(|report| report.complete = complete);
        self.release_head();
    }

    pub(super) fn note_end(&self) {
        self.count(|report| report.elapsed_us = micros(self.started.elapsed()));
    }

    /// Waits until the head is done, for `limit` at most.
    pub(super) fn wait_for_head(&self, limit: Duration) {
        self.wait_while(limit, |state| state.head_left > 0);
    }

    /// Waits until the plan came to its end or something of it was requested, for `limit` at
    /// most. Whether all was resident.
    pub(super) fn ends_without_requests(&self, limit: Duration) -> bool {
        self.wait_while(limit, |State { report, .. }| {
            !report.complete && report.first_request_us.is_none()
        });
        let report = self.report();
        report.complete && report.first_request_us.is_none() && report.dropped_bytes == 0
    }

    fn wait_while(&self, limit: Duration, is_open: impl Fn(&State) -> bool) {
        // A poisoned lock means that a thread died: the program must not wait.
        drop(self.news.wait_timeout_while(self.state(), limit, |state| is_open(state)));
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// The same under memory pressure. Only the first reason counts.
    pub(super) fn stop_because(&self, why: Stopped) {
        self.count(|report| report.stopped = report.stopped.or(Some(why)));
        self.stop();
    }

    /// Whether it was stopped, or its time is over.
    pub(super) fn is_over(&self) -> bool {
        let timed_out = || self.timeout.is_some_and(|limit| self.started.elapsed() >= limit);
        self.stop.load(Relaxed) || timed_out()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::range::ByteRange;

    fn progress(head: usize) -> Progress {
        Progress::new(Instant::now(), head, None)
    }

    #[test]
    fn the_head_is_done_with_its_last_step_and_not_with_later_ones() {
        let progress = progress(2);
        for (number, expected) in [(7, 2), (1, 1), (2, 1), (0, 0), (0, 0)] {
            progress.note_done(number);
            assert_eq!(progress.state().head_left, expected, "step {number}");
        }
        // These return at once.
        progress.wait_for_head(Duration::MAX);
        self::progress(0).wait_for_head(Duration::MAX);
    }

    #[test]
    fn the_head_is_done_with_all_parts_of_its_steps() {
        let progress = progress(2);
        progress.note_division(7, 9);
        progress.note_division(0, 3);
        for (number, expected) in [(0, 3), (1, 2), (0, 1), (7, 1), (0, 0)] {
            progress.note_done(number);
            assert_eq!(progress.state().head_left, expected, "step {number}");
        }
    }

    #[test]
    fn a_stopped_replay_releases_who_waits_for_its_head() {
        let progress = progress(2);
        progress.note_last_request(false);
        progress.wait_for_head(Duration::MAX);
        assert!(!progress.report().complete);
    }

    #[test]
    fn it_ends_without_requests_when_it_is_complete_and_made_none() {
        for (name, requests, dropped_bytes, complete, expected) in [
            ("all was resident", false, 0, true, true),
            ("a file is gone", false, 1, true, false),
            ("something was requested", true, 0, true, false),
            ("it goes on", true, 0, false, false),
        ] {
            let progress = progress(1);
            progress.count(|report| report.dropped_bytes += dropped_bytes);
            if requests {
                progress.note_request();
            }
            if complete {
                progress.note_last_request(true);
            }
            assert_eq!(progress.ends_without_requests(Duration::MAX), expected, "{name}");
        }
        assert!(!progress(1).ends_without_requests(Duration::ZERO), "nothing is known yet");
    }

    #[test]
    fn the_time_of_the_first_request_stays() {
        let progress = progress(0);
        assert!(!progress.has_requested());
        progress.note_request();
        let first = progress.report().first_request_us;
        assert!(first.is_some());
        let step = Step { target: 0, bytes: ByteRange::of(0, 1), touched_us: 0 };
        while Some(progress.requested(&step).at_us) <= first {
            std::thread::yield_now();
        }
        progress.note_request();
        assert_eq!(progress.report().first_request_us, first);
    }

    #[test]
    fn it_is_over_when_stopped_or_timed_out_and_the_first_reason_counts() {
        let goes_on = progress(0);
        assert!(!goes_on.is_over());
        goes_on.stop();
        assert!(goes_on.is_over());
        assert_eq!(goes_on.report().stopped, None);
        assert!(Progress::new(Instant::now(), 0, Some(Duration::ZERO)).is_over());
        let pressed = progress(0);
        pressed.stop_because(Stopped::Reclaimed);
        pressed.stop_because(Stopped::Pressure);
        assert!(pressed.is_over());
        assert_eq!(pressed.report().stopped, Some(Stopped::Reclaimed));
    }
}

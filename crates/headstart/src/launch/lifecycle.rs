//! One launch, from its preparation to the learned pack: the order of the steps, which is the same
//! for programs, services and benchmarks.
//!
//! ```text
//! prepare ──▶ arm ──▶ wait_for_head ──▶ release ──▶ … ──▶ end ──▶ learn
//! prefetch    trace   first requests    program starts    │
//!                                       └──▶ abandon: there is no program
//! ```
//!
//! The caller starts the program, waits for its end and reports.

use super::LaunchError;
use super::found_pack::FoundPack;
use super::learn::{LaunchFacts, Learned, Settings, know_device};
use super::learner::Learner;
use super::policy::Patience;
use super::prepare::{LaunchSpec, Preparation, Prepared};
use super::record::{self, Coverage, Recorded, Recording, buffer_of, give_up, start_recording};
use crate::host::clock::{micros, monotonic_ns};
use crate::host::user::User;
use crate::outcome::counts::PageCounts;
use crate::outcome::waited::{RequestsOf, Waited};
use crate::pack::{Pack, store};
use crate::replay::benefit::Expected;
use crate::replay::engine::{Log, Replay};
use crate::replay::models::Models;
use crate::replay::report::Report;
use crate::trace::capture::{BufferSize, Recorder, Scope};
use crate::trace::exact::Processes;
use crate::trace::instance::Instance;
use std::borrow::Cow;
use std::mem;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A launch under way.
#[derive(Debug)]
pub struct Launch {
    preparation: Preparation,
    /// When the process began.
    began: Instant,
    /// The rest of the time that the program waits for the first requests.
    left: Duration,
    recorder: Option<Recorder>,
    /// The thread of a recorder that came too late, until it has removed its instance.
    late: Option<JoinHandle<()>>,
    released: Instant,
}

impl Launch {
    /// Gets the pack ready and begins to prefetch it; returns when that is done or
    /// [`LaunchSpec::max_delay`] is over.
    pub fn prepare(spec: LaunchSpec) -> Self {
        let (began, max_delay) = (spec.began, spec.max_delay);
        let from = Instant::now();
        let mut preparation = Preparation::begin(spec);
        preparation.within(max_delay);
        let left = max_delay.saturating_sub(from.elapsed());
        Self { preparation, began, left, recorder: None, late: None, released: from }
    }

    /// The preparation, if it is ready.
    pub fn prepared(&mut self) -> Option<&Prepared> {
        self.preparation.within(Duration::ZERO).map(|prepared| &*prepared)
    }

    /// Begins to record. `buffer` overrides the size of the trace buffers, which otherwise follows
    /// from earlier starts; `watch` enables the activity detector.
    ///
    /// # Errors
    /// It can't be recorded.
    pub fn arm(
        &mut self,
        scope: Scope,
        buffer: Option<BufferSize>,
        watch: bool,
        patience: Patience,
    ) -> Result<Armed, LaunchError> {
        let prepared = self.prepared();
        let pack = prepared.map(|prepared| prepared.pack.at_hand());
        let starts = pack.map(|pack| pack.map_or(0, |pack| pack.origin.starts));
        let buffer = buffer.unwrap_or_else(|| buffer_of(pack.flatten()));
        match start_recording(scope, buffer, watch, patience.of(starts))? {
            Recording::Recorder(recorder) => {
                self.recorder = Some(recorder);
                Ok(Armed::InTime)
            }
            Recording::Late(thread) => {
                self.late = Some(thread);
                Ok(Armed::TooLate)
            }
        }
    }

    /// Takes a recorder that the caller started.
    pub fn armed(&mut self, recorder: Recorder) {
        self.recorder = Some(recorder);
    }

    /// The recorder, if the launch is recorded.
    pub fn recorder(&self) -> Option<&Recorder> {
        self.recorder.as_ref()
    }

    /// Waits until the head of the plan was requested, for the rest of the longest delay.
    pub fn wait_for_head(&mut self) {
        let (from, limit) = (Instant::now(), self.left);
        let prepared = self.preparation.within(limit);
        if let Some(replay) = prepared.and_then(|prepared| prepared.replay.as_ref()) {
            replay.wait_for_head(limit.saturating_sub(from.elapsed()));
        }
    }

    /// Lets the program start, by `go`, and begins a postponed replay. If `go` fails, the first
    /// events are lost, so the recording is given up.
    ///
    /// # Errors
    /// That of `go`.
    pub fn release<E>(&mut self, go: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        self.released = Instant::now();
        let gone = go();
        if gone.is_err() {
            self.recorder.take().into_iter().for_each(give_up);
        }
        self.preparation.begin_late();
        gone
    }

    /// When the program was released, from the beginning of this process.
    pub fn released_after(&self) -> Duration {
        self.released.saturating_duration_since(self.began)
    }

    /// Whether nothing is left to be prefetched.
    pub fn has_prefetched(&mut self) -> bool {
        self.preparation.is_finished()
    }

    /// Ends a launch without a program.
    pub fn abandon(self) {
        self.preparation.finish().replay.iter().for_each(Replay::stop);
        self.recorder.into_iter().for_each(give_up);
        join(self.late);
    }

    /// Ends the recording and the replay. If the program `is_over`, the replay is stopped;
    /// otherwise it goes on until it is finished or `stops` returns true, which may sleep for a
    /// moment. `followed` returns how many processes were recorded exactly, if requested.
    pub fn end(
        self,
        is_over: bool,
        followed: impl FnOnce() -> Option<Processes>,
        stops: impl Fn() -> bool,
    ) -> EndedLaunch {
        let (released_after, began) = (self.released_after(), self.began);
        let Prepared { pack, path, notes, replay, device_known, expected, .. } =
            self.preparation.finish();
        if is_over {
            replay.iter().for_each(Replay::stop);
        }
        let recorded = self.recorder.map(|recorder| Recorded::end(recorder, followed));
        if let Some(replay) = replay.as_ref().filter(|_| !is_over) {
            while !replay.is_finished() && !stops() {}
        }
        let replay = replay.map(Replay::end);
        let report = replay.as_ref().map(|ended| ended.report);
        let (recorded, instance) = match recorded.transpose() {
            Ok(recorded) => recorded.map_or((None, None), |(r, i)| (Some(Ok(r)), Some(i))),
            Err(error) => (Some(Err(error)), None),
        };
        EndedLaunch {
            notes,
            path,
            found: pack,
            expected,
            report,
            device_known,
            log: replay.map(|ended| ended.log),
            released: self.released,
            released_after,
            began,
            waited: None,
            recorded,
            instance,
            late: self.late,
        }
    }
}

/// Whether a recording began in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Armed {
    /// Yes.
    InTime,
    /// Tracing was busy for longer than the start waits.
    TooLate,
}

/// A launch that is no longer recorded or prefetched.
#[derive(Debug)]
pub struct EndedLaunch {
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Where its pack is or will be.
    pub path: PathBuf,
    /// What was expected of prefetching, if the device is known.
    pub expected: Option<Expected>,
    /// The figures of the replay, if there was one.
    pub report: Option<Report>,
    /// The pack that was found.
    pub found: FoundPack,
    device_known: bool,
    log: Option<Log>,
    released: Instant,
    released_after: Duration,
    /// When the process began.
    began: Instant,
    waited: Option<Waited>,
    recorded: Option<Result<Recorded, LaunchError>>,
    instance: Option<Instance>,
    late: Option<JoinHandle<()>>,
}

impl EndedLaunch {
    /// What was requested of files, and when, if that was kept.
    pub fn requests(&self) -> RequestsOf {
        let began = monotonic_ns().saturating_sub(self.began.elapsed().as_nanos() as u64);
        let at = |us: u64| began.saturating_add(us.saturating_mul(1000));
        let mut requests = RequestsOf::default();
        if let Some(log) = &self.log {
            log.each_file(|path, parts| {
                let parts = parts.iter().map(|part| (part.step.bytes, at(part.at_us)));
                requests.insert(path, parts.collect());
            });
        }
        requests
    }

    /// Takes a recording that the caller made of a program that began then.
    pub fn note_recorded(&mut self, recorded: Recorded, released: Instant) {
        self.recorded = Some(Ok(recorded));
        self.released = released;
        self.released_after = released.saturating_duration_since(self.began);
    }

    /// Takes note of what the program waited for: for its record of the last start.
    pub fn note_waited(&mut self, waited: Waited) {
        self.waited = Some(waited);
    }

    /// The pack that was found, as its file is now if it was left there.
    pub fn pack(&self) -> Option<Cow<'_, Pack>> {
        match &self.found {
            FoundPack::Left { .. } => store::read(&self.path, User::own().uid).ok().map(Cow::Owned),
            found => found.pack(),
        }
    }

    /// Whether the launch was recorded, or its recording failed.
    pub fn is_recorded(&self) -> bool {
        self.recorded.is_some()
    }

    /// Learns the launch, unless `is_unwanted`; `None` if it was not recorded.
    pub fn learn(
        &mut self,
        settings: Settings,
        uid: u32,
        coverage: Coverage,
        is_unwanted: impl Fn() -> bool,
    ) -> Option<Result<(Learned, PageCounts), LaunchError>> {
        let recorded = self.recorded.take()?;
        let facts = LaunchFacts {
            found: mem::take(&mut self.found),
            replay: self.report,
            log: self.log.take(),
            released_us: micros(self.released_after),
            coverage,
            waited: self.waited.take(),
        };
        Some(recorded.and_then(|recorded| {
            Learner::start(recorded, self.released, settings, facts, uid)?.finish(is_unwanted)
        }))
    }

    /// Removes the trace instance, in the background where that is possible. Without this it is
    /// removed when this value is dropped, which waits for the kernel.
    pub fn remove_instance(&mut self) {
        self.instance.take().into_iter().for_each(record::remove);
    }

    /// Waits until the trace instance of a recorder that came too late is removed.
    pub fn clear_away(&mut self) {
        join(self.late.take());
    }

    /// Measures the device of the pack that was learned, if it never was.
    pub fn know_device(&self) {
        if !self.device_known {
            know_device(&self.path, &Models::here());
        }
    }
}

fn join(late: Option<JoinHandle<()>>) {
    // If the thread panicked, the next start removes the instance.
    let _ = late.map(JoinHandle::join);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::Origin;

    fn launch() -> Launch {
        Launch::prepare(LaunchSpec::of_pack(Some("/nonexistent/headstart.pack".into())))
    }

    #[test]
    fn a_launch_without_pack_and_trace_has_nothing_to_report_or_learn() {
        let mut launch = launch();
        launch.wait_for_head();
        assert!(launch.release(|| Ok::<_, ()>(())).is_ok() && launch.has_prefetched());
        let mut ended = launch.end(false, || None, || false);
        assert!(ended.report.is_none() && ended.notes.is_empty() && !ended.is_recorded());
        let target = super::super::learn::PackTarget {
            name: String::new(),
            command: Vec::new(),
            pack: ended.path.clone(),
        };
        assert!(ended.learn(Settings::of(target), 0, Coverage::Whole, || false).is_none());
    }

    #[test]
    fn a_pack_is_set_aside_at_the_release() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.pack");
        let origin = Origin { page_shift: 12, starts: 3, ..Origin::default() };
        let pack = Pack { origin, ..Pack::default() };
        store::lock(&path).unwrap().write(&pack).unwrap();
        for set_aside in [false, true] {
            let spec = LaunchSpec { set_aside, ..LaunchSpec::of_pack(Some(path.clone())) };
            let mut launch = Launch::prepare(spec);
            assert_eq!(launch.prepared().unwrap().pack.at_hand(), Some(&pack));
            launch.release(|| Ok::<_, ()>(())).unwrap();
            assert_eq!(launch.prepared().unwrap().pack.at_hand().is_none(), set_aside);
            assert_eq!(launch.end(true, || None, || true).pack().as_deref(), Some(&pack));
        }
        // One that is not learned from stays in its file.
        let spec = LaunchSpec::of_pack(Some(path));
        let mut launch = Launch::prepare(LaunchSpec { set_aside: true, learn: false, ..spec });
        launch.release(|| Ok::<_, ()>(())).unwrap();
        let ended = launch.end(true, || None, || true);
        assert!(ended.found.pack().is_none() && ended.found.starts() == Some(3));
        assert_eq!(ended.pack().as_deref(), Some(&pack));
    }

    #[test]
    fn a_launch_goes_on_if_the_program_can_not_be_released() {
        let mut launch = launch();
        assert_eq!(launch.release(|| Err("it has ended")), Err("it has ended"));
        assert!(launch.recorder().is_none());
        launch.abandon();
    }
}

//! One start of a known or slow program: prefetches it, records it, and learns it, as `headstart run`
//! does with the launches that it makes itself.

use super::shared::{Shared, When, now_ms, now_s};
use super::tracer::{Ticket, Tracer};
use super::trees::Tree;
use crate::budget::with_gaps;
use crate::control::answer::{Kind, Start};
use crate::programs::gain::Estimate;
use crate::programs::note::Prefetched;
use crate::programs::{Id, Program};
use crate::started::Started;
use headstart::host::clock::micros;
use headstart::host::error::causes;
use headstart::host::memory;
use headstart::host::mounts::Mounts;
use headstart::host::proc;
use headstart::host::user::User;
use headstart::launch::learn::{Learned, PackTarget, Settings};
use headstart::launch::lifecycle::{EndedLaunch, Launch};
use headstart::launch::policy::{Bounds, FREQUENT};
use headstart::launch::prepare::{LaunchSpec, PrefetchOptions};
use headstart::launch::record::{Coverage, Recorded};
use headstart::outcome::counts::PageCounts;
use headstart::pack::Pack;
use headstart::pack::key::Key;
use headstart::pack::store::{self, claim};
use headstart::replay::benefit::{AvoidedWait, Expected};
use headstart::replay::model::Model;
use headstart::replay::models::Models;
use headstart::replay::sample::InMemory;
use headstart::trace::file::Capture;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often it is checked whether a start is over.
const LOOK: Duration = Duration::from_millis(50);
/// A start is over when nothing was read for this time: a busy machine makes pauses longer.
const IDLE: Duration = Duration::from_secs(4);
/// The first start that is recorded may take so many times as long as later ones.
const FIRST_TIMES: u32 = 3;
/// The rest of a start that is less than this, in bytes, is not learned: 300 events.
const LEAST_REST: u64 = 16 << 10;
/// A replay takes no longer.
const LONGEST_REPLAY: Duration = Duration::from_secs(60);
/// What the packs of a program may read if that is not known, in bytes.
const USUAL_BYTES: u64 = 256 << 20;

/// A start to be handled.
#[derive(Debug)]
pub(super) struct Handled {
    pub(super) tree: Arc<Tree>,
    /// Of a program that another one leads to, as far as it is known before that was executed.
    pub(super) key: Key,
    pub(super) started: Started,
    /// What was known before.
    pub(super) program: Program,
    /// When the exec was.
    pub(super) began: Instant,
    /// Since when it is recorded.
    pub(super) recorded_at: Instant,
    /// Its recording, if it is recorded.
    pub(super) ticket: Option<Ticket>,
    /// Whether only the rest of the start is recorded.
    pub(super) is_rest: bool,
}

/// What came of a start.
#[derive(Default)]
struct Outcome {
    read: Prefetched,
    was_prefetched: bool,
    /// What the model says that is saved if all comes in time.
    estimate: Estimate,
    /// The part of it that came in time, 0 to 1, if that is known.
    in_time: Option<f64>,
    /// The part of the pack that had to be read, and was, 0 to 1.
    read_share: f64,
    /// How long the start took until its end, in µs, if it has ended meanwhile.
    lasted_us: Option<u64>,
    /// Starts in its pack, if there is one.
    pack_starts: Option<u32>,
    is_useless: bool,
    first_request_us: Option<u64>,
    learned: Option<(Learned, PageCounts)>,
}

impl Handled {
    /// Handles it.
    pub(super) fn run(mut self, shared: &Shared) {
        let wanted =
            if self.program.pack_bytes > 0 { self.program.pack_bytes } else { USUAL_BYTES };
        let percent = shared.config.memory_percent;
        let available = memory::available().unwrap_or(0);
        // What is only recorded takes no memory from replays.
        let reserved = self
            .prefetches()
            .then(|| shared.budget().reserve(with_gaps(wanted), available, percent))
            .flatten();
        if self.prefetches() && reserved.is_none() {
            shared.count(|counters| counters.without_budget += 1);
        }
        let path = self.pack_path(shared);
        let spec = self.spec(&path, reserved.map(|(_, bytes)| bytes));
        let mut launch = match (&mut self.ticket, &shared.tracer) {
            // The replay of what is known of the rest looks up files whose metadata is not known.
            (Some(ticket), Ok(tracer)) if self.program.has_rest_only => {
                prepare_followed(tracer, ticket, spec)
            }
            _ => Launch::prepare(spec),
        };
        if launch.prepared().is_some_and(|prepared| prepared.skip_recording) {
            self.give_up_recording(shared);
        }
        // It has gone already; this begins what was left for later.
        let Ok(()) = launch.release(|| Ok::<_, std::convert::Infallible>(()));
        let coverage = self.wait(shared, &mut launch);
        let lasted = self.has_ended().then(|| micros(self.began.elapsed()));
        self.tree.end();
        if let (Some(ticket), Ok(tracer)) = (&mut self.ticket, &shared.tracer) {
            tracer.stop(ticket);
        }
        let stops = || {
            thread::sleep(LOOK);
            shared.stops() || self.began.elapsed() >= LONGEST_REPLAY
        };
        let mut ended = launch.end(self.has_ended(), || None, stops);
        reserved.into_iter().for_each(|(number, _)| shared.budget().release(number));
        let mut outcome = Outcome { lasted_us: lasted, ..Outcome::of(&ended) };
        if outcome.is_hot()
            && let Some(pack) = ended.pack()
        {
            let sample = InMemory::now(&pack, &FREQUENT.choice(&pack), User::own().uid);
            shared.hot().note(&self.tree.id, sample);
        }
        if let Some(ticket) = self.ticket.take() {
            outcome.learned = self.learn(shared, &ticket, &mut ended, coverage);
            outcome.note_counts();
        }
        let estimate = outcome.estimate.in_time(outcome.in_time.unwrap_or(1.0));
        outcome.read.saved_us = self.program.saved(estimate, outcome.lasted_us);
        self.note(shared, outcome);
    }

    /// Whether its pack is prefetched: there is one, and the start was not found slow only while it read.
    fn prefetches(&self) -> bool {
        self.program.learned > 0 && !self.is_rest
    }

    /// Whether so much was recorded that the next start gains from it.
    fn is_enough(&self, capture: &Capture) -> bool {
        !self.is_rest || capture.pages.bytes() >= LEAST_REST
    }

    /// The pack of the narrowest job that there is, or of the program.
    fn pack_path(&self, shared: &Shared) -> PathBuf {
        let of = |file_name| shared.pack_of(&Id { uid: self.tree.id.uid, file_name });
        let names = self.key.file_names().into_iter().map(of);
        let is_there = |path: &PathBuf| path.symlink_metadata().is_ok();
        names.into_iter().find(is_there).unwrap_or_else(|| shared.pack_of(&self.tree.id))
    }

    fn spec(&self, path: &std::path::Path, budget: Option<u64>) -> LaunchSpec {
        let group = self.started.cgroup.to_str().and_then(memory::group_limit);
        let of_group = group.map_or(u64::MAX, memory::budget_within);
        let bounds =
            Bounds { budget: budget.map(|budget| budget.min(of_group)), ..Bounds::default() };
        let always = self.program.pinned;
        LaunchSpec {
            user: User::own(),
            explicit: Some(path.into()),
            file_names: Vec::new(),
            prefetch: budget.map(|_| PrefetchOptions { bounds, always, log: false }),
            learn: self.ticket.is_some(),
            set_aside: true,
            began: self.began,
            max_delay: Duration::ZERO,
        }
    }

    fn give_up_recording(&mut self, shared: &Shared) {
        if let (Some(ticket), Ok(tracer)) = (self.ticket.take(), &shared.tracer) {
            tracer.drop(ticket);
        }
    }

    /// Whether the program has ended, and that which led to it: it may start the program again.
    fn has_ended(&self) -> bool {
        let ended = |started: &Started| {
            let pid = i32::try_from(started.pid).unwrap_or(i32::MAX);
            proc::has_ended(pid, started.start_time)
        };
        ended(&self.started) && self.tree.own().is_none_or(|(_, own)| ended(&own))
    }

    /// How long it is recorded at most. The first one that is waits for disks most of the time.
    fn window(&self, shared: &Shared) -> Duration {
        let is_known = self.prefetches() && !self.program.has_rest_only;
        let times = if is_known { 1 } else { FIRST_TIMES };
        shared.config.window * times
    }

    /// Waits until the start is over.
    fn wait(&self, shared: &Shared, launch: &mut Launch) -> Coverage {
        let recording = shared.tracer.as_ref().ok().zip(self.ticket.as_ref());
        loop {
            if shared.stops() {
                return Coverage::Partial;
            }
            if self.has_ended() {
                return Coverage::Whole;
            }
            if self.tree.is_over() {
                return Coverage::Partial;
            }
            let Some((tracer, ticket)) = recording else {
                if launch.has_prefetched() || self.began.elapsed() >= LONGEST_REPLAY {
                    return Coverage::Partial;
                }
                thread::sleep(LOOK);
                continue;
            };
            let (idle, is_full) = tracer.activity(ticket);
            if idle >= IDLE {
                return Coverage::Whole;
            }
            if is_full || self.began.elapsed() >= self.window(shared) {
                return Coverage::CutOff;
            }
            thread::sleep(LOOK);
        }
    }

    fn learn(
        &self,
        shared: &Shared,
        ticket: &Ticket,
        ended: &mut EndedLaunch,
        coverage: Coverage,
    ) -> Option<(Learned, PageCounts)> {
        // One at a time, from its raw events on, which take most of the memory.
        let _one = shared.learning.lock().unwrap_or_else(PoisonError::into_inner);
        let tracer = shared.tracer.as_ref().ok()?;
        let capture = tracer.finish(ticket);
        let capture = capture.map_err(|error| Self::failed(shared, &causes(&error))).ok()?;
        if !self.is_enough(&capture) {
            return None;
        }
        let lost = capture.description.lost;
        shared.count(|counters| counters.lost_events += lost);
        ended.note_recorded(Recorded { capture, followed: None }, self.recorded_at);
        // A start that did not lead to the program is none of it.
        let (key, _) = self.tree.own()?;
        // `headstart run` may learn it at the same time.
        let claimed = claim::claim(&ended.path);
        if claimed.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock) {
            return None;
        }
        let file_name = ended.path.file_name().unwrap_or_default();
        let target = PackTarget::of(&key.of_pack(file_name), ended.path.clone());
        let narrower = key.narrower(file_name);
        let narrower =
            narrower.map(|key| PackTarget::of(&key, ended.path.with_file_name(&key.file_name)));
        let settings = Settings { narrower, walk: false, ..Settings::of(target) };
        let learned = ended.learn(settings, 0, coverage, || shared.stops())?;
        match learned {
            Ok((learned, counts)) => {
                if learned.written {
                    ended.know_device();
                }
                Some((learned, counts))
            }
            Err(error) => {
                Self::failed(shared, &causes(&error));
                None
            }
        }
    }

    fn failed(shared: &Shared, why: &str) {
        shared.count(|counters| counters.failed += 1);
        (shared.tell)(&format!("a start is not learned: {why}"));
    }

    fn note(&self, shared: &Shared, outcome: Outcome) {
        let (now, at_ms) = (now_s(), now_ms());
        let written = outcome.learned.as_ref().filter(|(learned, _)| learned.written);
        // The rest of a start gains less than a whole one.
        let of_rest = self.is_rest || self.program.has_rest_only;
        let pays = written.filter(|_| !self.is_rest).map(|(learned, _)| {
            let _one = shared.learning.lock().unwrap_or_else(PoisonError::into_inner);
            pays(&learned.pack.to_path())
        });
        let is_useless = (outcome.is_useless && !of_rest) || pays == Some(false);
        let read = outcome.read;
        let mut wasted = None;
        shared.change(
            &self.tree.id,
            || self.program.clone(),
            |program| {
                if outcome.was_prefetched {
                    program.note_prefetched(read, at_ms);
                    wasted = program.waste(read);
                }
                match (outcome.lasted_us, outcome.was_prefetched) {
                    (Some(_), true) if read.is_cold() => {
                        program.note_gain(outcome.estimate, read.saved_us);
                    }
                    (Some(lasted), false) if self.is_rest => program.note_cold(lasted),
                    _ => {}
                }
                match outcome.pack_starts {
                    Some(starts) => program.note_pack(starts),
                    None if self.prefetches() && program.learned > 0 => program.note_forgotten(),
                    None => {}
                }
                if let Some((learned, _)) = written {
                    program.note_learned(now, self.is_rest);
                    program.pack_bytes = learned.data_bytes.saturating_add(learned.metadata_bytes);
                }
                if is_useless || program.is_wasteful() {
                    program.note_useless(now);
                }
            },
        );
        if written.is_some() {
            shared.renew_login_pack(self.tree.id.uid, When::AfterWindow);
        }
        let is_hot = outcome.is_hot();
        shared.count(|counters| {
            counters.prefetched += u64::from(outcome.was_prefetched && !is_hot);
            counters.hot += u64::from(is_hot);
            counters.learned += u64::from(written.is_some());
        });
        {
            let mut state = shared.state();
            state.week.note(read, wasted);
            state.week.learned += u64::from(written.is_some());
        }
        // The start was told when it was found slow.
        if self.is_rest {
            return;
        }
        let counts = outcome.learned.as_ref().map(|(_, counts)| counts);
        shared.note_start(Start {
            program: self.key.name.clone(),
            uid: self.tree.id.uid,
            pid: self.started.pid,
            at: now,
            kind: match (outcome.was_prefetched, is_hot) {
                (true, false) => Kind::Prefetched,
                (true, true) => Kind::Hot,
                (false, _) if outcome.is_useless => Kind::Useless,
                (false, _) => Kind::Recorded,
            },
            waited_us: None,
            saved_us: read.saved_us,
            read_bytes: read.read_bytes,
            wasted_bytes: read.wasted_bytes,
            learned: written.is_some(),
            first_request_us: outcome.first_request_us,
            pages: counts.map(|counts| {
                let PageCounts { touched_pages, ready_pages, late_pages, missing_pages, .. } =
                    *counts;
                [touched_pages, ready_pages, late_pages, missing_pages]
            }),
        });
    }
}

/// Prepares a start so that the threads of its replay are followed. The kernel follows a thread until that
/// ends, and this one makes other replays afterwards: so another one makes the threads.
fn prepare_followed(tracer: &Tracer, ticket: &mut Ticket, spec: LaunchSpec) -> Launch {
    thread::scope(|scope| {
        let again = spec.clone();
        let prepare = || {
            tracer.follow_own_reads(ticket);
            Launch::prepare(spec)
        };
        match thread::Builder::new().name("prepare".into()).spawn_scoped(scope, prepare) {
            Ok(prepared) => prepared.join().unwrap_or_else(|panic| resume_unwind(panic)),
            // There is no thread for it.
            Err(_) => Launch::prepare(again),
        }
    })
}

impl Outcome {
    fn of(ended: &EndedLaunch) -> Self {
        let (expected, pack_starts) = (ended.expected, ended.found.starts());
        let Some(report) = ended.report else {
            let is_useless = expected.is_some_and(|expected| !expected.has_benefit());
            return Self { is_useless, pack_starts, ..Self::default() };
        };
        let assumed = || ended.pack().map(|pack| assumed(&pack));
        let share = report.read_share();
        let estimate = expected.or_else(assumed).map(|expected| {
            let AvoidedWait { least_us, usual_us } = expected.avoided_wait(share);
            let most_us = (expected.wait_us as f64 * share) as u64;
            Estimate { least_us, usual_us, most_us: most_us.max(usual_us) }
        });
        Self {
            read: Prefetched {
                read_bytes: report.bytes,
                is_assumed: expected.is_none(),
                ..Prefetched::default()
            },
            estimate: estimate.unwrap_or_default(),
            read_share: share,
            was_prefetched: true,
            pack_starts,
            first_request_us: report.first_request_us,
            ..Self::default()
        }
    }

    /// Whether hardly anything had to be read, as far as that is known.
    fn is_hot(&self) -> bool {
        self.was_prefetched && !self.read.is_cold()
    }

    /// What the classification tells of the replay: what came too late saved nothing.
    fn note_counts(&mut self) {
        let Some((_, counts)) = self.learned.as_ref().filter(|_| self.was_prefetched) else {
            return;
        };
        let page = rustix::param::page_size() as u64;
        let missed = counts.late_pages.saturating_add(counts.missing_pages);
        self.read.missed_bytes = missed.saturating_mul(page);
        // Those that were resident cost nothing.
        let wasted = counts.wasted_pages.saturating_mul(page) as f64 * self.read_share;
        self.read.wasted_bytes = Some(wasted as u64);
        self.in_time = Some(counts.in_time_share());
    }
}

/// What is expected of prefetching a pack from a device that was never measured.
fn assumed(pack: &Pack) -> Expected {
    Expected::of(pack, &FREQUENT.choice(pack), &Model::ASSUMED)
}

/// Whether prefetching a pack gains more than it costs, as far as its device is known.
fn pays(path: &std::path::Path) -> bool {
    let Ok(pack) = store::read(path, 0) else { return true };
    let model = Models::here().of_pack(&pack, &Mounts::default());
    model.is_none_or(|model| Expected::of(&pack, &FREQUENT.choice(&pack), &model).has_benefit())
}

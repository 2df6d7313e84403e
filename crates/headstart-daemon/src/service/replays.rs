//! The replays before a start: begins them, and finds out what came of each when its window is over.

use super::early::pack_of;
use super::machine::Machine;
use super::shared::{Shared, now_ms};
use crate::budget::with_gaps;
use crate::early::conditions::Conditions;
use crate::early::model::WINDOW_MS;
use crate::early::settle::{Settled, settle};
use crate::programs::Id;
use headstart::host::memory;
use headstart::host::mounts::Mounts;
use headstart::launch::policy::{Bounds, Purpose};
use headstart::launch::prefetch;
use headstart::pack::Pack;
use headstart::replay::engine::Replay;
use headstart::replay::frequency::Frequency;
use headstart::replay::model::Model;
use headstart::replay::models::Models;
use headstart::replay::report::Report;
use headstart_sys::ioprio::{DEFAULT_LEVEL, IoPriority, set_for_thread};
use std::sync::Arc;
use std::time::Instant;

/// The I/O priority of a thread that has set none.
const USUAL: IoPriority = IoPriority::BestEffort(DEFAULT_LEVEL);
/// Replays whose window is open, at most.
const MOST: usize = 16;
/// Programs that are kept of those that start in a window.
const MOST_STARTED: usize = 64;

/// What a replay is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// A login.
    Login,
    /// A program that was predicted, by the file name of its pack.
    Predicted(String),
}

impl What {
    fn is_prediction(&self) -> bool {
        matches!(self, Self::Predicted(_))
    }
}

/// The replays.
pub(super) struct Replays {
    shared: Arc<Shared>,
    machine: Machine,
    open: Vec<Early>,
}

/// A replay, and what started since.
struct Early {
    uid: u32,
    what: What,
    pack: Pack,
    model: Option<Model>,
    /// None when it is over.
    replay: Option<(Replay, u64)>,
    report: Report,
    until_ms: u64,
    started: Vec<Id>,
}

impl Replays {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, machine: Machine::default(), open: Vec::new() }
    }

    /// How many bytes a prediction may read now; none while another one is read, or where this was
    /// predicted lately.
    pub(super) fn room_for(&mut self, uid: u32, file_name: &str) -> Option<u64> {
        let is_it =
            |early: &Early| early.uid == uid && early.what == What::Predicted(file_name.to_owned());
        let is_busy = |early: &Early| early.what.is_prediction() && early.replay.is_some();
        if self.open.iter().any(|early| is_it(early) || is_busy(early)) {
            return None;
        }
        Some(self.machine.now().may_read())
    }

    /// Begins to prefetch all of a pack.
    pub(super) fn begin(&mut self, uid: u32, what: What, pack: Pack) {
        if self.open.len() >= MOST {
            return self.shared.count(|counters| counters.crowded += 1);
        }
        let is_prediction = what.is_prediction();
        let wanted = with_gaps(pack.data_bytes().saturating_add(pack.metadata_bytes()));
        let available = memory::available().unwrap_or(0);
        let percent = self.shared.config.memory_percent;
        let Some((number, granted)) = self.shared.budget().reserve(wanted, available, percent)
        else {
            return self.shared.count(|counters| counters.without_budget += 1);
        };
        let mounts = Mounts::default();
        let model = Models::here().of_pack(&pack, &mounts);
        let bounds = Bounds { budget: Some(granted), threads: is_prediction.then_some(1) };
        let purpose = Purpose::Start { bounds, log: false, sampled: false };
        let strategy = purpose.strategy(model, &pack);
        let plan = prefetch::plan_chosen(&pack, &Frequency::EVER.choice(&pack), strategy, &purpose);
        // Its threads inherit it.
        let priority = if is_prediction { IoPriority::Idle } else { USUAL };
        let _ = set_for_thread(priority);
        let started = prefetch::start(plan, &purpose, mounts, Instant::now());
        let _ = set_for_thread(USUAL);
        match started {
            Ok(replay) => self.open.push(Early {
                uid,
                what,
                pack,
                model,
                replay: Some((replay, number)),
                report: Report::default(),
                until_ms: now_ms().saturating_add(WINDOW_MS),
                started: Vec::new(),
            }),
            // There is no thread for it.
            Err(_) => self.shared.budget().release(number),
        }
    }

    /// A program starts. If it was predicted, its own replay goes on.
    pub(super) fn note_start(&mut self, id: &Id) {
        for early in self.open.iter_mut().filter(|early| early.uid == id.uid) {
            if early.predicts(id) {
                early.end(&self.shared);
            }
            if early.started.len() < MOST_STARTED && !early.started.contains(id) {
                early.started.push(id.clone());
            }
        }
    }

    /// Notes what came of replays whose window is over.
    pub(super) fn look(&mut self) {
        let now = now_ms();
        let is_predicting = |early: &Early| early.what.is_prediction() && early.replay.is_some();
        let conditions = self.open.iter().any(is_predicting).then(|| self.machine.now());
        let has_room = |conditions: Conditions| conditions.may_read() > 0;
        if !conditions.is_none_or(has_room) {
            self.open.iter_mut().filter(|early| is_predicting(early)).for_each(|early| {
                early.end(&self.shared);
            });
        }
        for early in &mut self.open {
            let is_over = now >= early.until_ms;
            if early.replay.as_ref().is_some_and(|(replay, _)| is_over || replay.is_finished()) {
                early.end(&self.shared);
            }
        }
        let is_open = |early: &Early| now < early.until_ms;
        self.open
            .iter()
            .filter(|early| !is_open(early))
            .for_each(|early| early.settle(&self.shared));
        self.open.retain(is_open);
    }

    /// Ends all; what was used until then counts.
    pub(super) fn end(&mut self) {
        for early in &mut self.open {
            early.end(&self.shared);
            early.settle(&self.shared);
        }
    }
}

impl Early {
    fn predicts(&self, id: &Id) -> bool {
        self.uid == id.uid && self.what == What::Predicted(id.file_name.clone())
    }

    fn end(&mut self, shared: &Shared) {
        if let Some((replay, number)) = self.replay.take() {
            self.report = replay.end().report;
            shared.budget().release(number);
        }
    }

    fn settle(&self, shared: &Shared) {
        let Report { bytes: read_bytes, .. } = self.report;
        if read_bytes == 0 {
            return;
        }
        let started: Vec<_> = self.started.iter().filter_map(|id| pack_of(shared, id)).collect();
        let share = self.report.read_share();
        let settled = settle(&self.pack, read_bytes, share, &started, self.model);
        let Settled { wasted_bytes, saved_us } = settled;
        shared.count(|counters| match self.what {
            What::Login => {
                counters.login_read_bytes += read_bytes;
                counters.login_wasted_bytes += wasted_bytes;
                counters.login_saved_us += saved_us;
            }
            What::Predicted(_) => {
                counters.predictions += 1;
                counters.predictions_hit +=
                    u64::from(self.started.iter().any(|id| self.predicts(id)));
                counters.predicted_read_bytes += read_bytes;
                counters.predicted_wasted_bytes += wasted_bytes;
                counters.predicted_saved_us += saved_us;
            }
        });
        shared.state().week.note_early(read_bytes, settled);
    }
}

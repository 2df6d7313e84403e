//! The replays before a start: begins them, and finds out what came of each when its window is over.

use super::early::pack_of;
use super::shared::{Shared, now_ms};
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
use std::sync::Arc;
use std::time::Instant;

/// Replays whose window is open, at most.
const MOST: usize = 16;
/// Programs that are kept of those that start in a window.
const MOST_STARTED: usize = 64;

/// What a replay is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// A login.
    Login,
}

/// The replays.
pub(super) struct Replays {
    shared: Arc<Shared>,
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
        Self { shared, open: Vec::new() }
    }

    /// Begins to prefetch all of a pack.
    pub(super) fn begin(&mut self, uid: u32, what: What, pack: Pack) {
        if self.open.len() >= MOST {
            return self.shared.count(|counters| counters.crowded += 1);
        }
        let wanted = pack.data_bytes().saturating_add(pack.metadata_bytes());
        let available = memory::available().unwrap_or(0);
        let percent = self.shared.config.memory_percent;
        let Some((number, granted)) = self.shared.budget().reserve(wanted, available, percent)
        else {
            return self.shared.count(|counters| counters.without_budget += 1);
        };
        let mounts = Mounts::default();
        let model = Models::here().of_pack(&pack, &mounts);
        let bounds = Bounds { budget: Some(granted), ..Bounds::default() };
        let purpose = Purpose::Start { bounds, log: false, sampled: false };
        let strategy = purpose.strategy(model, &pack);
        let plan = prefetch::plan_chosen(&pack, &Frequency::EVER.choice(&pack), strategy, &purpose);
        match prefetch::start(plan, &purpose, mounts, Instant::now()) {
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

    /// A program starts.
    pub(super) fn note_start(&mut self, id: &Id) {
        for early in self.open.iter_mut().filter(|early| early.uid == id.uid) {
            if early.started.len() < MOST_STARTED && !early.started.contains(id) {
                early.started.push(id.clone());
            }
        }
    }

    /// Notes what came of replays whose window is over.
    pub(super) fn look(&mut self) {
        let now = now_ms();
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
        });
        shared.state().week.note_early(read_bytes, settled);
    }
}

//! Prefetches before a start: at a login the user's login pack, and programs that are predicted. Counts
//! what follows what, and makes login packs again when what they are made of has changed.

use super::replays::{Replays, What};
use super::sessions::SessionFiles;
use super::shared::{Shared, When, now_ms, now_s};
use crate::budget::with_gaps;
use crate::early::common::{Candidate, common};
use crate::early::gain::pays_off;
use crate::early::model::{LOGIN, Likely, Open};
use crate::programs::{Id, Program};
use headstart::host::error::causes;
use headstart::host::mounts::Mounts;
use headstart::launch::policy::FREQUENT;
use headstart::launch::retention;
use headstart::pack::Pack;
use headstart::pack::store::{self, StoreError};
use headstart::replay::benefit::Expected;
use headstart::replay::frequency::Frequency;
use headstart::replay::models::Models;
use rustix::event::Timespec;
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often starts are counted and replays looked at.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };
/// Starts that may wait to be counted.
const WAITING: usize = 1024;
/// Programs that a login pack is made of, and their ranges, at most: those that saved most first.
const MOST_CANDIDATES: usize = 256;
const MOST_RANGES: usize = 50_000;
/// A login pack is made again after so long at the earliest, unless the user says so: programs may be
/// learned one after the other, and each time all packs of a user are read.
const AGAIN: Duration = Duration::from_secs(10 * 60);
/// Programs that are predicted of one context.
const MOST_PREDICTED: usize = 4;

/// A start of a program that is worth remembering.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) id: Id,
    /// In milliseconds of the monotonic clock.
    pub(super) at_ms: u64,
}

/// Starts the thread. It is told of starts by what this returns.
///
/// # Errors
/// There is no thread.
pub(super) fn start(shared: Arc<Shared>) -> io::Result<(SyncSender<Started>, JoinHandle<()>)> {
    let (send, starts) = sync_channel(WAITING);
    let sessions = SessionFiles::of(shared.places.sessions.clone());
    let replays = Replays::new(Arc::clone(&shared));
    let early =
        Early { shared, starts, sessions, replays, open: Open::default(), made: HashMap::new() };
    let thread = thread::Builder::new().name("early".into()).spawn(move || early.run())?;
    Ok((send, thread))
}

struct Early {
    shared: Arc<Shared>,
    starts: Receiver<Started>,
    sessions: SessionFiles,
    replays: Replays,
    open: Open,
    /// When the login packs were made.
    made: HashMap<u32, Instant>,
}

impl Early {
    fn run(mut self) {
        self.want_missing_packs();
        while !self.shared.stops() {
            let logins = self.sessions.wait(LOOK);
            // Before the logins: they came before, mostly.
            while let Ok(started) = self.starts.try_recv() {
                self.started(&started);
            }
            logins.into_iter().for_each(|uid| self.login(uid));
            self.replays.look();
            self.renew();
        }
        self.replays.end();
    }

    fn is_on(&self) -> bool {
        self.shared.config.login_memory > 0
    }

    fn started(&mut self, Started { id, at_ms }: &Started) {
        self.replays.note_start(id);
        self.shared.state().model.starts(&mut self.open, id.uid, &id.file_name, *at_ms);
        self.occurs(id.uid, &id.file_name, *at_ms);
    }

    /// Predicts what follows a start or a login, by what followed before.
    fn occurs(&mut self, uid: u32, context: &str, at_ms: u64) {
        if self.shared.config.predict {
            if !self.open.has(uid, context, at_ms) {
                self.predict(uid, context, at_ms);
            }
        } else if context != LOGIN {
            return;
        }
        self.shared.state().model.occurs(&mut self.open, uid, context, at_ms, now_s());
    }

    fn predict(&mut self, uid: u32, context: &str, at_ms: u64) {
        if self.shared.paused_s().is_some() {
            return;
        }
        let likely = self.shared.state().model.likely(uid, context);
        for Likely { file_name, chance, .. } in likely.into_iter().take(MOST_PREDICTED) {
            let id = Id { uid, file_name };
            // It has been started, and is hot.
            let has_started = self.open.has(uid, &id.file_name, at_ms);
            if has_started || !self.may_be_predicted(&id) {
                continue;
            }
            let Some(pack) = pack_of(&self.shared, &id) else { continue };
            let model = Models::here().of_pack(&pack, &Mounts::default());
            let choice = Frequency::EVER.choice(&pack);
            let expected = model.map(|model| Expected::of(&pack, &choice, &model));
            if !expected.is_some_and(|expected| pays_off(chance, &expected)) {
                continue;
            }
            let wanted = with_gaps(pack.data_bytes().saturating_add(pack.metadata_bytes()));
            match self.replays.room_for(uid, &id.file_name) {
                Some(room) if room >= wanted => {
                    self.replays.begin(uid, What::Predicted(id.file_name), pack);
                }
                Some(_) => self.shared.count(|counters| counters.predictions_skipped += 1),
                None => {}
            }
        }
    }

    fn may_be_predicted(&self, id: &Id) -> bool {
        let state = self.shared.state();
        let program = state.table.get(id);
        program.is_some_and(|program| program.learned > 0 && program.useless_until <= now_s())
    }

    fn login(&mut self, uid: u32) {
        if self.shared.paused_s().is_some() {
            return;
        }
        self.shared.count(|counters| counters.logins += 1);
        if self.is_on() {
            self.replay_login_pack(uid);
        }
        self.occurs(uid, LOGIN, now_ms());
    }

    fn replay_login_pack(&mut self, uid: u32) {
        self.shared.renew_login_pack(uid, When::AfterWindow);
        match store::read(&self.path(uid), 0) {
            Ok(pack) => self.replays.begin(uid, What::Login, pack),
            Err(StoreError::Missing(_)) => {}
            Err(error) => (self.shared.tell)(&format!("no login pack: {}", causes(&error))),
        }
    }

    /// Where the login pack of a user is.
    fn path(&self, uid: u32) -> PathBuf {
        self.shared.places.state.join("login").join(format!("{uid}.pack"))
    }

    /// Has login packs made that are not there.
    fn want_missing_packs(&self) {
        let mut users: Vec<_> = {
            let state = self.shared.state();
            let learned = state.table.iter().filter(|(_, program)| program.learned > 0);
            learned.map(|(id, _)| id.uid).collect()
        };
        users.dedup();
        users.retain(|uid| self.path(*uid).symlink_metadata().is_err() || !self.is_on());
        for uid in users {
            self.shared.renew_login_pack(uid, When::AfterWindow);
        }
    }

    /// Makes login packs again, but for users who have just logged in: what follows that is not known
    /// yet. While a start is learned, they wait, since both take memory.
    fn renew(&mut self) {
        let shared = Arc::clone(&self.shared);
        let alone = shared.learning.try_lock();
        let is_busy = matches!(alone, Err(TryLockError::WouldBlock));
        let (now, open, made) = (now_ms(), &mut self.open, &self.made);
        let is_early = |uid: &u32| made.get(uid).is_some_and(|made| made.elapsed() < AGAIN);
        let may_wait = |uid| is_busy || is_early(&uid) || open.has(uid, LOGIN, now);
        for uid in shared.login_packs_due(may_wait) {
            self.made.insert(uid, Instant::now());
            if let Err(error) = self.make(uid) {
                (shared.tell)(&format!("no login pack is made: {}", causes(&error)));
            }
        }
    }

    fn make(&self, uid: u32) -> Result<(), StoreError> {
        let path = self.path(uid);
        let pack = common(self.candidates(uid), self.shared.config.login_memory);
        if pack.files.is_empty() && pack.metadata.is_empty() {
            return match path.symlink_metadata() {
                Ok(_) => retention::forget(&path),
                Err(_) => Ok(()),
            };
        }
        store::lock_trusted(&path)?.write(&pack).map(drop)
    }

    /// The programs of a user that a login pack may be made of.
    fn candidates(&self, uid: u32) -> Vec<Candidate> {
        if !self.is_on() {
            return Vec::new();
        }
        let now = now_s();
        let mut known: Vec<(Id, u64, Likely)> = {
            let state = self.shared.state();
            let is_candidate = |(id, program): &(&Id, &Program)| {
                id.uid == uid && program.learned > 0 && program.useless_until <= now
            };
            let likely = |(id, program): (&Id, &Program)| {
                let mut likely = state.model.after_login(uid, &id.file_name);
                if program.pinned {
                    likely.chance = 1.0;
                }
                (id.clone(), program.saved_us, likely)
            };
            state.table.iter().filter(is_candidate).map(likely).collect()
        };
        known.sort_by_key(|(_, saved_us, _)| std::cmp::Reverse(*saved_us));
        known.truncate(MOST_CANDIDATES);
        let mut left = MOST_RANGES;
        let read = |(id, _, likely): (Id, u64, Likely)| {
            let pack = pack_of(&self.shared, &id)?;
            left = left.checked_sub(pack.ranges.len())?;
            Some(Candidate { pack, likely })
        };
        known.into_iter().filter_map(read).collect()
    }
}

/// What is read of a program's pack.
pub(super) fn pack_of(shared: &Shared, id: &Id) -> Option<Pack> {
    Some(FREQUENT.chosen(&store::read(&shared.pack_of(id), 0).ok()?).into_owned())
}

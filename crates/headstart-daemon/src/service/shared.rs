//! What the threads of the service share.

use super::hot::Hot;
use super::tracer::Tracer;
use super::trees::Trees;
use crate::budget::Budget;
use crate::config::Config;
use crate::control::answer::{Start, Status};
use crate::counters::Counters;
use crate::execs::forks::Forkers;
use crate::execs::reads::Again;
use crate::programs::decide::Conditions;
use crate::programs::{Id, Program};
use crate::state::State;
use headstart::host::clock::monotonic_ns;
use headstart::host::error::causes;
use headstart::launch::retention;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Starts that `top` lists.
const RECENT: usize = 50;

/// Where things are.
#[derive(Clone, Debug)]
pub struct Places {
    /// The directory of the state file and of the packs of users.
    pub state: PathBuf,
    /// The directory of root's packs.
    pub packs: PathBuf,
    /// The socket.
    pub socket: PathBuf,
    /// Where logind keeps its sessions.
    pub sessions: PathBuf,
}

impl Places {
    /// The directory of the packs of users other than root.
    pub(super) fn users(&self) -> PathBuf {
        self.state.join("users")
    }
}

/// How starts are seen.
pub(super) struct Watching {
    /// By which events, for people.
    pub(super) events: String,
    /// Programs whose children are looked at.
    pub(super) forkers: Forkers,
    /// Threads that were seen to read too early.
    pub(super) again: Again,
}

/// Takes one line for the journal.
pub type Tell = Box<dyn Fn(&str) + Send + Sync>;

/// When a login pack is made again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum When {
    /// At once, since the user says so.
    Now,
    /// When it is known what the last login led to.
    AfterWindow,
}

/// What the threads share.
pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) places: Places,
    pub(super) tell: Tell,
    pub(super) watching: Watching,
    /// None when nothing can be recorded, for this reason.
    pub(super) tracer: Result<Tracer, String>,
    pub(super) began: Instant,
    /// One start is learned at a time, and no login pack is made meanwhile: both take memory.
    pub(super) learning: Mutex<()>,
    state: Mutex<State>,
    counters: Mutex<Counters>,
    budget: Mutex<Budget>,
    hot: Mutex<Hot>,
    recent: Mutex<VecDeque<Start>>,
    renew: Mutex<BTreeMap<u32, When>>,
    trees: Mutex<Trees>,
    stops: AtomicBool,
    /// Wakes those that wait for the end.
    end: (Mutex<()>, Condvar),
    /// Milliseconds of the monotonic clock; 0 for never, `u64::MAX` for ever.
    paused_until: AtomicU64,
}

impl Shared {
    pub(super) fn new(
        config: Config,
        places: Places,
        tell: Tell,
        watching: Watching,
        tracer: Result<Tracer, String>,
        state: State,
    ) -> Self {
        Self {
            config,
            places,
            tell,
            watching,
            tracer,
            began: Instant::now(),
            learning: Mutex::default(),
            state: Mutex::new(state),
            counters: Mutex::default(),
            budget: Mutex::default(),
            hot: Mutex::default(),
            recent: Mutex::default(),
            renew: Mutex::default(),
            trees: Mutex::default(),
            stops: AtomicBool::new(false),
            end: Default::default(),
            paused_until: AtomicU64::new(0),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn budget(&self) -> MutexGuard<'_, Budget> {
        lock(&self.budget)
    }

    pub(super) fn trees(&self) -> MutexGuard<'_, Trees> {
        lock(&self.trees)
    }

    pub(super) fn hot(&self) -> MutexGuard<'_, Hot> {
        lock(&self.hot)
    }

    pub(super) fn recent(&self) -> MutexGuard<'_, VecDeque<Start>> {
        lock(&self.recent)
    }

    /// Has the login pack of a user made again.
    pub(super) fn renew_login_pack(&self, uid: u32, when: When) {
        let mut renew = lock(&self.renew);
        let wanted = renew.entry(uid).or_insert(when);
        *wanted = when.min(*wanted);
    }

    /// Users whose login packs are to be made again now; `may_wait` says whose may be made later.
    pub(super) fn login_packs_due(&self, mut may_wait: impl FnMut(u32) -> bool) -> Vec<u32> {
        let mut due = Vec::new();
        lock(&self.renew).retain(|uid, when| {
            let is_due = *when == When::Now || !may_wait(*uid);
            if is_due {
                due.push(*uid);
            }
            !is_due
        });
        due
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut Counters)) {
        change(&mut lock(&self.counters));
    }

    /// Whether the service ends.
    pub(super) fn stops(&self) -> bool {
        self.stops.load(Ordering::Relaxed)
    }

    /// Waits for a while, or for the end of the service.
    pub(super) fn sleep(&self, time: Duration) {
        let (lock, ends) = &self.end;
        let locked = lock.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever waits looks whether it is the end.
        drop(ends.wait_timeout_while(locked, time, |()| !self.stops()));
    }

    pub(super) fn stop(&self) {
        let (lock, ends) = &self.end;
        let _locked = lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.stops.store(true, Ordering::Relaxed);
        ends.notify_all();
    }

    /// Pauses for so many seconds, or for ever.
    pub(super) fn pause(&self, seconds: Option<u64>) {
        let until = |seconds: u64| now_ms().saturating_add(seconds.saturating_mul(1000));
        self.paused_until.store(seconds.map_or(u64::MAX, until), Ordering::Relaxed);
    }

    pub(super) fn resume(&self) {
        self.paused_until.store(0, Ordering::Relaxed);
    }

    /// For how long it is paused, in seconds, 0 if for ever; `None` if it is not.
    pub(super) fn paused_s(&self) -> Option<u64> {
        match self.paused_until.load(Ordering::Relaxed) {
            u64::MAX => Some(0),
            until => until.checked_sub(now_ms()).filter(|ms| *ms > 0).map(|ms| ms.div_ceil(1000)),
        }
    }

    /// What holds for all programs now.
    pub(super) fn conditions(&self) -> Conditions {
        let may_add = self.tracer.as_ref().is_ok_and(Tracer::may_add);
        Conditions { now_ms: now_ms(), now: now_s(), may_record: self.config.learn && may_add }
    }

    /// Where the pack of a program is, or will be.
    pub(super) fn pack_of(&self, id: &Id) -> PathBuf {
        match id.uid {
            0 => self.places.packs.join(&id.file_name),
            uid => self.places.users().join(uid.to_string()).join(&id.file_name),
        }
    }

    /// The size of that file, in bytes; 0 without one.
    pub(super) fn pack_file_bytes(&self, id: &Id) -> u64 {
        self.pack_of(id).metadata().map_or(0, |meta| meta.len())
    }

    /// Changes what is known of a program, and removes the packs of programs that have no room.
    pub(super) fn change(
        &self,
        id: &Id,
        new: impl FnOnce() -> Program,
        with: impl FnOnce(&mut Program),
    ) {
        let forgotten = self.state().table.change(id, new, with);
        for id in forgotten {
            let path = self.pack_of(&id);
            if let Err(error) = retention::forget(&path) {
                (self.tell)(&format!("a pack stays: {}", causes(&error)));
            }
        }
    }

    /// A start of a program, if there was one, led to a slow one.
    pub(super) fn note_led(&self, by: Option<&Id>, to: &Id) {
        if let Some(by) = by {
            self.change(by, Default::default, |program| program.note_led_to(&to.file_name));
        }
    }

    /// Notes a start for `top`.
    pub(super) fn note_start(&self, start: Start) {
        let mut recent = self.recent();
        recent.truncate(RECENT - 1);
        recent.push_front(start);
    }

    /// Starts that are recorded and not learned yet. The last one is not open any more while it is learned.
    fn recording(&self) -> usize {
        let is_learning = matches!(self.learning.try_lock(), Err(TryLockError::WouldBlock));
        let open = self.tracer.as_ref().map_or(0, Tracer::open);
        open.max(is_learning.into())
    }

    pub(super) fn status(&self) -> Status {
        let (programs, week) = {
            let state = self.state();
            let remembered = state.table.iter().filter(|(_, program)| program.is_remembered());
            (remembered.count(), state.week)
        };
        let not_learning = match (&self.tracer, self.config.learn) {
            (_, false) => Some("it is switched off in the configuration".into()),
            (Err(why), true) => Some(why.clone()),
            (Ok(_), true) => None,
        };
        Status {
            pid: std::process::id(),
            uptime_s: self.began.elapsed().as_secs(),
            source: self.watching.events.clone(),
            paused_s: self.paused_s(),
            not_learning,
            programs,
            recording: self.recording(),
            in_flight_bytes: self.budget().in_flight(),
            counters: *lock(&self.counters),
            week,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The moment of this time of the monotonic clock, in nanoseconds.
pub(super) fn moment(at: u64) -> Instant {
    let ago = Duration::from_nanos(monotonic_ns().saturating_sub(at));
    let now = Instant::now();
    now.checked_sub(ago).unwrap_or(now)
}

/// Now, in milliseconds of the monotonic clock.
pub(super) fn now_ms() -> u64 {
    monotonic_ns() / 1_000_000
}

/// Now, in seconds of Unix time.
pub(super) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs())
}

//! Looks at starts of unknown programs a few times, in one thread, to find the slow ones.

use super::looks;
use super::shared::{Shared, now_ms, now_s};
use crate::control::answer::{Kind, Start};
use crate::programs::Id;
use crate::watch::{Next, Watch};
use headstart::host::clock::micros;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// Starts under observation, at most.
const MOST: usize = 512;
/// How long nothing may happen before it is checked whether the service ends.
const IDLE: Duration = Duration::from_millis(500);

/// A start to be watched.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) id: Id,
    pub(super) name: String,
    /// The program that led to it, if it was started within the start of another one.
    pub(super) led_by: Option<Id>,
    pub(super) pid: u32,
    pub(super) start_time: u64,
    /// When it was executed, in milliseconds of the monotonic clock.
    pub(super) at_ms: u64,
    pub(super) watch: Watch,
    /// How long a request to its disk takes.
    pub(super) latency: Duration,
}

/// Starts the thread.
///
/// # Errors
/// There is none.
pub(super) fn start(shared: Arc<Shared>) -> std::io::Result<SyncSender<Watched>> {
    let (send, new) = sync_channel(MOST);
    let watcher = Watcher { shared, due: BTreeMap::new(), next: 0 };
    thread::Builder::new().name("watch".into()).spawn(move || watcher.run(&new))?;
    Ok(send)
}

struct Watcher {
    shared: Arc<Shared>,
    /// By the time of the next look, and a number.
    due: BTreeMap<(u64, u64), Watched>,
    next: u64,
}

impl Watcher {
    fn run(mut self, new: &Receiver<Watched>) {
        while !self.shared.stops() {
            let first = self.due.keys().next().map(|(at, _)| at.saturating_sub(now_ms()));
            let nap = first.map_or(IDLE, Duration::from_millis).min(IDLE);
            match new.recv_timeout(nap) {
                Ok(watched) => {
                    self.supersede(&watched);
                    if self.due.len() >= MOST {
                        self.shared.count(|counters| counters.crowded += 1);
                        continue;
                    }
                    self.shared.count(|counters| counters.watched += 1);
                    let at = watched.at_ms.saturating_add(millis(watched.watch.begin()));
                    self.wait(at, watched);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.look();
        }
    }

    /// A process that becomes another program soon was a wrapper: what it then reads belongs to
    /// the program.
    fn supersede(&mut self, by: &Watched) {
        let is_it = |old: &Watched| (old.pid, old.start_time) == (by.pid, by.start_time);
        self.due.retain(|_, old| !is_it(old));
    }

    fn wait(&mut self, at: u64, watched: Watched) {
        self.due.insert((at, self.next), watched);
        self.next += 1;
    }

    fn look(&mut self) {
        let now = now_ms();
        while let Some(entry) = self.due.first_entry().filter(|entry| entry.key().0 <= now) {
            let mut watched = entry.remove();
            let counters = looks::counters(watched.pid, watched.start_time);
            match watched.watch.look(counters) {
                Next::At(after) => {
                    let at = watched.at_ms.saturating_add(millis(after));
                    self.wait(at.max(now + 1), watched);
                }
                Next::Over => self.end(watched),
            }
        }
    }

    fn end(&self, watched: Watched) {
        let waited = watched.watch.waited(watched.latency);
        let is_cold = waited >= self.shared.config.threshold;
        let now = now_ms();
        let mut forker = String::new();
        self.shared.change(&watched.id, Default::default, |program| {
            program.note_watched(is_cold, now);
            forker.clone_from(&program.forker);
        });
        if is_cold {
            self.shared.note_led(watched.led_by.as_ref(), &watched.id);
            self.shared.watching.forkers.add(&forker);
            self.shared.count(|counters| counters.cold += 1);
            self.shared.note_start(Start {
                program: watched.name,
                uid: watched.id.uid,
                pid: watched.pid,
                at: now_s(),
                kind: Kind::Cold,
                waited_us: Some(micros(waited)),
                saved_us: 0,
                read_bytes: 0,
                wasted_bytes: None,
                learned: false,
                first_request_us: None,
                pages: None,
            });
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

//! Looks at starts of unknown programs a few times, in one thread, to find the slow ones.

use super::handle::Handled;
use super::looks::{self, Whose};
use super::pool::Pool;
use super::shared::{Shared, moment, now_ms, now_s};
use super::trees::{Root, Tree};
use crate::control::answer::{Kind, Start};
use crate::programs::Id;
use crate::started::Started;
use crate::watch::{Next, Watch};
use headstart::host::clock::micros;
use headstart::pack::key::Key;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Starts under observation, at most.
const MOST: usize = 512;
/// How long nothing may happen before it is checked whether the service ends. At its end those that send
/// starts end first, which is seen at once.
const IDLE: Duration = Duration::from_secs(60);

/// A start to be watched.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) id: Id,
    pub(super) key: Key,
    /// The program that led to it, if it was started within the start of another one.
    pub(super) led_by: Option<Id>,
    /// Without arguments.
    pub(super) started: Started,
    /// When it was executed, in nanoseconds of the monotonic clock.
    pub(super) at: u64,
    pub(super) watch: Watch,
    /// How long a request to its disk takes.
    pub(super) latency: Duration,
}

/// Starts the thread.
///
/// # Errors
/// There is none.
pub(super) fn start(
    shared: Arc<Shared>,
    starts: Arc<Pool<Handled>>,
) -> std::io::Result<(SyncSender<Watched>, JoinHandle<()>)> {
    let (send, new) = sync_channel(MOST);
    let watcher = Watcher { shared, starts, due: BTreeMap::new(), next: 0 };
    let thread = thread::Builder::new().name("watch".into()).spawn(move || watcher.run(&new))?;
    Ok((send, thread))
}

struct Watcher {
    shared: Arc<Shared>,
    starts: Arc<Pool<Handled>>,
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
                    if self.is_rest_of_wrapper(&watched) {
                        continue;
                    }
                    if self.due.len() >= MOST {
                        self.shared.count(|counters| counters.crowded += 1);
                        continue;
                    }
                    self.shared.count(|counters| counters.watched += 1);
                    let at = watched.at_ms().saturating_add(millis(watched.watch.begin()));
                    self.wait(at, watched);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.look();
        }
    }

    /// A process that becomes another program soon was a wrapper: what it then reads belongs to the
    /// program. Unless the wrapper has waited long enough to be slow itself: then the program is the rest
    /// of its start, whenever the next look would have been. Whether the process needs no watch of its own.
    fn is_rest_of_wrapper(&mut self, program: &Watched) -> bool {
        let process = |of: &Watched| (of.started.pid, of.started.start_time);
        // Several threads look at execs, so that of a wrapper may come after its program's: what is read since then is
        // the program's, which is watched already.
        let is_later = |of: &Watched| {
            process(of) == process(program) && of.at > program.at && !of.started.is_job
        };
        if self.due.values().any(is_later) {
            return true;
        }
        let is_it = |_: &(u64, u64), old: &mut Watched| process(old) == process(program);
        let old: Vec<_> = self.due.extract_if(.., is_it).map(|(_, old)| old).collect();
        // A child that executes a program was no job of its parent: it had waited for that.
        for mut wrapper in old.into_iter().filter(|old| !old.started.is_job) {
            let lasted = Duration::from_nanos(program.at.saturating_sub(wrapper.at));
            wrapper.watch.becomes(&program.watch, lasted);
            if self.is_cold(&wrapper) {
                self.end(&wrapper);
                return self.record_rest(wrapper);
            }
        }
        false
    }

    fn wait(&mut self, at: u64, watched: Watched) {
        self.due.insert((at, self.next), watched);
        self.next += 1;
    }

    fn look(&mut self) {
        let now = now_ms();
        while let Some(entry) = self.due.first_entry().filter(|entry| entry.key().0 <= now) {
            let mut watched = entry.remove();
            let Started { pid, start_time, .. } = watched.started;
            let counters = looks::counters(pid, start_time, self.whose(&watched));
            match watched.watch.look(counters) {
                // What was read may be of a program whose exec is not looked at yet.
                Next::At(_) if self.is_cold(&watched) && !watched.started.is_replaced() => {
                    self.end(&watched);
                    self.record_rest(watched);
                }
                Next::At(after) => {
                    let at = watched.at_ms().saturating_add(millis(after));
                    self.wait(at.max(now + 1), watched);
                }
                Next::Over => self.end(&watched),
            }
        }
    }

    /// What a slow program has read that another one led to is not counted for that, too: a bus or a
    /// service manager would be slow itself, and all that it starts a part of its start.
    fn whose(&self, watched: &Watched) -> Whose {
        let state = self.shared.state();
        let leads = state.table.get(&watched.id).is_some_and(|program| program.leads_to.is_some());
        if leads { Whose::Own } else { Whose::Family }
    }

    fn is_cold(&self, watched: &Watched) -> bool {
        watched.watch.waited(watched.latency) >= self.shared.config.threshold
    }

    /// A start that is known to be slow while it still reads: what it touches from now on is learned,
    /// so that the next one is prefetched already.
    /// Whether that begins.
    fn record_rest(&self, watched: Watched) -> bool {
        let Watched { id, key, led_by, started, at, .. } = watched;
        let Ok(tracer) = &self.shared.tracer else { return false };
        let may_record = self.shared.conditions().may_record;
        let add = || tracer.add(&looks::family(started.pid), self.shared.pack_file_bytes(&id));
        let Some(ticket) = may_record.then(add).flatten() else { return false };
        let Some(program) = self.shared.state().table.get(&id).cloned() else {
            tracer.drop(ticket);
            return false;
        };
        let tree = Tree::new(id, led_by);
        tree.came(key.clone(), started.clone());
        self.shared.trees().join(&started, at / 1_000_000, Root::Handled(Arc::clone(&tree)));
        let (began, recorded_at) = (moment(at), Instant::now());
        let handled = Handled {
            tree,
            key,
            started,
            program,
            began,
            recorded_at,
            ticket: Some(ticket),
            is_rest: true,
        };
        if let Err(handled) = self.starts.give(handled) {
            handled.tree.end();
            handled.ticket.into_iter().for_each(|ticket| tracer.drop(ticket));
            return false;
        }
        true
    }

    fn end(&self, watched: &Watched) {
        let waited = watched.watch.waited(watched.latency);
        let is_cold = self.is_cold(watched);
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
                program: watched.key.name.clone(),
                uid: watched.id.uid,
                pid: watched.started.pid,
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

impl Watched {
    /// When it was executed, in milliseconds of the monotonic clock.
    fn at_ms(&self) -> u64 {
        self.at / 1_000_000
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

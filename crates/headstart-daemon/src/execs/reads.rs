//! Which processes with names that are executed often read from a disk: their execs are not reported
//! ([`Frequent`](super::frequent::Frequent)), but among ten thousand hot starts of an interpreter one may be
//! cold. From `block_bio_queue` in a trace instance of its own; a hot start has no such event. File servers
//! have none either. Threads that go on reading are excluded after a while, so that they do not hide others.
//! The driver.

use super::buffers::Buffers;
use super::{Exec, Seen};
use headstart::trace::format::Field;
use headstart::trace::tracefs::Tracefs;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// What the instance is called among ours.
const LABEL: &str = "reads";
const GROUP: &str = "block";
pub(super) const EVENT: &str = "block_bio_queue";
/// The buffer of each CPU, in KiB: what does not fit is lost, since one event of a process is enough.
const BUFFER_KB: u32 = 8;
/// After events the buffers are not looked at for this time, in nanoseconds: each of a program that goes on
/// reading would cost a wake-up.
const PAUSE: u64 = 10_000_000;
/// The same, when all were of processes that are known, up to this.
const LONGEST_PAUSE: u64 = 160_000_000;
/// A thread is reported once in this time, in nanoseconds.
const ONCE_IN: u64 = 10_000_000_000;
/// Threads that are remembered.
const MOST_THREADS: usize = 1024;
/// Threads that are excluded, which the kernel compares one by one, and for how long: their numbers are used
/// again.
const MOST_EXCLUDED: usize = 32;
const EXCLUDED_FOR: u64 = 60_000_000_000;
/// Between two changes for that, each of which takes the kernel some milliseconds, in nanoseconds.
const BETWEEN: u64 = 1_000_000_000;

/// Threads that were reported too early, while their process was not yet what it becomes: their next read is
/// reported again.
#[derive(Clone, Debug, Default)]
pub struct Again(Arc<Mutex<Vec<u32>>>);

impl Again {
    /// One more, if there is room for it.
    pub fn add(&self, thread: u32) {
        let mut threads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if threads.len() < MOST_THREADS {
            threads.push(thread);
        }
    }

    fn take(&self) -> Vec<u32> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The instance, and what was read of it.
#[derive(Debug)]
pub(super) struct Reads {
    buffers: Buffers,
    pid: Field,
    is_on: bool,
    pause: u64,
    /// The end of the pause, if there is one.
    paused_until: Option<u64>,
    threads: Threads,
    again: Again,
    names: Vec<String>,
    excluded: Excluded,
    may_exclude_at: u64,
}

impl Reads {
    /// Makes the instance. Nothing is reported before there is a filter.
    ///
    /// # Errors
    /// This can't be traced here.
    pub(super) fn start(tracefs: &Tracefs, again: Again) -> io::Result<Self> {
        let buffers = Buffers::create(tracefs, LABEL, BUFFER_KB)?;
        let fields = buffers.fields((GROUP, EVENT), ["common_pid"]);
        let [pid] = fields.map_err(io::Error::other)?;
        Ok(Self {
            buffers,
            pid,
            is_on: false,
            pause: PAUSE,
            paused_until: None,
            threads: Threads::default(),
            again,
            names: Vec::new(),
            excluded: Excluded::default(),
            may_exclude_at: 0,
        })
    }

    /// Wakes when there is something, also during a pause.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.buffers.fd()
    }

    /// The end of the pause, in nanoseconds of the monotonic clock: until then [`Self::fd`] is not to be
    /// waited for.
    pub(super) fn paused_until(&self) -> Option<u64> {
        self.paused_until
    }

    /// Reports reads of threads with these names, and of no others.
    pub(super) fn set_names<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        self.names = names.map(ToOwned::to_owned).collect();
        self.set_filter();
    }

    fn set_filter(&mut self) {
        let instance = &self.buffers.instance;
        let filter = filter(&self.names, self.excluded.threads());
        // Without them slow programs of these names are not seen, which is no error.
        let is_set =
            filter.is_some_and(|filter| instance.set_filter(GROUP, EVENT, &filter).is_ok());
        match (self.is_on, is_set) {
            (false, true) => self.is_on = instance.enable(GROUP, EVENT).is_ok(),
            (true, false) => self.is_on = instance.disable(&[(GROUP, EVENT)]).is_err(),
            _ => {}
        }
    }

    /// Appends the threads that have begun to read.
    ///
    /// # Errors
    /// The kernel refuses to hand them out.
    pub(super) fn read(&mut self, now: u64, out: &mut Vec<Exec>) -> io::Result<()> {
        if !self.is_on {
            // Nobody waits for the end of a pause then.
            self.paused_until = None;
            return Ok(());
        }
        if self.paused_until.is_some_and(|until| now < until) {
            return Ok(());
        }
        let is_any_over = now >= self.may_exclude_at && self.excluded.forget(now);
        let Self { buffers, pid, threads, again, .. } = self;
        again.take().iter().for_each(|thread| threads.forget(*thread));
        let (mut readers, before) = (BTreeSet::new(), out.len());
        let lost = buffers.drain(|at, record| {
            let Some(thread) = pid.read(record).and_then(|pid| u32::try_from(pid).ok()) else {
                return;
            };
            readers.insert(thread);
            if threads.is_new(thread, at) {
                out.push(Exec { pid: thread, at, seen: Seen::Read });
            }
        })?;
        // What was lost may be of others.
        let goes_on = lost.0 > 0 || self.pause == LONGEST_PAUSE;
        let excludes = goes_on && !readers.is_empty() && now >= self.may_exclude_at;
        if excludes {
            self.excluded.add(readers.iter().copied(), now);
        }
        if excludes || is_any_over {
            self.may_exclude_at = now.saturating_add(BETWEEN);
            self.set_filter();
        }
        let is_any = !readers.is_empty();
        self.pause = match is_any && out.len() == before {
            true => (self.pause * 2).min(LONGEST_PAUSE),
            false => PAUSE,
        };
        self.paused_until = is_any.then_some(now.saturating_add(self.pause));
        Ok(())
    }
}

/// The kernel's filter (Documentation/trace/events.rst) for reads by threads with these names, but for
/// these threads; none without names.
fn filter(names: &[String], excluded: impl Iterator<Item = u32>) -> Option<String> {
    let terms: Vec<_> = names.iter().map(|name| format!("comm == \"{name}\"")).collect();
    let excluded: String = excluded.map(|thread| format!("common_pid != {thread} && ")).collect();
    let any = || format!("rwbs ~ \"R*\" && {excluded}({})", terms.join(" || "));
    (!terms.is_empty()).then(any)
}

/// Threads that are not reported, the latest last, and until when. Pure.
#[derive(Debug, Default)]
struct Excluded(VecDeque<(u32, u64)>);

impl Excluded {
    /// Drops those whose time is over; whether there were any.
    fn forget(&mut self, now: u64) -> bool {
        let before = self.0.len();
        self.0.retain(|(_, until)| now < *until);
        self.0.len() < before
    }

    fn add(&mut self, threads: impl Iterator<Item = u32>, now: u64) {
        let until = now.saturating_add(EXCLUDED_FOR);
        self.0.extend(threads.map(|thread| (thread, until)));
        self.0.drain(..self.0.len().saturating_sub(MOST_EXCLUDED));
    }

    fn threads(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|(thread, _)| *thread)
    }
}

/// Threads that were reported lately.
#[derive(Debug, Default)]
struct Threads(HashMap<u32, u64>);

impl Threads {
    /// The next read of a thread is new.
    fn forget(&mut self, thread: u32) {
        self.0.remove(&thread);
    }

    fn is_new(&mut self, thread: u32, at: u64) -> bool {
        if self.0.get(&thread).is_some_and(|until| at < *until) {
            return false;
        }
        if self.0.len() >= MOST_THREADS {
            self.0.retain(|_, until| at < *until);
        }
        if self.0.len() < MOST_THREADS {
            self.0.insert(thread, at.saturating_add(ONCE_IN));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_reported_once_in_a_while_and_few_are_remembered() {
        let mut threads = Threads::default();
        assert!(threads.is_new(7, 5));
        assert!(!threads.is_new(7, 5 + ONCE_IN - 1));
        assert!(threads.is_new(7, 5 + ONCE_IN));
        threads.forget(7);
        assert!(threads.is_new(7, 5 + ONCE_IN));
        (8..9000).for_each(|thread| assert!(threads.is_new(thread, 5 + ONCE_IN)));
        assert_eq!(threads.0.len(), MOST_THREADS);
        assert!(threads.is_new(9001, 5 + 3 * ONCE_IN) && threads.0.len() == 1, "others are old");
    }

    #[test]
    fn without_names_nothing_is_reported() {
        assert_eq!(filter(&[], [7].into_iter()), None);
        let names = ["python3".into(), "sh".into()];
        for (excluded, expected) in [
            (&[][..], "rwbs ~ \"R*\" && (comm == \"python3\" || comm == \"sh\")"),
            (
                &[7, 9],
                "rwbs ~ \"R*\" && common_pid != 7 && common_pid != 9 && \
                 (comm == \"python3\" || comm == \"sh\")",
            ),
        ] {
            assert_eq!(filter(&names, excluded.iter().copied()), Some(expected.into()));
        }
    }

    #[test]
    fn threads_are_excluded_for_a_while_and_few_of_them() {
        let mut excluded = Excluded::default();
        let mut add = |threads: std::ops::Range<u32>, now| {
            excluded.add(threads, now);
            excluded.threads().collect::<Vec<_>>()
        };
        assert_eq!(add(7..9, 1), [7, 8]);
        assert_eq!(add(9..10, EXCLUDED_FOR), [7, 8, 9]);
        assert_eq!(add(1..2, EXCLUDED_FOR), [7, 8, 9, 1]);
        assert!(!excluded.forget(EXCLUDED_FOR));
        assert!(excluded.forget(EXCLUDED_FOR + 1));
        assert_eq!(excluded.threads().collect::<Vec<_>>(), [9, 1]);
        let latest: Vec<_> = (100 - MOST_EXCLUDED as u32..100).collect();
        excluded.add(0..100, EXCLUDED_FOR + 1);
        assert_eq!(excluded.threads().collect::<Vec<_>>(), latest);
        let filter = filter(&vec!["a-long-name-of-".into(); 32], (0..32).map(|n| u32::MAX - n));
        assert!(filter.unwrap().len() < 4096, "it fits in a page");
    }
}

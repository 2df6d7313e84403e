//! Which processes with names that are executed often read from a disk: their execs are not reported
//! ([`Frequent`](super::frequent::Frequent)), but among ten thousand hot starts of an interpreter one may be
//! cold. From `block_bio_queue` in a trace instance of its own; a hot start has no such event. File servers
//! have none either. The driver.

use super::buffers::Buffers;
use super::{Exec, Seen};
use headstart::trace::format::Field;
use headstart::trace::tracefs::Tracefs;
use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;

/// What the instance is called among ours.
const LABEL: &str = "reads";
const GROUP: &str = "block";
pub(super) const EVENT: &str = "block_bio_queue";
/// The buffer of each CPU, in KiB: what does not fit is lost, since one event of a process is enough.
const BUFFER_KB: u32 = 8;
/// After events the buffers are not looked at for this time, in nanoseconds: each of a program that reads
/// without end would cost a wake-up.
const PAUSE: u64 = 20_000_000;
/// The same, when all were of processes that are known, up to this.
const LONGEST_PAUSE: u64 = 160_000_000;
/// A thread is reported once in this time, in nanoseconds.
const ONCE_IN: u64 = 10_000_000_000;
/// Threads that are remembered.
const MOST_THREADS: usize = 1024;

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
}

impl Reads {
    /// Makes the instance. Nothing is reported before there is a filter.
    ///
    /// # Errors
    /// This can't be traced here.
    pub(super) fn start(tracefs: &Tracefs) -> io::Result<Self> {
        let buffers = Buffers::create(tracefs, LABEL, BUFFER_KB)?;
        let fields = buffers.fields((GROUP, EVENT), ["common_pid"]);
        let [pid] = fields.map_err(io::Error::other)?;
        let threads = Threads::default();
        Ok(Self { buffers, pid, is_on: false, pause: PAUSE, paused_until: None, threads })
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
        let instance = &self.buffers.instance;
        let filter = filter(names);
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
        if !self.is_on || self.paused_until.is_some_and(|until| now < until) {
            return Ok(());
        }
        let Self { buffers, pid, threads, .. } = self;
        let (mut any, before) = (false, out.len());
        // What was lost is of programs that go on reading.
        buffers.drain(|at, record| {
            any = true;
            let thread = pid.read(record).and_then(|pid| u32::try_from(pid).ok());
            let new = thread.filter(|thread| threads.is_new(*thread, at));
            out.extend(new.map(|pid| Exec { pid, at, seen: Seen::Read }));
        })?;
        self.pause = match any && out.len() == before {
            true => (self.pause * 2).min(LONGEST_PAUSE),
            false => PAUSE,
        };
        self.paused_until = any.then_some(now.saturating_add(self.pause));
        Ok(())
    }
}

/// The kernel's filter (Documentation/trace/events.rst) for reads by threads with these names; none
/// without names.
fn filter<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    let is_called = |name: &str| format!("comm == \"{name}\"");
    let terms: Vec<_> = names.map(is_called).collect();
    (!terms.is_empty()).then(|| format!("rwbs ~ \"R*\" && ({})", terms.join(" || ")))
}

/// Threads that were reported lately.
#[derive(Debug, Default)]
struct Threads(HashMap<u32, u64>);

impl Threads {
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
        (8..9000).for_each(|thread| assert!(threads.is_new(thread, 5 + ONCE_IN)));
        assert_eq!(threads.0.len(), MOST_THREADS);
        assert!(threads.is_new(9001, 5 + 3 * ONCE_IN) && threads.0.len() == 1, "others are old");
    }

    #[test]
    fn without_names_nothing_is_reported() {
        assert_eq!(filter([].into_iter()), None);
        let names = ["python3", "sh"].into_iter();
        let expected = "rwbs ~ \"R*\" && (comm == \"python3\" || comm == \"sh\")";
        assert_eq!(filter(names), Some(expected.into()));
    }
}

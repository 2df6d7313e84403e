//! The scheduler in real time: requests come in from the driver's thread, a
//! timer thread hands each out again when the model says so.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::counters::{Counters, Stats};
use crate::model::Device;
use crate::sched::{Done, Nanos, Request, Scheduler};

/// The clock's first reading: more than any overhead, which is subtracted.
const START: Nanos = 60_000_000_000;

/// An answer may be so late at most if the device is booked for some time
/// beyond it: that costs no throughput, and answering several at once is what
/// makes high rates possible at all.
const GRACE: Nanos = 50_000;

/// The overhead of FUSE and the loop device. It is taken
/// off each modelled time, so that the device as its user sees it is as slow
/// as the model says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// For every request, in nanoseconds.
    pub fixed_ns: f64,
    /// For every KiB on top, in nanoseconds.
    pub per_kib_ns: f64,
}

impl Overhead {
    fn of(&self, request: &Request) -> Nanos {
        let bytes = if request.transfers() { request.len } else { 0 };
        (self.fixed_ns + self.per_kib_ns * bytes as f64 / 1024.0) as Nanos
    }
}

/// A device in real time; `T` is what is needed to answer a request.
#[derive(Debug)]
pub struct Engine<T> {
    epoch: Instant,
    inner: Mutex<Inner<T>>,
    wake: Condvar,
}

#[derive(Debug)]
struct Inner<T> {
    scheduler: Scheduler<T>,
    counters: Counters,
    overhead: Overhead,
    closed: bool,
}

impl<T> Engine<T> {
    /// An idle device of `capacity` bytes.
    pub fn new(device: Device, capacity: u64) -> Self {
        let inner = Inner {
            scheduler: Scheduler::new(device, capacity),
            counters: Counters::new(START),
            overhead: Overhead::default(),
            closed: false,
        };
        Self { epoch: Instant::now(), inner: Mutex::new(inner), wake: Condvar::new() }
    }

    /// Nothing under this lock panics half-way, so a poisoned one is whole.
    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Nanos {
        START + self.epoch.elapsed().as_nanos() as Nanos
    }

    /// Takes a request in.
    pub fn submit(&self, request: Request, tag: T) {
        let mut inner = self.lock();
        let now = self.now();
        inner.counters.arrive(now, &request);
        let arrived = now.saturating_sub(inner.overhead.of(&request));
        let before = inner.scheduler.next_due();
        inner.scheduler.arrive(arrived, request, tag);
        if inner.scheduler.next_due() != before {
            self.wake.notify_one();
        }
    }

    /// Passes requests to `answer` when they are due, until closed.
    pub fn run(&self, mut answer: impl FnMut(Done<T>)) {
        let mut inner = self.lock();
        while !inner.closed {
            let now = self.now();
            if let Some(done) = inner.scheduler.complete(now) {
                inner.counters.complete(now, done.due - done.arrived, now - done.due);
                drop(inner);
                answer(done);
                inner = self.lock();
                continue;
            }
            inner = match inner.scheduler.next_due() {
                None => self.wake.wait(inner).unwrap_or_else(PoisonError::into_inner),
                Some(due) => {
                    let grace = (inner.scheduler.booked(due) / 4).min(GRACE);
                    let left = Duration::from_nanos(due.saturating_add(grace).saturating_sub(now));
                    let woken = self.wake.wait_timeout(inner, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Becomes that device and begins to count.
    pub fn start(&self, device: Device, overhead: Overhead) {
        let mut inner = self.lock();
        inner.scheduler.set_device(device);
        inner.overhead = overhead;
        inner.counters.reset(self.now());
    }

    /// Counts a request that could not be carried out.
    pub fn count_error(&self) {
        self.lock().counters.error();
    }

    /// The counts up to now; `reset` sets them to zero in the same instant.
    pub fn stats(&self, reset: bool) -> Stats {
        let mut inner = self.lock();
        let now = self.now();
        let stats = inner.counters.stats(now);
        if reset {
            inner.counters.reset(now);
        }
        stats
    }

    /// Ends [`Engine::run`].
    pub fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn device(latency_us: f64) -> Device {
        Device {
            read_latency_us: latency_us,
            write_latency_us: latency_us,
            queue_depth: 4,
            bandwidth_mb_s: 1000.0,
            iops: None,
            seek: None,
        }
    }

    /// Submits reads one after the other; gives the time they took together.
    fn time_reads(engine: &Engine<u32>, count: u32) -> Duration {
        std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            scope.spawn(move || {
                engine.run(|done| sender.send(done.tag).expect("the receiver outlives the engine"));
            });
            let start = Instant::now();
            for i in 0..count {
                engine.submit(Request::read(0, 1000), i);
                assert_eq!(receiver.recv().unwrap(), i);
            }
            let took = start.elapsed();
            engine.close();
            took
        })
    }

    #[test]
    fn no_request_is_answered_before_its_time() {
        let engine = Engine::new(device(2000.0), 1 << 20);
        assert!(time_reads(&engine, 10) >= Duration::from_micros(10 * 2001));
        let stats = engine.stats(true);
        assert_eq!((stats.reads.requests, stats.depth), (10, 0));
        assert_eq!(engine.stats(false).reads.requests, 0);
    }

    #[test]
    fn the_overhead_is_taken_off() {
        let engine = Engine::new(device(1e6), 1 << 20);
        let overhead = Overhead { fixed_ns: 1e9, per_kib_ns: 0.0 };
        engine.start(device(1e6), overhead);
        let took = time_reads(&engine, 1);
        assert!(took < Duration::from_millis(500), "{took:?}");
    }
}

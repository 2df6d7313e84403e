//! From arrival times to completion times: the model's arithmetic, without a
//! clock. The caller says when requests arrive and takes completions out in
//! time; whether the times are real or virtual is all the same here.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::model::{Device, Seek};

/// Nanoseconds since some start.
pub type Nanos = u64;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Reads bytes.
    Read,
    /// Writes bytes.
    Write,
    /// Makes writes durable: takes the write latency, moves nothing.
    Flush,
    /// Gives blocks back: takes the write latency, moves nothing.
    Discard,
}

/// One request as the device sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What it does.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

impl Request {
    /// A read of `len` bytes at `offset`.
    pub fn read(offset: u64, len: u64) -> Self {
        Self { op: Op::Read, offset, len }
    }

    /// The first byte behind it.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    /// Whether data passes between device and memory.
    pub fn transfers(&self) -> bool {
        matches!(self.op, Op::Read | Op::Write)
    }
}

/// A request with its times and what the caller attached to it.
#[derive(Debug)]
pub struct Done<T> {
    /// The request.
    pub request: Request,
    /// When it arrived.
    pub arrived: Nanos,
    /// When the device has answered it.
    pub due: Nanos,
    /// The caller's.
    pub tag: T,
}

/// A modelled device with the requests that wait or are in service.
#[derive(Debug)]
pub struct Scheduler<T> {
    device: Device,
    capacity: u64,
    /// Arrived, not started, oldest first.
    waiting: VecDeque<Done<T>>,
    /// Started; the number breaks ties in the order of starting.
    in_service: BinaryHeap<Reverse<Started<T>>>,
    started: u64,
    /// When each free slot of the queue became free.
    free_slots: BinaryHeap<Reverse<Nanos>>,
    last_arrival: Nanos,
    transfers_end: Nanos,
    next_token: Nanos,
    head: u64,
}

#[derive(Debug)]
struct Started<T>(u64, Done<T>);

impl<T> Started<T> {
    fn key(&self) -> (Nanos, u64) {
        (self.1.due, self.0)
    }
}

impl<T> PartialEq for Started<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Started<T> {}

impl<T> PartialOrd for Started<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Started<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl<T> Scheduler<T> {
    /// An idle device of `capacity` bytes with its head at the start.
    pub fn new(device: Device, capacity: u64) -> Self {
        let free_slots = (0..device.queue_depth).map(|_| Reverse(0)).collect();
        Self {
            device,
            capacity,
            waiting: VecDeque::new(),
            in_service: BinaryHeap::new(),
            started: 0,
            free_slots,
            last_arrival: 0,
            transfers_end: 0,
            next_token: 0,
            head: 0,
        }
    }

    /// Becomes another device; requests under way keep their times.
    pub fn set_device(&mut self, device: Device) {
        let free = self.in_service.len()..device.queue_depth as usize;
        self.free_slots = free.map(|_| Reverse(self.last_arrival)).collect();
        self.device = device;
        self.start();
    }

    /// Takes a request in. Requests are put in order: one that claims to be
    /// older than the last is taken to be as old.
    pub fn arrive(&mut self, now: Nanos, request: Request, tag: T) {
        self.last_arrival = self.last_arrival.max(now);
        self.waiting.push_back(Done { request, arrived: self.last_arrival, due: 0, tag });
        self.start();
    }

    /// When the next completion is due.
    pub fn next_due(&self) -> Option<Nanos> {
        self.in_service.peek().map(|Reverse(s)| s.1.due)
    }

    /// For how long from `now` request rate or channel are booked already.
    pub fn booked(&self, now: Nanos) -> Nanos {
        self.next_token.max(self.transfers_end).saturating_sub(now)
    }

    /// Takes out the earliest completion that is due by `now`. The requests it
    /// made room for start at its due time, however late this is called.
    pub fn complete(&mut self, now: Nanos) -> Option<Done<T>> {
        if self.next_due()? > now {
            return None;
        }
        let Reverse(Started(_, done)) = self.in_service.pop()?;
        let slots = self.in_service.len() + self.free_slots.len();
        if slots < self.device.queue_depth as usize {
            self.free_slots.push(Reverse(done.due));
        }
        self.start();
        Some(done)
    }

    /// Starts what waits while there are slots.
    fn start(&mut self) {
        while let Some(&Reverse(free)) = self.free_slots.peek() {
            let Some(oldest) = self.waiting.front() else { return };
            let at = free.max(oldest.arrived);
            let chosen = self.device.seek.as_ref().map_or(0, |seek| self.choose(seek, at));
            let Some(mut next) = self.waiting.remove(chosen) else { return };
            self.free_slots.pop();
            next.due = self.serve(at, &next.request);
            self.in_service.push(Reverse(Started(self.started, next)));
            self.started += 1;
        }
    }

    /// Native command queueing: of the oldest that have arrived, the nearest
    /// ahead of the head, else the one nearest the start of the disk.
    fn choose(&self, seek: &Seek, at: Nanos) -> usize {
        let window = self.waiting.iter().take(seek.window as usize);
        let arrived = window.take_while(|w| w.arrived <= at).map(|w| &w.request).enumerate();
        let rank = |r: &Request| (r.transfers(), r.offset < self.head, r.offset);
        arrived.min_by_key(|(_, r)| rank(r)).map_or(0, |(i, _)| i)
    }

    /// When a request that gets its slot at `at` is answered.
    ///
    /// Waiting for the request rate and for the channel comes first and the
    /// latency after it, so that a slow read does not hold up a fast write.
    fn serve(&mut self, at: Nanos, request: &Request) -> Nanos {
        let latency = match request.op {
            Op::Read => self.device.read_latency_us,
            Op::Write | Op::Flush | Op::Discard => self.device.write_latency_us,
        };
        if !request.transfers() {
            return at.saturating_add(nanos(latency));
        }
        let begin = at.max(self.next_token);
        if let Some(iops) = self.device.iops {
            self.next_token = begin.saturating_add(nanos(1e6 / iops));
        }
        let moving = self.device.seek.as_ref().map_or(0.0, |seek| self.seek_us(seek, request));
        self.head = request.end();
        let transfer = nanos(request.len as f64 / self.device.bandwidth_mb_s);
        self.transfers_end = begin.max(self.transfers_end).saturating_add(transfer);
        self.transfers_end.saturating_add(nanos(latency + moving))
    }

    /// Seek and rotation, in microseconds. A short gap ahead is passed by
    /// reading over it when that is faster.
    fn seek_us(&self, seek: &Seek, request: &Request) -> f64 {
        let distance = request.offset.abs_diff(self.head) as f64;
        if distance == 0.0 {
            return 0.0;
        }
        let arm = (distance / self.capacity.max(1) as f64).sqrt();
        let arm = seek.settle_us + (seek.full_stroke_us - seek.settle_us) * arm;
        let moved = arm + seek.half_turn_us();
        if request.offset < self.head {
            return moved;
        }
        moved.min(distance / self.device.bandwidth_mb_s)
    }
}

impl Seek {
    /// Half a revolution, in microseconds.
    pub fn half_turn_us(&self) -> f64 {
        30e6 / self.rpm
    }
}

/// Microseconds as whole nanoseconds; out of range saturates.
fn nanos(us: f64) -> Nanos {
    (us * 1000.0).round() as Nanos
}

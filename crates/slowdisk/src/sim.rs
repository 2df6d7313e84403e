//! What a model says about a load: a closed loop in virtual time.
//!
//! Measurements of the real device are compared with this, so that both see
//! the very same requests.

use crate::model::Device;
use crate::sched::{Nanos, Request, Scheduler};

/// How a load went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Each request's time, in the order of completion.
    pub latencies: Vec<Nanos>,
    /// From the first arrival to the last completion.
    pub elapsed: Nanos,
}

impl Run {
    /// The mean time of a request in nanoseconds; 0 without requests.
    pub fn mean_latency(&self) -> f64 {
        self.latencies.iter().sum::<Nanos>() as f64 / self.latencies.len().max(1) as f64
    }

    /// Requests a second; 0 when no time passed.
    pub fn requests_per_s(&self) -> f64 {
        if self.elapsed == 0 {
            return 0.0;
        }
        self.latencies.len() as f64 * 1e9 / self.elapsed as f64
    }
}

/// Runs `requests` in order with `clients` that each send the next one the
/// moment their last is answered.
pub fn closed_loop(device: &Device, capacity: u64, clients: usize, requests: &[Request]) -> Run {
    let mut scheduler = Scheduler::new(device.clone(), capacity);
    let mut next = requests.iter();
    for request in next.by_ref().take(clients) {
        scheduler.arrive(0, *request, ());
    }
    let mut run = Run { latencies: Vec::with_capacity(requests.len()), elapsed: 0 };
    while let Some(done) = scheduler.complete(Nanos::MAX) {
        run.latencies.push(done.due - done.arrived);
        run.elapsed = done.due;
        if let Some(request) = next.next() {
            scheduler.arrive(done.due, *request, ());
        }
    }
    run
}

/// `count` reads of `len` bytes at places of the disk that are multiples of
/// `len`, drawn at random but always the same for the same `seed`.
pub fn random_reads(capacity: u64, len: u64, count: usize, seed: u64) -> Vec<Request> {
    let places = (capacity / len).max(1);
    let mut state = seed;
    let draw = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        Request::read(splitmix(state) % places * len, len)
    };
    std::iter::repeat_with(draw).take(count).collect()
}

/// `count` reads of `len` bytes one behind the other, from the start again at
/// the end of the disk.
pub fn sequential_reads(capacity: u64, len: u64, count: usize) -> Vec<Request> {
    let places = (capacity / len).max(1);
    (0..count as u64).map(|i| Request::read(i % places * len, len)).collect()
}

/// `count` reads of `len` bytes in turn at the start and `distance` further.
pub fn alternating_reads(distance: u64, len: u64, count: usize) -> Vec<Request> {
    (0..count as u64).map(|i| Request::read(i % 2 * distance, len)).collect()
}

/// The mixing step of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
fn splitmix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

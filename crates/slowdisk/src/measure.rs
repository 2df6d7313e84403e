//! Reads from the real device, past the page cache: what the overhead is,
//! and whether it is as slow as its model.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use rustix::fs::OFlags;
use serde::Serialize;

use crate::engine::Overhead;
use crate::error::{Error, Result};
use crate::load;
use crate::model::Device;
use crate::sched::{Nanos, Request};
use crate::sim::{self, Run, alternating_reads, random_reads, sequential_reads};

const PAGE: u64 = 4096;
/// Direct I/O is aligned to this; enough for every device.
const ALIGN: usize = 4096;
/// How often the overhead is measured again with the last one taken off.
const PROBES: usize = 3;
/// Each of these probes takes about so long …
const PROBE_US: f64 = 75_000.0;
/// … and not more than so long for each read.
const LONGEST_PROBE_US: f64 = 5000.0;
/// More requests than any model answers in the time for one figure.
const PLENTY: usize = 100_000;
/// Bandwidth is measured with reads of this size: larger ones the block layer
/// may split, as a request has at most 128 segments.
const LARGE: u64 = 512 << 10;
/// Each figure takes about so long.
const TARGET_NS: f64 = 1e9;

/// Runs `requests`, all of them reads, as [`sim::closed_loop`] does, but on
/// the real device.
///
/// # Errors
/// When the device cannot be opened or read.
pub fn closed_loop(device: &Path, clients: usize, requests: &[Request]) -> Result<Run> {
    let flags = OFlags::DIRECT.bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(device);
    let file = file.map_err(Error::io("open", device))?;
    let next = AtomicUsize::new(0);
    let start = Instant::now();
    let client = || -> std::io::Result<Vec<Nanos>> {
        let largest = requests.iter().map(|r| r.len as usize).max().unwrap_or(0);
        let mut memory = vec![0u8; largest + ALIGN];
        let skip = memory.as_ptr().align_offset(ALIGN).min(ALIGN);
        let mut latencies = Vec::new();
        while let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
            let buffer = &mut memory[skip..skip + request.len as usize];
            let sent = Instant::now();
            file.read_exact_at(buffer, request.offset)?;
            latencies.push(sent.elapsed().as_nanos() as Nanos);
        }
        Ok(latencies)
    };
    let mut run = Run { latencies: Vec::with_capacity(requests.len()), elapsed: 0 };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        for client in clients {
            let latencies = client.join().unwrap_or_else(|panic| resume_unwind(panic));
            run.latencies.extend(latencies.map_err(Error::io("read", device))?);
        }
        Ok::<_, Error>(())
    })?;
    run.elapsed = start.elapsed().as_nanos() as Nanos;
    Ok(run)
}

/// The mean of all but the tenth that took longest: a moment of load does not
/// count.
fn settled_mean(mut values: Vec<Nanos>) -> f64 {
    values.sort_unstable();
    values.truncate((values.len() * 9).div_ceil(10));
    values.iter().sum::<Nanos>() as f64 / values.len().max(1) as f64
}

/// Measures the overhead of a device that is to be as slow as `model`;
/// `shape` makes it one of that kind.
///
/// It depends on how long the CPU sleeps between question and answer:
/// so the device is given the model's latency, the overhead found so far taken
/// off, until the latency comes out right.
///
/// # Errors
/// When the device cannot be read or shaped.
pub fn overhead(
    path: &Path,
    capacity: u64,
    model: &Device,
    shape: impl Fn(Device, Overhead) -> Result<()>,
) -> Result<Overhead> {
    let moving = model.seek.as_ref().map_or(0.0, |seek| seek.settle_us + seek.half_turn_us());
    let latency_us = (model.read_latency_us + moving).min(LONGEST_PROBE_US);
    let probe = Device {
        read_latency_us: latency_us,
        bandwidth_mb_s: 1e6,
        iops: None,
        seek: None,
        ..model.clone()
    };
    let count = (PROBE_US / latency_us).clamp(30.0, 400.0) as usize;
    let excess = |len: u64, overhead: Overhead| {
        shape(probe.clone(), overhead)?;
        let mut run = closed_loop(path, 1, &random_reads(capacity, len, count, len))?;
        // The first reads find cold code.
        let settled = run.latencies.split_off(count / 10);
        Ok::<_, Error>(settled_mean(settled) - latency_us * 1000.0)
    };
    let mut overhead = Overhead::default();
    for _ in 0..PROBES {
        let found = overhead.fixed_ns + excess(PAGE, overhead)?;
        // More than there is cannot be taken off.
        overhead.fixed_ns = found.clamp(0.0, latency_us * 1000.0);
    }
    let large = (64 * PAGE).min(capacity);
    let kib = (large - PAGE.min(capacity)) as f64 / 1024.0;
    overhead.per_kib_ns = (excess(large, overhead)? / kib.max(1.0)).max(0.0);
    overhead.fixed_ns = (overhead.fixed_ns - 4.0 * overhead.per_kib_ns).max(0.0);
    Ok(overhead)
}

/// A figure as the model has it and as it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What it is, with its unit.
    pub name: String,
    /// By the model, in virtual time.
    pub modelled: f64,
    /// On the device.
    pub measured: f64,
    /// The share by which it may be off.
    pub tolerance: f64,
    /// The share of the CPUs' time that was idle meanwhile.
    pub idle: f64,
}

impl Figure {
    /// The share by which the measured value is off the modelled one.
    pub fn error(&self) -> f64 {
        self.measured / self.modelled - 1.0
    }

    /// Whether it is within its tolerance.
    pub fn holds(&self) -> bool {
        self.error().abs() <= self.tolerance
    }

    /// Whether the load took all CPUs, so that a rate below the model's says nothing of the disk.
    pub fn is_cpu_bound(&self) -> bool {
        self.idle < load::IDLE && self.error() < 0.0
    }
}

/// A load, and what of it is looked at.
#[derive(Debug)]
pub struct Load {
    name: String,
    clients: usize,
    requests: Vec<Request>,
    value: fn(&Run, &[Request]) -> f64,
}

/// The loads that show whether a disk of `capacity` bytes is as its model:
/// latency at depth 1, throughput at depth 32, bandwidth, and with moving
/// parts three moves of known length.
pub fn loads(device: &Device, capacity: u64) -> Vec<Load> {
    let load = |name: &str, clients, value, requests| Load {
        name: name.to_owned(),
        clients,
        requests,
        value,
    };
    let large = LARGE.min(capacity);
    let mut loads = vec![
        load("latency, depth 1, us", 1, latency_us, random_reads(capacity, PAGE, PLENTY, 1)),
        load("4 KiB reads/s, depth 32", 32, per_second, random_reads(capacity, PAGE, PLENTY, 2)),
        load(
            "512 KiB reads in order, MB/s",
            4,
            mb_per_s,
            sequential_reads(capacity, large, PLENTY),
        ),
    ];
    for percent in [1, 10, 90].into_iter().filter(|_| device.seek.is_some()) {
        let distance = capacity / 100 * percent / PAGE * PAGE;
        let name = format!("move over {percent} % of the disk, us");
        loads.push(load(&name, 1, latency_us, alternating_reads(distance, PAGE, PLENTY)));
    }
    // As many requests as fit into the time for one figure.
    for load in &mut loads {
        let run = sim::closed_loop(device, capacity, load.clients, &load.requests);
        let fits = TARGET_NS * run.latencies.len() as f64 / run.elapsed.max(1) as f64;
        let least = 4 * load.clients;
        load.requests.truncate((fits as usize).max(least));
    }
    loads
}

fn latency_us(run: &Run, _: &[Request]) -> f64 {
    run.mean_latency() / 1000.0
}

fn per_second(run: &Run, _: &[Request]) -> f64 {
    run.requests_per_s()
}

fn mb_per_s(run: &Run, requests: &[Request]) -> f64 {
    let bytes: u64 = requests.iter().map(|r| r.len).sum();
    bytes as f64 / 1e6 / (run.elapsed.max(1) as f64 / 1e9)
}

impl Load {
    /// Puts the load on the real device and on the model.
    ///
    /// # Errors
    /// When the device cannot be read.
    pub fn measure(&self, path: &Path, device: &Device, capacity: u64) -> Result<Figure> {
        let modelled = sim::closed_loop(device, capacity, self.clients, &self.requests);
        let before = load::cpu_ticks()?;
        let measured = closed_loop(path, self.clients, &self.requests)?;
        let idle = load::idle_share(before, load::cpu_ticks()?);
        // A short latency by itself cannot be held as well.
        let short = self.clients == 1 && modelled.mean_latency() < 1e6;
        let tolerance = if short { 0.15 } else { 0.05 };
        let value = |run: &Run| (self.value)(run, &self.requests);
        let (modelled, measured) = (value(&modelled), value(&measured));
        Ok(Figure { name: self.name.clone(), modelled, measured, tolerance, idle })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    const GIB: u64 = 1 << 30;

    #[test]
    fn every_load_takes_about_a_second_of_the_models_time() {
        for name in ["hdd", "emmc", "sata-ssd", "cloud", "cloud-lazy"] {
            let device = Model::find(name).unwrap().device.unwrap();
            let loads = loads(&device, GIB);
            assert_eq!(loads.len(), if name == "hdd" { 6 } else { 3 });
            for load in loads {
                let run = sim::closed_loop(&device, GIB, load.clients, &load.requests);
                let seconds = run.elapsed as f64 / 1e9;
                assert!((0.9..1.1).contains(&seconds), "{name}: {}: {seconds} s", load.name);
            }
        }
    }

    #[test]
    fn a_figure_holds_on_either_side_of_its_model() {
        let figure = |measured, idle| Figure {
            name: String::new(),
            modelled: 100.0,
            measured,
            tolerance: 0.05,
            idle,
        };
        for (measured, holds) in [(94.0, false), (96.0, true), (104.0, true), (106.0, false)] {
            assert_eq!(figure(measured, 0.5).holds(), holds, "{measured}");
        }
        for (idle, expected) in [(0.0, true), (0.09, true), (0.11, false), (1.0, false)] {
            assert_eq!(figure(90.0, idle).is_cpu_bound(), expected, "{idle}");
            assert!(!figure(110.0, idle).is_cpu_bound(), "{idle}");
        }
    }

    #[test]
    fn the_slowest_tenth_does_not_count() {
        assert_eq!(settled_mean(vec![5, 1_000_000, 4, 6, 5, 5, 5, 5, 5, 5]), 5.0);
        assert_eq!(settled_mean(vec![7]), 7.0);
        assert_eq!(settled_mean(Vec::new()), 0.0);
    }
}

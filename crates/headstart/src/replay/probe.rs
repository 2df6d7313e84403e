//! Measures a block device by reading a few blocks past the page cache. The driver. It takes at
//! most [`LIMIT`], and what is under way then; one pair of reads and one large read are always made.

use super::model::{self, Model};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long it takes at most.
pub const LIMIT: Duration = Duration::from_millis(600);

/// A block, and what direct reads are aligned to on every device.
const BLOCK: usize = model::BLOCK as usize;
/// A large read.
const LARGE: usize = 2 << 20;
/// At most so many of them.
const LARGE_READS: usize = 8;
/// From the third on, none begins later than this after the first.
const LARGE_SPAN: Duration = Duration::from_millis(150);
/// Pairs of reads: one at a random position, and the next one behind it.
const PAIRS: usize = 8;
/// The queue depths that are tried.
const DEPTHS: [u32; 3] = [4, 16, 64];
/// How long each of them is tried at least.
const SPAN: Duration = Duration::from_millis(30);
/// The same at most.
const LONGEST_SPAN: Duration = Duration::from_millis(80);
/// The same in latencies, between these: a device that answers late must answer several times as many reads as it has
/// in work.
const SPAN_LATENCIES: u32 = 16;
/// No pair begins after this part of the time.
const PAIRS_PART: u32 = 3;
/// A measurement is disturbed by more requests of others than this part of its own.
const OTHERS_PART: u64 = 8;
/// This many times the queue depth must be read for a rate in the long run.
const STEADY_DEPTHS: u64 = 4;
/// Throughput that must be gained for a depth to count.
const GAIN: f64 = 1.3;

/// A model, and how many requests it took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probed {
    /// The model.
    pub model: Model,
    /// Reads of a block.
    pub blocks: u64,
    /// Bytes of large reads, which the kernel splits into requests.
    pub large_bytes: u64,
}

impl Probed {
    /// Whether others used the device meanwhile, which has served so many requests, of at most `largest`
    /// bytes: then it looks slower than it is, and a rotational disk like another one. A few do not matter.
    pub fn is_disturbed(&self, served: u64, largest: u64) -> bool {
        let own = self.blocks.saturating_add(self.large_bytes.div_ceil(largest.max(1)));
        served.saturating_sub(own) > own / OTHERS_PART
    }
}

/// Measures the block device at `path`, which takes requests of at most `largest` bytes.
///
/// # Errors
/// It can't be opened, which takes root, or read, or is too small.
pub fn probe(path: &Path, largest: u64) -> io::Result<Probed> {
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let size = file.seek(SeekFrom::End(0))?;
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let counts = || AtomicU64::new(0);
    let device = Device {
        file,
        size,
        places: AtomicU64::new(seed),
        blocks: counts(),
        large_bytes: counts(),
    };
    let model = device.measure(largest)?;
    let Device { blocks, large_bytes, .. } = device;
    Ok(Probed { model, blocks: blocks.into_inner(), large_bytes: large_bytes.into_inner() })
}

struct Device {
    file: File,
    size: u64,
    /// State of the generator of random positions.
    places: AtomicU64,
    /// As in [`Probed`].
    blocks: AtomicU64,
    large_bytes: AtomicU64,
}

impl Device {
    fn measure(&self, largest: u64) -> io::Result<Model> {
        if self.size < 4 * LARGE as u64 {
            return Err(io::Error::other("it is too small to be measured"));
        }
        let mut buffer = Buffer::new(LARGE);
        let began = Instant::now();
        let left = || LIMIT.saturating_sub(began.elapsed());
        let (mut far, mut next) = (Vec::new(), Vec::new());
        for _ in 0..PAIRS {
            let at = self.place();
            far.push(self.time(&mut buffer, BLOCK, at)?);
            next.push(self.time(&mut buffer, BLOCK, at + BLOCK as u64)?);
            if began.elapsed() > LIMIT / PAIRS_PART {
                break;
            }
        }
        let (latency, next) = (median(&mut far), median(&mut next));
        let mut large = Vec::new();
        let first = Instant::now();
        while is_wanted(large.len(), first.elapsed(), !left().is_zero()) {
            large.push(self.time(&mut buffer, LARGE, self.place())?);
        }
        let large = lower_median(&mut large);
        let (mut depth, mut iops) = (1, 1.0 / latency.as_secs_f64());
        let mut most_iops = iops;
        let span = span(latency);
        for tried in DEPTHS {
            let left = left();
            if left < 2 * latency {
                break;
            }
            let found = self.throughput(tried, span.min(left))?;
            most_iops = most_iops.max(found.steady_iops());
            if found.iops() < GAIN * iops {
                break;
            }
            (depth, iops) = (tried, found.iops());
        }
        // With a queue all requests of a large read are under way together.
        let largest = if depth == 1 { largest } else { LARGE as u64 };
        Ok(Model {
            latency_us: micros(latency),
            next_us: micros(next),
            bandwidth_mb_s: bandwidth_mb_s(large, latency, next, largest),
            depth,
            iops: iops.round() as u32,
            most_iops: most_iops.round() as u32,
        })
    }

    /// A random block from which a large read fits.
    fn place(&self) -> u64 {
        // SplitMix64 (Steele, Lea and Flood, 2014).
        let mut z = self.places.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        let blocks = (self.size - LARGE as u64) / BLOCK as u64;
        z % blocks * BLOCK as u64
    }

    fn time(&self, buffer: &mut Buffer, length: usize, at: u64) -> io::Result<Duration> {
        let began = Instant::now();
        self.file.read_exact_at(buffer.first(length), at)?;
        match length {
            BLOCK => self.blocks.fetch_add(1, Relaxed),
            _ => self.large_bytes.fetch_add(length as u64, Relaxed),
        };
        Ok(began.elapsed())
    }

    /// Reads at this queue depth.
    fn throughput(&self, depth: u32, span: Duration) -> io::Result<Throughput> {
        let depth = u64::from(depth);
        let (done, full_us) = (AtomicU64::new(0), AtomicU64::new(0));
        let began = Instant::now();
        let read = || -> io::Result<()> {
            let mut buffer = Buffer::new(BLOCK);
            while began.elapsed() < span {
                self.time(&mut buffer, BLOCK, self.place())?;
                if done.fetch_add(1, Relaxed) + 1 == depth {
                    full_us.store(u64::from(micros(began.elapsed())), Relaxed);
                }
            }
            Ok(())
        };
        thread::scope(|scope| -> io::Result<()> {
            let spawn = || thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, read);
            let threads = (0..depth).map(|_| spawn()).collect::<io::Result<Vec<_>>>()?;
            threads
                .into_iter()
                .try_for_each(|t| t.join().unwrap_or_else(|_| Err(io::Error::other("panicked"))))
        })?;
        let took_us = u64::from(micros(began.elapsed()));
        Ok(Throughput { depth, done: done.into_inner(), full_us: full_us.into_inner(), took_us })
    }
}

/// Reads that kept a queue full. Times from the beginning, in µs.
struct Throughput {
    depth: u64,
    done: u64,
    /// When as many were done as the queue takes.
    full_us: u64,
    took_us: u64,
}

impl Throughput {
    /// Reads per second.
    fn iops(&self) -> f64 {
        self.done as f64 * 1e6 / self.took_us.max(1) as f64
    }

    /// The same in the long run: without the first ones, of which the device answers none for the time
    /// of a latency. Of few reads that tells less.
    fn steady_iops(&self) -> f64 {
        if self.done < STEADY_DEPTHS * self.depth {
            return self.iops();
        }
        let us = self.took_us.saturating_sub(self.full_us).max(1);
        (self.done - self.depth) as f64 * 1e6 / us as f64
    }
}

/// Memory that direct reads can go to.
struct Buffer {
    bytes: Vec<u8>,
    begin: usize,
}

impl Buffer {
    fn new(length: usize) -> Self {
        let bytes = vec![0; length + BLOCK];
        let begin = bytes.as_ptr().align_offset(BLOCK);
        Self { bytes, begin }
    }

    fn first(&mut self, length: usize) -> &mut [u8] {
        &mut self.bytes[self.begin..self.begin + length]
    }
}

/// For how long a depth is tried on a device with this latency.
fn span(latency: Duration) -> Duration {
    latency.saturating_mul(SPAN_LATENCIES).clamp(SPAN, LONGEST_SPAN)
}

/// Whether one more large read is wanted after so many, in this time, and if there is time left.
fn is_wanted(large_reads: usize, elapsed: Duration, has_time: bool) -> bool {
    match large_reads {
        0 => true,
        1 => has_time,
        _ => has_time && large_reads < LARGE_READS && elapsed < LARGE_SPAN,
    }
}

/// The bandwidth if a large read took so long, in requests of at most `largest` bytes one by one: before the transfer
/// there are a seek, if any, and the latencies of all requests, of which those behind the first have `next` with the
/// transfer of a block each.
fn bandwidth_mb_s(large: Duration, latency: Duration, next: Duration, largest: u64) -> u32 {
    let largest = usize::try_from(largest).unwrap_or(LARGE).max(BLOCK);
    let others = LARGE.div_ceil(largest) - 1;
    let waited = latency + next * others as u32;
    let transfer = large.saturating_sub(waited).max(Duration::from_micros(20));
    let bytes = LARGE - others * BLOCK;
    (bytes as f64 / 1e6 / transfer.as_secs_f64()).round() as u32
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Of an even number, the lower of the two in the middle: others only make reads slower.
fn lower_median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_latency_says_nothing_of_the_rate_in_the_long_run() {
        for (name, depth, done, full_us, took_us, iops, steady) in [
            // A start every 333 µs, and a latency of 1500 µs: 4 and 100 of them.
            ("3,000 a second", 4, 100, 2500, 34_500, 2899.0, 3000.0),
            ("four at once each 1500 µs", 4, 80, 1500, 30_000, 2667.0, 2667.0),
            ("few", 16, 63, 9000, 30_000, 2100.0, 2100.0),
            ("none", 4, 0, 0, 0, 0.0, 0.0),
        ] {
            let found = Throughput { depth, done, full_us, took_us };
            assert_eq!(found.iops().round(), iops, "{name}");
            assert_eq!(found.steady_iops().round(), steady, "{name}");
        }
    }

    #[test]
    fn requests_that_are_served_one_by_one_have_a_latency_each() {
        let us = Duration::from_micros;
        // 2 MiB at 150 MB/s take 13,981 µs, a block 27 µs; each request takes 300 µs more.
        for (name, large, latency, next, largest, expected) in [
            ("one request", 300 + 13_981, 327, 327, LARGE, 150),
            ("four", 4 * 300 + 13_981, 327, 327, 512 << 10, 150),
            ("512", 512 * 300 + 13_981, 327, 327, BLOCK, 26),
            ("a size that no device has", 512 * 300 + 13_981, 327, 327, 0, 26),
            ("behind a seek", 8500 + 3 * 100 + 20_972, 8541, 141, 512 << 10, 100),
            ("no time is left", 100, 327, 327, 512 << 10, 104_243),
        ] {
            let found = bandwidth_mb_s(us(large), us(latency), us(next), largest as u64);
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn a_depth_is_tried_for_some_latencies() {
        for (latency_us, expected_us) in [(80, 30_000), (4700, 75_200), (20_000, 80_000)] {
            assert_eq!(span(Duration::from_micros(latency_us)).as_micros(), expected_us);
        }
    }

    #[test]
    fn there_are_two_large_reads_and_more_while_they_are_fast() {
        let ms = Duration::from_millis;
        for (reads, elapsed, has_time, expected) in [
            (0, 0, false, true),
            (1, 400, true, true),
            (1, 400, false, false),
            (2, 149, true, true),
            (2, 150, true, false),
            (2, 10, false, false),
            (7, 10, true, true),
            (8, 10, true, false),
        ] {
            assert_eq!(is_wanted(reads, ms(elapsed), has_time), expected, "{reads} {elapsed}");
        }
    }

    #[test]
    fn of_two_large_reads_the_faster_counts_and_of_more_the_middle_one() {
        let us = |list: &[u64]| list.iter().copied().map(Duration::from_micros).collect::<Vec<_>>();
        for (times, expected) in
            [(&[][..], 0), (&[5], 5), (&[9, 5], 5), (&[9, 1, 5], 5), (&[7, 1, 9, 5], 5)]
        {
            assert_eq!(lower_median(&mut us(times)).as_micros(), expected, "{times:?}");
        }
    }

    #[test]
    fn a_measurement_is_disturbed_by_more_than_a_few_requests_of_others() {
        let model = Model::of(1, 2, 3, 4, 5);
        let probed = Probed { model, blocks: 72, large_bytes: 2 * LARGE as u64 };
        for (served, largest, expected) in [
            // 8 large requests, 10 of others.
            (80, 512 << 10, false),
            (90, 512 << 10, false),
            (91, 512 << 10, true),
            // Two are one to the device, and 32.
            (80, LARGE as u64, false),
            (104, 128 << 10, false),
            (200, 128 << 10, true),
            // A device that does not count.
            (0, 0, false),
        ] {
            assert_eq!(probed.is_disturbed(served, largest), expected, "{served} {largest}");
        }
    }
}

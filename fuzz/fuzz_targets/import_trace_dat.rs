//! Files of trace-cmd: no panic, memory bounded by their length, and the same sums everywhere.
#![no_main]

use headstart_fuzz::{IMPORT_SLACK, check_import};
use headstart_import::detect::Format;
use headstart_import::trace_dat::faults::count;
use headstart_sys::counting::{Counting, peak_of};
use libfuzzer_sys::fuzz_target;

/// Sections and chunks that a small file may have.
const UNPACKED: usize = 1 << 20;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(|data: &[u8]| {
    check_import(data, Format::TraceDat, UNPACKED);
    let (counts, peak) = peak_of(|| count(data));
    assert!(peak <= 16 * data.len() + IMPORT_SLACK + UNPACKED, "{peak} bytes for {}", data.len());
    let Ok(counts) = counts else { return };
    assert_eq!(counts.kinds.hits.count + counts.kinds.reads.count, counts.faults.count);
    assert_eq!(counts.latencies.iter().map(|sum| sum.count).sum::<u64>(), counts.faults.count);
    let by_thread = counts.threads.iter().map(|(_, _, kinds)| kinds.hits.count + kinds.reads.count);
    assert_eq!(by_thread.sum::<u64>(), counts.faults.count);
});

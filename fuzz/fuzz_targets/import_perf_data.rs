//! Files of perf: no panic, and memory bounded by their length, of accesses and of faults.
#![no_main]

use headstart_fuzz::{IMPORT_SLACK, check_import};
use headstart_import::detect::Format;
use headstart_import::perf_data::faults::count;
use headstart_sys::counting::{Counting, peak_of};
use libfuzzer_sys::fuzz_target;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What a small file may unpack to, and copies of its mappings.
const SMALL: usize = 1 << 20;

fuzz_target!(|data: &[u8]| {
    check_import(data, Format::PerfData, SMALL);
    let (faults, peak) = peak_of(|| count(data));
    assert!(peak <= 16 * data.len() + IMPORT_SLACK + SMALL, "{peak} bytes for {}", data.len());
    if let Ok(faults) = faults {
        assert!(faults.recording.faults.len() as u64 <= data.len() as u64);
    }
});

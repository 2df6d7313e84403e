//! Files of perf: no panic, and memory bounded by their length, but for processes, each of which has
//! a copy of its parent's mappings.
#![no_main]

use headstart_fuzz::check_import;
use headstart_import::detect::Format;
use headstart_import::perf_data::faults::count;
use headstart_sys::counting::Counting;
use libfuzzer_sys::fuzz_target;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(|data: &[u8]| {
    // Each fork is a record of 32 bytes, and copies what all records may have mapped.
    let forks = data.windows(4).filter(|kind| *kind == 7u32.to_ne_bytes()).count();
    check_import(data, Format::PerfData, (1 << 20) + 32 * data.len() * (1 + forks));
    if let Ok(faults) = count(data) {
        assert!(faults.recording.faults.len() as u64 <= data.len() as u64);
    }
});

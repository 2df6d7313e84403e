//! Logs of strace: no panic, and memory bounded by their length.
#![no_main]

use headstart_fuzz::check_import;
use headstart_import::detect::Format;
use headstart_sys::counting::Counting;
use libfuzzer_sys::fuzz_target;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(|data: &[u8]| {
    check_import(data, Format::Strace, 0);
});

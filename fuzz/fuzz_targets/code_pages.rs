//! The begin of an ELF file: of code only what has a begin and an end is told.
#![no_main]

use headstart::profile::code::code_in;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for range in code_in(data, 4096) {
        assert!(range.start <= range.end);
    }
});

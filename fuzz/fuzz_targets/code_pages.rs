//! The first bytes of an ELF file: each range of code pages has an end that is not before its start.
#![no_main]

use headstart::profile::code::code_in;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for range in code_in(data, 4096) {
        assert!(range.first <= range.end);
    }
});

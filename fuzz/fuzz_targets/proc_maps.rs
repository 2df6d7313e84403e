//! `/proc/PID/maps`.
#![no_main]

use headstart::host::maps::{mapped, mapped_files, with_newlines};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let lines = data.split(|byte| *byte == b'\n').count();
    let mut files = 0;
    for file in mapped_files(data) {
        files += 1;
        assert!(file.path.starts_with(b"/") && !file.path.contains(&b'\n'));
        if let Some(name) = with_newlines(file.path) {
            assert!(name.len() < file.path.len() && name.contains(&b'\n'));
        }
    }
    assert!(files <= mapped(data).count() && mapped(data).count() <= lines);
});

//! What systemd answers over its socket.
#![no_main]

use headstart::boot::systemd::message::{START, answer, length};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if answer(data).is_some() {
        let start = *data.first_chunk::<START>().unwrap();
        assert_eq!(length(start), Some(data.len()));
    }
});

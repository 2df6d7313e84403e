//! A session file of logind, and `/proc/PID/cgroup`.
#![no_main]

use headstart::boot::logins::login;
use headstart::service::members::belongs;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if login(text).is_some() {
        assert!(text.contains("CLASS=") && text.contains("MONOTONIC="));
    }
    if belongs(text, "web.service") == Some(true) {
        assert!(text.contains("web.service"));
    }
});

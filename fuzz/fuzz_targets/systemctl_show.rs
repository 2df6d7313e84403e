//! What `systemctl show` answers.
#![no_main]

use headstart::boot::systemd::blocks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(answer) = std::str::from_utf8(data) else { return };
    let found: Vec<_> = blocks(answer, "ActiveEnterTimestampMonotonic").collect();
    assert!(!found.is_empty() && found.len() <= answer.len() + 1);
    assert!(found.iter().flatten().all(|at| *at > 0));
});

//! A record in the history of boots, as `headstart boot status` adds it up.
#![no_main]

use headstart::boot::history::{Gain, file_name, number, parse, rotate};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(name) = std::str::from_utf8(data)
        && let Some(found) = number(name)
    {
        assert_eq!(number(&file_name(found)), Some(found));
        let (next, gone) = rotate(vec![found]);
        assert!(next > found || found == u64::MAX);
        assert!(gone.is_empty());
    }
    let Some(record) = parse(data) else { return };
    let _ = (record.outcome().ready_share(), record.prefetched_bytes());
    let mut without = record.clone();
    without.replayed = !record.replayed;
    let known = record.default_target_ms.is_some();
    assert_eq!(Gain::of(&[record.clone(), without]).is_some(), known);
    assert!(Gain::of(&[record]).is_none());
});

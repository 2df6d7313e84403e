//! What `systemctl show` tells of units.
#![no_main]

use headstart::boot::unit_times::{MOST, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let answer = String::from_utf8_lossy(data);
    let began = data.len() as u64;
    let (units, skipped) = parse(&answer, began);
    assert!(units.len() <= MOST && (skipped == 0 || units.len() == MOST));
    assert!(units.is_sorted_by_key(|unit| unit.began()));
    for (unit, end) in units.iter().zip((0..).map(|i: u64| i.wrapping_mul(began << 9))) {
        assert!((1..256).contains(&unit.name.len()));
        if let Some(bar) = unit.bar(end) {
            assert!(bar.from <= bar.active && bar.active <= bar.deactivating);
            assert!(bar.deactivating <= bar.to && bar.to <= end);
        }
    }
});

//! `/etc/headstart/boot.conf`, and when its phases were.
#![no_main]

use headstart::boot::phases::{Moments, is_name, spans, with_config};
use headstart::boot::systemd::units_of;
use libfuzzer_sys::fuzz_target;
use std::collections::HashSet;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(phases) = with_config(text) else { return };
    // Names become those of files.
    assert!(phases.iter().all(|phase| is_name(&phase.name)));
    let names: HashSet<_> = phases.iter().map(|phase| &phase.name).collect();
    assert_eq!(names.len(), phases.len());
    let units = units_of(&phases);
    assert!(units.iter().all(|unit| !unit.starts_with('-')));
    let at =
        |(number, unit): (usize, &&str)| ((*unit).to_owned(), data[number % data.len()].into());
    let units = if data.is_empty() {
        Default::default()
    } else {
        units.iter().enumerate().map(at).collect()
    };
    let moments = Moments { began: 0, user_space: Some(3), units, session: Some(200) };
    let spans = spans(&phases, &moments);
    let over: Vec<_> = spans.iter().flatten().collect();
    assert!(over.iter().all(|span| span.begin <= span.end));
    assert!(over.windows(2).all(|two| two[0].end <= two[1].begin));
});

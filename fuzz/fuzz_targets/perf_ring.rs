//! Rings of perf events: no panic, bounded memory, and each begin is one fault.
#![no_main]

use headstart_faults::csv;
use headstart_faults::merge::Merged;
use headstart_faults::record::{Event, Layout, Records, What};
use headstart_faults::recorder::Recorder;
use headstart_faults::tables::{SectionsOf, Tables};
use headstart_fuzz::split;
use headstart_sys::counting::{Counting, peak_of};
use libfuzzer_sys::fuzz_target;
use std::collections::HashMap;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(|data: &[u8]| {
    let Some((flags, data)) = data.split_first() else { return };
    let events = HashMap::from([(1, Event::Begin), (2, Event::MinorEnd), (3, Event::MajorEnd)]);
    let (begins_have_pages, ends_have_pages) = (flags & 1 != 0, flags & 4 == 0);
    let layout = Layout { events, begins_have_pages, ends_have_pages };
    let (a, b) = split(data);
    let rings = [a.to_vec(), b.to_vec()];
    let records = || rings.iter().flat_map(|ring| Records::new(ring, &layout));
    let begins = records().filter(|record| matches!(record.what, What::Begin { .. })).count();
    let forks = records().filter(|record| matches!(record.what, What::Start { .. })).count();
    let mut merged = Merged::new(&rings, &layout);
    let since = records().next().map_or(0, |record| record.time);
    let mut recorder =
        if flags & 2 != 0 { Recorder::of_program(1) } else { Recorder::of_running(1, since) };
    let (recording, peak) = peak_of(|| {
        merged.by_ref().for_each(|record| recorder.add(record));
        recorder.finish()
    });
    // A copy of an address space for each fork, of mappings that take 80 bytes of records each.
    let most = 32 * data.len() + forks * data.len() * 2 + 65536;
    assert!(peak <= most, "{peak} bytes for {}", data.len());
    let before = recording.unlisted;
    let listed = recording.faults.len() as u64;
    assert_eq!(
        listed + before.minor_before + before.major_before + before.unended_before + before.early,
        begins as u64
    );
    let tables = Tables::of(&recording, &SectionsOf::new());
    let total = tables.total;
    assert_eq!(total.minor.count + total.major.count + total.unended + total.end_lost, listed);
    let mut rows = String::new();
    for fault in &recording.faults {
        csv::row(&mut rows, &recording, &SectionsOf::new(), 0, fault);
    }
    assert_eq!(rows.lines().count() as u64, listed);
});

//! Rings of perf events: no panic, bounded memory, each begin is one fault, and the parts of the time of
//! each thread are all of it.
#![no_main]

use headstart::trace::format::parse_event;
use headstart_faults::csv;
use headstart_faults::merge::Merged;
use headstart_faults::points::{Fields, Point};
use headstart_faults::record::{Event, Layout, Records, What};
use headstart_faults::recorder::Recorder;
use headstart_faults::tables::{SectionsOf, Tables};
use headstart_faults::waits::Wait;
use headstart_faults::waits::sums::Sums;
use headstart_fuzz::split;
use headstart_sys::counting::{Counting, peak_of};
use libfuzzer_sys::fuzz_target;
use std::collections::HashMap;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Names, offsets and sizes of the fields of tracepoints, as Linux 6.18 has them.
type FieldsOf = &'static [(&'static str, usize, usize)];
const POINTS: [(Point, FieldsOf); 8] = [
    (Point::Enter, &[("id", 8, 8), ("args[6]", 16, 48)]),
    (Point::Return, &[("id", 8, 8), ("ret", 16, 8)]),
    (
        Point::Switch,
        &[
            ("prev_pid", 24, 4),
            ("prev_state", 32, 8),
            ("next_comm[16]", 40, 16),
            ("next_pid", 56, 4),
        ],
    ),
    (Point::Waking, &[("common_flags", 2, 1), ("pid", 24, 4)]),
    (Point::Issue, &[("dev", 8, 4), ("sector", 16, 8), ("bytes", 28, 4), ("rwbs[10]", 34, 10)]),
    (Point::Complete, &[("dev", 8, 4), ("sector", 16, 8)]),
    (Point::Pages, &[("i_ino", 8, 8), ("s_dev", 16, 4), ("index", 24, 8)]),
    (Point::Added, &[("i_ino", 16, 8), ("s_dev", 32, 4), ("index", 24, 8)]),
];

fn fields_of(point: Point, fields: FieldsOf) -> Fields {
    let lines: String = fields
        .iter()
        .map(|(name, at, size)| format!("\tfield:x {name};\toffset:{at};\tsize:{size};\n"))
        .collect();
    let format = parse_event(&format!("name: x\nID: 7\nformat:\n{lines}")).unwrap();
    Fields::new(point, &format).unwrap()
}

fuzz_target!(|data: &[u8]| {
    let Some((flags, data)) = data.split_first() else { return };
    let mut events = HashMap::from([(1, Event::Begin), (2, Event::MinorEnd), (3, Event::MajorEnd)]);
    events.extend(POINTS.iter().zip(4..).map(|((point, _), id)| (id, Event::Point(*point))));
    let points = POINTS.iter().map(|(point, fields)| (*point, fields_of(*point, fields))).collect();
    let (begins_have_pages, ends_have_pages) = (flags & 1 != 0, flags & 4 == 0);
    let layout = Layout { events, begins_have_pages, ends_have_pages, points, page: 4096 };
    let (a, b) = split(data);
    let rings = [a.to_vec(), b.to_vec()];
    let records = || rings.iter().flat_map(|ring| Records::new(ring, &layout));
    let begins = records().filter(|record| matches!(record.what, What::Begin { .. })).count();
    let forks = records().filter(|record| matches!(record.what, What::Start { .. })).count();
    let mut merged = Merged::new(&rings, &layout);
    let since = records().next().map_or(0, |record| record.time);
    let mut recorder =
        if flags & 2 != 0 { Recorder::of_program(1) } else { Recorder::of_running(1, since) };
    if flags & 8 != 0 {
        recorder = recorder.with_waits();
    }
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
    if let Some(waits) = &recording.waits {
        for life in &waits.lives {
            let own = waits.waits.iter().filter(|wait| wait.thread == life.thread);
            let waited: u64 = own.map(Wait::ns).sum();
            assert_eq!(life.end - life.start, life.cpu_ns() + life.unkept_ns + waited);
        }
        Sums::of(&recording, waits, 1);
    }
    let mut rows = String::new();
    for fault in &recording.faults {
        csv::row(&mut rows, &recording, &SectionsOf::new(), 0, fault);
    }
    assert_eq!(rows.lines().count() as u64, listed);
});

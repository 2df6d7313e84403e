//! All builders: what their pictures hold, and that any input makes a sound one.

use super::accesses::{Access, Accesses, How, Place};
use super::device::{Device, Direction, Request};
use super::runs::{Interval, State};
use super::sound::check;
use super::{before_after, boot, last_run, read_back, recording, runs};
use crate::picture::{Picture, Subject, Y};
use crate::render::svg::svg;
use headstart::boot::analysis::Analysis;
use headstart::boot::bins::{Bins, Row};
use headstart::boot::history::{BootRecord, PhaseRecord};
use headstart::boot::timeline::Timeline;
use headstart::boot::unit_times::UnitTimes;
use headstart::outcome::last_run::{FileRun, LastRun, OverTime, PageClass, RangeRun};
use proptest::prelude::*;
use std::path::Path;

const HOSTILE: &str = "</script><script>alert(1)</script>\u{202e}\n\"'&";

fn access(time_ns: u64, latency_ns: u64, how: How, place: u32, offset: u64) -> Access {
    Access { time_ns, latency_ns, how, place, part: place, offset, owner: 0 }
}

fn started() -> Accesses {
    Accesses {
        title: HOSTILE.into(),
        called: "faults".into(),
        length_ns: 9_000,
        page_size: 4096,
        places: vec![
            Place { name: "/late".into(), bands: Vec::new() },
            Place {
                name: HOSTILE.into(),
                bands: vec![(0x1000, 0x3000, ".text".into()), (0x2000, 0x9000, ".data".into())],
            },
            Place { name: "/unused".into(), bands: Vec::new() },
        ],
        parts: vec!["/late rw-p".into(), "r-xp".into()],
        owners: vec!["thread".into()],
        events: vec![
            access(100, 50, How::Minor, 1, 0x3010),
            access(300, 7_000, How::Waited, 1, 0x1008),
            access(400, 10, How::Minor, 0, 0x5000),
            access(500, 0, How::Unended, 1, 0x4000),
            access(600, 1, How::Minor, 7, 0),
        ],
        ..Accesses::default()
    }
}

fn titles(picture: &Picture) -> Vec<&str> {
    picture.views.iter().map(|view| view.title.as_str()).collect()
}

fn column(picture: &Picture, number: usize) -> &[u64] {
    &picture.frames[0].columns[number].values
}

fn bands(subject: &Subject) -> Vec<(f64, f64, &str)> {
    subject.panels[0].bands.iter().map(|band| (band.from, band.to, band.name.as_str())).collect()
}

#[test]
fn accesses_have_lanes_by_first_access_sections_as_bands_and_their_direction() {
    let picture = recording::picture(&started(), &[]);
    check(&picture);
    assert_eq!(titles(&picture), ["All files", "One file", "One mapping"]);
    assert_eq!(column(&picture, 2), [0, 0, 1, 0], "what is accessed first is the first lane");
    assert_eq!(column(&picture, 3), [3, 1, 5, 4], "in pages");
    assert_eq!(column(&picture, 4), [0, 3, 0, 1], "minor, waited, minor, no end");
    assert_eq!(column(&picture, 7), [4, 7, 4, 4], "only the second goes back, and waits");
    let files = &picture.views[1].subjects;
    assert_eq!(files.len(), 2, "a file without accesses is not shown");
    assert!(files[0].name.as_str().starts_with("</script>"), "the one that took longest is first");
    let sections = [(4096.0, 12288.0, ".text"), (12288.0, 20480.0, ".data")];
    assert_eq!(bands(&files[0]), sections, "they do not overlap, and end with the axis");
    assert_eq!(files[0].summary.as_str(), "3 faults, 1 of them waited; 7.05 µs in all");
    let mapping = &picture.views[2].subjects[0];
    assert_eq!(mapping.x_high, Some(3.0), "one step for each access");
    assert!(mapping.summary.as_str().ends_with("1 of 2 steps go backwards"), "{}", mapping.summary);
    let said = picture.summary.last().unwrap();
    assert_eq!(said.as_str(), "1 faults have no place and are not drawn.");
}

#[test]
fn of_very_many_files_those_that_took_longest_have_lanes_and_the_others_are_counted() {
    let count = 5_000u32;
    let mut many = started();
    many.places = (0..count).map(|n| Place { name: format!("/{n}"), bands: Vec::new() }).collect();
    many.parts = many.places.iter().map(|place| place.name.clone()).collect();
    let took = |n| if n == 4_321 { 5_000 } else { 10 };
    many.events = (0..count).map(|n| access(u64::from(n), took(n), How::Minor, n, 0)).collect();
    let picture = recording::picture(&many, &[]);
    check(&picture);
    let lanes = &picture.frames[0].columns[2].labels;
    assert_eq!((lanes.len(), lanes[4_000].as_str()), (4_001, "all others"));
    let files = &picture.views[1];
    assert_eq!(files.subjects[0].name.as_str(), "/4321", "one access, but the longest");
    assert!(
        files.help.as_str().ends_with("Of 5,000 files, the 400 that took longest can be shown.")
    );
    let table = &picture.tables[0];
    assert_eq!(table.rows.len() as u64 + table.skipped, 5_000);
}

#[test]
fn an_image_of_very_many_accesses_stays_small() {
    let mut many = started();
    let scattered = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    many.length_ns = 1 << 30;
    many.events = (0..200_000)
        .map(|n| {
            access(n << 12, scattered(n) & 0xfff, How::Minor, (n & 1) as u32, scattered(n) << 4)
        })
        .collect();
    let image = svg(&recording::picture(&many, &[]));
    assert!(image.len() < 90_000, "{}", image.len());
}

#[test]
fn a_device_that_is_hardly_used_has_an_axis_up_to_one_request() {
    let request =
        Request { issued_ns: 0, done_ns: 1, offset: 0, bytes: 4096, direction: Direction::Read };
    let device = Device { name: "sda".into(), requests: vec![request] };
    let picture = recording::picture(&started(), &[device]);
    let Y::Value(axis) = &picture.views[3].subjects[0].panels[0].y else { panic!("no values") };
    assert_eq!((axis.low, axis.high), (0.0, 1.0));
}

#[test]
fn a_device_has_requests_in_flight_bandwidth_and_idle_times() {
    let read = |issued_ns, done_ns, bytes| Request {
        issued_ns,
        done_ns,
        offset: 1 << 20,
        bytes,
        direction: Direction::Read,
    };
    let requests =
        vec![read(1_000, 3_000, 4096), read(2_000, 3_000, 4096), read(5_000, 6_000, 8192)];
    let device = Device { name: "sda".into(), requests };
    let picture = recording::picture(&started(), &[device]);
    check(&picture);
    let view = &picture.views[3];
    assert_eq!((view.title.as_str(), view.x.high), ("Device", 9_000.0));
    let subject = &view.subjects[0];
    let idle: Vec<_> = subject.panels[0].spans.iter().map(|span| (span.from, span.to)).collect();
    assert_eq!(idle, [(0.0, 1_000.0), (3_000.0, 5_000.0), (6_000.0, 9_000.0)]);
    let Some(flow) = &subject.panels[0].flow else { panic!("no requests in flight") };
    let at = |ns: f64| flow.series[0].values[(ns / flow.width) as usize];
    assert!(
        (at(1_500.0) - 1.0).abs() < 1e-9 && (at(2_500.0) - 2.0).abs() < 1e-9 && at(4_000.0) == 0.0
    );
    let Some(bandwidth) = &subject.panels[1].flow else { panic!("no bandwidth") };
    let bytes: f64 =
        bandwidth.series[0].values.iter().map(|rate| rate * bandwidth.width / 1e9).sum();
    assert!((bytes - 16384.0).abs() < 1e-3, "{bytes}");
    assert!(
        subject.summary.as_str().starts_with("3 requests, 16.0 KiB; idle for 6.00 µs of 9.00 µs")
    );
}

#[test]
fn before_and_after_have_the_same_lanes_for_files_of_the_same_name() {
    let before = started();
    let mut after = started();
    after.places.swap(0, 1);
    after.events =
        vec![access(200, 100, How::Waited, 0, 0x2000), access(900, 10, How::Minor, 1, 0)];
    after.length_ns = 2_000;
    let picture = before_after::picture(&before, &after);
    check(&picture);
    assert_eq!(picture.frames[0].columns[2].labels, picture.frames[1].columns[2].labels);
    assert_eq!(picture.frames[0].columns[2].values, [0, 0, 1, 0]);
    assert_eq!(picture.frames[1].columns[2].values, [0, 1]);
    let said = picture.summary[0].as_str();
    assert!(
        said.starts_with("9.00 µs before, 2.00 µs after; 7.00 µs and 100 ns of it waited"),
        "{said}"
    );
    let Some(flow) = &picture.views[0].subjects[0].panels[0].flow else { panic!("no lines") };
    let ends: Vec<_> = flow.series.iter().map(|series| series.values.last().copied()).collect();
    assert_eq!(ends, [Some(7_000.0), Some(100.0)]);
}

#[test]
fn the_accesses_of_a_picture_make_the_same_picture_again() {
    let request =
        Request { issued_ns: 0, done_ns: 9, offset: 0, bytes: 1, direction: Direction::Write };
    let device = Device { name: "sda".into(), requests: vec![request] };
    let picture = recording::picture(&started(), &[device]);
    let again = recording::picture(&read_back::accesses(&picture).unwrap(), &[]);
    check(&again);
    assert_eq!(again.frames[0], picture.frames[0]);
    assert_eq!(again.views, picture.views[..3]);
    assert_eq!(again.summary, picture.summary);
    let both = before_after::picture(&started(), &started());
    for other in [&both, &last_run::picture(&LastRun::default()), &Picture::default()] {
        assert_eq!(read_back::accesses(other), None);
    }
}

fn unit(name: &str, from: u64, to: u64) -> UnitTimes {
    UnitTimes {
        name: name.into(),
        activating_us: Some(from),
        active_us: Some(to),
        ..UnitTimes::default()
    }
}

fn phase(name: &str, begin: f64, end: f64) -> PhaseRecord {
    let (begin_ms, end_ms) = (Some(begin), Some(end));
    PhaseRecord { name: name.into(), begin_ms, end_ms, ..PhaseRecord::default() }
}

#[test]
fn a_boot_has_phases_units_what_came_in_and_idle_times() {
    let mut bins = Bins::default();
    bins.add(Row::Prefetched, 100_000, 3 << 20);
    bins.add(Row::Wasted, 100_000, 1 << 20);
    bins.add(Row::Late, 1_500_000, 4096);
    let units = vec![unit("a<b>.service", 200_000, 900_000), unit("dev-sda.device", 1, 1)];
    let timeline = Timeline { bins, units, has_access_events: true, ..Timeline::default() };
    let record = BootRecord {
        phases: vec![phase("mounts", 0.0, 500.0), phase("system", 500.0, 2000.0)],
        replayed: true,
        default_target_ms: Some(2000.0),
        ..BootRecord::default()
    };
    let picture = boot::picture(&Analysis::of(3, record.clone(), Some(timeline)));
    check(&picture);
    assert_eq!(picture.title.as_str(), "Boot 3: default target after 2.00 s");
    let panels = &picture.views[0].subjects[0].panels;
    let names: Vec<_> = panels.iter().map(|panel| panel.title.as_str()).collect();
    assert_eq!(names, ["phases", "came into memory", "touched before it was there", "units"]);
    let totals: Vec<_> =
        panels[1].flow.iter().flat_map(|f| &f.series).map(|s| s.total.as_str()).collect();
    assert_eq!(totals, ["2.00 MiB", "1.00 MiB", "0 B"]);
    assert!(panels[1].spans.iter().any(|span| span.name.as_str() == "idle, 1,890 ms"));
    assert_eq!(column(&picture, 0), [0, 500_000], "phases begin, in µs");
    let Y::Lanes(lanes) = panels[3].y else { panic!("units are lanes") };
    assert_eq!(picture.lanes(lanes), ["a<b>.service (700 ms)".into()]);
    assert!(picture.summary.iter().any(|words| words.as_str().starts_with("1 devices, slices")));
    let old = boot::picture(&Analysis::of(3, record, None));
    check(&old);
    assert_eq!(old.views[0].subjects[0].panels.len(), 1, "only the phases were kept");
}

fn lists(pages: &[u64], bin_us: u64) -> OverTime {
    let list = || pages.to_vec();
    OverTime {
        bin_us,
        ready: list(),
        late: list(),
        missing: list(),
        untouched: list(),
        metadata: list(),
        prefetched: list(),
        wasted: list(),
        lead_us: vec![None; pages.len()],
    }
}

#[test]
fn the_last_start_has_its_classes_over_time_and_the_ranges_of_each_file() {
    let range = |class, first, at_us| RangeRun { class, first, pages: 2, at_us };
    let file = FileRun {
        path: Path::new("/<lib>.so").into(),
        late: 2,
        late_by_us: Some(2_000),
        wasted: 2,
        ranges: vec![range(PageClass::Wasted, 9, 7), range(PageClass::Late, 3, 5)],
        ..FileRun::default()
    };
    let over_time = lists(&[1, 0, 2], 10);
    let run = LastRun {
        page_size: 4096,
        name: "app".into(),
        over_time,
        files: vec![file],
        ..LastRun::default()
    };
    let picture = last_run::picture(&run);
    check(&picture);
    assert_eq!(titles(&picture), ["Pages over time", "All files", "One file"]);
    assert_eq!((column(&picture, 0), column(&picture, 4)), (&[5, 7][..], &[2, 4][..]));
    let so_far = picture.views[0].subjects[0].panels[2].flow.as_ref().unwrap();
    assert_eq!(so_far.series[0].values, [4096.0, 4096.0, 3.0 * 4096.0]);
    let cells: Vec<_> = picture.tables[0].rows[0].iter().map(|cell| cell.as_str()).collect();
    assert_eq!(cells, ["/<lib>.so", "2", "2.00 ms", "–", "2"]);
    let nothing = last_run::picture(&LastRun::default());
    check(&nothing);
    assert_eq!(titles(&nothing), ["Pages over time"]);
}

fn interval(low: f64, high: f64, confidence: f64) -> Option<Interval> {
    Some(Interval { low, high, confidence, is_confident: confidence >= 0.95 })
}

#[test]
fn every_run_is_a_mark_and_every_failed_one_a_gap_that_is_counted() {
    let cold = [900.0, f64::NAN, 910.0, 905.0, 890.0, 2000.0, 904.0];
    let hot = [300.0, 310.0, 305.0, 308.0, 299.0, 301.0, 302.0];
    let states = [
        State { name: "cold", millis: &cold, interval: interval(890.0, 2000.0, 0.96) },
        State { name: "hot", millis: &hot, interval: interval(299.0, 310.0, 0.98) },
    ];
    let picture = runs::picture("editor", &states);
    check(&picture);
    assert_eq!(picture.frames[0].rows, 13);
    assert!(!column(&picture, 1).contains(&0), "run 2 failed");
    let numbers: Vec<_> = column(&picture, 0).iter().zip(column(&picture, 2)).collect();
    assert!(
        !numbers.contains(&(&2, &0)) && numbers.contains(&(&7, &0)),
        "others keep their number"
    );
    let cells: Vec<_> = picture.tables[0].rows[0].iter().map(|cell| cell.as_str()).collect();
    assert_eq!(cells[1], "6 of 7");
    assert!(!picture.views[0].subjects[0].panels[0].bands.is_empty());
}

#[test]
fn few_runs_get_no_box_and_no_band_and_the_confidence_they_have() {
    let few =
        State { name: "cold", millis: &[10.1, 11.0, 10.4], interval: interval(10.1, 11.0, 0.75) };
    let picture = runs::picture("x", &[few]);
    check(&picture);
    assert!(picture.views[0].subjects[0].panels[0].bands.is_empty());
    assert_eq!(picture.frames[1].rows, 4, "the runs, and from the shortest to the longest");
    assert_eq!(picture.tables[0].rows[0][3].as_str(), "10.10 to 11.00 (only 75 %)");
}

#[test]
fn a_wide_span_is_drawn_on_a_logarithmic_scale_and_says_so() {
    let state = |name, millis| State { name, millis, interval: None };
    for (slow, log) in &[([18_849.0], true), ([7_000.0], false)] {
        let picture = runs::picture("x", &[state("cold", slow), state("hot", &[702.0])]);
        check(&picture);
        let panel = &picture.views[0].subjects[0].panels[0];
        assert_eq!(panel.title.as_str().contains("logarithmic"), *log);
    }
}

fn any_time() -> impl Strategy<Value = u64> {
    prop_oneof![0..10_000_000u64, any::<u64>()]
}

prop_compose! {
    fn any_accesses()(
        events in prop::collection::vec((any_time(), any_time(), 0u32..4, any_time(), 0u32..3), 0..40),
        names in prop::collection::vec(any::<String>(), 3),
        bands in prop::collection::vec((any_time(), any_time()), 0..5),
        (length_ns, page_size) in (any_time(), any_time()),
    ) -> Accesses {
        let how = |number: u32| [How::Minor, How::Waited, How::Called][number as usize % 3];
        let event = |(time_ns, latency_ns, place, offset, owner)| Access {
            time_ns, latency_ns, how: how(owner), place, part: place, offset, owner,
        };
        let bands: Vec<_> = bands.into_iter().map(|(from, to)| (from, to, names[0].clone())).collect();
        let place = |name: &String| Place { name: name.clone(), bands: bands.clone() };
        Accesses {
            title: names[1].clone(),
            called: "faults".into(),
            length_ns,
            page_size,
            places: names.iter().map(place).collect(),
            parts: names.clone(),
            owners: names[..2].to_vec(),
            events: events.into_iter().map(event).collect(),
            ..Accesses::default()
        }
    }
}

proptest! {
    #[test]
    fn any_accesses_lie_within_the_axes(
        before in any_accesses(),
        after in any_accesses(),
        requests in prop::collection::vec((any_time(), any_time(), any_time(), any_time()), 0..20),
    ) {
        let request = |(issued_ns, done_ns, offset, bytes)| Request {
            issued_ns, done_ns, offset, bytes,
            direction: if bytes % 2 == 0 { Direction::Read } else { Direction::Write },
        };
        let requests = requests.into_iter().map(request).collect();
        check(&recording::picture(&before, &[Device { name: before.title.clone(), requests }]));
        check(&before_after::picture(&before, &after));
    }

    #[test]
    fn any_boot_lies_within_the_axes(
        names in prop::collection::vec(any::<String>(), 0..6),
        ends in prop::collection::vec(prop_oneof![any::<f64>(), 0.0..1e5f64], 0..6),
        times in prop::collection::vec(prop_oneof![any::<u64>(), 0..90_000_000u64], 0..30),
        from in prop_oneof![any::<u64>(), 0..9_000_000u64],
        replayed in any::<bool>(),
    ) {
        let mut bins = Bins::default();
        for (i, at) in times.iter().enumerate() {
            bins.add(Row::ALL[i % 5], *at, at >> (i % 60));
        }
        let units = names.iter().zip(&times).map(|(name, at)| unit(name, *at, from)).collect();
        let timeline = Timeline { bins, units, recorded_from_us: from, ..Timeline::default() };
        let phases = names.iter().zip(&ends).map(|(name, end)| phase(name, end / 2.0, *end)).collect();
        let record = BootRecord {
            kernel: names.first().cloned().unwrap_or_default(),
            problems: names.clone(),
            default_target_ms: ends.first().copied(),
            phases,
            replayed,
            ..BootRecord::default()
        };
        check(&boot::picture(&Analysis::of(from, record, Some(timeline))));
    }

    #[test]
    fn any_last_start_lies_within_the_axes(
        name in any::<String>(),
        (page_size, bin_us, first, count, at_us) in (any_time(), 1..u64::MAX, any_time(), any_time(), any_time()),
        pages in prop::collection::vec(any_time(), 0..9),
    ) {
        let ranges = vec![RangeRun { class: PageClass::Late, first, pages: count, at_us }];
        let path = Path::new(&name).into();
        let file = FileRun { path, late: 1, late_by_us: Some(at_us), ranges, ..FileRun::default() };
        let files = vec![file; 50];
        check(&last_run::picture(&LastRun { name, page_size, over_time: lists(&pages, bin_us), files, ..LastRun::default() }));
    }

    #[test]
    fn any_runs_lie_within_the_axes(
        title in any::<String>(),
        states in prop::collection::vec(
            (any::<String>(), prop::collection::vec(prop_oneof![any::<f64>(), 0.0..1e5f64], 0..12)), 0..9),
    ) {
        let states: Vec<State> = states
            .iter()
            .map(|(name, millis)| {
                let times = || millis.iter().copied().filter(|ms: &f64| ms.is_finite() && *ms >= 0.0);
                let ends = times().reduce(f64::min).zip(times().reduce(f64::max));
                let interval = ends.and_then(|(low, high)| interval(low, high, 0.95));
                State { name, millis, interval }
            })
            .collect();
        check(&runs::picture(&title, &states));
    }
}

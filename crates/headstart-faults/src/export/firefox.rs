//! A processed profile for the Firefox Profiler (<https://profiler.firefox.com>): a track for each
//! thread, with a marker for each fault, and for each wait where these were recorded. There are no samples, since no
//! call stacks are recorded.

use super::Began;
use super::places::{Places, Spelled};
use super::waits::file_of;
use crate::csv::cause;
use crate::recording::{End, Recording};
use crate::tables::SectionsOf;
use crate::waits::{Request, Waits};
use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, GraphColor, Marker, MarkerFieldFlags, MarkerFieldFormat,
    MarkerGraphType, MarkerLocations, MarkerTiming, MarkerTypeHandle, ProcessHandle, Profile,
    ReferenceTimestamp, RuntimeSchemaMarkerField, RuntimeSchemaMarkerGraph,
    RuntimeSchemaMarkerSchema, SamplingInterval, StringHandle, ThreadHandle, Timestamp,
};
use headstart::host::names;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

/// How each of these files begins.
pub const BEGIN: &[u8] = b"{\"exportedBy\":\"headstart faults\",";

/// A profile that says where it is from.
#[derive(Serialize)]
struct Exported<'a> {
    #[serde(rename = "exportedBy")]
    by: &'static str,
    #[serde(flatten)]
    profile: &'a Profile,
}

/// Writes a recording of this program or process.
///
/// # Errors
/// Those of the writer.
pub fn write(
    out: &mut dyn Write,
    recording: &Recording,
    sections: &SectionsOf,
    subject: &str,
    began: Began,
) -> io::Result<()> {
    let profile = profile(recording, sections, subject, began);
    let exported = Exported { by: "headstart faults", profile: &profile };
    Ok(serde_json::to_writer(out, &exported)?)
}

fn profile(recording: &Recording, sections: &SectionsOf, subject: &str, began: Began) -> Profile {
    let reference = Duration::from_nanos(began.unix_ns);
    let mut profile = Profile::new(
        subject,
        ReferenceTimestamp::from_duration_since_unix_epoch(reference),
        SamplingInterval::from_millis(1),
    );
    profile.set_os_name("Linux");
    // Nothing is to be looked up.
    profile.set_symbolicated(true);
    let mut tracks = Tracks::new(&mut profile, recording, began.monotonic_ns);
    let kinds = Kinds::new(&mut profile);
    let mut places = Places::new(recording, sections);
    let mut texts: Vec<[StringHandle; 3]> = Vec::new();
    let mut times = vec![0_u64; recording.threads.len()];
    for fault in &recording.faults {
        let Some(thread) = tracks.thread(&mut profile, fault.thread, fault.time) else { continue };
        let time = &mut times[fault.thread as usize];
        *time = time.saturating_add(fault.latency);
        let (place, offset) = places.of(fault);
        for Spelled { file, segment, section } in places.spelled().iter().skip(texts.len()) {
            let text = [file, *segment, section].map(|text| profile.intern_string(text));
            texts.push(text);
        }
        let cause = profile.intern_string(cause(fault.cause));
        let [file, segment, section] = texts[place];
        let marker = FaultMarker {
            kind: kinds.of(fault.end),
            texts: [file, segment, section, cause],
            numbers: [offset.unwrap_or(0) as f64, fault.latency as f64 / 1e6],
        };
        let start = tracks.time(fault.time);
        let timing = match fault.end.is_known() {
            true => {
                MarkerTiming::Interval(start, tracks.time(fault.time.saturating_add(fault.latency)))
            }
            false => MarkerTiming::Instant(start),
        };
        profile.add_marker(thread, timing, marker);
    }
    if let Some(waits) = &recording.waits {
        add_waits(&mut profile, &mut tracks, waits);
        add_devices(&mut profile, &tracks, &waits.requests);
    }
    // Shown first: the thread whose faults took longest, not a shell that started the program.
    let longest = (0..).zip(&times).max_by_key(|(number, time)| (**time, Reverse(*number)));
    if let Some(thread) = longest.and_then(|(number, _)| tracks.known(number)) {
        profile.add_initial_selected_thread(thread);
    }
    profile
}

/// Adds waits as markers.
fn add_waits(profile: &mut Profile, tracks: &mut Tracks, waits: &Waits) {
    let schema = profile.register_marker_type(schema("Wait", WAIT, false));
    let category = profile.add_category("Wait", CategoryColor::Purple);
    let none = profile.intern_string("");
    for wait in &waits.waits {
        let Some(thread) = tracks.thread(profile, wait.thread, wait.start) else { continue };
        let [name, cause] = [format!("Wait: {}", wait.kind.name()), wait.kind.name().into()]
            .map(|text| profile.intern_string(&text));
        let file = profile.intern_string(&file_of(tracks.recording, waits, wait));
        let marker = FaultMarker {
            kind: Kind { schema, name, category },
            texts: [file, none, none, cause],
            numbers: [wait.offset.unwrap_or(0) as f64, wait.ns() as f64 / 1e6],
        };
        let (start, end) = (tracks.time(wait.start), tracks.time(wait.end.max(wait.start)));
        profile.add_marker(thread, MarkerTiming::Interval(start, end), marker);
    }
}

/// Adds a counter of the bytes of each device's requests, when they are done. The profile has counters
/// of processes only, so they are the first one's.
fn add_devices(profile: &mut Profile, tracks: &Tracks, requests: &[Request]) {
    let Some(process) = tracks.processes.first() else { return };
    let mut counters = BTreeMap::new();
    for request in requests {
        let Some(complete) = request.complete else { continue };
        let counter = *counters.entry(request.device).or_insert_with(|| {
            let name = format!("disk {}", request.device);
            profile.add_counter(*process, &name, "Bandwidth", "Bytes of requests that are done")
        });
        profile.add_counter_sample(counter, tracks.time(complete), request.bytes as f64, 1);
    }
}

/// The tracks of a profile.
struct Tracks<'a> {
    recording: &'a Recording,
    began: u64,
    processes: Vec<ProcessHandle>,
    /// Those that have faults.
    threads: Vec<Option<ThreadHandle>>,
}

impl<'a> Tracks<'a> {
    fn new(profile: &mut Profile, recording: &'a Recording, began: u64) -> Self {
        let process = |process: &crate::recording::Process| {
            let name = names::name(recording.name(process.name));
            profile.add_process(
                &name,
                process.pid.cast_unsigned(),
                Timestamp::from_nanos_since_reference(0),
            )
        };
        let processes = recording.processes.iter().map(process).collect();
        Self { recording, began, processes, threads: vec![None; recording.threads.len()] }
    }

    fn time(&self, ns: u64) -> Timestamp {
        Timestamp::from_nanos_since_reference(ns.saturating_sub(self.began))
    }

    /// The track that a thread has already.
    fn known(&self, number: usize) -> Option<ThreadHandle> {
        self.threads.get(number).copied().flatten()
    }

    /// The track of a thread, which begins with its first fault or wait. A recording knows the thread
    /// of each.
    fn thread(&mut self, profile: &mut Profile, number: u32, begins: u64) -> Option<ThreadHandle> {
        let at = number as usize;
        if let Some(known) = self.threads.get(at)? {
            return Some(*known);
        }
        let thread = self.recording.threads.get(at)?;
        let process = self.recording.processes.get(thread.process as usize)?;
        let of = *self.processes.get(thread.process as usize)?;
        let is_main = thread.tid == process.pid;
        let new = profile.add_thread(of, thread.tid.cast_unsigned(), self.time(begins), is_main);
        profile.set_thread_name(new, &names::name(self.recording.name(thread.name)));
        profile.set_thread_show_markers_in_timeline(new, true);
        // Else threads without samples are hidden.
        profile.add_initial_visible_thread(new);
        self.threads[at] = Some(new);
        Some(new)
    }
}

/// A kind of markers.
#[derive(Clone, Copy)]
struct Kind {
    schema: MarkerTypeHandle,
    name: StringHandle,
    category: CategoryHandle,
}

struct Kinds {
    minor: Kind,
    major: Kind,
    unended: Kind,
}

impl Kinds {
    fn new(profile: &mut Profile) -> Self {
        let mut kind = |name: &str, color, graph| {
            let schema = profile.register_marker_type(schema(name, FAULT, graph));
            let category = profile.add_category(name, color);
            Kind { schema, name: profile.intern_string(name), category }
        };
        Self {
            minor: kind("Minor fault", CategoryColor::Blue, false),
            major: kind("Major fault", CategoryColor::Orange, true),
            unended: kind("Fault without end", CategoryColor::Gray, false),
        }
    }

    fn of(&self, end: End) -> Kind {
        match end {
            End::Minor => self.minor,
            End::Major => self.major,
            End::None | End::Lost => self.unended,
        }
    }
}

/// Fields of a marker, those with texts first. The profiler has a meaning of its own for `cause` and `stack`, and
/// refuses profiles where these are something else.
const TEXTS: [(&str, &str, MarkerFieldFormat); 4] = [
    ("file", "File", MarkerFieldFormat::FilePath),
    ("segment", "Segment", MarkerFieldFormat::String),
    ("section", "Section", MarkerFieldFormat::String),
    ("reason", "Cause", MarkerFieldFormat::String),
];
const NUMBERS: [(&str, &str, MarkerFieldFormat); 2] = [
    ("offset", "Offset in the file", MarkerFieldFormat::Integer),
    ("latency", "Latency", MarkerFieldFormat::Duration),
];

/// What is written on faults and waits.
const FAULT: &str = "{marker.data.file} {marker.data.section}";
const WAIT: &str = "{marker.data.file}";

/// What the profiler is told of markers with this name and label; with a graph, each thread has a track of
/// their latencies.
fn schema(name: &str, label: &str, graph: bool) -> RuntimeSchemaMarkerSchema {
    let field = |(key, label, format): &(&str, &str, MarkerFieldFormat)| RuntimeSchemaMarkerField {
        key: (*key).into(),
        label: (*label).into(),
        format: format.clone(),
        flags: MarkerFieldFlags::SEARCHABLE,
    };
    let latency = RuntimeSchemaMarkerGraph {
        key: "latency".into(),
        graph_type: MarkerGraphType::Bar,
        color: Some(GraphColor::Orange),
    };
    RuntimeSchemaMarkerSchema {
        type_name: name.into(),
        description: None,
        locations: MarkerLocations::MARKER_CHART
            | MarkerLocations::MARKER_TABLE
            | MarkerLocations::TIMELINE_OVERVIEW,
        chart_label: Some(label.into()),
        tooltip_label: Some("{marker.name}: {marker.data.file}".into()),
        table_label: Some(label.into()),
        fields: TEXTS.iter().chain(&NUMBERS).map(field).collect(),
        graphs: if graph { vec![latency] } else { Vec::new() },
    }
}

struct FaultMarker {
    kind: Kind,
    texts: [StringHandle; TEXTS.len()],
    numbers: [f64; NUMBERS.len()],
}

impl Marker for FaultMarker {
    fn marker_type(&self, _: &mut Profile) -> MarkerTypeHandle {
        self.kind.schema
    }

    fn name(&self, _: &mut Profile) -> StringHandle {
        self.kind.name
    }

    fn category(&self, _: &mut Profile) -> CategoryHandle {
        self.kind.category
    }

    // The profile takes each field from the schema, so that none is beyond its kind.
    fn string_field_value(&self, field: u32) -> StringHandle {
        self.texts[field as usize]
    }

    fn number_field_value(&self, field: u32) -> f64 {
        self.numbers[field as usize - TEXTS.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_recordings::{any_recording, recording, with_waits};
    use super::*;
    use crate::recording::Fault;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    const BEGAN: Began = Began { monotonic_ns: 500, unix_ns: 1_500_000_000 };

    fn exported(recording: &Recording) -> Value {
        let mut out = Vec::new();
        write(&mut out, recording, &SectionsOf::new(), "sh", BEGAN).unwrap();
        assert!(out.starts_with(BEGIN));
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn faults_are_markers_of_their_threads() {
        let profile = exported(&recording());
        let meta = &profile["meta"];
        assert_eq!((&meta["startTime"], &meta["product"]), (&json!(1500.0), &json!("sh")));
        let names: Vec<_> =
            meta["markerSchema"].as_array().unwrap().iter().map(|schema| &schema["name"]).collect();
        assert_eq!(names, ["Fault without end", "Major fault", "Minor fault"]);
        let threads = profile["threads"].as_array().unwrap();
        let number = |thread: &Value| (thread["pid"].clone(), thread["tid"].clone());
        let numbers: Vec<_> = threads.iter().map(number).collect();
        assert_eq!(numbers, [(json!("7"), json!("7")), (json!("7"), json!("8"))]);
        assert_eq!(threads[1]["name"], "worker");
        assert_eq!(meta["initialVisibleThreads"], json!([0, 1]));
        assert_eq!(meta["initialSelectedThreads"], json!([0]), "its faults took longest");
        let markers = &threads[0]["markers"];
        assert_eq!(markers["startTime"], json!([0.0005, 0.002]));
        assert_eq!(markers["endTime"], json!([0.0015, 0.0025]));
        let texts = threads[0]["stringArray"].as_array();
        let texts = texts.or_else(|| profile["shared"]["stringArray"].as_array()).unwrap();
        let text = |at: &Value| texts[at.as_u64().unwrap() as usize].clone();
        assert_eq!(text(&markers["name"][0]), "Major fault");
        let data = &markers["data"][0];
        let (file, offset) = (&data["file"], &data["offset"]);
        assert_eq!(
            (&data["type"], file, offset),
            (&json!("Major fault"), &json!("/li;b\\012x"), &json!(4112.0))
        );
        assert_eq!(
            (text(&data["segment"]), text(&data["reason"])),
            (json!("text"), json!("not-mapped"))
        );
        assert_eq!(data["latency"], 0.001);
        assert_eq!(data.get("cause"), None, "for the profiler that is where a marker was set");
        assert_eq!(threads[1]["markers"]["phase"], json!([1, 1, 0]), "one has no end");
    }

    #[test]
    fn waits_are_markers_and_requests_the_bandwidth_of_their_device() {
        let profile = exported(&with_waits());
        let markers = &profile["threads"][1]["markers"];
        let (data, end) = (&markers["data"][3], &markers["endTime"][3]);
        assert_eq!((&data["type"], &data["file"]), (&json!("Wait"), &json!("/li;b\\012x")));
        assert_eq!((&data["offset"], end), (&json!(4096.0), &json!(0.0095)));
        let counter = &profile["counters"][0];
        assert_eq!(
            (&counter["name"], &counter["category"]),
            (&json!("disk 8:0"), &json!("Bandwidth"))
        );
        assert_eq!(counter["samples"]["count"], json!([4096.0]));
    }

    proptest! {
        #[test]
        fn each_fault_is_a_marker_as_long_as_it_took(recording in any_recording()) {
            let profile = exported(&recording);
            let threads = profile["threads"].as_array().unwrap();
            let mut found = 0;
            let mut sum = 0.0;
            for markers in threads.iter().map(|thread| &thread["markers"]) {
                found += markers["length"].as_u64().unwrap();
                let times = |key: &str| markers[key].as_array().unwrap().iter().map(|time| time.as_f64().unwrap());
                let intervals = times("startTime").zip(times("endTime")).zip(times("phase"));
                sum += intervals.filter(|(_, phase)| *phase == 1.0).map(|((start, end), _)| end - start).sum::<f64>();
            }
            prop_assert_eq!(found, recording.faults.len() as u64);
            // Those that began before the recording are cut at its start.
            let latency = |fault: &Fault| {
                (fault.time + fault.latency).saturating_sub(500) - fault.time.saturating_sub(500)
            };
            let latencies: u64 = recording.faults.iter().map(latency).sum();
            prop_assert!((sum * 1e6 - latencies as f64).abs() < 1e-3 * (1.0 + found as f64));
        }
    }
}

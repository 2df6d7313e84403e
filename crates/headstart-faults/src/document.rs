//! A recording as a JSON document, `headstart/faults/2`. Writes no file.

use crate::capture::{Access, Counted};
use crate::csv::memory;
use crate::recording::Recording;
use crate::tables::{Place, Row, Segment, Spread, Tables};
use crate::waits::document::WaitsDocument;
use crate::waits::sums::Sums;
use headstart::host::json_path::JsonPath;
use headstart::host::names;
use serde::Serialize;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The name of the format.
pub const SCHEMA: &str = "headstart/faults/2";

/// What was recorded, how long, and what it cost.
#[derive(Clone, PartialEq, Debug)]
pub struct About {
    /// The command; none for a process that was running.
    pub command: Option<Vec<String>>,
    /// The process.
    pub pid: i32,
    /// From the execution of the program, or the start of the recording, to the end, in ns.
    pub wall_ns: u64,
    /// What getrusage(2) says of the same time: minor and major faults.
    pub usage: Option<Usage>,
    /// What was allowed.
    pub access: Access,
    /// What the kernel counted.
    pub counted: Counted,
    /// What of it is in records.
    pub found: Counted,
    /// What recording cost.
    pub cost: Cost,
    /// Whether the recording ended before the program because there was too much of it.
    pub is_full: bool,
    /// Threads and processes that began while headstart attached to the process.
    pub threads_missed: u64,
    /// Files with code whose sections are not known: they can't be read, or another file is at their
    /// path now.
    pub files_unread: u64,
}

impl About {
    /// Faults that have no record of their start.
    pub fn lost_faults(&self) -> u64 {
        self.counted.begun.saturating_sub(self.found.begun)
    }

    /// Faults that have no record of their end.
    pub fn lost_ends(&self) -> u64 {
        self.counted.ended().saturating_sub(self.found.ended())
    }

    /// How many more faults getrusage(2) counts than the events: those that have none. Negative where
    /// it lacks some, as those of processes that nobody has waited for.
    pub fn without_event(&self) -> Option<i64> {
        let usage = self.usage?;
        let accounted = usage.minor.saturating_add(usage.major);
        Some(accounted.cast_signed().saturating_sub(self.counted.ended().cast_signed()))
    }
}

/// Faults that the kernel accounts to processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Usage {
    /// Without I/O.
    pub minor: u64,
    /// With I/O.
    pub major: u64,
}

/// What recording cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Cost {
    /// Records: two for each fault, and those of mappings and threads.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Records that can't be decoded; what is damaged at the end of a ring is one.
    pub undecoded: u64,
    /// What it adds to a fault, in ns, measured afterwards; none where it could not be.
    pub ns_per_fault: Option<u64>,
    /// CPU time of the recorder while the program ran, in µs.
    pub recorder_us: u64,
}

/// The document.
#[derive(Serialize, Debug)]
pub struct Document<'a> {
    schema: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'a [String]>,
    pid: i32,
    wall_ns: u64,
    total: Totals<'a>,
    places: Vec<PlaceRow>,
    processes: Vec<ProcessRow>,
    threads: Vec<ThreadRow>,
    /// What was not recorded, or not listed.
    unlisted: Unlisted,
    getrusage: Option<Usage>,
    /// What the kernel counted while it recorded, with all that was lost.
    counted: Counted,
    /// Faults in getrusage that have no event.
    without_event: Option<i64>,
    /// How often a program was executed, each with a fault or more for its arguments that has no
    /// event.
    executions: u64,
    cost: &'a Cost,
    /// If they were recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits: Option<WaitsDocument>,
}

#[derive(Serialize, Debug)]
struct Totals<'a> {
    #[serde(flatten)]
    row: &'a Row,
    minor_latency: &'a Spread,
    major_latency: &'a Spread,
}

#[derive(Serialize, Debug)]
struct PlaceRow {
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    file: Option<JsonPath>,
    #[serde(skip_serializing_if = "Option::is_none")]
    segment: Option<Segment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    section: Option<String>,
    /// For what is no file.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<String>,
    #[serde(flatten)]
    row: Row,
}

#[derive(Serialize, Debug)]
struct ProcessRow {
    pid: i32,
    name: String,
    #[serde(flatten)]
    row: Row,
}

#[derive(Serialize, Debug)]
struct ThreadRow {
    pid: i32,
    tid: i32,
    name: String,
    #[serde(flatten)]
    row: Row,
}

#[derive(Serialize, Debug)]
struct Unlisted {
    user_only: bool,
    copies_known: bool,
    huge_known: bool,
    lost_records: u64,
    lost_faults: u64,
    lost_ends: u64,
    minor_before_exec: u64,
    major_before_exec: u64,
    unended_before_exec: u64,
    begun_while_attaching: u64,
    ends_without_start: u64,
    threads_missed: u64,
    privileged_programs: u64,
    files_without_sections: u64,
    is_full: bool,
}

/// What a place is called that is no file.
pub fn memory_name(recording: &Recording, place: &Place) -> Option<String> {
    match place {
        Place::File { .. } => None,
        Place::Memory(object) => Some(memory(*object).to_owned()),
        Place::Special(name) => Some(names::name(recording.name(*name))),
        Place::Unknown => Some("[unknown]".to_owned()),
    }
}

impl<'a> Document<'a> {
    /// That of a recording.
    pub fn new(
        about: &'a About,
        recording: &Recording,
        tables: &'a Tables,
        waits: Option<&Sums>,
    ) -> Self {
        let path = |name: u32| Path::new(OsStr::from_bytes(recording.name(name))).into();
        let place = |(place, row): &(Place, Row)| {
            let (file, segment, section) = match place {
                Place::File { name, segment, section } => {
                    let section = (!section.is_empty()).then(|| section.clone());
                    (Some(path(*name)), Some(*segment), section)
                }
                _ => (None, None, None),
            };
            PlaceRow { file, segment, section, memory: memory_name(recording, place), row: *row }
        };
        let process = |(number, row): &(u32, Row)| {
            let process = recording.processes.get(*number as usize)?;
            let name = names::name(recording.name(process.name));
            Some(ProcessRow { pid: process.pid, name, row: *row })
        };
        let thread = |(number, row): &(u32, Row)| {
            let thread = recording.threads.get(*number as usize)?;
            let process = recording.processes.get(thread.process as usize)?;
            let name = names::name(recording.name(thread.name));
            Some(ThreadRow { pid: process.pid, tid: thread.tid, name, row: *row })
        };
        let unlisted = recording.unlisted;
        Self {
            schema: SCHEMA,
            command: about.command.as_deref(),
            pid: about.pid,
            wall_ns: about.wall_ns,
            total: Totals {
                row: &tables.total,
                minor_latency: &tables.minor,
                major_latency: &tables.major,
            },
            places: tables.places.iter().map(place).collect(),
            processes: tables.processes.iter().filter_map(process).collect(),
            threads: tables.threads.iter().filter_map(thread).collect(),
            unlisted: Unlisted {
                user_only: about.access.user_only,
                copies_known: about.access.page_sizes,
                huge_known: about.access.huge,
                lost_records: recording.lost,
                lost_faults: about.lost_faults(),
                lost_ends: about.lost_ends(),
                minor_before_exec: unlisted.minor_before,
                major_before_exec: unlisted.major_before,
                unended_before_exec: unlisted.unended_before,
                begun_while_attaching: unlisted.early,
                ends_without_start: unlisted.minor_ends + unlisted.major_ends,
                threads_missed: about.threads_missed,
                privileged_programs: recording.privileged,
                files_without_sections: about.files_unread,
                is_full: about.is_full,
            },
            getrusage: about.usage,
            counted: about.counted,
            without_event: about.without_event(),
            executions: recording.executions,
            cost: &about.cost,
            waits: waits
                .zip(recording.waits.as_ref())
                .map(|(sums, waits)| WaitsDocument::new(recording, waits, sums)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Object;

    #[test]
    fn a_place_is_a_file_with_its_section_or_memory_with_a_name() {
        let recording = Recording {
            names: vec![b"/a\xff".to_vec(), b"[vdso]".to_vec()],
            ..Recording::default()
        };
        let file = Place::File { name: 0, segment: Segment::Text, section: ".text".into() };
        let others = [Place::Memory(Object::Heap), Place::Special(1), Place::Unknown];
        let places = std::iter::once(file).chain(others).map(|place| (place, Row::default()));
        let tables = Tables { places: places.collect(), ..Tables::default() };
        let about = About {
            command: Some(vec!["true".into()]),
            pid: 7,
            wall_ns: 1,
            usage: Some(Usage { minor: 10, major: 1 }),
            access: Access { user_only: true, page_sizes: true, huge: false },
            counted: Counted { begun: 9, minor: 8, major: 0 },
            found: Counted { begun: 7, minor: 3, major: 1 },
            cost: Cost::default(),
            is_full: false,
            threads_missed: 0,
            files_unread: 0,
        };
        let json = serde_json::to_value(Document::new(&about, &recording, &tables, None)).unwrap();
        assert_eq!(json["schema"], SCHEMA);
        assert_eq!(json["places"][0]["path_bytes"], serde_json::json!([47, 97, 255]));
        assert_eq!(json["places"][0]["segment"], "text");
        let names: Vec<_> = (1..4).map(|at| json["places"][at]["memory"].clone()).collect();
        assert_eq!(names, ["[heap]", "[vdso]", "[unknown]"]);
        assert_eq!(json["unlisted"]["lost_faults"], 2);
        assert_eq!(json["unlisted"]["lost_ends"], 4);
        assert_eq!((&json["without_event"], &json["counted"]["minor"]), (&3.into(), &8.into()));
        assert_eq!(json["total"]["minor"]["count"], 0);
    }
}

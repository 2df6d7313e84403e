//! A recording as accesses, of which pictures are made. Pure.

use headstart::host::id::Dev;
use headstart::host::names;
use headstart_faults::csv::memory;
use headstart_faults::recording::{End, Fault, Object, Recording};
use headstart_faults::sections::Sections;
use headstart_faults::tables::{SectionsOf, Spread, Tables};
use headstart_faults::waits::{Kind, Operation, Wait};
use headstart_view::build::accesses::{Access, Accesses, How, Place};
use headstart_view::build::device::{Device, Direction, Request};
use headstart_view::picture::Unit;
use headstart_view::units::{amount, grouped};
use std::collections::{BTreeMap, HashMap};

/// Memory is laid out by its mappings, with so much room between them.
const GAP: u64 = 1 << 16;
/// Characters of a command that a title has.
const LONGEST: usize = 100;

/// What the pictures are of.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'a> {
    pub recording: &'a Recording,
    pub sections: &'a SectionsOf,
    pub tables: &'a Tables,
    /// When it began, in ns of the monotonic clock, and how long it took.
    pub start: u64,
    pub wall_ns: u64,
    /// What was started.
    pub title: &'a str,
    pub page_size: u64,
}

/// The title of a picture of a program that was started, or of a process.
pub fn title(command: Option<&[String]>, pid: i32) -> String {
    let Some(command) = command else { return format!("Page faults of process {pid}") };
    let words: Vec<&str> = command.iter().flat_map(|word| word.split_whitespace()).collect();
    let mut command = words.join(" ");
    if let Some((end, _)) = command.char_indices().nth(LONGEST) {
        command.truncate(end);
        command.push('…');
    }
    format!("Page faults of {command}")
}

/// All faults as accesses.
pub fn accesses(of: Recorded) -> Accesses {
    let Recorded { recording, start, .. } = of;
    let mut places = Places::new(of);
    let waits = FaultWaits::of(recording);
    let events = recording.faults.iter().map(|fault| {
        let (place, part, offset) = places.of(fault);
        Access {
            time_ns: fault.time.saturating_sub(start),
            latency_ns: fault.latency,
            how: match fault.end {
                _ if waits.has(fault) => How::Waited,
                End::Minor => How::Minor,
                End::Major => How::Waited,
                End::None | End::Lost => How::Unended,
            },
            place,
            part,
            offset,
            owner: fault.thread,
        }
    });
    let mut events: Vec<Access> = events.collect();
    let calls = recording.waits.iter().flat_map(|waits| &waits.waits);
    events.extend(calls.filter_map(|wait| {
        let (place, part) = places.of_call(wait)?;
        Some(Access {
            time_ns: wait.start.saturating_sub(start),
            latency_ns: wait.ns(),
            how: How::Called,
            place,
            part,
            offset: wait.offset.unwrap_or(0),
            owner: wait.thread,
        })
    }));
    events.sort_by_key(|event| event.time_ns);
    let owner = |thread: &headstart_faults::recording::Thread| {
        let pid = recording.processes.get(thread.process as usize).map_or(0, |process| process.pid);
        format!("{} ({pid}/{})", names::name(recording.name(thread.name)), thread.tid)
    };
    Accesses {
        title: of.title.to_owned(),
        summary: vec![summary(of)],
        called: if recording.waits.is_some() { "faults and calls" } else { "faults" }.into(),
        length_ns: of.wall_ns,
        page_size: of.page_size,
        places: places.places,
        parts: places.parts,
        owners: recording.threads.iter().map(owner).collect(),
        events,
    }
}

fn summary(of: Recorded) -> String {
    let total = &of.tables.total;
    let time = |ns: u64| amount(Unit::Ns, ns as f64);
    let count = |n: u64| grouped(n as f64, 0);
    let spread = |spread: &Spread| match spread.max_ns {
        0 => String::new(),
        max => format!(" (median {}, longest {})", time(spread.median_ns), time(max)),
    };
    let lost = match of.recording.lost {
        0 => String::new(),
        lost => format!(" {} records were lost: not all is seen here.", count(lost)),
    };
    format!(
        "{} in all, {} of it in page faults, of all threads: {} minor, {}{}; {} major, which waited \
         for the disk, {}{}.{lost}",
        time(of.wall_ns),
        time(total.time_ns()),
        count(total.minor.count),
        time(total.minor.time_ns),
        spread(&of.tables.minor),
        count(total.major.count),
        time(total.major.time_ns),
        spread(&of.tables.major),
    )
}

/// Places and mappings with faults, as they are found.
struct Places<'a> {
    of: Recorded<'a>,
    places: Vec<Place>,
    parts: Vec<String>,
    /// By name.
    place_numbers: HashMap<Vec<u8>, u32>,
    part_numbers: HashMap<Option<u32>, u32>,
    /// Of what is accessed by system calls, by name, and whether they are at an offset.
    call_numbers: HashMap<(Vec<u8>, bool), u32>,
    /// Where the memory of each mapping is laid out.
    bases: HashMap<Option<u32>, Base>,
}

/// From addresses to offsets in a place.
#[derive(Clone, Copy)]
struct Base {
    low: u64,
    at: u64,
}

impl<'a> Places<'a> {
    fn new(of: Recorded<'a>) -> Self {
        Self {
            of,
            places: Vec::new(),
            parts: Vec::new(),
            place_numbers: HashMap::new(),
            part_numbers: HashMap::new(),
            call_numbers: HashMap::new(),
            bases: bases(of.recording, of.page_size.max(1)),
        }
    }

    fn place(&mut self, name: &[u8], sections: Option<&Sections>) -> u32 {
        let next = self.places.len() as u32;
        let place = *self.place_numbers.entry(name.to_vec()).or_insert(next);
        if place == next {
            let bands = sections.map_or_else(Vec::new, Sections::in_file);
            self.places.push(Place { name: names::name(name), bands });
        }
        place
    }

    /// Place of a wait for a file in a system call, and what stands for a mapping there: what reads apart
    /// from what has no offset, so that open(2) is no step backwards.
    fn of_call(&mut self, wait: &Wait) -> Option<(u32, u32)> {
        let recording = self.of.recording;
        let file = recording.waits.as_ref()?.files.get(wait.file? as usize)?;
        let name = recording.name(file.name?);
        if wait.kind == Kind::Fault || !name.starts_with(b"/") {
            return None;
        }
        let place = self.place(name, None);
        let next = self.parts.len() as u32;
        let has_offset = wait.offset.is_some();
        let part = *self.call_numbers.entry((name.to_vec(), has_offset)).or_insert(next);
        if part == next {
            let what = if has_offset { "by system calls" } else { "by calls without an offset" };
            self.parts.push(format!("{} {what}", names::name(name)));
        }
        Some((place, part))
    }

    /// Place, mapping and offset of a fault.
    fn of(&mut self, fault: &Fault) -> (u32, u32, u64) {
        let recording = self.of.recording;
        let mapping = recording.mapping(fault.mapping);
        let name = name_of(recording, fault.mapping);
        let sections = mapping.and_then(|mapping| self.of.sections.get(&mapping.key()));
        let place = self.place(name, sections);
        let next = self.parts.len() as u32;
        let part = *self.part_numbers.entry(fault.mapping).or_insert(next);
        if part == next {
            let what = mapping.map_or_else(String::new, |mapping| {
                format!(" {} at {:#x}", mapping.permissions(), mapping.start)
            });
            self.parts.push(format!("{}{what}", names::name(name)));
        }
        let base = self.bases.get(&fault.mapping);
        let offset = match (mapping.filter(|mapping| mapping.object == Object::File), base) {
            (Some(file), _) => file.offset_of(fault.address),
            (None, Some(base)) => fault.address.saturating_sub(base.low).saturating_add(base.at),
            (None, None) => fault.address,
        };
        (place, part, offset)
    }
}

/// When threads waited in faults, if that was recorded: a minor fault may have waited for a page that
/// was in flight.
struct FaultWaits(HashMap<u32, Vec<u64>>);

impl FaultWaits {
    fn of(recording: &Recording) -> Self {
        let mut starts: HashMap<u32, Vec<u64>> = HashMap::new();
        let waits = recording.waits.iter().flat_map(|waits| &waits.waits);
        for wait in waits.filter(|wait| wait.kind == Kind::Fault) {
            starts.entry(wait.thread).or_default().push(wait.start);
        }
        Self(starts)
    }

    fn has(&self, fault: &Fault) -> bool {
        let Some(starts) = self.0.get(&fault.thread) else { return false };
        let next = starts.partition_point(|start| *start < fault.time);
        starts.get(next).is_some_and(|start| *start < fault.time.saturating_add(fault.latency))
    }
}

/// The devices of a recording with their requests, each named by `name`; those of which its threads
/// requested most come first.
pub fn devices(recording: &Recording, start: u64, name: &dyn Fn(Dev) -> String) -> Vec<Device> {
    let mut devices: BTreeMap<Dev, (usize, Device)> = BTreeMap::new();
    let all = recording.waits.iter().flat_map(|waits| &waits.requests);
    // What is not done at the end was under way until then.
    let end =
        all.clone().map(|request| request.complete.unwrap_or(request.issue)).max().unwrap_or(0);
    for request in all.filter(|request| request.complete.unwrap_or(end) >= start) {
        let new = || (0, Device { name: name(request.device), requests: Vec::new() });
        let (own, device) = devices.entry(request.device).or_insert_with(new);
        *own += usize::from(request.thread.is_some());
        device.requests.push(Request {
            issued_ns: request.issue.saturating_sub(start),
            done_ns: request.complete.unwrap_or(end).saturating_sub(start),
            offset: request.sector.saturating_mul(512),
            bytes: request.bytes,
            direction: match request.operation {
                Operation::Read => Direction::Read,
                Operation::Write | Operation::Other => Direction::Write,
            },
        });
    }
    let mut devices: Vec<_> = devices.into_values().collect();
    devices.sort_by_key(|(own, _)| std::cmp::Reverse(*own));
    devices.into_iter().map(|(_, device)| device).collect()
}

fn name_of(recording: &Recording, mapping: Option<u32>) -> &[u8] {
    match recording.mapping(mapping) {
        Some(found) if matches!(found.object, Object::File | Object::Special) => {
            recording.name(found.name)
        }
        Some(found) => memory(found.object).as_bytes(),
        None => b"[unknown]",
    }
}

/// Mappings of memory behind each other in the order of their addresses, as far as they have faults:
/// what lies between them is of no interest, and large.
fn bases(recording: &Recording, page: u64) -> HashMap<Option<u32>, Base> {
    let mut ranges: HashMap<Option<u32>, (u64, u64)> = HashMap::new();
    for fault in &recording.faults {
        if recording.mapping(fault.mapping).is_some_and(|found| found.object == Object::File) {
            continue;
        }
        let begin = fault.address / page * page;
        let range = ranges.entry(fault.mapping).or_insert((begin, begin));
        *range = (range.0.min(begin), range.1.max(begin));
    }
    let mut sorted: Vec<_> = ranges.into_iter().collect();
    sorted.sort_by_key(|(mapping, (low, _))| (*low, *mapping));
    let mut ends: HashMap<&[u8], u64> = HashMap::new();
    let place = |(mapping, (low, high)): (Option<u32>, (u64, u64))| {
        let end = ends.entry(name_of(recording, mapping)).or_insert(0);
        let base = Base { low, at: *end };
        *end = end.saturating_add(high - low).saturating_add(page).saturating_add(GAP);
        (mapping, base)
    };
    sorted.into_iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart::host::id::InodeId;
    use headstart_faults::recording::{Cause, Mapping, Process, Thread};
    use headstart_faults::tables::Tables;

    #[test]
    fn faults_of_files_are_at_their_offsets_and_memory_is_laid_out_without_its_gaps() {
        let file = Mapping {
            object: Object::File,
            name: 0,
            start: 0x70_0000,
            offset: 0x2000,
            protection: 5,
            is_shared: false,
            file: InodeId { dev: Dev::default(), ino: 7 },
        };
        let memory = |start| Mapping { object: Object::Anonymous, name: 1, start, ..file };
        let fault = |time, address, mapping, end| Fault {
            time,
            latency: 30,
            end,
            cause: Cause::NotMapped,
            is_huge: false,
            thread: 0,
            ip: 0,
            address,
            mapping,
            behind: None,
        };
        let recording = Recording {
            faults: vec![
                fault(90, 0x70_1010, Some(0), End::Major),
                fault(150, 0x900_5000, Some(2), End::Minor),
                fault(160, 0x100_1000, Some(1), End::Minor),
                fault(170, 0x900_4000, Some(2), End::Lost),
                fault(180, 0x5, None, End::None),
            ],
            mappings: vec![file, memory(0x100_0000), memory(0x900_0000)],
            names: vec![b"/lib\n".to_vec(), b"//anon".to_vec()],
            processes: vec![Process { pid: 7, name: 0 }],
            threads: vec![Thread { tid: 8, process: 0, name: 0 }],
            ..Recording::default()
        };
        let sections = SectionsOf::new();
        let made = accesses(Recorded {
            recording: &recording,
            sections: &sections,
            tables: &Tables::of(&recording, &sections),
            start: 100,
            wall_ns: 1000,
            title: "x",
            page_size: 4096,
        });
        let places: Vec<_> = made.places.iter().map(|place| place.name.as_str()).collect();
        assert_eq!(places, ["/lib\\012", "[anonymous]", "[unknown]"]);
        assert_eq!(made.parts[0], "/lib\\012 r-xp at 0x700000");
        assert_eq!(made.owners, ["/lib\\012 (7/8)"]);
        let rows: Vec<_> = made
            .events
            .iter()
            .map(|event| (event.time_ns, event.how, event.place, event.part, event.offset))
            .collect();
        let behind = 4096 + GAP;
        assert_eq!(
            rows,
            [
                (0, How::Waited, 0, 0, 0x3010),
                (50, How::Minor, 1, 1, behind + 0x1000),
                (60, How::Minor, 1, 2, 0),
                (70, How::Unended, 1, 1, behind),
                (80, How::Unended, 2, 3, 5),
            ]
        );
        assert!(made.summary[0].contains("2 minor, 60 ns (median 30 ns"), "{:?}", made.summary);
    }

    #[test]
    fn waits_make_minor_faults_red_calls_accesses_and_requests_a_device() {
        let wait = |kind, start, file| Wait {
            thread: 0,
            start,
            end: start + 40,
            kind,
            file,
            offset: Some(0x3000),
            call: None,
            runner: None,
            waker: None,
        };
        let file = |name| headstart_faults::waits::File { id: None, name };
        let mut request = headstart_faults::waits::Request::new(
            120,
            Dev::new(8, 0),
            8,
            4096,
            Operation::Read,
            false,
        );
        let unfinished = request;
        request.complete = Some(180);
        let early = headstart_faults::waits::Request { issue: 10, complete: Some(20), ..request };
        let fault = |time| Fault {
            time,
            latency: 50,
            end: End::Minor,
            cause: Cause::NotMapped,
            is_huge: false,
            thread: 0,
            ip: 0,
            address: 0x5,
            mapping: None,
            behind: None,
        };
        let recording = Recording {
            faults: vec![fault(100), fault(200)],
            names: vec![b"/data".to_vec(), b"pipe:[7]".to_vec()],
            processes: vec![Process { pid: 7, name: 0 }],
            threads: vec![Thread { tid: 8, process: 0, name: 0 }],
            waits: Some(headstart_faults::waits::Waits {
                waits: vec![
                    wait(Kind::Read, 110, Some(0)),
                    Wait { offset: None, ..wait(Kind::Open, 115, Some(0)) },
                    wait(Kind::Stream, 120, Some(1)),
                    wait(Kind::Timer, 130, None),
                    wait(Kind::Fault, 205, Some(0)),
                ],
                files: vec![file(Some(0)), file(Some(1))],
                requests: vec![early, request, unfinished],
                ..Default::default()
            }),
            ..Recording::default()
        };
        let sections = SectionsOf::new();
        let made = accesses(Recorded {
            recording: &recording,
            sections: &sections,
            tables: &Tables::of(&recording, &sections),
            start: 100,
            wall_ns: 1000,
            title: "x",
            page_size: 4096,
        });
        let rows: Vec<_> = made.events.iter().map(|e| (e.time_ns, e.how, e.offset)).collect();
        let (read, open) = ((10, How::Called, 0x3000), (15, How::Called, 0));
        assert_eq!(rows, [(0, How::Minor, 5), read, open, (100, How::Waited, 5)]);
        assert_eq!(made.parts[1..], ["/data by system calls", "/data by calls without an offset"]);
        let devices = devices(&recording, 100, &|device| device.to_string());
        assert_eq!((devices.len(), devices[0].name.as_str()), (1, "8:0"));
        let times: Vec<_> = devices[0].requests.iter().map(|r| (r.issued_ns, r.done_ns)).collect();
        assert_eq!(times, [(20, 80), (20, 80)], "one from before the start is of something else");
    }

    #[test]
    fn a_title_is_one_short_line() {
        let words =
            ["python3".to_owned(), "-c".to_owned(), format!("import a\n\n  {}", "b".repeat(200))];
        let title = title(Some(&words), 7);
        assert!(
            title.starts_with("Page faults of python3 -c import a bbb") && title.ends_with("b…")
        );
        assert!(title.chars().count() < 120);
        assert_eq!(super::title(None, 7), "Page faults of process 7");
    }
}

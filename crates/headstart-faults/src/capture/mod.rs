//! Records events of page faults: opens them for threads on every CPU, and empties their rings
//! until a process has ended or the time is up. Decodes nothing.

mod error;
pub mod files;
pub mod names;
pub mod points;

pub use error::CaptureError;

use self::points::Points;
use crate::merge::Merged;
use crate::points::Point;
use crate::record::{self, Layout, What};
use crate::recorder::Recorder;
use crate::recording::Recording;
use headstart::host::{clock, cpus};
use headstart_sys::perf::{Attributes, Counter, Event, Ring, flag, sample};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// What this user and kernel allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Faults of the kernel itself, as read(2) makes in the memory that it fills, are not reported.
    pub user_only: bool,
    /// Whether the size of mapped pages is reported (Linux 5.11).
    pub page_sizes: bool,
    /// Whether that is recorded at the end of faults too, to know huge pages.
    pub huge: bool,
}

impl Access {
    /// Finds out, with events of this thread. `huge`: what maps a huge page is wanted.
    ///
    /// # Errors
    /// There are no events for this user, or none at all.
    pub fn find(huge: bool) -> Result<Self, CaptureError> {
        let mut access = Self { user_only: false, page_sizes: true, huge };
        loop {
            let attributes = access.attributes(Counter::FaultBegins, 0);
            let error = match Event::open(attributes, 0, -1) {
                Ok(_) => return Ok(access),
                Err(error) => error,
            };
            match Errno::from_io_error(&error) {
                Some(Errno::INVAL) if access.page_sizes => {
                    (access.page_sizes, access.huge) = (false, false);
                }
                Some(Errno::ACCESS | Errno::PERM) if !access.user_only => access.user_only = true,
                _ => return Err(CaptureError::of_open(error)),
            }
        }
    }

    fn attributes(self, counter: Counter, wakeup: u32) -> Attributes {
        use sample::{ADDR, DATA_PAGE_SIZE, IDENTIFIER, IP, TID, TIME};
        let place = if counter == Counter::FaultBegins { IP | ADDR } else { 0 };
        let has_page = match counter {
            Counter::Nothing | Counter::Tracepoint(_) => false,
            Counter::FaultBegins => self.page_sizes,
            Counter::MinorFaultEnds | Counter::MajorFaultEnds => self.huge,
        };
        let page = if has_page { DATA_PAGE_SIZE } else { 0 };
        let exclude = if self.user_only { flag::EXCLUDE_KERNEL | flag::EXCLUDE_HV } else { 0 };
        let own = match counter {
            Counter::Nothing => 0,
            Counter::FaultBegins => flag::INHERIT | flag::DISABLED | OTHERS,
            _ => flag::INHERIT | flag::DISABLED,
        };
        Attributes {
            counter,
            sample: IDENTIFIER | TID | TIME | place | page,
            flags: flag::WATERMARK | flag::SAMPLE_ID_ALL | exclude | own,
            wakeup,
        }
    }
}

/// Those of a tracepoint.
fn of_point(id: u16, point: Point, wakeup: u32) -> Attributes {
    use sample::{IDENTIFIER, RAW, REGS_USER, TID, TIME};
    let registers = if point == Point::Enter { REGS_USER } else { 0 };
    let inherit = if point.of_all_threads() { 0 } else { flag::INHERIT };
    Attributes {
        counter: Counter::Tracepoint(id),
        sample: IDENTIFIER | TID | TIME | RAW | registers,
        flags: flag::WATERMARK | flag::SAMPLE_ID_ALL | flag::DISABLED | inherit,
        wakeup,
    }
}

/// What one of the events records besides.
const OTHERS: u64 =
    flag::MMAP | flag::MMAP_DATA | flag::MMAP2 | flag::COMM | flag::COMM_EXEC | flag::TASK;

/// Whose faults are recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope<'a> {
    /// This thread's.
    Own,
    /// Those of these threads of a process, and of all that they start.
    Threads(&'a [i32]),
}

/// The largest ring of a CPU, in bytes: some 40,000 faults.
const LARGEST_RING: usize = 4 << 20;
/// The smallest, for users who may lock little memory; a page where that is larger.
const SMALLEST_RING: usize = 32 << 10;
/// All rings together.
const ALL_RINGS: usize = 64 << 20;
/// No more is kept of a recording: some six million faults.
pub const MOST_BYTES: usize = 512 << 20;

/// Events that are being recorded.
#[derive(Debug)]
pub struct Capture {
    access: Access,
    // The events end before their rings.
    events: Vec<(record::Event, Event)>,
    rings: Vec<Ring>,
    layout: Layout,
    /// What was moved out of each ring.
    records: Vec<Vec<u8>>,
}

/// Opens the events of `scope` on all CPUs that are online, also those of waits, by their `points`, if
/// there are any. What is recorded begins now.
///
/// # Errors
/// Those of [`CaptureError`].
pub fn start(scope: Scope, access: Access, points: &Points) -> Result<Capture, CaptureError> {
    events_of(scope, &cpus::online_numbers(), access, points)
}

/// The same on these CPUs.
///
/// # Errors
/// Those of [`CaptureError`].
pub fn events_of(
    scope: Scope,
    cpus: &[i32],
    access: Access,
    points: &Points,
) -> Result<Capture, CaptureError> {
    let smallest = SMALLEST_RING.max(rustix::param::page_size());
    let mut size = ring_size(cpus.len()).max(smallest);
    loop {
        match with_rings(scope, cpus, access, points, size) {
            Err(CaptureError::Memory(_)) if size > smallest => size /= 2,
            other => return other,
        }
    }
}

/// The largest power of two that is allowed for each of so many CPUs.
fn ring_size(cpus: usize) -> usize {
    let each = (ALL_RINGS / cpus.max(1)).clamp(SMALLEST_RING, LARGEST_RING);
    1 << each.ilog2()
}

fn with_rings(
    scope: Scope,
    cpus: &[i32],
    access: Access,
    points: &Points,
    size: usize,
) -> Result<Capture, CaptureError> {
    let own = [0];
    let tids = match scope {
        Scope::Own => &own,
        Scope::Threads(tids) => tids,
    };
    let wakeup = (size / 4) as u32;
    let all = [ANY];
    let kinds = kinds(access, points, wakeup);
    let by_thread = kinds.iter().flat_map(|kind| {
        let tids = if kind.of_all_threads { &all[..] } else { tids };
        tids.iter().map(move |tid| (kind, *tid))
    });
    let mut capture = Capture {
        access,
        events: Vec::new(),
        rings: Vec::new(),
        layout: Layout {
            begins_have_pages: access.page_sizes,
            ends_have_pages: access.huge,
            points: points.all.iter().map(|(_, fields)| (fields.point(), fields.clone())).collect(),
            page: rustix::param::page_size() as u64,
            ..Layout::default()
        },
        records: Vec::new(),
    };
    let mut is_found = false;
    for &cpu in cpus {
        // It belongs to this thread, which does not end before the recording.
        let owner = match Event::open(access.attributes(Counter::Nothing, wakeup), 0, cpu) {
            // It went offline.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NODEV) => continue,
            other => other.map_err(CaptureError::of_open)?,
        };
        let ring = Ring::new(owner, size).map_err(CaptureError::of_ring)?;
        for (kind, tid) in by_thread.clone() {
            let opened = match Event::open(kind.attributes, tid, cpu) {
                // A thread that has ended meanwhile.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) => continue,
                other => other.map_err(CaptureError::of_attaching)?,
            };
            opened.record_into(&ring)?;
            capture.layout.events.insert(opened.count_and_id()?.1, kind.event);
            // Not before, so that nothing is counted that has no ring.
            opened.enable()?;
            capture.events.push((kind.event, opened));
            is_found |= tid != ANY;
        }
        capture.rings.push(ring);
        capture.records.push(Vec::new());
    }
    if is_found { Ok(capture) } else { Err(CaptureError::Gone) }
}

/// Any thread, for perf_event_open(2).
const ANY: i32 = -1;

/// A kind of event.
struct Kind {
    event: record::Event,
    attributes: Attributes,
    of_all_threads: bool,
}

/// All kinds that are recorded.
fn kinds(access: Access, points: &Points, wakeup: u32) -> Vec<Kind> {
    let of_faults = [
        (record::Event::Begin, Counter::FaultBegins),
        (record::Event::MinorEnd, Counter::MinorFaultEnds),
        (record::Event::MajorEnd, Counter::MajorFaultEnds),
    ];
    let of_faults = of_faults.into_iter().map(|(event, counter)| Kind {
        event,
        attributes: access.attributes(counter, wakeup),
        of_all_threads: false,
    });
    let of_points = points.all.iter().map(|(id, fields)| Kind {
        event: record::Event::Point(fields.point()),
        attributes: of_point(*id, fields.point(), wakeup),
        of_all_threads: fields.point().of_all_threads(),
    });
    of_faults.chain(of_points).collect()
}

/// What ended a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    /// The process has ended.
    Process,
    /// The time was up.
    Time,
    /// Somebody wanted it.
    Stop,
    /// There was too much.
    Full,
}

impl Capture {
    /// Empties the rings until `process` (a pidfd) is readable, `limit` is over, or `stop` is
    /// readable.
    ///
    /// # Errors
    /// What poll(2) said.
    pub fn run(
        &mut self,
        process: BorrowedFd,
        stop: Option<BorrowedFd>,
        limit: Option<Duration>,
    ) -> io::Result<Over> {
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(Over::Time);
            }
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            let stop = stop.as_ref();
            let mut fds: Vec<PollFd> = self.rings.iter().map(in_poll).collect();
            fds.extend(std::iter::once(&process).chain(stop).map(in_poll));
            match poll(&mut fds, left.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let is_ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
            let (has_ended, is_stopped) =
                (is_ready(self.rings.len()), is_ready(self.rings.len() + 1));
            drop(fds);
            if self.drain() > MOST_BYTES {
                return Ok(Over::Full);
            }
            if has_ended {
                return Ok(Over::Process);
            }
            if is_stopped {
                return Ok(Over::Stop);
            }
        }
    }

    /// Moves all records out of the rings; how many bytes there are now.
    fn drain(&mut self) -> usize {
        for (ring, records) in self.rings.iter_mut().zip(&mut self.records) {
            ring.drain(records);
        }
        self.records.iter().map(Vec::len).sum()
    }

    /// Ends the events. What comes while they end, one after another, is not part of the recording.
    ///
    /// # Errors
    /// None that a sane kernel returns.
    pub fn finish(mut self) -> io::Result<Captured> {
        let until = clock::monotonic_ns();
        self.events.iter().try_for_each(|(_, event)| event.disable())?;
        self.drain();
        let mut counted = Counted::default();
        for (kind, event) in &self.events {
            counted.add(*kind, event.count_and_id()?.0);
        }
        let Self { access, layout, records, .. } = self;
        Ok(Captured { access, layout, records, counted, until })
    }
}

fn in_poll<'a>(fd: &'a impl std::os::fd::AsFd) -> PollFd<'a> {
    PollFd::new(fd, PollFlags::IN)
}

/// Begins and ends of faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counted {
    /// Faults that began.
    pub begun: u64,
    /// That ended without I/O.
    pub minor: u64,
    /// With I/O.
    pub major: u64,
}

impl Counted {
    /// Some more of a kind.
    fn add(&mut self, kind: record::Event, more: u64) {
        let count = match kind {
            record::Event::Begin => &mut self.begun,
            record::Event::MinorEnd => &mut self.minor,
            record::Event::MajorEnd => &mut self.major,
            record::Event::Point(_) => return,
        };
        *count = count.saturating_add(more);
    }

    /// Both kinds of ends.
    pub fn ended(self) -> u64 {
        self.minor.saturating_add(self.major)
    }
}

/// What was recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Captured {
    /// What was allowed.
    pub access: Access,
    /// How records look.
    pub layout: Layout,
    /// The records of each CPU.
    pub records: Vec<Vec<u8>>,
    /// What the kernel counted, with all that was lost.
    pub counted: Counted,
    /// When the events began to end, in ns of the monotonic clock.
    pub until: u64,
}

/// What the records say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Decoded {
    /// The faults.
    pub recording: Recording,
    /// Records.
    pub records: u64,
    /// Begins and ends among them.
    pub found: Counted,
    /// How many more could not be decoded.
    pub undecoded: u64,
}

impl Captured {
    /// Bytes of all records.
    pub fn bytes(&self) -> usize {
        self.records.iter().map(Vec::len).sum()
    }

    /// Decodes all records, and gives the recorder those until the end.
    pub fn decode(&self, mut recorder: Recorder) -> Decoded {
        let (mut decoded, mut merged) =
            (Decoded::default(), Merged::new(&self.records, &self.layout));
        for record in merged.by_ref() {
            decoded.records += u64::from(record.what != What::Loses);
            if let Some(kind) = record.what.event() {
                decoded.found.add(kind, 1);
            }
            if record.time <= self.until {
                recorder.add(record);
            }
        }
        recorder.lasts_until(self.until);
        Decoded { recording: recorder.finish(), undecoded: merged.skipped(), ..decoded }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::End;

    #[test]
    fn rings_of_all_cpus_have_a_limit() {
        for (cpus, size) in [(0, 4 << 20), (1, 4 << 20), (16, 4 << 20), (24, 2 << 20)] {
            assert_eq!(ring_size(cpus), size, "{cpus}");
        }
        assert_eq!(ring_size(1 << 20), SMALLEST_RING);
    }

    #[test]
    fn a_fault_whose_end_may_be_lost_on_another_cpu_has_no_latency() {
        use crate::record::Record;
        use crate::record::made::{bytes, layout};
        let begin = What::Begin { ip: 0, address: 0, page: None };
        let end = What::End { is_major: true, page: None };
        let ring = |records: &[(u64, What)]| {
            let of = |(time, what): &(u64, _)| Record { time: *time, pid: 1, tid: 1, what: *what };
            records.iter().flat_map(|record| bytes(&of(record))).collect::<Vec<u8>>()
        };
        let captured = Captured {
            access: Access { user_only: false, page_sizes: true, huge: true },
            layout: layout(),
            records: vec![ring(&[(5, begin), (20, What::Lost(9))]), ring(&[(15, end)])],
            counted: Counted::default(),
            until: 30,
        };
        let decoded = captured.decode(Recorder::of_running(1, 0));
        assert_eq!((decoded.records, decoded.recording.lost), (3, 9));
        let found = decoded.recording.faults.iter().map(|fault| (fault.end, fault.latency));
        assert_eq!(found.collect::<Vec<_>>(), [(End::Lost, 0)]);
    }

    #[test]
    fn what_comes_while_events_end_is_counted_and_not_part_of_the_recording() {
        use crate::record::Record;
        use crate::record::made::{bytes, layout};
        let begin = What::Begin { ip: 0, address: 0, page: None };
        let end = What::End { is_major: true, page: None };
        let records = [(1, begin), (2, end), (3, begin), (5, end), (6, begin), (7, end)]
            .map(|(time, what)| bytes(&Record { time, pid: 1, tid: 1, what }))
            .concat();
        let captured = Captured {
            access: Access { user_only: false, page_sizes: true, huge: true },
            layout: layout(),
            records: vec![records],
            counted: Counted::default(),
            until: 4,
        };
        let decoded = captured.decode(Recorder::of_running(1, 0));
        assert_eq!(decoded.found, Counted { begun: 3, minor: 0, major: 3 });
        let faults: Vec<_> =
            decoded.recording.faults.iter().map(|fault| (fault.time, fault.end)).collect();
        assert_eq!(faults, [(1, End::Major), (3, End::None)]);
    }
}

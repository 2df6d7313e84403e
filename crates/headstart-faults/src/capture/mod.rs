//! Records events of page faults: opens them for threads on every CPU, and empties their rings
//! until a process has ended or the time is up. Decodes nothing.

mod error;
pub mod files;

pub use error::CaptureError;

use crate::merge::Merged;
use crate::record::{self, Layout};
use crate::recording::{Recorder, Recording};
use headstart::host::cpus;
use headstart_sys::perf::{Attributes, Counter, Event, Ring, flag, sample};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
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
            match Event::open(attributes, 0, -1).map_err(|error| (error.raw_os_error(), error)) {
                Ok(_) => return Ok(access),
                Err((Some(EINVAL), _)) if access.page_sizes => {
                    (access.page_sizes, access.huge) = (false, false);
                }
                Err((Some(EACCES | EPERM), _)) if !access.user_only => access.user_only = true,
                Err((_, error)) => return Err(CaptureError::of_open(error)),
            }
        }
    }

    fn attributes(self, counter: Counter, wakeup: u32) -> Attributes {
        use sample::{ADDR, DATA_PAGE_SIZE, IDENTIFIER, IP, TID, TIME};
        let place = if counter == Counter::FaultBegins { IP | ADDR } else { 0 };
        let has_page = match counter {
            Counter::Nothing => false,
            Counter::FaultBegins => self.page_sizes,
            Counter::MinorFaultEnds | Counter::MajorFaultEnds => self.huge,
        };
        let page = if has_page { DATA_PAGE_SIZE } else { 0 };
        let exclude = if self.user_only { flag::EXCLUDE_KERNEL | flag::EXCLUDE_HV } else { 0 };
        let inherit = if counter == Counter::Nothing { 0 } else { flag::INHERIT };
        let others = if counter == Counter::FaultBegins { OTHERS } else { 0 };
        Attributes {
            counter,
            sample: IDENTIFIER | TID | TIME | place | page,
            flags: flag::WATERMARK | flag::SAMPLE_ID_ALL | exclude | inherit | others,
            wakeup,
        }
    }
}

/// What one of the events records besides.
const OTHERS: u64 =
    flag::MMAP | flag::MMAP_DATA | flag::MMAP2 | flag::COMM | flag::COMM_EXEC | flag::TASK;

/// The same on all Linux machines.
const EPERM: i32 = 1;
const EACCES: i32 = 13;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;

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
/// The smallest, for users who may lock little memory.
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
    ring_bytes: usize,
}

/// Opens the events of `scope` on all CPUs that are online. What is recorded begins now.
///
/// # Errors
/// Those of [`CaptureError`].
pub fn start(scope: Scope, access: Access) -> Result<Capture, CaptureError> {
    events_of(scope, &cpus::online_numbers(), access)
}

/// The same on these CPUs.
///
/// # Errors
/// Those of [`CaptureError`].
pub fn events_of(scope: Scope, cpus: &[i32], access: Access) -> Result<Capture, CaptureError> {
    let mut size = ring_size(cpus.len());
    loop {
        match with_rings(scope, cpus, access, size) {
            Err(CaptureError::Memory(_)) if size > SMALLEST_RING => size /= 2,
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
    size: usize,
) -> Result<Capture, CaptureError> {
    let own = [0];
    let tids = match scope {
        Scope::Own => &own,
        Scope::Threads(tids) => tids,
    };
    let kinds = [
        (record::Event::Begin, Counter::FaultBegins),
        (record::Event::MinorEnd, Counter::MinorFaultEnds),
        (record::Event::MajorEnd, Counter::MajorFaultEnds),
    ];
    let wakeup = (size / 4) as u32;
    let mut capture = Capture {
        access,
        events: Vec::new(),
        rings: Vec::new(),
        layout: Layout {
            begins_have_pages: access.page_sizes,
            ends_have_pages: access.huge,
            ..Layout::default()
        },
        records: Vec::new(),
        ring_bytes: size,
    };
    let mut is_found = false;
    for &cpu in cpus {
        // It belongs to this thread, which does not end before the recording.
        let owner = match Event::open(access.attributes(Counter::Nothing, wakeup), 0, cpu) {
            // It went offline.
            Err(error) if error.raw_os_error() == Some(ENODEV) => continue,
            other => other.map_err(CaptureError::of_open)?,
        };
        let ring = Ring::new(owner, size).map_err(CaptureError::of_ring)?;
        for (event, &tid) in kinds.iter().flat_map(|kind| tids.iter().map(move |tid| (kind, tid))) {
            let (event, counter) = *event;
            let opened = match Event::open(access.attributes(counter, wakeup), tid, cpu) {
                // A thread that has ended meanwhile.
                Err(error) if error.raw_os_error() == Some(ESRCH) => continue,
                other => other.map_err(CaptureError::of_attaching)?,
            };
            opened.record_into(&ring)?;
            capture.layout.events.insert(opened.count_and_id()?.1, event);
            capture.events.push((event, opened));
            is_found = true;
        }
        capture.rings.push(ring);
        capture.records.push(Vec::new());
    }
    if is_found { Ok(capture) } else { Err(CaptureError::Gone) }
}

const ESRCH: i32 = 3;

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

    /// Ends the events.
    ///
    /// # Errors
    /// None that a sane kernel returns.
    pub fn finish(mut self) -> io::Result<Captured> {
        let mut counted = Counted::default();
        for (kind, event) in &self.events {
            let (count, _) = event.count_and_id()?;
            match kind {
                record::Event::Begin => counted.begun += count,
                record::Event::MinorEnd => counted.minor += count,
                record::Event::MajorEnd => counted.major += count,
            }
        }
        self.drain();
        let Self { access, layout, records, ring_bytes, .. } = self;
        Ok(Captured { access, layout, records, ring_bytes, counted })
    }
}

fn in_poll<'a>(fd: &'a impl std::os::fd::AsFd) -> PollFd<'a> {
    PollFd::new(fd, PollFlags::IN)
}

/// What the kernel counted, with all that was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    /// Faults that began.
    pub begun: u64,
    /// That ended without I/O.
    pub minor: u64,
    /// With I/O.
    pub major: u64,
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
    /// Bytes of each CPU's ring.
    pub ring_bytes: usize,
    /// What the kernel counted.
    pub counted: Counted,
}

impl Captured {
    /// Bytes of all records.
    pub fn bytes(&self) -> usize {
        self.records.iter().map(Vec::len).sum()
    }

    /// The faults, how many records there were, and how many more could not be decoded.
    pub fn recording(&self, mut recorder: Recorder) -> (Recording, u64, u64) {
        let (mut merged, mut count) = (Merged::new(&self.records, &self.layout), 0);
        for record in merged.by_ref() {
            recorder.add(record);
            count += 1;
        }
        (recorder.finish(), count, merged.skipped())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_of_all_cpus_have_a_limit() {
        for (cpus, size) in [(0, 4 << 20), (1, 4 << 20), (16, 4 << 20), (24, 2 << 20)] {
            assert_eq!(ring_size(cpus), size, "{cpus}");
        }
        assert_eq!(ring_size(1 << 20), SMALLEST_RING);
    }
}

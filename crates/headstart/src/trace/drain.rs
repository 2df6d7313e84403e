//! Empties an instance's buffers while a program starts.
//!
//! A thread sleeps until a buffer is a quarter full, so that it does not disturb an ordinary start,
//! and copies the used part of each page; decoding comes after the start. A buffer that fills too
//! fast is doubled.

use super::activity::ActivityDetector;
use super::buffer_size::{
    DEFAULT_BUFFER_KB, MAX_BYTES, RecordingLimits, Sizes, crowds_out, needed_kb,
};
use super::decode::{Decoder, Tally};
use super::format::{FormatError, PageHeader, parse_page_header};
use super::instance::Instance;
use super::page::used;
use super::raw::RawPages;
use super::tracefs::{TraceError, Tracefs};
use crate::host::memory;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use thiserror::Error;

/// A buffer that is this full is doubled, in percent.
const GROW_PERCENT: u64 = 50;
/// How often a watching recorder checks the buffers.
const WATCH_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
/// The same before the first query.
const UNWATCHED_INTERVAL: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Additions and first accesses within [`WATCH_INTERVAL`] that still count as idle.
const TRICKLE: u64 = 8;

/// A capture that could not be made.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// Tracing is not available.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The kernel describes its trace data in an unknown way.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The kernel refused to hand out a buffer.
    #[error("Reading the trace buffers failed")]
    Read(#[source] io::Error),
    /// The program needs the memory of the control group.
    #[error("The control group leaves too little memory. Raise its limit, or learn outside of it")]
    NoRoom,
}

/// Raw pages that were recorded elsewhere before a recording began.
#[derive(Clone, Default, Debug)]
pub struct Earlier {
    pages: RawPages,
    lost: u64,
}

/// Added to the number of a CPU for pages of the global buffer, whose times overlap
/// with those of ours.
const ELSEWHERE: u32 = 1 << 24;

impl Earlier {
    /// What the global instance holds, if the kernel was told to enable our events in
    /// it before there was anybody else. They are switched off there: another instance
    /// has to record them by now. `None` when none of ours is enabled, or others are
    /// too: then somebody else reads it.
    ///
    /// # Errors
    /// It can't be read.
    pub fn of_global(tracefs: &Tracefs) -> Result<Option<Self>, CaptureError> {
        let global = Instance::global(tracefs)?;
        let Some(enabled) = global.only_ours().filter(|enabled| !enabled.is_empty()) else {
            return Ok(None);
        };
        global.disable(&enabled)?;
        let header = parse_page_header(&tracefs.header_page()?)?;
        let mut page = vec![0; global.sub_buffer_size()];
        let mut out = Self::default();
        let mut buffers = global.open_buffers()?;
        let to = (&mut out.pages, MAX_BYTES);
        empty(&mut buffers, ELSEWHERE, &mut page, &header, to).map_err(CaptureError::Read)?;
        let stats = global.stats(buffers.iter().map(|(cpu, _)| *cpu))?;
        drop(buffers);
        // As large as the command line made it, it would be so for nothing until the machine
        // is switched off.
        if global.buffer_kb()? > DEFAULT_BUFFER_KB {
            let _ = global.set_buffer_kb(DEFAULT_BUFFER_KB);
        }
        out.lost = stats.lost(out.pages.packed_bytes() >= MAX_BYTES);
        Ok(Some(out))
    }
}

/// Where raw pages are kept, and how many bytes at most.
type Kept<'a> = (&'a mut RawPages, usize);

/// Copies what the buffers hold, with this added to the number of each CPU, and returns the
/// most bytes that one held. Those of CPUs that are not there go: the kernel names a buffer
/// for each that there may be, and has one only of those that were online.
pub(super) fn empty(
    buffers: &mut Vec<(u32, File)>,
    added: u32,
    page: &mut [u8],
    header: &PageHeader,
    (pages, most): Kept<'_>,
) -> io::Result<u64> {
    let (mut fullest, mut failure) = (0, None);
    buffers.retain_mut(|(cpu, file)| {
        match copy(*cpu + added, file, page, header, (pages, most)) {
            Ok(taken) => fullest = fullest.max(taken),
            Err(error) if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => {
                return false;
            }
            Err(error) => failure = Some(error),
        }
        true
    });
    failure.map_or(Ok(fullest), Err)
}

/// Copies what the buffer of a CPU holds, as long as less than the `most` is kept.
/// Returns the bytes taken.
fn copy(
    cpu: u32,
    file: &mut File,
    page: &mut [u8],
    header: &PageHeader,
    (pages, most): Kept<'_>,
) -> io::Result<u64> {
    let mut taken = 0;
    while pages.packed_bytes() < most {
        match file.read(page) {
            Ok(0) => break,
            Ok(n) => {
                pages.push(cpu, &page[..used(&page[..n], header)]);
                taken += n as u64;
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(taken)
}

/// What the reading thread shares meanwhile.
#[derive(Debug)]
pub(super) struct Activity {
    since: Instant,
    last_ms: AtomicU64,
    /// Whether the time of the last activity is wanted.
    wanted: AtomicBool,
    /// Whether no more is kept.
    full: AtomicBool,
}

impl Activity {
    pub(super) fn new() -> Self {
        Self {
            since: Instant::now(),
            last_ms: AtomicU64::new(0),
            wanted: AtomicBool::new(false),
            full: AtomicBool::new(false),
        }
    }

    /// For how long there has been none, since this was asked first.
    pub(super) fn idle_for(&self) -> Duration {
        if !self.wanted.swap(true, Ordering::Relaxed) {
            self.note();
        }
        let last = Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
        self.since.elapsed().saturating_sub(last)
    }

    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Notes that there is some now.
    fn note(&self) {
        let now = self.since.elapsed().as_millis();
        self.last_ms.store(u64::try_from(now).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// What the reading thread gathers.
#[derive(Debug)]
pub(super) struct Drained {
    pub(super) instance: Instance,
    pub(super) pages: RawPages,
    pub(super) lost: u64,
    /// Present size of the buffer of one CPU.
    buffer_kb: u32,
    /// The size that the next start begins with; 0 for the default.
    pub(super) needed_kb: u32,
}

/// The reading thread's state.
pub(super) struct Drain {
    buffers: Vec<(u32, File)>,
    stop: OwnedFd,
    header: PageHeader,
    watch: Option<(Decoder, Arc<Activity>, ActivityDetector)>,
    sizes: Sizes,
    /// Raw pages kept at most, in bytes.
    most: usize,
    out: Drained,
}

impl Drain {
    /// Of this instance, until `stop` can be read. With a `watch` the time of the last activity
    /// is noted.
    pub(super) fn new(
        instance: Instance,
        earlier: Earlier,
        header: PageHeader,
        stop: OwnedFd,
        watch: Option<(Decoder, Arc<Activity>)>,
        sizes: Sizes,
    ) -> Result<Self, CaptureError> {
        let Earlier { pages, lost } = earlier;
        let (buffers, buffer_kb) = (instance.open_buffers()?, instance.buffer_kb()?);
        let out = Drained { instance, pages, lost, buffer_kb, needed_kb: 0 };
        let watch = watch.map(|(decoder, told)| (decoder, told, ActivityDetector::default()));
        Ok(Self { buffers, stop, header, watch, sizes, most: MAX_BYTES, out })
    }

    pub(super) fn run(mut self) -> Result<Drained, CaptureError> {
        let mut page = vec![0; self.out.instance.sub_buffer_size()];
        let Sizes { may_change, bounds } = self.sizes;
        let RecordingLimits { largest_kb, most } = bounds.unwrap_or_else(RecordingLimits::here);
        self.most = most;
        let mut most_filled = 0;
        loop {
            let stopped = self.wait().map_err(CaptureError::Read)?;
            if stopped {
                self.out.instance.stop()?;
                self.add_buffers();
            }
            let seen = self.out.pages.len();
            let fullest = self.empty(&mut page).map_err(CaptureError::Read)?;
            most_filled = most_filled.max(fullest);
            if crowds_out(self.out.pages.packed_bytes(), memory::group_room_for_cache()) {
                // Its memory goes, and the instance.
                return Err(CaptureError::NoRoom);
            }
            if stopped {
                break;
            }
            self.note_activity(seen);
            let buffer = u64::from(self.out.buffer_kb) * 1024;
            let filled = fullest * 100 > buffer * GROW_PERCENT;
            if filled && may_change && self.out.buffer_kb < largest_kb {
                let doubled = (self.out.buffer_kb * 2).min(largest_kb);
                // No memory for it is no reason to end the recording.
                if self.out.instance.set_buffer_kb(doubled).is_ok() {
                    self.out.buffer_kb = doubled;
                }
            }
        }
        if may_change {
            self.out.needed_kb = needed_kb(self.out.buffer_kb, most_filled);
        }
        let stats = self.out.instance.stats(self.buffers.iter().map(|(cpu, _)| *cpu))?;
        self.out.lost += stats.lost(self.out.pages.packed_bytes() >= self.most);
        Ok(self.out)
    }

    /// Adds the buffers of CPUs that came online meanwhile.
    fn add_buffers(&mut self) {
        // Without them their content is not decoded, as if it were lost.
        for (cpu, file) in self.out.instance.open_buffers().into_iter().flatten() {
            if self.buffers.iter().all(|(known, _)| *known != cpu) {
                self.buffers.push((cpu, file));
            }
        }
    }

    /// Sleeps until a buffer fills up or the recording ends; true at its end.
    fn wait(&self) -> io::Result<bool> {
        // Beyond the limit the kernel drops and counts events.
        let full = self.out.pages.packed_bytes() >= self.most;
        let buffers = if full { &[] } else { &self.buffers[..] };
        let mut fds = vec![PollFd::new(&self.stop, PollFlags::IN)];
        fds.extend(buffers.iter().map(|(_, file)| PollFd::new(file, PollFlags::IN)));
        let interval = |(_, activity, _): &(_, Arc<Activity>, _)| {
            if activity.wanted.load(Ordering::Relaxed) {
                WATCH_INTERVAL
            } else {
                UNWATCHED_INTERVAL
            }
        };
        let timeout = self.watch.as_ref().map(interval);
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(!fds[0].revents().is_empty()),
            Err(e) => Err(e.into()),
        }
    }

    /// Copies what the buffers hold and returns the most that one held.
    fn empty(&mut self, page: &mut [u8]) -> io::Result<u64> {
        empty(&mut self.buffers, 0, page, &self.header, (&mut self.out.pages, self.most))
    }

    /// Notes the time if the pages since `seen` have more than a few new accesses.
    fn note_activity(&mut self, seen: usize) {
        let Some((decoder, activity, detector)) = &mut self.watch else { return };
        activity.full.store(self.out.pages.packed_bytes() >= self.most, Ordering::Relaxed);
        if !activity.wanted.load(Ordering::Relaxed) {
            return;
        }
        let mut new = 0u64;
        for page in self.out.pages.iter().skip(seen) {
            decoder.page(&page.unpack(), &mut Tally::default(), |event| {
                new = new.saturating_add(detector.of(&event));
            });
        }
        if new > TRICKLE {
            activity.note();
        }
    }
}

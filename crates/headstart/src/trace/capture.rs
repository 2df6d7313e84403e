//! Empties an instance's buffers while a program starts.
//!
//! A thread sleeps until a buffer is a quarter full, so that an ordinary
//! start is not disturbed at all, and copies what is used of each page without
//! looking at it; decoding comes after the start. A buffer that fills too fast is doubled.

use super::activity::ActivityDetector;
use super::decode::{Decoder, Tally};
use super::file::{Capture, Description};
use super::format::{FormatError, PageHeader, parse_page_header};
use super::page::used;
use super::tracefs::{Instance, TraceError, Tracefs};
use crate::host::memory;
use crate::host::processors;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Largest buffer of one CPU, in KiB: half a million events.
const MAX_BUFFER_KB: u32 = 32 * 1024;
/// The kernel's own, in KiB (`TRACE_BUF_SIZE_DEFAULT` of kernel/trace/trace.c).
const DEFAULT_BUFFER_KB: u32 = 1408;
/// A buffer found this full is doubled, in percent.
const GROW_PERCENT: u64 = 50;
/// The next start has half of a buffer that was never this full, in percent: as full as it
/// has to be to wake the reader.
const SHRINK_PERCENT: u64 = 25;
/// Raw pages kept at most. 10 s of a start are far below; a start beyond it
/// counts as lossy rather than filling the memory.
const MAX_BYTES: usize = 512 << 20;
/// One of so many bytes that may be filled may be buffers of the kernel, and one raw pages.
const SHARE: u64 = 4;

/// How often a watching recorder looks.
const WATCH_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
/// Pages that come in, or into use, within [`WATCH_INTERVAL`] and still count as idle.
const TRICKLE: u64 = 8;

/// A capture that could not be made.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// Tracing is not to be had.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The kernel describes its trace data in an unknown way.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The kernel refused to hand out a buffer.
    #[error("Reading the trace buffers failed")]
    Read(#[source] io::Error),
}

/// Whose events are recorded.
pub enum Scope {
    /// A process and its descendants.
    Tree(i32),
    /// The same, of a process whose number the kernel counts otherwise than our PID
    /// namespace: it writes the mark that it is asked for.
    Marked(AskForMark),
    /// What the calling thread forks from now on, whatever numbers its PID
    /// namespace shows.
    Descendants,
    /// Everything on the machine.
    System,
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tree(pid) => f.debug_tuple("Tree").field(pid).finish(),
            Self::Marked(_) => f.write_str("Marked"),
            Self::Descendants => f.write_str("Descendants"),
            Self::System => f.write_str("System"),
        }
    }
}

/// Has a process write a text into a file.
pub type AskForMark = Box<dyn FnOnce(&Path, &str) -> io::Result<()> + Send>;

/// How large the buffer of each CPU is, in KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BufferSize {
    /// The kernel's default, doubled when it fills up.
    Default,
    /// What an earlier start needed, doubled when it fills up.
    From(u32),
    /// This and no more, whatever is lost: how losses are provoked.
    Fixed(u32),
}

/// What bounds a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// How large the buffer of each CPU may get, in KiB.
    pub largest_kb: u32,
    /// Raw pages that are kept, in bytes. What comes later counts as lost.
    pub most: usize,
}

impl Bounds {
    /// Here and now. Only processors that are online have a buffer.
    pub fn here() -> Self {
        Self::within(memory::budget(), processors::online())
    }

    /// With buffers for so many CPUs, where `memory` bytes may be filled.
    pub fn within(memory: u64, cpus: usize) -> Self {
        let each_kb = memory / SHARE / 1024 / (cpus as u64).max(1);
        let largest_kb = u32::try_from(each_kb).unwrap_or(u32::MAX);
        let largest_kb = largest_kb.clamp(DEFAULT_BUFFER_KB, MAX_BUFFER_KB);
        let most = usize::try_from(memory / SHARE).unwrap_or(usize::MAX).min(MAX_BYTES);
        Self { largest_kb, most }
    }
}

/// What may become of the buffers of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Whether they may have another size than at the begin.
    pub may_change: bool,
    /// What bounds them; looked up when the recording is under way where it is not known yet.
    pub bounds: Option<Bounds>,
}

/// The buffer that the next start begins with, in KiB, 0 for the kernel's own, after one
/// whose last buffer was never fuller than so many bytes.
fn needed_kb(buffer_kb: u32, fullest: u64) -> u32 {
    let is_too_large = fullest * 100 < u64::from(buffer_kb) * 1024 * SHRINK_PERCENT;
    let kb = if is_too_large { buffer_kb / 2 } else { buffer_kb };
    if kb > DEFAULT_BUFFER_KB { kb } else { 0 }
}

/// Raw pages that were recorded elsewhere before a recording began.
#[derive(Clone, Default, Debug)]
pub struct Earlier {
    bytes: Vec<u8>,
    pages: Vec<(u32, u32)>,
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
        let global = tracefs.global()?;
        let Some(enabled) = global.only_ours().filter(|enabled| !enabled.is_empty()) else {
            return Ok(None);
        };
        global.disable(&enabled)?;
        let header = parse_page_header(&tracefs.header_page()?)?;
        let mut page = vec![0; global.sub_buffer_size()];
        let mut out = Self::default();
        let mut buffers = global.open_buffers()?;
        let to = (&mut out.bytes, &mut out.pages, MAX_BYTES);
        empty(&mut buffers, ELSEWHERE, &mut page, &header, to).map_err(CaptureError::Read)?;
        let stats = global.stats(buffers.iter().map(|(cpu, _)| *cpu))?;
        drop(buffers);
        // As large as the command line made it, it would be so for nothing until the machine
        // is switched off.
        if global.buffer_kb()? > DEFAULT_BUFFER_KB {
            let _ = global.set_buffer_kb(DEFAULT_BUFFER_KB);
        }
        out.lost = stats.lost(out.bytes.len() >= MAX_BYTES);
        Ok(Some(out))
    }
}

/// Where raw pages are kept, with the CPU and the length of each, and how many bytes at most.
type Kept<'a> = (&'a mut Vec<u8>, &'a mut Vec<(u32, u32)>, usize);

/// Copies what the buffers hold, with this added to the number of each CPU, and returns the
/// most bytes that one held. Those of CPUs that are not there go: the kernel names a buffer
/// for each that there may be, and has one only of those that were online.
fn empty(
    buffers: &mut Vec<(u32, File)>,
    added: u32,
    page: &mut [u8],
    header: &PageHeader,
    (bytes, pages, most): Kept<'_>,
) -> io::Result<u64> {
    let (mut fullest, mut failure) = (0, None);
    buffers.retain_mut(|(cpu, file)| {
        match copy(*cpu + added, file, page, header, (bytes, pages, most)) {
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
    (bytes, pages, most): Kept<'_>,
) -> io::Result<u64> {
    let mut taken = 0;
    while bytes.len() < most {
        match file.read(page) {
            Ok(0) => break,
            Ok(n) => {
                let used = &page[..used(&page[..n], header)];
                bytes.extend_from_slice(used);
                pages.push((cpu, used.len() as u32));
                taken += n as u64;
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(taken)
}

/// An armed instance whose buffers are being emptied.
#[derive(Debug)]
pub struct Recorder {
    description: Description,
    stop: OwnedFd,
    reader: JoinHandle<Result<Drained, CaptureError>>,
    activity: Arc<Activity>,
}

/// What the reading thread tells meanwhile.
#[derive(Debug)]
struct Activity {
    since: Instant,
    last_ms: AtomicU64,
    /// Whether somebody wants to know the time of the last activity.
    wanted: AtomicBool,
    /// Whether no more is kept.
    full: AtomicBool,
}

impl Activity {
    /// Notes that there is some now.
    fn note(&self) {
        let now = self.since.elapsed().as_millis();
        self.last_ms.store(u64::try_from(now).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl Recorder {
    /// Creates an instance, enables the events for `scope` and starts to
    /// empty the buffers. With `watch` the buffers are looked at four times a second, so that
    /// [`Recorder::idle_for`] can tell when reading has died down.
    pub fn start(
        tracefs: &Tracefs,
        scope: Scope,
        buffer: BufferSize,
        watch: bool,
    ) -> Result<Self, CaptureError> {
        let instance = Instance::create(tracefs, None)?;
        let bounds = match buffer {
            // The program waits for this.
            BufferSize::Default => None,
            BufferSize::Fixed(kb) => {
                instance.set_buffer_kb(kb)?;
                None
            }
            BufferSize::From(kb) => {
                let bounds = Bounds::here();
                // No memory for it is no reason not to record.
                let _ = instance.set_buffer_kb(kb.min(bounds.largest_kb));
                Some(bounds)
            }
        };
        let may_change = !matches!(buffer, BufferSize::Fixed(_));
        let mut ignored_tids = Vec::new();
        match scope {
            Scope::Tree(pid) => instance.follow(pid)?,
            Scope::Marked(ask) => instance.follow(instance.marked_tid(ask)?)?,
            Scope::Descendants => {
                let tid = instance.own_tid()?;
                instance.follow(tid)?;
                ignored_tids.push(tid);
            }
            Scope::System => {}
        }
        let sizes = Sizes { may_change, bounds };
        Self::of(tracefs, instance, ignored_tids, Earlier::default(), sizes, watch)
    }

    /// Enables the events in `instance`, unless they are, and starts to empty its
    /// buffers, also of what was in them before. `earlier` is what was recorded
    /// elsewhere.
    pub fn of(
        tracefs: &Tracefs,
        instance: Instance,
        ignored_tids: Vec<i32>,
        earlier: Earlier,
        sizes: Sizes,
        watch: bool,
    ) -> Result<Self, CaptureError> {
        let formats = instance.enable_events()?;
        let uname = rustix::system::uname();
        let description = Description {
            header_page: tracefs.header_page()?,
            formats,
            page_size: rustix::param::page_size() as u64,
            kernel: format!(
                "{} {}",
                uname.release().to_string_lossy(),
                uname.machine().to_string_lossy()
            ),
            block_devices: Vec::new(),
            ignored_tids,
            lost: 0,
            buffer_kb: 0,
        };
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(|e| CaptureError::Read(e.into()))?;
        let activity = Arc::new(Activity {
            since: Instant::now(),
            last_ms: AtomicU64::new(0),
            wanted: AtomicBool::new(false),
            full: AtomicBool::new(false),
        });
        let drain = Drain {
            buffers: instance.open_buffers()?,
            stop: stop.try_clone().map_err(CaptureError::Read)?,
            header: parse_page_header(&description.header_page)?,
            watch: if watch {
                Some((description.decoder()?, activity.clone(), ActivityDetector::default()))
            } else {
                None
            },
            sizes,
            most: MAX_BYTES,
            out: Drained {
                buffer_kb: instance.buffer_kb()?,
                needed_kb: 0,
                instance,
                bytes: earlier.bytes,
                pages: earlier.pages,
                lost: earlier.lost,
            },
        };
        let reader = thread::Builder::new()
            .name("drain".into())
            .spawn(move || drain.run())
            .map_err(CaptureError::Read)?;
        Ok(Self { description, stop, reader, activity })
    }

    /// How long hardly any page has come in or into use, for a recorder that watches: since
    /// this was asked first, for looking at each event is not free.
    pub fn idle_for(&self) -> Duration {
        if !self.activity.wanted.swap(true, Ordering::Relaxed) {
            self.activity.note();
        }
        let last = Duration::from_millis(self.activity.last_ms.load(Ordering::Relaxed));
        self.activity.since.elapsed().saturating_sub(last)
    }

    /// Whether as much as may be was kept, so that what comes now is lost; for a recorder
    /// that watches.
    pub fn is_full(&self) -> bool {
        self.activity.full.load(Ordering::Relaxed)
    }

    /// Ends recording and empties the buffers. The instance comes back so
    /// that the caller decides when to pay for its removal.
    pub fn finish(self) -> Result<(Capture, Instance), CaptureError> {
        rustix::io::write(&self.stop, &1u64.to_ne_bytes())
            .map_err(|e| CaptureError::Read(e.into()))?;
        let failed = |_| CaptureError::Read(io::Error::other("the reading thread died"));
        let drained = self.reader.join().map_err(failed)??;
        let mut description = self.description;
        description.lost = drained.lost;
        description.buffer_kb = drained.needed_kb;
        let capture = Capture { description, bytes: drained.bytes, pages: drained.pages };
        Ok((capture, drained.instance))
    }
}

/// What the reading thread gathers.
#[derive(Debug)]
struct Drained {
    instance: Instance,
    bytes: Vec<u8>,
    pages: Vec<(u32, u32)>,
    lost: u64,
    /// Present size of the buffer of one CPU.
    buffer_kb: u32,
    /// The size that the next start begins with; 0 for the default.
    needed_kb: u32,
}

/// The reading thread's state.
struct Drain {
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
    fn run(mut self) -> Result<Drained, CaptureError> {
        let mut page = vec![0; self.out.instance.sub_buffer_size()];
        let Sizes { may_change, bounds } = self.sizes;
        let Bounds { largest_kb, most } = bounds.unwrap_or_else(Bounds::here);
        self.most = most;
        let mut most_filled = 0;
        loop {
            let stopped = self.wait().map_err(CaptureError::Read)?;
            if stopped {
                self.out.instance.stop()?;
                self.add_buffers();
            }
            let seen = self.out.pages.len();
            let seen_bytes = self.out.bytes.len();
            let fullest = self.empty(&mut page).map_err(CaptureError::Read)?;
            most_filled = most_filled.max(fullest);
            if stopped {
                break;
            }
            self.note_activity(seen, seen_bytes);
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
        self.out.lost += stats.lost(self.out.bytes.len() >= self.most);
        Ok(self.out)
    }

    /// Adds the buffers of processors that came online meanwhile.
    fn add_buffers(&mut self) {
        // Where they can't be had, what is in them is not seen, as if it had been lost.
        for (cpu, file) in self.out.instance.open_buffers().into_iter().flatten() {
            if self.buffers.iter().all(|(known, _)| *known != cpu) {
                self.buffers.push((cpu, file));
            }
        }
    }

    /// Sleeps until a buffer fills up or the recording ends; true at its end.
    fn wait(&self) -> io::Result<bool> {
        // Past the limit the kernel drops and counts what comes.
        let full = self.out.bytes.len() >= self.most;
        let buffers = if full { &[] } else { &self.buffers[..] };
        let mut fds = vec![PollFd::new(&self.stop, PollFlags::IN)];
        fds.extend(buffers.iter().map(|(_, file)| PollFd::new(file, PollFlags::IN)));
        let timeout = self.watch.is_some().then_some(WATCH_INTERVAL);
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(!fds[0].revents().is_empty()),
            Err(e) => Err(e.into()),
        }
    }

    /// Copies what the buffers hold and returns the most that one held.
    fn empty(&mut self, page: &mut [u8]) -> io::Result<u64> {
        let Drained { bytes, pages, .. } = &mut self.out;
        empty(&mut self.buffers, 0, page, &self.header, (bytes, pages, self.most))
    }

    /// Notes the time when the pages since `seen` hold more than a trickle of what is new.
    fn note_activity(&mut self, seen: usize, seen_bytes: usize) {
        let Some((decoder, activity, stir)) = &mut self.watch else { return };
        activity.full.store(self.out.bytes.len() >= self.most, Ordering::Relaxed);
        if !activity.wanted.load(Ordering::Relaxed) {
            return;
        }
        let mut new = 0u64;
        let mut rest = &self.out.bytes[seen_bytes..];
        for &(_, length) in &self.out.pages[seen..] {
            let Some((page, after)) = rest.split_at_checked(length as usize) else { break };
            decoder.page(page, &mut Tally::default(), |event| {
                new = new.saturating_add(stir.of(&event));
            });
            rest = after;
        }
        if new > TRICKLE {
            activity.note();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_recording_takes_no_more_than_its_share_of_the_memory() {
        for (name, memory, cpus, largest_kb, most) in [
            ("plenty", 64 << 30, 2, 32 * 1024, MAX_BYTES),
            ("many CPUs", 1024 * MIB, 128, 2048, 256 << 20),
            ("little memory", 8 * MIB, 2, 1408, 2 << 20),
            ("nothing is known of it", 0, 0, 1408, 0),
        ] {
            assert_eq!(Bounds::within(memory, cpus), Bounds { largest_kb, most }, "{name}");
        }
    }

    #[test]
    fn a_buffer_that_was_never_a_quarter_full_is_halved_for_the_next_start() {
        for (name, buffer_kb, fullest, expected) in [
            ("the kernel's own", 1408, 100, 0),
            ("the kernel's own, full", 1408, 1408 << 10, 0),
            ("doubled and used", 2816, 1408 << 10, 2816),
            ("a quarter full", 4096, MIB, 4096),
            ("less", 32_768, MIB, 16_384),
            ("as small as the kernel's own", 2816, 100, 0),
        ] {
            assert_eq!(needed_kb(buffer_kb, fullest), expected, "{name}");
        }
    }
}

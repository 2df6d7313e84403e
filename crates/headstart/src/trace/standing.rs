//! A trace instance that stays: it records the process trees that are added, several at once, and
//! hands out what it recorded since a mark. The driver.
//!
//! Events are enabled while there is something to record, and limited to the threads that were
//! added and what they fork, so that others cost nothing.

use super::activity::Activities;
pub use super::activity::Recording;
use super::capture::CaptureError;
use super::decode::{Decoder, Tally};
use super::drain::empty;
use super::file::{Capture, Description};
use super::forks::Forks;
use super::format::{PageHeader, parse_page_header};
use super::instance::Instance;
use super::raw::RawPages;
use super::tracefs::{TraceError, Tracefs};
use crate::cache::residency::page_size;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// An instance for process trees that come and go.
#[derive(Debug)]
pub struct Standing {
    description: Description,
    header: PageHeader,
    forks: Forks,
    decoder: Decoder,
    activities: Activities,
    /// One sub-buffer.
    page: Vec<u8>,
    pages: RawPages,
    /// What raw pages take at most, in bytes.
    most: usize,
    /// Whether events are recorded.
    records: bool,
    // Before the instance: the kernel refuses to remove it while they are open.
    buffers: Vec<(u32, File)>,
    instance: Instance,
}

/// A moment of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    pages: usize,
    lost: u64,
    is_full: bool,
}

impl Standing {
    /// Makes the instance, with buffers of `buffer_kb` KiB a CPU, that keeps `most` bytes of raw
    /// pages. It records nothing yet.
    ///
    /// # Errors
    /// Nothing can be traced here.
    pub fn create(
        tracefs: &Tracefs,
        label: &str,
        buffer_kb: u32,
        most: usize,
    ) -> Result<Self, CaptureError> {
        let instance = Instance::labelled(tracefs, label, Some(buffer_kb))?;
        instance.set_clock("mono")?;
        instance.follow_forks()?;
        let header_page = tracefs.header_page()?;
        let fork = instance.format("sched", "sched_process_fork")?;
        let mut formats = instance.formats()?;
        let forks = Forks::new(&header_page, &fork)?;
        formats.push(fork);
        let uname = rustix::system::uname();
        let kernel =
            format!("{} {}", uname.release().to_string_lossy(), uname.machine().to_string_lossy());
        let description = Description {
            header_page,
            formats,
            page_size: page_size(),
            kernel,
            block_devices: Vec::new(),
            ignored_tids: Vec::new(),
            metadata_tids: Vec::new(),
            // It is the monotonic one.
            clock_ahead_ns: Some(0),
            lost: 0,
            buffer_kb: 0,
        };
        Ok(Self {
            header: parse_page_header(&description.header_page)?,
            decoder: description.decoder()?,
            activities: Activities::default(),
            page: vec![0; instance.sub_buffer_size()],
            buffers: instance.open_buffers()?,
            description,
            forks,
            pages: RawPages::default(),
            most,
            records: false,
            instance,
        })
    }

    /// Descriptors that can be read when a buffer fills up.
    ///
    /// # Errors
    /// There are too many open files.
    pub fn wakes(&self) -> io::Result<Vec<OwnedFd>> {
        self.buffers.iter().map(|(_, file)| file.try_clone().map(OwnedFd::from)).collect()
    }

    /// Records these threads and all that they fork from now on.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn begin(&mut self, tids: &[i32]) -> Result<(Recording, Mark), TraceError> {
        self.trace(tids)?;
        let from = self.mark()?;
        Ok((self.activities.begin(tids, Instant::now()), from))
    }

    /// The same threads for a recording that has begun.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn join(&mut self, recording: Recording, tids: &[i32]) -> Result<(), TraceError> {
        self.trace(tids)?;
        self.activities.join(recording, tids);
        Ok(())
    }

    /// Ends a recording: its threads, which stay in the trace, are not active for any other.
    pub fn end(&mut self, recording: Recording) {
        self.activities.end(recording);
    }

    fn trace(&mut self, tids: &[i32]) -> Result<(), TraceError> {
        tids.iter().try_for_each(|tid| self.instance.add_pid(*tid))?;
        if !self.records {
            self.instance.enable_events()?;
            self.instance.enable("sched", "sched_process_fork")?;
            self.records = true;
        }
        Ok(())
    }

    /// This moment, as of the last collection.
    ///
    /// # Errors
    /// The kernel does not tell what was lost.
    pub fn mark(&self) -> Result<Mark, TraceError> {
        Ok(Mark { pages: self.pages.len(), lost: self.lost()?, is_full: self.is_full() })
    }

    /// Takes what the buffers hold.
    ///
    /// # Errors
    /// The kernel does not hand it out.
    pub fn collect(&mut self) -> io::Result<()> {
        let seen = self.pages.len();
        let to = (&mut self.pages, self.most);
        empty(&mut self.buffers, 0, &mut self.page, &self.header, to)?;
        let new = self.pages.part(seen, self.pages.len());
        // Before the events: a child may run on another CPU.
        self.activities.note_forks(&self.forks.of(&new));
        for page in new.iter() {
            self.decoder.page(&page.unpack(), &mut Tally::default(), |event| {
                self.activities.note(&event);
            });
        }
        self.activities.settle(Instant::now());
        Ok(())
    }

    /// For how long hardly any page was added or first accessed for a recording, as of the last
    /// collection; none if it has ended.
    pub fn idle_for(&self, recording: Recording) -> Option<Duration> {
        self.activities.idle_for(recording, Instant::now())
    }

    /// Whether as much is kept as may be: what comes now is lost.
    pub fn is_full(&self) -> bool {
        self.pages.packed_bytes() >= self.most
    }

    /// Finds forks in what was recorded.
    pub fn forks(&self) -> &Forks {
        &self.forks
    }

    /// What was collected between two marks, of all trees; its pages are shared.
    pub fn between(&self, from: Mark, until: Mark) -> Capture {
        let mut description = self.description.clone();
        description.lost = until.lost.saturating_sub(from.lost);
        if until.is_full {
            // What is left in the buffers is not counted.
            description.lost = description.lost.max(1);
        }
        Capture { description, pages: self.pages.part(from.pages, until.pages) }
    }

    /// Records nothing any more, and forgets what was. All marks are void.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn clear(&mut self) -> Result<(), CaptureError> {
        self.instance.disable_all()?;
        self.records = false;
        // Without a thread in it the filter is off, so the events have to be off before.
        self.instance.clear_pids()?;
        self.collect().map_err(CaptureError::Read)?;
        self.pages = RawPages::default();
        self.activities = Activities::default();
        Ok(())
    }

    fn lost(&self) -> Result<u64, TraceError> {
        let stats = self.instance.stats(self.buffers.iter().map(|(cpu, _)| *cpu))?;
        Ok(stats.lost(false))
    }

    /// Removes the instance in the background.
    pub fn remove(self) {
        let Self { instance, buffers, .. } = self;
        drop(buffers);
        instance.remove_in_background();
    }
}

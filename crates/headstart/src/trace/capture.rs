//! Records events while a program starts: arms an instance, has a thread empty its buffers
//! (`drain`), and returns the raw pages at the end.

use super::buffer_size::is_pointless;
use super::clock::ahead_of_monotonic;
use super::drain::{Activity, Drain, Drained};
use super::file::{Capture, Description};
use super::format::parse_page_header;
use super::instance::Instance;
use super::tracefs::Tracefs;
use crate::cache::residency::page_size;
use crate::host::memory;
use rustix::event::{EventfdFlags, eventfd};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub use super::buffer_size::{BufferSize, RecordingLimits, Sizes};
pub use super::drain::{CaptureError, Earlier};

/// Whose events are recorded.
pub enum Scope {
    /// A process and its descendants.
    Tree(i32),
    /// The same, of a process whose number the kernel counts otherwise than our PID
    /// namespace: it writes the requested mark.
    Marked(MarkRequest),
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
pub type MarkRequest = Box<dyn FnOnce(&Path, &str) -> io::Result<()> + Send>;

/// An armed instance whose buffers are being emptied.
#[derive(Debug)]
pub struct Recorder {
    description: Description,
    stop: OwnedFd,
    reader: JoinHandle<Result<Drained, CaptureError>>,
    activity: Arc<Activity>,
}

impl Recorder {
    /// Creates an instance, enables the events for `scope` and starts to
    /// empty the buffers. With `watch` the buffers are looked at four times a second once
    /// [`Recorder::idle_for`] is asked, which tells when reading has died down.
    pub fn start(
        tracefs: &Tracefs,
        scope: Scope,
        buffer: BufferSize,
        watch: bool,
    ) -> Result<Self, CaptureError> {
        if is_pointless(memory::group_room_for_cache()) {
            return Err(CaptureError::NoRoom);
        }
        let instance = Instance::create(tracefs, None)?;
        let bounds = match buffer {
            // The program waits for this.
            BufferSize::Default => None,
            BufferSize::Fixed(kb) => {
                instance.set_buffer_kb(kb)?;
                None
            }
            BufferSize::From(kb) => {
                let bounds = RecordingLimits::here();
                // No memory for it is no reason not to record.
                let _ = instance.set_buffer_kb(kb.min(bounds.largest_kb));
                Some(bounds)
            }
        };
        let may_change = !matches!(buffer, BufferSize::Fixed(_));
        let mut ignored_tids = Vec::new();
        match scope {
            Scope::Tree(pid) => instance.follow(pid)?,
            Scope::Marked(request) => instance.follow(instance.marked_tid(request)?)?,
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
            page_size: page_size(),
            kernel: format!(
                "{} {}",
                uname.release().to_string_lossy(),
                uname.machine().to_string_lossy()
            ),
            block_devices: Vec::new(),
            ignored_tids,
            metadata_tids: Vec::new(),
            clock_ahead_ns: None,
            lost: 0,
            buffer_kb: 0,
        };
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(|e| CaptureError::Read(e.into()))?;
        let activity = Arc::new(Activity::new());
        let watch = if watch { Some((description.decoder()?, activity.clone())) } else { None };
        let header = parse_page_header(&description.header_page)?;
        let ended = stop.try_clone().map_err(CaptureError::Read)?;
        let drain = Drain::new(instance, earlier, header, ended, watch, sizes)?;
        let reader = thread::Builder::new()
            .name("drain".into())
            .spawn(move || drain.run())
            .map_err(CaptureError::Read)?;
        Ok(Self { description, stop, reader, activity })
    }

    /// For how long hardly any page was added or first accessed, if the recorder watches, from the
    /// first call on, since the activity detector takes CPU time.
    pub fn idle_for(&self) -> Duration {
        self.activity.idle_for()
    }

    /// Whether as much as may be was kept, so that what comes now is lost; for a recorder
    /// that watches.
    pub fn is_full(&self) -> bool {
        self.activity.is_full()
    }

    /// Whether it has ended by itself; [`Recorder::finish`] tells why.
    pub fn has_failed(&self) -> bool {
        self.reader.is_finished()
    }

    /// Ends recording and empties the buffers. The instance comes back so
    /// that the caller decides when to pay for its removal.
    pub fn finish(self) -> Result<(Capture, Instance), CaptureError> {
        rustix::io::write(&self.stop, &1u64.to_ne_bytes())
            .map_err(|e| CaptureError::Read(e.into()))?;
        let failed = |_| CaptureError::Read(io::Error::other("the reading thread died"));
        let drained = self.reader.join().map_err(failed)??;
        let mut description = self.description;
        // Without it only times of files can't be compared.
        description.clock_ahead_ns = ahead_of_monotonic(&drained.instance).ok();
        description.lost = drained.lost;
        description.buffer_kb = drained.needed_kb;
        let capture = Capture { description, pages: drained.pages };
        Ok((capture, drained.instance))
    }
}

//! A private tracefs instance with its own buffers, events and process filter.
//!
//! A driver. It does not touch the global instance, which other tools use, except for what the
//! kernel recorded there for us ([`Instance::global`]).

use super::EventKind;
use super::decode::all_events;
pub use super::texts::BufferStats;
use super::texts::{only_ours, parse_marker, parse_now, parse_stats};
use super::tracefs::{TraceError, Tracefs, lock, of_file, open_dir, own_name, text_of};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// What a thread writes before the number that we go by here.
const OWN_MARK: &str = "headstart: whose thread is this, for";
/// How long a thread may take to write that, and how often it is looked for.
const MARK_PATIENCE: Duration = Duration::from_secs(1);
const MARK_CHECK: Duration = Duration::from_millis(1);
/// Share of a buffer that wakes the reader, in percent: the rest is room for
/// what arrives until it runs.
const WAKE_PERCENT: &str = "25";

/// A private instance; dropping it removes it from the kernel. All is done by descriptors, so
/// that it ends also if tracefs is unmounted meanwhile.
#[derive(Debug)]
pub struct Instance {
    /// Its path, for messages.
    dir: PathBuf,
    here: OwnedFd,
    /// If it is ours: the directory of all instances, and its name there.
    own: Option<(OwnedFd, OsString)>,
}

impl Instance {
    /// Creates it with the kernel's default buffer, or with `buffer_kb` KiB a
    /// CPU.
    pub fn create(tracefs: &Tracefs, buffer_kb: Option<u32>) -> Result<Self, TraceError> {
        Self::create_as(tracefs, own_name().ok_or(TraceError::NoProc)?, buffer_kb)
    }

    /// The same, one of several of this process: the label, of letters, says which.
    ///
    /// # Errors
    /// Those of [`Self::create`].
    pub fn labelled(
        tracefs: &Tracefs,
        label: &str,
        buffer_kb: Option<u32>,
    ) -> Result<Self, TraceError> {
        let name = own_name().ok_or(TraceError::NoProc)?;
        Self::create_as(tracefs, format!("{name}-{label}"), buffer_kb)
    }

    fn create_as(
        tracefs: &Tracefs,
        name: String,
        buffer_kb: Option<u32>,
    ) -> Result<Self, TraceError> {
        let dir = tracefs.instances().join(&name);
        match fs::create_dir(&dir) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                return Err(TraceError::Permission(e));
            }
            Err(source) => return Err(TraceError::File { path: dir, source }),
        }
        let instance = Self::open(tracefs.instances(), &name)?;
        lock(&instance.here).map_err(of_file(&dir))?;
        instance.prepare()?;
        if let Some(kb) = buffer_kb {
            instance.set_buffer_kb(kb)?;
        }
        Ok(instance)
    }

    /// The instance of this name, if somebody made it for us, as the kernel does when its
    /// command line says so. What it has recorded stays in it.
    pub fn adopt(tracefs: &Tracefs, name: &str) -> Result<Option<Self>, TraceError> {
        if !tracefs.instances().join(name).join("trace_clock").exists() {
            return Ok(None);
        }
        let instance = Self::open(tracefs.instances(), name)?;
        instance.prepare()?;
        Ok(Some(instance))
    }

    /// The global instance, for what the kernel recorded in it before there was anybody
    /// to make another. It is never removed.
    ///
    /// # Errors
    /// It can't be opened.
    pub fn global(tracefs: &Tracefs) -> Result<Self, TraceError> {
        let here = open_dir(CWD, tracefs.root()).map_err(of_file(tracefs.root()))?;
        Ok(Self { dir: tracefs.root().to_owned(), here, own: None })
    }

    fn open(instances: PathBuf, name: &str) -> Result<Self, TraceError> {
        let dir = instances.join(name);
        let all = open_dir(CWD, &instances).map_err(of_file(&instances))?;
        let here = open_dir(&all, Path::new(name)).map_err(of_file(&dir))?;
        Ok(Self { dir, here, own: Some((all, name.into())) })
    }

    fn prepare(&self) -> Result<(), TraceError> {
        // What doesn't fit is dropped and counted: the first events of a
        // start matter most.
        self.write("options/overwrite", "0")?;
        // Older kernels wake the reader for every page; that also works.
        let _ = self.write("buffer_percent", WAKE_PERCENT);
        Ok(())
    }

    /// Which of our events are enabled; `None` when others are, too.
    pub fn only_ours(&self) -> Option<Vec<(&'static str, &'static str)>> {
        only_ours(&self.read("set_event").ok()?)
    }

    /// Switches events off.
    pub fn disable(&self, events: &[(&str, &str)]) -> Result<(), TraceError> {
        events
            .iter()
            .try_for_each(|(group, name)| self.write(&format!("events/{group}/{name}/enable"), "0"))
    }

    /// What the clock of the buffers says now, in nanoseconds.
    pub fn now_ns(&self) -> Result<u64, TraceError> {
        const FILE: &str = "per_cpu/cpu0/stats";
        parse_now(&self.read(FILE)?).ok_or_else(|| TraceError::File {
            path: self.dir.join(FILE),
            source: io::Error::new(ErrorKind::InvalidData, "the trace clock counts no seconds"),
        })
    }

    /// The format of one event.
    ///
    /// # Errors
    /// This kernel lacks it.
    pub fn format(&self, group: &str, name: &str) -> Result<String, TraceError> {
        let format = self.read(&format!("events/{group}/{name}/format"));
        format.map_err(|_| TraceError::NoEvents)
    }

    /// The formats of those of our events that this kernel has.
    ///
    /// # Errors
    /// It lacks the one that is needed.
    pub fn formats(&self) -> Result<Vec<String>, TraceError> {
        let all = all_events().map(|(group, name, kind)| (self.format(group, name), kind));
        all.filter(|(format, kind)| format.is_ok() || *kind == EventKind::Insert)
            .map(|(format, _)| format)
            .collect()
    }

    /// Switches all events off.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn disable_all(&self) -> Result<(), TraceError> {
        self.write("events/enable", "0")
    }

    /// Enables our events and returns their formats. Events that this kernel
    /// lacks are skipped.
    pub fn enable_events(&self) -> Result<Vec<String>, TraceError> {
        let mut formats = Vec::new();
        for (group, name, kind) in all_events() {
            match self.enable(group, name) {
                Ok(text) => formats.push(text),
                Err(TraceError::NoEvents) if kind != EventKind::Insert => {}
                Err(error) => return Err(error),
            }
        }
        Ok(formats)
    }

    /// Enables one event, whatever it is, and returns its format.
    ///
    /// # Errors
    /// This kernel lacks it.
    pub fn enable(&self, group: &str, name: &str) -> Result<String, TraceError> {
        let format = self.format(group, name)?;
        self.write(&format!("events/{group}/{name}/enable"), "1")?;
        Ok(format)
    }

    /// Records this event only where its fields match (Documentation/trace/events.rst, "Event
    /// filtering").
    ///
    /// # Errors
    /// The kernel does not understand the filter.
    pub fn set_filter(&self, group: &str, name: &str, filter: &str) -> Result<(), TraceError> {
        self.write(&format!("events/{group}/{name}/filter"), filter)
    }

    /// Takes the times of events from this clock of `trace_clock`; what was recorded before is
    /// dropped.
    ///
    /// # Errors
    /// This kernel lacks it.
    pub fn set_clock(&self, clock: &str) -> Result<(), TraceError> {
        self.write("trace_clock", clock)
    }

    /// Wakes a reader when this share of a buffer is full, in percent; 0 for each event.
    ///
    /// # Errors
    /// Older kernels can't: they wake the reader for each page.
    pub fn wake_at(&self, percent: u32) -> Result<(), TraceError> {
        self.write("buffer_percent", &percent.to_string())
    }

    /// Limits the events to a process and its descendants.
    pub fn follow(&self, pid: i32) -> Result<(), TraceError> {
        self.follow_forks()?;
        self.add_pid(pid)
    }

    /// Has the events of a thread's descendants recorded as well, from their fork on.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn follow_forks(&self) -> Result<(), TraceError> {
        self.write("options/event-fork", "1")
    }

    /// Limits the events to a thread and those that were added before.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn add_pid(&self, tid: i32) -> Result<(), TraceError> {
        self.write("set_event_pid", &tid.to_string())
    }

    /// Does not limit the events to threads any more.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn clear_pids(&self) -> Result<(), TraceError> {
        self.open_file("set_event_pid", OFlags::WRONLY | OFlags::TRUNC).map(drop)
    }

    /// The number of the calling thread as the kernel itself counts, which a
    /// PID namespace hides.
    ///
    /// # Errors
    /// As [`Self::marked_tid`].
    pub fn own_tid(&self) -> Result<i32, TraceError> {
        self.marked_tid(|file, mark| {
            let opened = rustix::fs::open(file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
            Ok(rustix::io::write(&opened, mark.as_bytes()).map(drop)?)
        })
    }

    /// The number of a thread as the kernel itself counts, which a PID namespace hides: it is
    /// asked to write a mark into a file, and the trace says who did.
    ///
    /// # Errors
    /// It can't be asked, or wrote nothing for a second.
    pub fn marked_tid(
        &self,
        ask: impl FnOnce(&Path, &str) -> io::Result<()>,
    ) -> Result<i32, TraceError> {
        let marker = self.dir.join("trace_marker");
        let mark = format!("{OWN_MARK} {}?", rustix::thread::gettid().as_raw_nonzero());
        let failed = |source| TraceError::File { path: marker.clone(), source };
        ask(&marker, &mark).map_err(failed)?;
        let until = Instant::now() + MARK_PATIENCE;
        loop {
            if let Some(tid) = parse_marker(&self.read("trace")?, &mark) {
                return Ok(tid);
            }
            if Instant::now() >= until {
                return Err(failed(io::ErrorKind::TimedOut.into()));
            }
            thread::sleep(MARK_CHECK);
        }
    }

    /// Resizes the buffer of every CPU.
    pub fn set_buffer_kb(&self, kb: u32) -> Result<(), TraceError> {
        self.write("buffer_size_kb", &kb.to_string())
    }

    /// The buffer of one CPU, in KiB.
    pub fn buffer_kb(&self) -> Result<u32, TraceError> {
        let text = self.read("buffer_size_kb")?;
        // "7 (expanded: 1408)" before the first event.
        let digits = |s: &str| s.trim_matches(|c: char| !c.is_ascii_digit()).parse().ok();
        Ok(text.rsplit(' ').find_map(digits).unwrap_or(0))
    }

    /// Bytes of a sub-buffer, the unit of reading.
    pub fn sub_buffer_size(&self) -> usize {
        self.read("buffer_subbuf_size_kb")
            .ok()
            .and_then(|text| text.trim().parse::<usize>().ok())
            .map_or_else(rustix::param::page_size, |kb| kb * 1024)
    }

    /// Stops recording.
    pub fn stop(&self) -> Result<(), TraceError> {
        self.write("tracing_on", "0")
    }

    /// The CPUs that have a buffer.
    pub fn cpus(&self) -> Result<Vec<u32>, TraceError> {
        let dir = self.dir.join("per_cpu");
        let opened = open_dir(&self.here, Path::new("per_cpu")).and_then(Dir::new);
        let mut cpus: Vec<u32> = opened
            .map_err(of_file(&dir))?
            .flatten()
            .filter_map(|e| e.file_name().to_str().ok()?.strip_prefix("cpu")?.parse().ok())
            .collect();
        cpus.sort_unstable();
        Ok(cpus)
    }

    /// The raw buffer of each CPU, not blocking.
    pub fn open_buffers(&self) -> Result<Vec<(u32, File)>, TraceError> {
        let open = |cpu: u32| {
            let file = format!("per_cpu/cpu{cpu}/trace_pipe_raw");
            Ok((cpu, self.open_file(&file, OFlags::RDONLY | OFlags::NONBLOCK)?))
        };
        self.cpus()?.into_iter().map(open).collect()
    }

    /// Sums what the buffers lost.
    pub fn stats(&self, cpus: impl IntoIterator<Item = u32>) -> Result<BufferStats, TraceError> {
        let mut sum = BufferStats::default();
        for cpu in cpus {
            let text = self.read(&format!("per_cpu/cpu{cpu}/stats"))?;
            let one = parse_stats(&text);
            sum.dropped += one.dropped;
            sum.overrun += one.overrun;
            sum.entries += one.entries;
        }
        Ok(sum)
    }

    /// Removes it in a process of its own, because the kernel takes up to a
    /// tenth of a second and nobody should wait for that. The buffers must be
    /// closed. A removal that fails is left to the next start's clean-up.
    pub fn remove_in_background(mut self) {
        let removes = |(all, name): &(OwnedFd, OsString)| {
            headstart_sys::process::remove_dirs_detached(all, &[name]).is_ok()
        };
        self.own = self.own.take().filter(|own| !removes(own));
    }

    fn open_file(&self, file: &str, flags: OFlags) -> Result<File, TraceError> {
        rustix::fs::openat(&self.here, file, flags | OFlags::CLOEXEC, Mode::empty())
            .map(File::from)
            .map_err(of_file(&self.dir.join(file)))
    }

    fn read(&self, file: &str) -> Result<String, TraceError> {
        text_of(self.open_file(file, OFlags::RDONLY)?, &self.dir.join(file))
    }

    fn write(&self, file: &str, value: &str) -> Result<(), TraceError> {
        let opened = self.open_file(file, OFlags::WRONLY)?;
        rustix::io::write(&opened, value.as_bytes())
            .map(drop)
            .map_err(of_file(&self.dir.join(file)))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let Some((all, name)) = &self.own else { return };
        if rustix::fs::unlinkat(all, name, AtFlags::REMOVEDIR) == Err(rustix::io::Errno::BUSY) {
            // Left to the next start's clean-up when this fails, too.
            let _ = headstart_sys::process::remove_dirs_detached(all, &[name]);
        }
    }
}

//! Between two swaps: progress, signals, the time that is allowed, and others that use the disk.

use crate::args::duration;
use crate::output::{self, percent, size};
use headstart_layout::LayoutError;
use headstart_layout::apply::Go;
use headstart_layout::idle::Idle;
use headstart_layout::volume::Volume;
use headstart_sys::interrupt::Interrupt;
use headstart_sys::ioprio::{self, IoPriority};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::Context;

/// How long it works before it looks again whether others use the disk.
const TURN: Duration = Duration::from_secs(1);

/// The lowest priority that is served on a busy disk.
const LOWEST: IoPriority = IoPriority::BestEffort(7);

/// How a layout treats others.
#[derive(clap::Args, Debug)]
pub struct WorkArgs {
    /// Work only while nobody else used the disk for so long (500ms, 5s)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    idle: Option<Duration>,

    /// Stop after so long (10m, 1h); resume goes on
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    limit: Option<Duration>,
}

/// Work on layouts, which others can stop.
#[derive(Debug)]
pub struct Work {
    interrupt: Interrupt,
    until: Option<Instant>,
    window: Option<Duration>,
    is_shown: bool,
}

impl Work {
    /// Begins; from now on signals stop it between two swaps, and its I/O comes behind that of others.
    pub fn begin(args: &WorkArgs) -> anyhow::Result<Self> {
        // Not idle: an idle request waits for ten seconds on a busy disk, and what reads a file that
        // is being moved waits with it.
        ioprio::set_for_thread(LOWEST).context("Can't set the I/O priority")?;
        Ok(Self {
            interrupt: Interrupt::catch().context("Can't catch signals")?,
            until: args.limit.and_then(|limit| Instant::now().checked_add(limit)),
            window: args.idle,
            is_shown: std::io::stderr().is_terminal(),
        })
    }

    /// A part of the work on a file system: what it is called, and how many bytes it has; 0 if that is not known.
    pub fn part<'a>(&'a self, what: &'a str, volume: &'a Volume, bytes: u64) -> Part<'a> {
        let idle = self.window.and_then(|window| Idle::of(volume.device, window));
        Part { work: self, what, volume, bytes, idle, looked: None }
    }

    fn is_over(&self) -> bool {
        self.interrupt.came() || self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// A part of the work.
#[derive(Debug)]
pub struct Part<'a> {
    work: &'a Work,
    what: &'a str,
    volume: &'a Volume,
    bytes: u64,
    idle: Option<Idle>,
    /// When nobody else used the disk.
    looked: Option<Instant>,
}

impl Part<'_> {
    /// Whether to go on when so many bytes are done; waits while others use the disk.
    ///
    /// # Errors
    /// The statistics of disks can't be read.
    pub fn go(&mut self, done: u64) -> Result<Go, LayoutError> {
        if self.work.is_over() {
            return Ok(Go::Stop);
        }
        if self.work.is_shown {
            let (part, all) = (percent(done, self.bytes), size(self.bytes));
            let rest = if self.bytes > 0 { format!(": {part} % of {all}") } else { "…".into() };
            output::progress(&format!("{}{rest}", self.what));
        }
        let Some(idle) = &self.idle else { return Ok(Go::On) };
        if self.looked.is_some_and(|looked| looked.elapsed() < TURN) {
            return Ok(Go::On);
        }
        // Writes of this process would look like those of others.
        self.volume.sync()?;
        let pause = |window: Duration| {
            let left = self.work.until.map(|until| until.saturating_duration_since(Instant::now()));
            self.work.interrupt.wait(left.unwrap_or(window).min(window)) || self.work.is_over()
        };
        let is_idle = idle.wait(pause)?;
        self.looked = Some(Instant::now());
        Ok(if is_idle { Go::On } else { Go::Stop })
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        if self.work.is_shown {
            output::progress("");
        }
    }
}

//! The plain parent, for users who want a run summary: it waits for the program and for the
//! helper's report, and prints. It does what time(1) does: it forwards no signal, and if it is
//! killed the program goes on.

use crate::exit::ExitStatus;
use crate::in_place::become_program;
use crate::output;
use crate::packs::search_path;
use crate::start_options::{ReportOptions, StartOptions, Summary};
use crate::summary::{Findings, ProgramEnd};
use crate::until::Until;
use anyhow::Context;
use headstart_sys::process::{self, Change, Usage};
use headstart_sys::signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long the helper may take for what it does after the recording: stopping the replay,
/// learning, measuring a new device.
const PATIENCE: Duration = Duration::from_secs(60);

/// Added to the number of the signal that killed a program (sh(1)).
const KILLED: u8 = 128;

/// Starts the program: this process becomes it, unless the user wants a run summary. Returns the
/// status to end with. Only while there is a single thread.
pub fn start(options: StartOptions) -> anyhow::Result<ExitStatus> {
    match options.report.clone() {
        Some(report) => wait_for(options, &report),
        None => {
            // There is no run summary, but the user can fix this.
            if let (None, Err(error)) = (&options.pack, search_path()) {
                output::message(error);
            }
            Ok(become_program(options, None))
        }
    }
}

/// Starts the program in a child, and waits for its end and for the helper's report.
fn wait_for(options: StartOptions, report: &ReportOptions) -> anyhow::Result<ExitStatus> {
    let (findings, sender) = pipe_with(PipeFlags::CLOEXEC).context("Can't make a pipe")?;
    let (began, command) = (options.began, options.command.clone());
    let (window, force) = (options.window, options.force);
    let mut sender = Some(sender);
    let child = Child::fork(|| become_program(options, sender.take()).number() as u8)?;
    drop(sender);
    let (change, usage) = child.wait()?;
    let end = Instant::now();
    let status = ExitStatus::Program(status_in_shell(change));
    // The helper may go on recording after the program's end.
    let limit = match window.until {
        Until::Time => window.latest().saturating_add(PATIENCE),
        Until::Exit | Until::Idle => PATIENCE,
    };
    let findings = match receive(&findings, limit) {
        // It has said why.
        Some(Findings { started: false, .. }) => return Ok(status),
        Some(findings) => findings,
        None => Findings::none(),
    };
    let wall = end.saturating_duration_since(began).saturating_sub(findings.exec_after());
    let ended = ProgramEnd { change, usage, wall };
    if let Some(file) = &report.json
        && let Err(error) = findings.write(&command, &ended, file, force)
    {
        output::message(format_args!("{error:#}"));
    }
    if let Some(summary) = report.summary {
        for line in findings.summary(&ended, summary == Summary::Details) {
            output::message(line);
        }
    }
    Ok(status)
}

/// Signals of the terminal are ignored until this is dropped: they are for a child, as with time(1).
pub struct IgnoredSignals(());

impl IgnoredSignals {
    const ALL: [Signal; 2] = [Signal::INT, Signal::QUIT];

    /// From now on, which is after the fork.
    pub fn begin() -> Self {
        Self::ALL.iter().for_each(|signal| signals::ignore(signal.as_raw()));
        Self(())
    }
}

impl Drop for IgnoredSignals {
    fn drop(&mut self) {
        Self::ALL.iter().for_each(|signal| signals::obey(signal.as_raw()));
    }
}

/// A child that is waited for; until then signals of the terminal are for it.
pub struct Child {
    pid: Pid,
    _ignored: IgnoredSignals,
}

impl Child {
    /// Starts it; see [`process::fork`]. Only while there is a single thread.
    ///
    /// # Errors
    /// What fork(2) said.
    pub fn fork(act: impl FnOnce() -> u8) -> anyhow::Result<Self> {
        let pid = process::fork(act).context("Can't start a process")?;
        let ignored = IgnoredSignals::begin();
        // Messages may be written to a file beyond RLIMIT_FSIZE.
        signals::ignore(Signal::XFSZ.as_raw());
        Ok(Self { pid, _ignored: ignored })
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// None that a sane kernel returns.
    pub fn wait(self) -> anyhow::Result<(Change, Usage)> {
        process::wait(self.pid).context("Can't wait for the program")
    }
}

/// The exit status that a shell gives.
pub fn status_in_shell(change: Change) -> u8 {
    match change {
        Change::Exited(status) => status as u8,
        Change::Killed(signal) | Change::Stopped(signal) => KILLED.saturating_add(signal as u8),
    }
}

/// What the helper found, if it reports within this time. It may not even end: a thread of it
/// may wait for a file system that does not answer.
fn receive(pipe: &OwnedFd, limit: Duration) -> Option<Findings> {
    let until = Instant::now().checked_add(limit);
    let (mut line, mut piece) = (Vec::new(), [0; 4096]);
    while !line.ends_with(b"\n") {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(pipe, PollFlags::IN)], left.as_ref()) {
            Ok(0) => break,
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => break,
        }
        match rustix::io::read(pipe, &mut piece) {
            Ok(0) => break,
            Ok(count) => line.extend_from_slice(&piece[..count]),
            Err(Errno::INTR) => {}
            Err(_) => break,
        }
    }
    serde_json::from_slice(&line).ok()
}

//! Starts a program so that nobody can tell it was started through us:
//! its signals, its stops and its end are passed on.

use crate::exit::ExitStatus;
use anyhow::Context;
use headstart_sys::process::{Change, Gated, Usage, kill, spawn_gated, wait};
use headstart_sys::signals;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::ffi::OsString;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// Status of a program that was not found; that could not be executed (sh(1)).
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;
/// Added to the number of the signal that killed a program (sh(1)).
const KILLED: u8 = 128;

/// How a program ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Exit status or signal.
    pub change: Change,
    /// What it cost.
    pub usage: Usage,
    /// From its exec to its end.
    pub wall: Duration,
}

impl Ended {
    /// The status to pass on.
    pub fn status(&self) -> ExitStatus {
        ExitStatus::Program(match self.change {
            Change::Exited(status) => status as u8,
            Change::Killed(signal) | Change::Stopped(signal) => KILLED.saturating_add(signal as u8),
        })
    }
}

/// Blocks the signals that are passed on; before any thread is started.
pub fn prepare() -> anyhow::Result<()> {
    signals::block_forwarded().context("Can't block signals")
}

/// A program held back before its exec.
pub fn hold(command: &[OsString]) -> anyhow::Result<Gated> {
    spawn_gated(command).context("Can't start a process")
}

/// Why a program did not start, and the status that says so.
#[derive(Debug)]
pub struct NotStarted(pub io::Error);

impl NotStarted {
    /// The status that a shell would give.
    pub fn status(&self) -> ExitStatus {
        let not_found = self.0.kind() == io::ErrorKind::NotFound;
        ExitStatus::Program(if not_found { NOT_FOUND } else { NOT_EXECUTABLE })
    }
}

/// Lets a held program go and begins to pass on its signals.
pub fn release(program: Gated) -> Result<Running, NotStarted> {
    let pid = program.pid();
    let started = Instant::now();
    program.release().map_err(NotStarted)?;
    pass_signals_on(pid);
    Ok(Running { pid, started })
}

/// A program under way.
#[derive(Clone, Copy, Debug)]
pub struct Running {
    pid: i32,
    started: Instant,
}

impl Running {
    /// Waits for its end. When it is stopped, we stop as well, so that the
    /// shell gets its terminal back, and go on with it.
    pub fn wait(self) -> anyhow::Result<Ended> {
        loop {
            let (change, usage) = wait(self.pid).context("Can't wait for the program")?;
            if let Change::Stopped(_) = change {
                let me = rustix::process::getpid().as_raw_nonzero().get();
                kill(me, Signal::STOP.as_raw()).context("Can't stop")?;
                // Continued: by whoever continued us.
                let _ = kill(self.pid, Signal::CONT.as_raw());
                continue;
            }
            return Ok(Ended { change, usage, wall: self.started.elapsed() });
        }
    }
}

/// Starts the thread that passes signals on. It ends with the process.
fn pass_signals_on(pid: i32) {
    let Some(pid) = Pid::from_raw(pid) else { return };
    // A pidfd can't hit a process that took over the number.
    let Ok(program) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    let pass = move || {
        while let Ok(signal) = signals::next_sent() {
            if let Some(signal) = Signal::from_named_raw(signal) {
                // It has ended: there is nobody to tell.
                let _ = pidfd_send_signal(&program, signal);
            } else {
                let _ = kill(pid.as_raw_nonzero().get(), signal);
            }
        }
    };
    // Without the thread signals wait; the program itself runs on.
    let _ = thread::Builder::new().name("signals".into()).stack_size(64 << 10).spawn(pass);
}

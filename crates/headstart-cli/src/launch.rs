//! Starts a program so that nobody can tell it was started through us:
//! its signals, its stops and its end are passed on.

use crate::exit::ExitStatus;
use crate::relay::{Parties, Verdict, verdict};
use anyhow::Context;
use headstart_sys::descriptors;
use headstart_sys::process::{self, Change, Gated, Released, Usage};
use headstart_sys::signals::{self, Sent};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
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

/// Holds signals back for the program; before any thread is started.
pub fn prepare() {
    signals::hold_back();
}

/// A program held back before its exec.
pub fn hold(command: &[OsString]) -> anyhow::Result<Gated> {
    process::spawn_gated(command).context("Can't start a process")
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

/// Becomes the program; for when no process can be had for it.
pub fn become_program(command: &[OsString]) -> NotStarted {
    NotStarted(process::exec(command))
}

/// Lets a held program go.
pub fn release(program: Gated) -> Running {
    let pid = program.pid();
    let own = rustix::process::getpid();
    let parties = Parties {
        program: pid,
        own: own.as_raw_nonzero().get(),
        leads_session: process::leads_session(),
    };
    // What came before the program existed did not reach it, not even from
    // the terminal. It still has everything blocked, so that what did reach
    // it does not count twice.
    while let Ok(Some(sent)) = signals::pending() {
        // If it has ended, there is nobody to tell.
        let _ = sent.pass_on(pid);
    }
    let started = Instant::now();
    Running { released: program.release(), started, parties }
}

/// Leaves what we were started with to the program, so that its closing a pipe
/// or a lock is seen at once. stderr stays: we have something to say.
pub fn let_go_of_descriptors() {
    // Without /proc they stay open until we end, which is no harm to most.
    let _ = descriptors::let_go_of_inherited();
}

/// A program under way.
#[derive(Debug)]
pub struct Running {
    released: Released,
    started: Instant,
    parties: Parties,
}

impl Running {
    /// Passes signals on until the program ends.
    pub fn wait(self) -> anyhow::Result<Result<Ended, NotStarted>> {
        let pid = self.parties.program;
        loop {
            match process::look(pid).context("Can't wait for the program")? {
                Some((Change::Stopped(signal), _)) => stop_too(signal),
                Some((change, usage)) => {
                    let wall = self.started.elapsed();
                    return Ok(match self.released.failure(change) {
                        Some(error) => Err(NotStarted(error)),
                        None => Ok(Ended { change, usage, wall }),
                    });
                }
                None => {}
            }
            while self.pass_on(signals::next().context("Can't wait for signals")?) {}
        }
    }

    /// Does what a signal asks for; false when the program is to be looked at.
    fn pass_on(&self, sent: Sent) -> bool {
        let pid = self.parties.program;
        match verdict(sent.number(), sent.code(), sent.sender(), self.parties) {
            Verdict::Look => return false,
            Verdict::Drop => {}
            Verdict::Resume if was_continued(pid) => {}
            Verdict::PassOn | Verdict::Resume => {
                // We may have no right to signal a program that changed its
                // user; our sender had none either.
                let _ = sent.pass_on(pid);
            }
        }
        true
    }
}

/// Whether a child was continued since it was stopped.
fn was_continued(pid: i32) -> bool {
    let flags = WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
    let child = Pid::from_raw(pid).map(WaitId::Pid);
    child.is_some_and(|child| matches!(rustix::process::waitid(child, flags), Ok(Some(_))))
}

/// Stops as the program did, so that the shell gets its terminal back.
fn stop_too(signal: i32) {
    // It was continued meanwhile; stopping now would throw that away.
    let continued = signals::is_pending(Signal::CONT.as_raw()).unwrap_or(false);
    if !continued && somebody_watches() {
        // Without, only the shell notices.
        let _ = signals::stop_by(signal);
    }
}

/// Whether our parent is told when we stop, and continues us: a shell at a
/// terminal, which gave us a process group of our own. Others know only the
/// program, and would leave us stopped for ever.
fn somebody_watches() -> bool {
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    let terminal = rustix::fs::open(c"/dev/tty", flags, Mode::empty());
    let parents_group =
        rustix::process::getppid().map(|parent| rustix::process::getpgid(Some(parent)));
    terminal.is_ok() && parents_group != Some(Ok(rustix::process::getpgrp()))
}

/// After the program's end: the first signal that asks for our end is told by
/// `enough`, and the second ends us with the program's status.
pub fn end_on_signals(status: ExitStatus, enough: impl Fn() + Send + 'static) {
    // What reached the program while it ended is done with.
    while let Ok(Some(_)) = signals::pending() {}
    let asks_for_end = |sent: &Sent| {
        [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM]
            .iter()
            .any(|signal| signal.as_raw() == sent.number())
    };
    let listen = move || {
        let mut asked = false;
        while let Ok(sent) = signals::next() {
            if !asks_for_end(&sent) {
                continue;
            }
            if asked {
                std::process::exit(status.number());
            }
            asked = true;
            enough();
        }
    };
    // Without the thread only SIGKILL ends us early.
    let _ = thread::Builder::new().name("signals".into()).stack_size(64 << 10).spawn(listen);
}

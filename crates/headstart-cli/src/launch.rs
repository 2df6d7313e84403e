//! Starts a program so that nobody can tell it was started through us:
//! its signals, its stops and its end are passed on.

use crate::exit::ExitStatus;
use crate::relay::{Parties, Verdict, verdict};
use anyhow::Context;
use headstart_sys::abort;
use headstart_sys::descriptors;
use headstart_sys::process::{self, Change, Gated, Released, Usage};
use headstart_sys::signals::{self, Sent};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use std::ffi::OsString;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

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
    parties: Parties,
}

impl Ended {
    /// The status to pass on.
    pub fn status(&self) -> ExitStatus {
        ExitStatus::Program(status_of(self.change))
    }

    /// From now on the first signal that asks for our end is told by `enough`,
    /// and the second ends us with the program's status.
    pub fn obey_signals(self, enough: impl Fn() + Send + 'static) {
        let mut asked = false;
        // A key that was pressed before has reached the program.
        while let Ok(Some(sent)) = signals::pending() {
            asked |= asks_for_end(&sent) && self.is_for_us(&sent);
        }
        if asked {
            enough();
        }
        let listen = move || {
            while let Ok(sent) = signals::next() {
                if asks_for_end(&sent) {
                    if asked {
                        std::process::exit(self.status().number());
                    }
                    asked = true;
                    enough();
                }
            }
        };
        // Without the thread only SIGKILL ends us early.
        let thread = thread::Builder::new().name("signals".into()).stack_size(64 << 10);
        let _ = thread.spawn(listen);
    }

    fn is_for_us(&self, sent: &Sent) -> bool {
        verdict(sent.number(), sent.code(), sent.sender(), self.parties) == Verdict::PassOn
    }
}

/// The exit status that a shell gives.
fn status_of(change: Change) -> u8 {
    match change {
        Change::Exited(status) => status as u8,
        Change::Killed(signal) | Change::Stopped(signal) => KILLED.saturating_add(signal as u8),
    }
}

fn asks_for_end(sent: &Sent) -> bool {
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM]
        .iter()
        .any(|signal| signal.as_raw() == sent.number())
}

/// Holds signals back for the program, and has it start and its end told whatever becomes
/// of us; before any thread is started.
pub fn prepare(command: &[OsString]) {
    // What can't be executed is told when it is tried.
    let _ = abort::guard(command);
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
        ExitStatus::Program(process::status_of_failure(&self.0))
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
                Some((Change::Stopped(signal), _)) => self.stop_too(signal),
                Some((change, usage)) => {
                    abort::ended(status_of(change));
                    let wall = self.started.elapsed();
                    return Ok(match self.released.failure(change) {
                        Some(error) => Err(NotStarted(error)),
                        None => Ok(Ended { change, usage, wall, parties: self.parties }),
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

    /// Stops as the program did, so that the shell gets its terminal back.
    fn stop_too(&self, signal: i32) {
        // Continued meanwhile: stopping now would throw that away.
        if self.continued() || !somebody_watches() {
            return;
        }
        // When it fails, only the shell notices.
        let _ = signals::stop_by(signal);
        // Now, while we can tell whether the program goes on without us.
        self.continued();
    }

    /// Whether we were told to go on; then the program goes on.
    fn continued(&self) -> bool {
        match signals::take(Signal::CONT.as_raw()) {
            Ok(Some(sent)) => self.pass_on(sent),
            _ => false,
        }
    }
}

/// Whether a child was continued since [`process::look`] last saw it stopped;
/// it may have been stopped again.
fn was_continued(pid: i32) -> bool {
    let is = |flags| {
        let child = Pid::from_raw(pid).map(WaitId::Pid);
        let flags = flags | WaitIdOptions::NOHANG;
        child.is_some_and(|child| matches!(rustix::process::waitid(child, flags), Ok(Some(_))))
    };
    is(WaitIdOptions::CONTINUED) || is(WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT)
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

//! What a thread does, and in which call or fault it is.

use super::calls::Class;
use headstart_sys::calls;
use rustix::fs::OFlags;

const CLOEXEC: u64 = OFlags::CLOEXEC.bits() as u64;

/// What a thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Does {
    /// It runs.
    Run,
    /// It could.
    Queue,
    /// It waits; when what it waits for was there, and by which thread.
    Wait(Option<Woken>),
    /// It is stopped.
    Stop(Option<Woken>),
    /// That is not known.
    Unknown,
}

/// A wait is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Woken {
    /// When.
    pub(super) time: u64,
    /// By which thread, in [`crate::recording::Recording::threads`].
    pub(super) by: Option<u32>,
}

/// The call that a thread is in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Call {
    pub(super) number: Option<u32>,
    pub(super) class: Class,
    pub(super) arguments: [u64; 6],
    pub(super) file: Option<u32>,
    /// Its waits whose file is not known, in [`super::Waits::waits`].
    pub(super) open: Vec<u32>,
}

impl Call {
    /// One that begins.
    pub(super) fn new(number: Option<u32>, class: Class) -> Self {
        Self { number, class, arguments: [0; 6], file: None, open: Vec::new() }
    }

    /// Whether execve(2) keeps the descriptor open that it makes.
    pub(super) fn keeps_open(&self) -> bool {
        let flags = match self.number.and_then(calls::name) {
            Some("open") => self.arguments[1],
            Some("openat" | "open_by_handle_at" | "dup3") => self.arguments[2],
            Some("creat" | "dup" | "dup2") => 0,
            _ => CLOEXEC,
        };
        flags & CLOEXEC == 0
    }

    /// Its descriptor.
    pub(super) fn descriptor(&self) -> Option<i32> {
        Some(*self.arguments.get(self.class.descriptor?)? as i32)
    }
}

/// A thread that has not ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct State {
    pub(super) pid: i32,
    /// In [`super::Waits::lives`].
    pub(super) life: usize,
    pub(super) does: Does,
    pub(super) since: u64,
    /// Whether it was woken since it runs: as it had begun to leave its CPU, or had not yet.
    pub(super) was_woken: bool,
    /// Until when what is said of it here is assumed.
    pub(super) assumed_until: u64,
    /// How often records had been lost by then.
    pub(super) losses: u64,
    pub(super) call: Option<Call>,
    /// The address of the fault that it is in.
    pub(super) fault: Option<u64>,
    /// Where that is, if it waits.
    pub(super) place: Place,
    /// Whether it only goes on to its end.
    pub(super) is_exiting: bool,
}

impl State {
    /// Drops what was assumed, if it has a record before that was found.
    pub(super) fn check_assumed(&mut self, time: u64) {
        if time < std::mem::take(&mut self.assumed_until) {
            (self.does, self.call) = (Does::Unknown, None);
        }
    }
}

/// Where a thread waits, for a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// In [`super::Waits::files`].
    pub file: Option<u32>,
    /// In the file, in bytes.
    pub offset: Option<u64>,
}

//! A recording: faults, each with its thread, its mapping, and what made it necessary as far as that
//! is known. [`crate::recorder`] makes it.

use crate::waits::Waits;
use headstart::host::id::InodeId;
use std::collections::HashSet;

/// How a fault ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum End {
    /// Without I/O. It may have waited for I/O that was under way.
    Minor,
    /// With I/O.
    Major,
    /// Not at all: in a signal, or after the recording.
    None,
    /// That is not known: its end may be among records that were lost.
    Lost,
}

impl End {
    /// Whether it is known when the fault ended.
    pub fn is_known(self) -> bool {
        matches!(self, Self::Minor | Self::Major)
    }
}

/// Why there was a fault.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cause {
    /// The page was not mapped.
    NotMapped,
    /// A mapped page of a private mapping was written, and copied: copy-on-write.
    Copy,
    /// Memory that had only been read was written: a new page replaced the zero page.
    ZeroPage,
    /// A mapped page of a shared mapping was written for the first time.
    MakeWritable,
    /// The page was mapped and can't be written: access flags, NUMA balancing, or another thread
    /// had mapped it meanwhile.
    Other,
    /// The kernel does not report what was mapped (before Linux 5.11).
    Unknown,
}

/// A page fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// When it began, in ns of the monotonic clock.
    pub time: u64,
    /// How long it took, in ns; 0 unless [`End::is_known`].
    pub latency: u64,
    /// How it ended.
    pub end: End,
    /// Why it was necessary.
    pub cause: Cause,
    /// Whether a huge page serves the address now, as far as that was recorded.
    pub is_huge: bool,
    /// Its thread, in [`Recording::threads`].
    pub thread: u32,
    /// The instruction.
    pub ip: u64,
    /// What was accessed.
    pub address: u64,
    /// The mapping, in [`Recording::mappings`].
    pub mapping: Option<u32>,
    /// For anonymous memory right behind the writable part of a file: that part. It is the file's
    /// `.bss` if the file has one there.
    pub behind: Option<u32>,
}

/// What is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Object {
    /// A file.
    File,
    /// Memory.
    Anonymous,
    /// Memory of brk(2).
    Heap,
    /// The stack of a process.
    Stack,
    /// What the kernel names in brackets.
    Special,
}

impl Object {
    /// By the name that the kernel reports.
    pub(crate) fn of(name: &[u8]) -> Self {
        match name {
            b"//anon" | b"" => Self::Anonymous,
            b"[heap]" => Self::Heap,
            b"[stack]" => Self::Stack,
            // Shared memory without a name, which the kernel calls a file.
            b"/dev/zero" | b"/dev/zero (deleted)" => Self::Anonymous,
            _ if name.starts_with(b"[anon") => Self::Anonymous,
            // `//toolong`, `//enomem`: the kernel found no name.
            [b'/', b'/', ..] => Self::Special,
            [b'/', ..] => Self::File,
            _ => Self::Special,
        }
    }
}

/// A mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// What is mapped.
    pub object: Object,
    /// Its name, in [`Recording::names`].
    pub name: u32,
    /// Where it begins.
    pub start: u64,
    /// The offset in the file there.
    pub offset: u64,
    /// `PROT_*`
    pub protection: u32,
    /// Whether writes are seen by others.
    pub is_shared: bool,
    /// Which file it is; zeros for memory.
    pub file: InodeId,
}

/// `PROT_*` and `MAP_SHARED`, the same on all machines.
pub(crate) const READ: u32 = 1;
pub(crate) const WRITE: u32 = 2;
pub(crate) const EXECUTE: u32 = 4;
pub(crate) const SHARED: u32 = 1;

impl Mapping {
    /// The offset in the file of an address.
    pub fn offset_of(&self, address: u64) -> u64 {
        self.offset.wrapping_add(address.wrapping_sub(self.start))
    }

    /// What its sections are found by ([`crate::tables::SectionsOf`]).
    pub fn key(&self) -> (u32, InodeId) {
        (self.name, self.file)
    }

    /// Whether it may be written.
    pub fn is_writable(&self) -> bool {
        self.protection & WRITE != 0
    }

    /// Whether its bytes may be executed.
    pub fn is_executable(&self) -> bool {
        self.protection & EXECUTE != 0
    }

    /// Whether writes copy pages of a file, as those of its data do.
    pub fn is_data(&self) -> bool {
        self.object == Object::File && self.is_writable() && !self.is_shared
    }

    /// As in `/proc/PID/maps`.
    pub fn permissions(&self) -> String {
        let bit = |bit, c| if self.protection & bit != 0 { c } else { '-' };
        let share = if self.is_shared { 's' } else { 'p' };
        [bit(READ, 'r'), bit(WRITE, 'w'), bit(EXECUTE, 'x'), share].iter().collect()
    }
}

/// A program that a process executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// Its name, in [`Recording::names`].
    pub name: u32,
}

/// A thread of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thread {
    /// Its number.
    pub tid: i32,
    /// Its process, in [`Recording::processes`].
    pub process: u32,
    /// Its name, in [`Recording::names`].
    pub name: u32,
}

/// Faults of which one event is missing, and others that are not listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unlisted {
    /// Minor faults before the program was executed.
    pub minor_before: u64,
    /// Major ones.
    pub major_before: u64,
    /// Begun before the program was executed, without an end that is known.
    pub unended_before: u64,
    /// Begun before all events were open.
    pub early: u64,
    /// Ends of minor faults whose start is missing.
    pub minor_ends: u64,
    /// Of major ones.
    pub major_ends: u64,
}

/// All that was recorded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recording {
    /// The faults, by the time of their start.
    pub faults: Vec<Fault>,
    /// Mappings.
    pub mappings: Vec<Mapping>,
    /// Paths, and names of programs and threads.
    pub names: Vec<Vec<u8>>,
    /// Programs.
    pub processes: Vec<Process>,
    /// Threads.
    pub threads: Vec<Thread>,
    /// What is not in [`Recording::faults`].
    pub unlisted: Unlisted,
    /// How often a program was executed.
    pub executions: u64,
    /// Programs that gained privileges (set-user-ID, capabilities) or may not be read: the kernel
    /// ended the recording of their processes.
    pub privileged: u64,
    /// Threads that were started while events were opened, which may lack some of them.
    pub early_threads: HashSet<i32>,
    /// Records that the kernel had no room for.
    pub lost: u64,
    /// When the program was executed, in ns of the monotonic clock.
    pub executed: Option<u64>,
    /// When its process ended: the last thread of it.
    pub ended: Option<u64>,
    /// What its threads waited for, if that was recorded.
    pub waits: Option<Waits>,
}

impl Recording {
    /// A name.
    pub fn name(&self, number: u32) -> &[u8] {
        self.names.get(number as usize).map_or(&[], Vec::as_slice)
    }

    /// The thread of a fault, and its process.
    pub fn owner(&self, fault: &Fault) -> Option<(&Thread, &Process)> {
        let thread = self.threads.get(fault.thread as usize)?;
        Some((thread, self.processes.get(thread.process as usize)?))
    }

    /// A mapping.
    pub fn mapping(&self, number: Option<u32>) -> Option<&Mapping> {
        self.mappings.get(number? as usize)
    }
}

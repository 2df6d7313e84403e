//! What threads waited for: each time that a thread was not on a CPU, with its reason; and the requests
//! of block devices. The model; [`crate::recorder`] makes it, and `tables` sums it.
//!
//! The life of a thread is its time on a CPU and its waits, which don't overlap: so the sums are exact.
//! What has no reason that is known is a wait too, [`Kind::Unexplained`].

pub mod accounts;
pub mod calls;
pub mod descriptors;
pub mod document;
pub mod history;
pub mod path;
pub mod requests;
pub mod start;
pub mod state;
pub mod sums;

use crate::recording::{Mapping, Object};
use headstart::host::id::{Dev, InodeId};
use std::collections::HashMap;

/// Why a thread was not on a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// A page fault: the page is read, or memory is made for it.
    Fault,
    /// read(2) and its like, of a file with pages, and copies of such (sendfile(2)).
    Read,
    /// write(2) and its like, of such a file; truncate(2), fallocate(2).
    Write,
    /// open(2) and its like.
    Open,
    /// Another look-up of a name: stat(2), access(2), readlink(2), rename(2) and their like.
    Lookup,
    /// getdents(2).
    Directory,
    /// A change of the address space: mmap(2), munmap(2), mprotect(2), brk(2), madvise(2).
    Map,
    /// execve(2).
    Execute,
    /// fsync(2) and its like.
    Sync,
    /// readahead(2) and posix_fadvise(2).
    Readahead,
    /// Data or room in a pipe, a socket or a terminal.
    Stream,
    /// Events of several descriptors: poll(2), select(2), epoll_wait(2), io_uring_enter(2).
    Poll,
    /// Another thread, by futex(2): a lock, a condition, the end of a thread.
    Thread,
    /// A time: nanosleep(2).
    Timer,
    /// Another process: wait4(2), or vfork(2) until the child executes a program.
    Child,
    /// A signal, or a debugger.
    Signal,
    /// Another system call; [`Wait::call`] says which.
    Call,
    /// A CPU: the thread could run, and another ran.
    RunQueue,
    /// Nothing that was recorded: outside of system calls and faults, or in records that were lost.
    Unexplained,
}

impl Kind {
    /// All, in the order of tables.
    pub const ALL: [Self; 19] = [
        Self::Fault,
        Self::Read,
        Self::Write,
        Self::Open,
        Self::Lookup,
        Self::Directory,
        Self::Map,
        Self::Execute,
        Self::Sync,
        Self::Readahead,
        Self::Stream,
        Self::Poll,
        Self::Thread,
        Self::Timer,
        Self::Child,
        Self::Signal,
        Self::Call,
        Self::RunQueue,
        Self::Unexplained,
    ];

    /// Its name in tables and documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fault => "fault",
            Self::Read => "read",
            Self::Write => "write",
            Self::Open => "open",
            Self::Lookup => "lookup",
            Self::Directory => "directory",
            Self::Map => "map",
            Self::Execute => "execute",
            Self::Sync => "sync",
            Self::Readahead => "readahead",
            Self::Stream => "stream",
            Self::Poll => "poll",
            Self::Thread => "thread",
            Self::Timer => "timer",
            Self::Child => "child",
            Self::Signal => "signal",
            Self::Call => "call",
            Self::RunQueue => "run-queue",
            Self::Unexplained => "unexplained",
        }
    }
}

/// A time in which a thread was not on a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// In [`crate::recording::Recording::threads`].
    pub thread: u32,
    /// When it began, in ns of the monotonic clock.
    pub start: u64,
    /// When it ended: what was waited for was there, or with [`Kind::RunQueue`] the thread ran.
    pub end: u64,
    /// Why.
    pub kind: Kind,
    /// Which file, in [`Waits::files`], where that is known.
    pub file: Option<u32>,
    /// Where in the file, in bytes, where that is known.
    pub offset: Option<u64>,
    /// The number of the system call that the thread was in; `None` outside of one.
    pub call: Option<u32>,
    /// With [`Kind::RunQueue`] who ran instead, in [`Waits::runners`]; `None` where nobody did, as while
    /// a CPU wakes up, or that is not known.
    pub runner: Option<u32>,
    /// Which thread ended it, in [`crate::recording::Recording::threads`]; `None` for a device, a timer,
    /// threads that are not recorded, and where that is not known.
    pub waker: Option<u32>,
}

impl Wait {
    /// How long it was, in ns.
    pub fn ns(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// A file that was waited for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct File {
    /// The inode on the device of its super block, where that is known.
    pub id: Option<InodeId>,
    /// Its path, or what a descriptor is (`pipe:[7]`), in [`crate::recording::Recording::names`]; `None`
    /// where only the inode is known.
    pub name: Option<u32>,
}

/// A thread, of any program, that ran while a recorded one waited for a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Runner {
    /// Its number.
    pub tid: i32,
    /// Its name, in [`crate::recording::Recording::names`].
    pub name: u32,
}

/// The time of a thread in the recording, and what of it was on a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Life {
    /// In [`crate::recording::Recording::threads`].
    pub thread: u32,
    /// When it began to be recorded, in ns of the monotonic clock.
    pub start: u64,
    /// When it ended, or the recording did.
    pub end: u64,
    /// CPU time in its own code, in ns.
    pub user_ns: u64,
    /// In system calls, without the faults in them.
    pub calls_ns: u64,
    /// In page faults.
    pub faults_ns: u64,
    /// Of waits that were not kept because there were too many, in ns.
    pub unkept_ns: u64,
    /// Who was there before it: the thread that started this one, or the same thread in the program that
    /// it ran before execve(2); in [`crate::recording::Recording::threads`].
    pub origin: Option<u32>,
}

impl Life {
    /// All time on a CPU, in ns.
    pub fn cpu_ns(&self) -> u64 {
        self.user_ns.saturating_add(self.calls_ns).saturating_add(self.faults_ns)
    }
}

/// What a request of a block device does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes, discards, and others.
    Other,
}

/// A request of a block device, of any program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The disk, not a partition of it.
    pub device: Dev,
    /// The first sector, of 512 bytes.
    pub sector: u64,
    /// Bytes.
    pub bytes: u64,
    /// What it does.
    pub operation: Operation,
    /// Whether it is readahead.
    pub is_readahead: bool,
    /// When it was given to the device, in ns of the monotonic clock.
    pub issue: u64,
    /// When the device had done it; `None` if that was after the recording, or is not known.
    pub complete: Option<u64>,
    /// Who gave it to the device, in [`crate::recording::Recording::threads`]; `None` for threads of the
    /// kernel and other programs.
    pub thread: Option<u32>,
}

impl Request {
    /// One that is not done, of a thread that is not known.
    pub fn new(
        issue: u64,
        device: Dev,
        sector: u64,
        bytes: u64,
        operation: Operation,
        is_readahead: bool,
    ) -> Self {
        let (complete, thread) = (None, None);
        Self { device, sector, bytes, operation, is_readahead, issue, complete, thread }
    }
}

/// What is missing in a recording of waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unrecorded {
    /// System calls of 32-bit programs, whose numbers are those of another table: their waits are
    /// [`Kind::Call`].
    pub calls_32_bit: u64,
    /// Ends of system calls whose start is missing.
    pub call_ends: u64,
    /// Requests whose end came without a start.
    pub completions: u64,
    /// Waits that were not kept because there were too many; [`Life::unkept_ns`] has their time.
    pub waits: u64,
}

/// All that was waited for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Waits {
    /// The waits of all threads, by their start. Those of a thread don't overlap.
    pub waits: Vec<Wait>,
    /// The threads that have any time, by [`Life::thread`].
    pub lives: Vec<Life>,
    /// Files that were waited for.
    pub files: Vec<File>,
    /// Who ran while others waited for a CPU.
    pub runners: Vec<Runner>,
    /// Requests, by the time of their issue.
    pub requests: Vec<Request>,
    /// What is missing.
    pub unrecorded: Unrecorded,
}

impl Waits {
    /// Names files without a name that are mapped somewhere.
    pub fn name_by(&mut self, mappings: &[Mapping]) {
        let files = mappings.iter().filter(|mapping| mapping.object == Object::File);
        let names: HashMap<_, _> = files.map(|mapping| (mapping.file, mapping.name)).collect();
        for file in self.files.iter_mut().filter(|file| file.name.is_none()) {
            file.name = file.id.and_then(|id| names.get(&id)).copied();
        }
    }
}

//! From records in the order of time to faults: each with its thread, its mapping, and what made it
//! necessary as far as that is known.

use crate::pair::{Begun, Pairs};
use crate::record::{Mapped, Record, What};
use crate::space::Space;
use std::collections::HashMap;

/// How a fault ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum End {
    /// Without I/O. It may have waited for I/O that was under way.
    Minor,
    /// With I/O.
    Major,
    /// Not at all: in a signal, or after the recording.
    None,
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
    /// How long it took, in ns; 0 without an end.
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
    fn of(name: &[u8]) -> Self {
        match name {
            b"//anon" | b"" => Self::Anonymous,
            b"[heap]" => Self::Heap,
            b"[stack]" => Self::Stack,
            // Shared memory without a name, which the kernel calls a file.
            _ if name.starts_with(b"/dev/zero") || name.starts_with(b"[anon") => Self::Anonymous,
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

    /// Whether it may be written.
    pub fn is_writable(&self) -> bool {
        self.protection & WRITE != 0
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
    /// Begun before the program was executed, and not ended.
    pub unended_before: u64,
    /// Begun before all events were open.
    pub early: u64,
    /// Ends of minor faults whose begin is missing.
    pub minor_ends: u64,
    /// Of major ones.
    pub major_ends: u64,
}

/// All that was recorded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recording {
    /// The faults, by the time of their begin.
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
    /// Records that the kernel had no room for.
    pub lost: u64,
    /// When the program was executed, in ns of the monotonic clock.
    pub executed: Option<u64>,
    /// When it ended.
    pub ended: Option<u64>,
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

/// No page of this size or more is a small one; the smallest huge pages have 1 MiB (s390).
const HUGE: u64 = 1 << 20;

/// Makes a [`Recording`] of records.
#[derive(Debug, Default)]
pub struct Recorder {
    out: Recording,
    pairs: Pairs,
    /// By process.
    spaces: HashMap<i32, Space>,
    /// By thread, its number in `out.threads`.
    threads: HashMap<i32, u32>,
    numbers: HashMap<Vec<u8>, u32>,
    /// By process, what it runs now in `out.processes`.
    running: HashMap<i32, u32>,
    /// The process that will execute the program.
    waits: Option<i32>,
    main: Option<i32>,
    since: u64,
}

impl Recorder {
    /// Of a process that executes the program later: what it does before is counted only.
    pub fn of_program(pid: i32) -> Self {
        Self { waits: Some(pid), main: Some(pid), ..Self::default() }
    }

    /// Of a process whose threads are known by [`Recorder::knows`]. Faults that began before `since`,
    /// in ns, are counted only: not all events were open then.
    pub fn of_running(pid: i32, since: u64) -> Self {
        Self { main: Some(pid), since, ..Self::default() }
    }

    /// A thread is there already.
    pub fn knows(&mut self, pid: i32, tid: i32, name: &[u8]) {
        let process = self.process_of(pid);
        self.rename(pid, tid, process, name);
    }

    /// A record, in the order of time.
    pub fn add(&mut self, record: Record) {
        let Record { time, pid, tid, what } = record;
        match what {
            What::Begin { ip, address, page } => {
                let begun = Begun { time, ip, address, page };
                if let Some(earlier) = self.pairs.begin(tid, begun) {
                    self.fault(pid, tid, earlier, time, End::None, None);
                }
            }
            What::End { is_major, page } => {
                let end = if is_major { End::Major } else { End::Minor };
                match self.pairs.end(tid) {
                    Some(begun) => self.fault(pid, tid, begun, time, end, page),
                    None if time < self.since => {}
                    None if is_major => self.out.unlisted.major_ends += 1,
                    None => self.out.unlisted.minor_ends += 1,
                }
            }
            What::Map(mapped) => self.map(pid, &mapped),
            What::Name { name, by_exec: true } => self.executed(time, pid, tid, name),
            What::Name { name, by_exec: false } => {
                let process = self.process_of(pid);
                self.rename(pid, tid, process, name);
            }
            What::Start { parent } => self.started(pid, tid, parent),
            What::Exit => self.exited(time, pid, tid),
            What::Lost(count) => self.out.lost += count,
        }
    }

    /// All of it, when there are no more records.
    pub fn finish(mut self) -> Recording {
        for (tid, begun) in std::mem::take(&mut self.pairs).left() {
            let thread = self.threads.get(&tid).and_then(|at| self.out.threads.get(*at as usize));
            let process = thread.and_then(|thread| {
                self.out.processes.get(thread.process as usize).map(|process| process.pid)
            });
            self.fault(process.unwrap_or(tid), tid, begun, begun.time, End::None, None);
        }
        self.out.faults.sort_by_key(|fault| fault.time);
        self.out
    }

    fn fault(&mut self, pid: i32, tid: i32, begun: Begun, now: u64, end: End, page: Option<u64>) {
        if self.waits == Some(pid) {
            let unlisted = &mut self.out.unlisted;
            match end {
                End::Minor => unlisted.minor_before += 1,
                End::Major => unlisted.major_before += 1,
                End::None => unlisted.unended_before += 1,
            }
            return;
        }
        if begun.time < self.since {
            self.out.unlisted.early += 1;
            return;
        }
        let thread = self.thread(pid, tid);
        let space = self.spaces.get(&pid);
        let mapping = space.and_then(|space| space.find(begun.address));
        let found = self.out.mapping(mapping);
        let mut behind = None;
        if found.is_some_and(|found| matches!(found.object, Object::Anonymous | Object::Heap)) {
            let before = space.and_then(|space| space.before(begun.address));
            behind = before.filter(|_| {
                self.out.mapping(before).is_some_and(|before| {
                    before.object == Object::File && before.is_writable() && !before.is_shared
                })
            });
        }
        let was_forked = space.is_some_and(|space| space.was_forked);
        let latency = if end == End::None { 0 } else { now.saturating_sub(begun.time) };
        self.out.faults.push(Fault {
            time: begun.time,
            latency,
            end,
            cause: cause(begun.page, found, was_forked),
            is_huge: page.is_some_and(|page| page >= HUGE),
            thread,
            ip: begun.ip,
            address: begun.address,
            mapping,
            behind,
        });
    }

    fn map(&mut self, pid: i32, mapped: &Mapped) {
        let number = self.out.mappings.len() as u32;
        let name = self.name(mapped.name);
        self.out.mappings.push(Mapping {
            object: Object::of(mapped.name),
            name,
            start: mapped.start,
            offset: mapped.offset,
            protection: mapped.protection,
            is_shared: mapped.flags & SHARED != 0,
        });
        let end = mapped.start.saturating_add(mapped.length);
        self.spaces.entry(pid).or_default().map(mapped.start, end, number);
    }

    /// A process has become another program, in an address space of its own.
    fn executed(&mut self, time: u64, pid: i32, tid: i32, name: &[u8]) {
        self.out.executions += 1;
        if self.waits == Some(pid) {
            self.waits = None;
            self.out.executed = Some(time);
        }
        self.spaces.insert(pid, Space::default());
        let process = self.program(pid, name);
        self.rename(pid, tid, process, name);
    }

    /// A process runs another program from now on.
    fn program(&mut self, pid: i32, name: &[u8]) -> u32 {
        let (name, number) = (self.name(name), self.out.processes.len() as u32);
        self.out.processes.push(Process { pid, name });
        self.running.insert(pid, number);
        number
    }

    fn exited(&mut self, time: u64, pid: i32, tid: i32) {
        if self.main == Some(pid) && pid == tid {
            self.out.ended = Some(time);
        }
        // It was killed in a fault.
        if let Some(begun) = self.pairs.end(tid) {
            self.fault(pid, tid, begun, time, End::None, None);
        }
        self.threads.remove(&tid);
    }

    /// A thread or process was started.
    fn started(&mut self, pid: i32, tid: i32, parent: i32) {
        // The number may have been that of another thread.
        self.threads.remove(&tid);
        if pid != parent {
            let space = self.spaces.entry(parent).or_default();
            space.was_forked = true;
            let copy = space.clone();
            self.spaces.insert(pid, copy);
            let parent = self.process_of(parent);
            let name = self.out.names[self.out.processes[parent as usize].name as usize].clone();
            self.program(pid, &name);
        }
        self.thread(pid, tid);
    }

    /// The program that a process runs now.
    fn process_of(&mut self, pid: i32) -> u32 {
        self.running.get(&pid).copied().unwrap_or_else(|| self.program(pid, b""))
    }

    fn thread(&mut self, pid: i32, tid: i32) -> u32 {
        if let Some(known) = self.threads.get(&tid) {
            return *known;
        }
        let process = self.process_of(pid);
        let name = self.out.processes[process as usize].name;
        let number = self.out.threads.len() as u32;
        self.threads.insert(tid, number);
        self.out.threads.push(Thread { tid, process, name });
        number
    }

    /// A thread has a name. One that has faults under another keeps that in an entry of its own
    /// if it is of another program.
    fn rename(&mut self, pid: i32, tid: i32, process: u32, name: &[u8]) {
        let name = self.name(name);
        if pid == tid
            && let Some(process) = self.out.processes.get_mut(process as usize)
        {
            process.name = name;
        }
        let known = self.threads.get(&tid).and_then(|at| self.out.threads.get_mut(*at as usize));
        match known.filter(|thread| thread.process == process) {
            Some(thread) => thread.name = name,
            None => {
                self.threads.insert(tid, self.out.threads.len() as u32);
                self.out.threads.push(Thread { tid, process, name });
            }
        }
    }

    fn name(&mut self, name: &[u8]) -> u32 {
        if let Some(known) = self.numbers.get(name) {
            return *known;
        }
        let number = self.out.names.len() as u32;
        self.out.names.push(name.to_vec());
        self.numbers.insert(name.to_vec(), number);
        number
    }
}

/// Why there was a fault, by the size of the page that was mapped, where it was, and whether
/// the process shares pages with another.
fn cause(page: Option<u64>, mapping: Option<&Mapping>, was_forked: bool) -> Cause {
    match (page, mapping) {
        (None, _) => Cause::Unknown,
        (Some(0), _) => Cause::NotMapped,
        (_, Some(mapping)) if !mapping.is_writable() => Cause::Other,
        (_, Some(mapping)) if mapping.is_shared => Cause::MakeWritable,
        (_, Some(mapping)) if mapping.object != Object::File && !was_forked => Cause::ZeroPage,
        (_, Some(_)) => Cause::Copy,
        (_, None) => Cause::Other,
    }
}

#[cfg(test)]
#[path = "recording_tests.rs"]
mod tests;

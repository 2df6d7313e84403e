//! From records in the order of time to a recording. What is paired, and what is mapped where, is
//! followed as the records tell it.

use crate::pair::{Begun, Pairs};
use crate::record::{Mapped, Record, What};
use crate::recording::{Cause, End, Fault, Mapping, Object, Process, Recording, SHARED, Thread};
use crate::space::Space;
use std::collections::{HashMap, HashSet};

/// No page of this size or more is a small one; the smallest huge pages have 1 MiB (s390).
const HUGE: u64 = 1 << 20;

/// A process that has not ended.
#[derive(Debug, Default)]
struct Living {
    /// What it runs now, in [`Recording::processes`].
    runs: u32,
    space: Space,
    threads: HashSet<i32>,
    /// It has executed a program, and nothing is mapped yet.
    has_just_executed: bool,
}

/// Makes a [`Recording`] of records.
#[derive(Debug, Default)]
pub struct Recorder {
    out: Recording,
    pairs: Pairs,
    /// By process.
    living: HashMap<i32, Living>,
    /// By thread, its number in `out.threads`.
    threads: HashMap<i32, u32>,
    numbers: HashMap<Vec<u8>, u32>,
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
        let process = self.living(pid).runs;
        self.rename(pid, tid, process, name);
    }

    /// A thread or process began while events were opened, unless it is recorded that it was started
    /// later.
    pub fn found(&mut self, tid: i32) {
        self.out.early_threads.insert(tid);
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
                let process = self.living(pid).runs;
                self.rename(pid, tid, process, name);
            }
            What::Start { parent } => self.started(time, pid, tid, parent),
            What::Exit => self.exited(time, pid, tid),
            What::Lost(count) => {
                self.out.lost = self.out.lost.saturating_add(count);
                // The next end of a thread may be that of a later fault, whose begin was lost.
                self.end_all(End::Lost);
            }
        }
    }

    /// All of it, when there are no more records.
    pub fn finish(mut self) -> Recording {
        self.end_all(End::None);
        self.out.faults.sort_by_key(|fault| fault.time);
        self.out
    }

    /// Faults that have begun will have no end.
    fn end_all(&mut self, end: End) {
        for (tid, begun) in std::mem::take(&mut self.pairs).left() {
            let thread = self.threads.get(&tid).and_then(|at| self.out.threads.get(*at as usize));
            let process = thread.and_then(|thread| self.out.processes.get(thread.process as usize));
            let pid = process.map_or(tid, |process| process.pid);
            self.fault(pid, tid, begun, begun.time, end, None);
        }
    }

    fn fault(&mut self, pid: i32, tid: i32, begun: Begun, now: u64, end: End, page: Option<u64>) {
        if self.waits == Some(pid) {
            let unlisted = &mut self.out.unlisted;
            match end {
                End::Minor => unlisted.minor_before += 1,
                End::Major => unlisted.major_before += 1,
                End::None | End::Lost => unlisted.unended_before += 1,
            }
            return;
        }
        if begun.time < self.since {
            self.out.unlisted.early += 1;
            return;
        }
        let thread = self.thread(pid, tid);
        let space = self.living.get(&pid).map(|living| &living.space);
        let mapping = space.and_then(|space| space.find(begun.address));
        let found = self.out.mapping(mapping);
        let mut behind = None;
        if found.is_some_and(|found| matches!(found.object, Object::Anonymous | Object::Heap)) {
            let before = space.and_then(|space| space.before(begun.address));
            behind = before.filter(|_| self.out.mapping(before).is_some_and(Mapping::is_data));
        }
        let was_forked = space.is_some_and(|space| space.was_forked);
        let latency = if end.is_known() { now.saturating_sub(begun.time) } else { 0 };
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
            file: mapped.file,
        });
        let end = mapped.start.saturating_add(mapped.length);
        let living = self.living(pid);
        living.space.map(mapped.start, end, number);
        living.has_just_executed = false;
    }

    /// A process has become another program, in an address space of its own.
    fn executed(&mut self, time: u64, pid: i32, tid: i32, name: &[u8]) {
        self.out.executions += 1;
        if self.waits == Some(pid) {
            self.waits = None;
            self.out.executed = Some(time);
        }
        if self.main == Some(pid) {
            // Only its first thread had.
            self.out.ended = None;
        }
        self.forget(pid);
        let process = self.program(pid, name, Space::default());
        self.living(pid).has_just_executed = true;
        self.rename(pid, tid, process, name);
    }

    /// A process runs another program from now on, and has no thread that is known.
    fn program(&mut self, pid: i32, name: &[u8], space: Space) -> u32 {
        let (name, runs) = (self.name(name), self.out.processes.len() as u32);
        self.out.processes.push(Process { pid, name });
        self.living.insert(pid, Living { runs, space, ..Living::default() });
        runs
    }

    /// The process has ended, or its threads have, since one of them executes a program.
    fn forget(&mut self, pid: i32) {
        for tid in self.living.remove(&pid).into_iter().flat_map(|living| living.threads) {
            self.threads.remove(&tid);
        }
    }

    fn exited(&mut self, time: u64, pid: i32, tid: i32) {
        // It was killed in a fault.
        if let Some(begun) = self.pairs.end(tid) {
            self.fault(pid, tid, begun, time, End::None, None);
        }
        self.threads.remove(&tid);
        let (mut is_last, mut is_cut) = (true, false);
        if let Some(living) = self.living.get_mut(&pid) {
            living.threads.remove(&tid);
            (is_last, is_cut) = (living.threads.is_empty(), living.has_just_executed);
        }
        if is_cut {
            // The kernel takes the events away from programs that gain privileges.
            self.out.privileged += 1;
        } else if self.main == Some(pid) {
            self.out.ended = Some(time);
        }
        if is_last {
            self.forget(pid);
        }
    }

    /// A thread or process was started.
    fn started(&mut self, time: u64, pid: i32, tid: i32, parent: i32) {
        if time < self.since {
            self.out.early_threads.insert(tid);
        } else {
            self.out.early_threads.remove(&tid);
        }
        // The number was that of another thread, whose end was lost.
        if let Some(begun) = self.pairs.end(tid) {
            self.fault(pid, tid, begun, time, End::Lost, None);
        }
        self.threads.remove(&tid);
        if pid != parent {
            self.forget(pid);
            let parent = self.living(parent);
            parent.space.was_forked = true;
            let (space, runs) = (parent.space.clone(), parent.runs);
            let name = self.out.processes.get(runs as usize).map_or(0, |process| process.name);
            let name = self.out.name(name).to_vec();
            self.program(pid, &name, space);
        }
        self.thread(pid, tid);
    }

    fn living(&mut self, pid: i32) -> &mut Living {
        if !self.living.contains_key(&pid) {
            self.program(pid, b"", Space::default());
        }
        self.living.entry(pid).or_default()
    }

    fn thread(&mut self, pid: i32, tid: i32) -> u32 {
        if let Some(known) = self.threads.get(&tid) {
            return *known;
        }
        let process = self.living(pid).runs;
        let name = self.out.processes.get(process as usize).map_or(0, |process| process.name);
        self.new_thread(pid, Thread { tid, process, name })
    }

    fn new_thread(&mut self, pid: i32, thread: Thread) -> u32 {
        let number = self.out.threads.len() as u32;
        self.threads.insert(thread.tid, number);
        self.living(pid).threads.insert(thread.tid);
        self.out.threads.push(thread);
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
                self.new_thread(pid, Thread { tid, process, name });
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
#[path = "recorder_tests.rs"]
mod tests;

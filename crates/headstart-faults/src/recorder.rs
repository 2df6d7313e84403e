//! From records in the order of time to a recording. What is paired, and what is mapped where, is
//! followed as the records tell it.

use crate::csv::memory;
use crate::pair::{Begun, Pairs};
use crate::record::{Mapped, Record, What};
use crate::recording::{Cause, End, Fault, Mapping, Object, Process, Recording, SHARED, Thread};
use crate::space::Space;
use crate::waits::Request;
use crate::waits::accounts::Accounts;
use crate::waits::descriptors::{Descriptor, Opened};
use crate::waits::state::Place;
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
    /// The time of the last record.
    now: u64,
    accounts: Option<Accounts>,
    /// Parts of address spaces that were copied for processes that have not ended.
    copied: usize,
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

    /// Also of what threads wait for.
    #[must_use]
    pub fn with_waits(self) -> Self {
        Self { accounts: Some(Accounts::default()), ..self }
    }

    /// A thread is there already.
    pub fn knows(&mut self, pid: i32, tid: i32, name: &[u8]) {
        let process = self.living(pid).runs;
        self.rename(pid, tid, process, name);
    }

    /// A process has a descriptor, of which /proc says that it is this.
    pub fn has_open(&mut self, pid: i32, Opened { number, link, is_kept }: &Opened) {
        let name = self.name(link);
        if let Some(accounts) = &mut self.accounts {
            let is_other = !link.starts_with(b"/") || link.starts_with(b"/dev/");
            let file = Some(accounts.file(None, Some(name)));
            let descriptor =
                Descriptor { file, is_other, is_kept: *is_kept, opened_by: Vec::new() };
            accounts.has_open(pid, *number, descriptor);
        }
    }

    /// A thread that is known waits in a system call, with these arguments, at `found` in ns.
    pub fn is_in_call(&mut self, tid: i32, call: (u32, [u64; 6]), found: u64) {
        if let Some(accounts) = &mut self.accounts {
            accounts.waits_in(self.since, tid, call, found);
        }
    }

    /// A thread or process began while events were opened, unless it is recorded that it was started
    /// later.
    pub fn found(&mut self, tid: i32) {
        self.out.early_threads.insert(tid);
    }

    /// A record, in the order of time.
    pub fn add(&mut self, record: Record) {
        let Record { time, pid, tid, what } = record;
        self.now = time;
        match what {
            What::Begin { ip, address, page } => {
                let begun = Begun { time, ip, address, page };
                if let Some(earlier) = self.pairs.begin(tid, begun) {
                    self.fault(pid, tid, earlier, time, End::None, None);
                }
                if let Some(accounts) = &mut self.accounts {
                    accounts.fault_begins(time, tid, address);
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
                if let Some(accounts) = &mut self.accounts {
                    accounts.fault_ends(time, tid);
                }
            }
            What::Map(mapped) => self.map(pid, tid, &mapped),
            What::Name { name, by_exec: true } => self.executed(time, pid, tid, name),
            What::Name { name, by_exec: false } => {
                let process = self.living(pid).runs;
                self.rename(pid, tid, process, name);
            }
            What::Start { parent, parent_tid } => {
                self.started(time, pid, tid, (parent, parent_tid));
            }
            What::Exit => self.exited(time, pid, tid),
            What::Loses | What::Lost(_) => {
                if let What::Lost(count) = what {
                    self.out.lost = self.out.lost.saturating_add(count);
                }
                // The next end of a thread may be that of a later fault, whose begin was lost.
                self.end_all(End::Lost);
                if let Some(accounts) = &mut self.accounts {
                    accounts.lose();
                }
            }
            what => self.point(time, tid, what),
        }
    }

    /// How many mappings are kept more than once, since processes that were forked have their own: the
    /// only thing that grows faster than the records.
    pub fn copied_mappings(&self) -> usize {
        self.copied
    }

    /// Nothing more has happened until this time, in ns, at which the recording ended.
    pub fn lasts_until(&mut self, time: u64) {
        self.now = self.now.max(time);
    }

    /// All of it, when there are no more records.
    pub fn finish(mut self) -> Recording {
        self.end_all(End::None);
        if let Some(accounts) = self.accounts.take() {
            let mut waits = accounts.finish(self.now);
            waits.name_by(&self.out.mappings);
            self.out.waits = Some(waits);
        }
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

    fn map(&mut self, pid: i32, tid: i32, mapped: &Mapped) {
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
        if let (Object::File, Some(accounts)) = (Object::of(mapped.name), &mut self.accounts) {
            accounts.maps(tid, mapped.file, name);
        }
        let end = mapped.start.saturating_add(mapped.length);
        let living = self.living(pid);
        let before = living.space.copied;
        living.space.map(mapped.start, end, number);
        let after = living.space.copied;
        living.has_just_executed = false;
        self.copied = self.copied.saturating_sub(before).saturating_add(after);
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
        if let Some(accounts) = &mut self.accounts {
            accounts.executes(tid);
        }
    }

    /// A process runs another program from now on, and has no thread that is known.
    fn program(&mut self, pid: i32, name: &[u8], space: Space) -> u32 {
        let (name, runs) = (self.name(name), self.out.processes.len() as u32);
        self.out.processes.push(Process { pid, name });
        self.copied = self.copied.saturating_add(space.copied);
        self.living.insert(pid, Living { runs, space, ..Living::default() });
        runs
    }

    /// The process has ended, or its threads have, since one of them executes a program.
    fn forget(&mut self, pid: i32) {
        let Some(living) = self.living.remove(&pid) else { return };
        self.copied = self.copied.saturating_sub(living.space.copied);
        for tid in living.threads {
            self.threads.remove(&tid);
            if let Some(accounts) = &mut self.accounts {
                accounts.end(self.now, tid);
            }
        }
    }

    fn exited(&mut self, time: u64, pid: i32, tid: i32) {
        // It was killed in a fault.
        if let Some(begun) = self.pairs.end(tid) {
            self.fault(pid, tid, begun, time, End::None, None);
        }
        self.threads.remove(&tid);
        if let Some(accounts) = &mut self.accounts {
            accounts.exits(time, tid);
        }
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
            if let Some(accounts) = &mut self.accounts {
                accounts.forget(pid);
            }
        }
    }

    /// A thread or process was started.
    fn started(&mut self, time: u64, pid: i32, tid: i32, (parent_pid, parent_tid): (i32, i32)) {
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
        if pid != parent_pid {
            self.forget(pid);
            let parent = self.living(parent_pid);
            parent.space.was_forked = true;
            let (space, runs) = (parent.space.clone(), parent.runs);
            let name = self.out.processes.get(runs as usize).map_or(0, |process| process.name);
            let name = self.out.name(name).to_vec();
            self.program(pid, &name, space);
        }
        self.thread(pid, tid);
        if let Some(accounts) = &mut self.accounts {
            accounts.started(tid, parent_tid);
            if pid != parent_pid {
                accounts.forked(parent_pid, pid);
            }
        }
    }

    /// What a tracepoint reports.
    fn point(&mut self, time: u64, tid: i32, what: What) {
        let Some(accounts) = &mut self.accounts else { return };
        if time < self.since {
            return;
        }
        match what {
            What::Enter { call, is_32_bit, arguments } => {
                accounts.enters(time, tid, call, is_32_bit, arguments);
            }
            What::Return { value } => accounts.returns(time, tid, value),
            What::Pages { file, offset } => accounts.reads(tid, file, offset),
            What::Waking { tid: woken, by_interrupt } => {
                accounts.wakes(time, woken, (!by_interrupt).then_some(tid));
            }
            What::Complete { device, sector } => accounts.completes(time, device, sector),
            What::Issue { device, sector, bytes, operation, is_readahead } => {
                let request = Request::new(time, device, sector, bytes, operation, is_readahead);
                accounts.issues(tid, request);
            }
            What::Switch { previous, left, next, name, cpu } => {
                let place = self.place_of_fault(previous);
                let Some(accounts) = &mut self.accounts else { return };
                accounts.leaves(time, previous, left, place);
                let (names, numbers) = (&mut self.out.names, &mut self.numbers);
                accounts.runs(time, cpu, next, name, |name| number_of(names, numbers, name));
            }
            _ => {}
        }
    }

    /// Where the fault is in which a thread is.
    fn place_of_fault(&mut self, tid: i32) -> Place {
        let Some(accounts) = &mut self.accounts else { return Place::default() };
        let Some((pid, address)) = accounts.fault_of(tid) else { return Place::default() };
        let mapping = self.living.get(&pid).and_then(|living| living.space.find(address));
        let Some(mapping) = self.out.mapping(mapping).copied() else { return Place::default() };
        if mapping.object == Object::File {
            let file = accounts.file(Some(mapping.file), Some(mapping.name));
            return Place { file: Some(file), offset: Some(mapping.offset_of(address)) };
        }
        let name = match mapping.object {
            Object::Special => mapping.name,
            object => number_of(&mut self.out.names, &mut self.numbers, memory(object).as_bytes()),
        };
        Place { file: Some(accounts.file(None, Some(name))), offset: None }
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
        if let Some(accounts) = &mut self.accounts {
            accounts.begin(self.now.max(self.since), pid, thread.tid, number);
        }
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
        number_of(&mut self.out.names, &mut self.numbers, name)
    }
}

/// The number of a name, which is new or known.
fn number_of(names: &mut Vec<Vec<u8>>, numbers: &mut HashMap<Vec<u8>, u32>, name: &[u8]) -> u32 {
    if let Some(known) = numbers.get(name) {
        return *known;
    }
    let number = names.len() as u32;
    names.push(name.to_vec());
    numbers.insert(name.to_vec(), number);
    number
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

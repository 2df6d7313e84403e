//! From records to [`Waits`]: follows of each thread whether it runs, could run or waits, and in which
//! call or fault. Each change ends a part of its life, and each part is counted once.

use super::calls::{Class, Classes, Effect};
use super::descriptors::{Descriptor, Descriptors};
use super::history::Histories;
use super::requests::Requests;
use super::state::{Call, Does, Place, State, Woken};
use super::{File, Kind, Life, Request, Runner, Wait, Waits};
use crate::record::Left;
use headstart::host::id::{Dev, InodeId};
use std::collections::HashMap;

/// No more waits are kept.
const MOST_WAITS: usize = 4 << 20;
/// Of one call, so many waits are given the file that becomes known after them.
const MOST_OPEN: usize = 64;
/// `MAP_ANONYMOUS`, the same on all machines that have these events.
const ANONYMOUS: u64 = 0x20;
/// `F_*` of fcntl(2).
const DUPFD: u64 = 0;
const SETFD: u64 = 2;
const DUPFD_CLOEXEC: u64 = 1030;
const CLOSE_RANGE_CLOEXEC: u64 = 4;

/// Makes [`Waits`] of records.
#[derive(Debug, Default)]
pub struct Accounts {
    out: Waits,
    states: HashMap<i32, State>,
    /// The entry of each thread in the recording, also of those that have ended: one that ends wakes others
    /// after that.
    threads: HashMap<i32, u32>,
    classes: Classes,
    descriptors: Descriptors,
    files: HashMap<File, u32>,
    runners: HashMap<Runner, u32>,
    histories: Histories,
    requests: Requests,
    losses: u64,
}

impl Accounts {
    /// A thread is of this entry of the recording from now on. One that was known goes on with what it
    /// does.
    pub fn begin(&mut self, time: u64, pid: i32, tid: i32, thread: u32) {
        self.advance(time, tid);
        let life = self.out.lives.len();
        let before = self.states.get(&tid).and_then(|state| self.out.lives.get(state.life));
        let origin = before.map(|life| life.thread);
        self.out.lives.push(Life { thread, start: time, end: time, origin, ..Life::default() });
        self.threads.insert(tid, thread);
        let losses = self.losses;
        let state = self.states.entry(tid).or_insert(State {
            pid,
            life,
            does: Does::Unknown,
            since: time,
            was_woken: false,
            assumed_until: 0,
            losses,
            call: None,
            fault: None,
            place: Place::default(),
            is_exiting: false,
        });
        (state.pid, state.life, state.is_exiting) = (pid, life, false);
    }

    /// A new thread could run, in the call with which `parent` made it.
    pub fn started(&mut self, tid: i32, parent: i32) {
        let parent = self.threads.get(&parent).copied();
        let life = self.states.get(&tid).and_then(|state| self.out.lives.get_mut(state.life));
        if let Some(life) = life {
            life.origin = parent;
        }
        self.is_in(tid, Does::Queue, Call::new(None, Class::UNKNOWN));
    }

    /// A thread executes a program.
    pub fn executes(&mut self, tid: i32) {
        if let Some(state) = self.states.get(&tid) {
            self.descriptors.execute(state.pid);
        }
        self.is_in(tid, Does::Run, Call::new(None, Class::of("execve")));
    }

    /// A thread waits in a call since before the recording, as /proc said at `found`. It has no record
    /// until then, or that was another wait.
    pub fn waits_in(&mut self, time: u64, tid: i32, call: (u32, [u64; 6]), found: u64) {
        self.enters(time, tid, call.0, false, call.1);
        if let Some(state) = self.states.get_mut(&tid) {
            (state.does, state.assumed_until) = (Does::Wait(None), found);
        }
    }

    fn is_in(&mut self, tid: i32, does: Does, call: Call) {
        if let Some(state) = self.states.get_mut(&tid) {
            (state.does, state.call, state.fault) = (does, Some(call), None);
        }
    }

    /// A thread exits: it goes on until it leaves its CPU for the last time.
    pub fn exits(&mut self, time: u64, tid: i32) {
        if let Some(state) = self.runs_now(time, tid) {
            (state.is_exiting, state.fault) = (true, None);
        }
    }

    /// A thread has ended.
    pub fn end(&mut self, time: u64, tid: i32) {
        self.advance(time, tid);
        self.states.remove(&tid);
    }

    /// A process was started, with the descriptors of another.
    pub fn forked(&mut self, parent: i32, child: i32) {
        self.descriptors.fork(parent, child);
    }

    /// A process has ended.
    pub fn forget(&mut self, pid: i32) {
        self.descriptors.forget(pid);
    }

    /// Records were lost: what was going on may have ended.
    pub fn lose(&mut self) {
        self.losses += 1;
        // Its end may be among them.
        self.states.retain(|_, state| !state.is_exiting);
        self.requests.lose();
        self.histories.lose();
    }

    /// A file that may be waited for.
    pub fn file(&mut self, id: Option<InodeId>, name: Option<u32>) -> u32 {
        // One with an inode is known by that alone.
        let key = File { id, name: name.filter(|_| id.is_none()) };
        if let Some(known) = self.files.get(&key) {
            let file = &mut self.out.files[*known as usize];
            file.name = file.name.or(name);
            return *known;
        }
        let number = self.out.files.len() as u32;
        self.out.files.push(File { id, name });
        self.files.insert(key, number);
        number
    }

    /// A descriptor of a process that was running is this.
    pub fn has_open(&mut self, pid: i32, number: i32, descriptor: Descriptor) {
        self.descriptors.set(pid, number, descriptor);
    }

    /// The process of a thread that is in a fault, and the address.
    pub fn fault_of(&self, tid: i32) -> Option<(i32, u64)> {
        let state = self.states.get(&tid)?;
        Some((state.pid, state.fault?))
    }

    /// A fault of a thread begins.
    pub fn fault_begins(&mut self, time: u64, tid: i32, address: u64) {
        if let Some(state) = self.runs_now(time, tid) {
            state.fault = Some(address);
        }
    }

    /// It has ended.
    pub fn fault_ends(&mut self, time: u64, tid: i32) {
        if let Some(state) = self.runs_now(time, tid) {
            state.fault = None;
        }
    }

    /// A thread makes a call.
    pub fn enters(&mut self, time: u64, tid: i32, number: u32, is_32: bool, arguments: [u64; 6]) {
        if self.runs_now(time, tid).is_none() {
            return;
        }
        let class = if is_32 { Class::UNKNOWN } else { self.classes.of(number) };
        self.out.unrecorded.calls_32_bit += u64::from(is_32);
        let number = (!is_32).then_some(number);
        let mut call = Call { arguments, ..Call::new(number, class) };
        let Some(state) = self.states.get_mut(&tid) else { return };
        if let Some(known) = call.descriptor().and_then(|fd| self.descriptors.get(state.pid, fd)) {
            call.file = known.file;
            call.class.kind = match class.kind {
                Kind::Read | Kind::Write if known.is_other => Kind::Stream,
                kind => kind,
            };
        } else if matches!(class.kind, Kind::Read | Kind::Write) {
            // A file shows itself by its pages.
            call.class.kind = Kind::Stream;
        }
        (state.call, state.fault) = (Some(call), None);
    }

    /// The call returns.
    pub fn returns(&mut self, time: u64, tid: i32, value: i64) {
        let Some(state) = self.runs_now(time, tid) else { return };
        state.fault = None;
        let pid = state.pid;
        let Some(call) = state.call.take() else {
            self.out.unrecorded.call_ends += 1;
            return;
        };
        let Some(new) = i32::try_from(value).ok().filter(|value| *value >= 0) else { return };
        let is_kept = call.keeps_open();
        match (call.class.effect, call.descriptor()) {
            (Effect::Opens, _) => {
                let opened = Descriptor { opened_by: call.open, is_kept, ..Descriptor::default() };
                self.descriptors.set(pid, new, opened);
            }
            (Effect::OpensOther, _) => {
                let other = Descriptor { is_other: true, ..Descriptor::default() };
                self.descriptors.set(pid, new, other);
            }
            (Effect::Copies, Some(old)) => self.descriptors.copy(pid, old, new, is_kept),
            (Effect::Controls, Some(old)) => match call.arguments[1..3] {
                [DUPFD, _] => self.descriptors.copy(pid, old, new, true),
                [DUPFD_CLOEXEC, _] => self.descriptors.copy(pid, old, new, false),
                [SETFD, flags] => self.descriptors.keep(pid, old, flags & 1 == 0),
                _ => {}
            },
            (Effect::Closes, Some(old)) => self.descriptors.close(pid, old),
            (Effect::ClosesRange, _) => {
                let [first, last, flags, ..] = call.arguments;
                if flags & CLOSE_RANGE_CLOEXEC == 0 {
                    self.descriptors.close_range(pid, first as u32, last as u32);
                }
            }
            _ => {}
        }
    }

    /// A thread reads pages of a file.
    pub fn reads(&mut self, tid: i32, file: InodeId, offset: u64) {
        let Some(state) = self.states.get(&tid) else { return };
        // Calls that read pages by a descriptor, and of programs; others read such of directories.
        let reads = |call: &Call| match call.class.kind {
            Kind::Read | Kind::Stream => call.class.descriptor.is_some(),
            kind => matches!(kind, Kind::Readahead | Kind::Execute),
        };
        if !state.call.as_ref().is_some_and(reads) || state.fault.is_some() {
            return;
        }
        let pid = state.pid;
        let file = self.file(Some(file), None);
        let Some(call) = self.states.get_mut(&tid).and_then(|state| state.call.as_mut()) else {
            return;
        };
        if call.class.kind == Kind::Stream {
            call.class.kind = Kind::Read;
        }
        let kind = call.class.kind;
        // A program is found before it is read, and its interpreter comes after it.
        call.file = Some(file).filter(|_| kind != Kind::Execute);
        let place = Place { file: Some(file), offset: Some(offset) };
        let (waits, descriptor) = (std::mem::take(&mut call.open), call.descriptor());
        for wait in waits {
            self.name(wait, place, Some(kind));
        }
        if let Some(descriptor) = descriptor {
            self.learns(pid, descriptor, file);
        }
    }

    /// A thread maps a file, of this name.
    pub fn maps(&mut self, tid: i32, file: InodeId, name: u32) {
        let file = self.file(Some(file), Some(name));
        let Some(state) = self.states.get(&tid) else { return };
        let Some(call) = state.call.as_ref().filter(|call| call.class.kind == Kind::Map) else {
            return;
        };
        let is_file = call.arguments[3] & ANONYMOUS == 0;
        if let (Some(descriptor), true) = (call.descriptor().filter(|fd| *fd >= 0), is_file) {
            self.learns(state.pid, descriptor, file);
        }
    }

    fn learns(&mut self, pid: i32, descriptor: i32, file: u32) {
        for wait in self.descriptors.learn(pid, descriptor, file) {
            self.name(wait, Place { file: Some(file), offset: None }, None);
        }
    }

    /// What a wait was for is known now.
    fn name(&mut self, wait: u32, place: Place, kind: Option<Kind>) {
        if let Some(wait) = self.out.waits.get_mut(wait as usize) {
            (wait.file, wait.offset) = (place.file, place.offset.or(wait.offset));
            wait.kind = kind.unwrap_or(wait.kind);
        }
    }

    /// What a thread has waited for is there, by what another did.
    pub fn wakes(&mut self, time: u64, tid: i32, by: Option<i32>) {
        let by = by.filter(|by| *by != tid).and_then(|by| self.threads.get(&by)).copied();
        let Some(state) = self.states.get_mut(&tid) else { return };
        state.check_assumed(time);
        match &mut state.does {
            Does::Wait(woken @ None) | Does::Stop(woken @ None) => {
                *woken = Some(Woken { time, by });
            }
            Does::Run => state.was_woken = true,
            _ => {}
        }
    }

    /// A thread leaves its CPU. `place`: that of the fault in which it is.
    pub fn leaves(&mut self, time: u64, tid: i32, left: Left, place: Place) {
        let Some(state) = self.runs_now(time, tid) else { return };
        state.place = place;
        state.does = match left {
            Left::Runnable => Does::Queue,
            Left::Waits => Does::Wait(None),
            Left::Stopped => Does::Stop(None),
            Left::Ended => {
                self.states.remove(&tid);
                return;
            }
        };
    }

    /// A CPU runs a thread, of any program; `named` gives its name a number.
    pub fn runs(
        &mut self,
        time: u64,
        cpu: usize,
        tid: i32,
        name: &[u8],
        named: impl FnMut(&[u8]) -> u32,
    ) {
        self.advance_on(time, tid, Some(cpu), named);
        if let Some(state) = self.states.get_mut(&tid) {
            (state.does, state.was_woken) = (Does::Run, false);
        }
        self.histories.runs(time, cpu, tid, name);
    }

    /// A request is given to a device by a thread of any program.
    pub fn issues(&mut self, tid: i32, request: Request) {
        let life = self.states.get(&tid).and_then(|state| self.out.lives.get(state.life));
        self.requests.issue(Request { thread: life.map(|life| life.thread), ..request });
    }

    /// A request is done.
    pub fn completes(&mut self, time: u64, device: Dev, sector: u64) {
        self.requests.complete(time, device, sector);
    }

    /// All of it, at the end of the recording.
    pub fn finish(mut self, until: u64) -> Waits {
        let tids: Vec<i32> = self.states.keys().copied().collect();
        tids.into_iter().for_each(|tid| self.advance(until, tid));
        let mut out = self.out;
        out.unrecorded.completions = self.requests.without_start;
        out.requests = self.requests.finish();
        out.waits.sort_by_key(|wait| wait.start);
        out.lives.retain(|life| life.end > life.start);
        out.lives.sort_by_key(|life| life.thread);
        out
    }

    /// What a thread has done so far is counted, and it runs.
    fn runs_now(&mut self, time: u64, tid: i32) -> Option<&mut State> {
        self.advance(time, tid);
        let state = self.states.get_mut(&tid)?;
        state.does = Does::Run;
        Some(state)
    }

    fn advance(&mut self, time: u64, tid: i32) {
        self.advance_on(time, tid, None, |_| 0);
    }

    /// Counts what a thread has done until now. `cpu`: where it runs now, if it did not.
    fn advance_on(
        &mut self,
        time: u64,
        tid: i32,
        cpu: Option<usize>,
        named: impl FnMut(&[u8]) -> u32,
    ) {
        let Some(state) = self.states.get_mut(&tid) else { return };
        state.check_assumed(time);
        let (start, life) = (state.since, state.life);
        // Times of several CPUs may differ by a little.
        let time = time.max(start);
        state.since = time;
        let Some(lived) = self.out.lives.get_mut(life) else { return };
        lived.end = time;
        let wait = Wait {
            thread: lived.thread,
            start,
            end: time,
            kind: Kind::Unexplained,
            file: None,
            offset: None,
            call: state.call.as_ref().and_then(|call| call.number),
            runner: None,
            waker: None,
        };
        if state.losses != self.losses {
            state.losses = self.losses;
            (state.does, state.call, state.fault) = (Does::Unknown, None, None);
            self.keep(life, wait);
            return;
        }
        match state.does {
            Does::Run => {
                let ns = match (state.fault, &state.call) {
                    (Some(_), _) => &mut lived.faults_ns,
                    (None, Some(_)) => &mut lived.calls_ns,
                    (None, None) => &mut lived.user_ns,
                };
                *ns += time - start;
            }
            Does::Queue => self.queue(life, wait, cpu, named),
            Does::Unknown => {
                self.keep(life, wait);
            }
            Does::Wait(woken) | Does::Stop(woken) => {
                // A thread that runs again was woken: if not since it left, then before.
                let early = (cpu.is_some() && state.was_woken).then_some(start);
                let waker = woken.and_then(|woken| woken.by);
                let woken =
                    woken.map(|woken| woken.time).or(early).unwrap_or(time).clamp(start, time);
                let is_stopped = matches!(state.does, Does::Stop(_));
                let (kind, file, offset) = match (state.fault, &state.call) {
                    _ if is_stopped => (Kind::Signal, None, None),
                    (Some(_), _) => (Kind::Fault, state.place.file, state.place.offset),
                    (None, Some(call)) => (call.class.kind, call.file, None),
                    (None, None) => (Kind::Unexplained, None, None),
                };
                let becomes_known = state.fault.is_none()
                    && matches!(kind, Kind::Read | Kind::Stream | Kind::Open | Kind::Execute);
                let kept = self.keep(life, Wait { end: woken, kind, file, offset, waker, ..wait });
                let call = self.states.get_mut(&tid).and_then(|state| state.call.as_mut());
                if let (Some(kept), Some(call)) = (kept.filter(|_| becomes_known), call)
                    && call.open.len() < MOST_OPEN
                {
                    call.open.push(kept);
                }
                self.queue(life, Wait { start: woken, ..wait }, cpu, named);
            }
        }
    }

    /// A thread could run, and did not.
    fn queue(
        &mut self,
        life: usize,
        wait: Wait,
        cpu: Option<usize>,
        mut named: impl FnMut(&[u8]) -> u32,
    ) {
        let wait = Wait { kind: Kind::RunQueue, ..wait };
        // CPUs that have no history have one part.
        let cpu = cpu.unwrap_or(usize::MAX);
        for part in self.histories.parts(cpu, wait.start, wait.end) {
            let runner = part.ran.map(|ran| {
                let runner = Runner { tid: ran.tid, name: named(ran.name()) };
                *self.runners.entry(runner).or_insert_with(|| {
                    self.out.runners.push(runner);
                    self.out.runners.len() as u32 - 1
                })
            });
            self.keep(life, Wait { start: part.start, end: part.end, runner, ..wait });
        }
    }

    /// Its place among all waits, if it takes time and there is room.
    fn keep(&mut self, life: usize, wait: Wait) -> Option<u32> {
        if wait.ns() == 0 {
            return None;
        }
        if self.out.waits.len() >= MOST_WAITS {
            self.out.unrecorded.waits += 1;
            if let Some(life) = self.out.lives.get_mut(life) {
                life.unkept_ns += wait.ns();
            }
            return None;
        }
        self.out.waits.push(wait);
        Some(self.out.waits.len() as u32 - 1)
    }
}

#[cfg(test)]
#[path = "accounts_tests.rs"]
mod tests;

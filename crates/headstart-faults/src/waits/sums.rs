//! Sums of waits: where the time of threads went, by kind and file, by who ran instead, and what
//! devices did. Formats nothing.

use super::path::Path;
use super::{Kind, Life, Operation, Request, Wait, Waits};
use crate::recording::Recording;
use headstart::host::id::Dev;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Waits with something in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Sum {
    /// How many.
    pub count: u64,
    /// How long they were, in ns.
    pub time_ns: u64,
    /// The longest of them.
    pub longest_ns: u64,
}

impl Sum {
    fn add(&mut self, ns: u64) {
        self.count += 1;
        self.time_ns = self.time_ns.saturating_add(ns);
        self.longest_ns = self.longest_ns.max(ns);
    }
}

/// Where the time of threads went; its parts are all of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// CPU time in own code, in ns.
    pub user_ns: u64,
    /// In system calls.
    pub calls_ns: u64,
    /// In page faults.
    pub faults_ns: u64,
    /// Waits by kind, those that took time.
    pub waits: BTreeMap<Kind, Sum>,
    /// Waits that were not kept, in ns.
    pub unkept_ns: u64,
}

impl Account {
    fn live(&mut self, life: &Life) {
        for (sum, ns) in [
            (&mut self.user_ns, life.user_ns),
            (&mut self.calls_ns, life.calls_ns),
            (&mut self.faults_ns, life.faults_ns),
            (&mut self.unkept_ns, life.unkept_ns),
        ] {
            *sum = sum.saturating_add(ns);
        }
    }

    fn wait(&mut self, wait: &Wait) {
        self.waits.entry(wait.kind).or_default().add(wait.ns());
    }

    /// Time on a CPU, in ns.
    pub fn cpu_ns(&self) -> u64 {
        self.user_ns.saturating_add(self.calls_ns).saturating_add(self.faults_ns)
    }

    /// That of a kind of waits, in ns.
    pub fn wait_ns(&self, kind: Kind) -> u64 {
        self.waits.get(&kind).map_or(0, |sum| sum.time_ns)
    }

    /// All of it, in ns.
    pub fn total_ns(&self) -> u64 {
        let waits = self.waits.values().map(|sum| sum.time_ns);
        waits.fold(self.cpu_ns().saturating_add(self.unkept_ns), u64::saturating_add)
    }
}

/// What was waited for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Cause {
    /// The kind.
    pub kind: Kind,
    /// The file, in [`Waits::files`].
    pub file: Option<u32>,
    /// With [`Kind::Call`] the number of the call.
    pub call: Option<u32>,
    /// With [`Kind::RunQueue`] who ran, in [`Waits::runners`].
    pub runner: Option<u32>,
}

/// What a device did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Device {
    /// Requests that read.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Requests that wrote.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Other requests.
    pub others: u64,
    /// Those whose end is not known, which are not part of the times.
    pub unended: u64,
    /// The times of all requests, in ns.
    pub requests_ns: u64,
    /// The time in which a request or more was in flight, in ns.
    pub busy_ns: u64,
    /// How many times nothing was in flight between the first request and the last.
    pub gaps: u64,
    /// How long that was, in ns.
    pub idle_ns: u64,
    /// The longest such time.
    pub longest_idle_ns: u64,
}

impl Device {
    /// How many requests are in flight while it is busy.
    pub fn mean_depth(&self) -> f64 {
        if self.busy_ns == 0 { 0.0 } else { self.requests_ns as f64 / self.busy_ns as f64 }
    }

    /// Of its requests, by the time of their issue.
    fn of<'a>(requests: impl Iterator<Item = &'a Request>) -> Self {
        let (mut out, mut busy_until) = (Self::default(), None);
        for request in requests {
            match request.operation {
                Operation::Read => {
                    out.reads += 1;
                    out.read_bytes = out.read_bytes.saturating_add(request.bytes);
                }
                Operation::Write => {
                    out.writes += 1;
                    out.written_bytes = out.written_bytes.saturating_add(request.bytes);
                }
                Operation::Other => out.others += 1,
            }
            let Some(complete) = request.complete else {
                out.unended += 1;
                continue;
            };
            let complete = complete.max(request.issue);
            out.requests_ns = out.requests_ns.saturating_add(complete - request.issue);
            let until = busy_until.unwrap_or(request.issue);
            if request.issue > until {
                let idle = request.issue - until;
                out.gaps += 1;
                out.idle_ns = out.idle_ns.saturating_add(idle);
                out.longest_idle_ns = out.longest_idle_ns.max(idle);
            }
            out.busy_ns += complete.saturating_sub(until.max(request.issue));
            busy_until = Some(until.max(complete));
        }
        out
    }
}

/// Sums of a path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PathSums {
    /// All of it, in ns.
    pub total_ns: u64,
    /// What of it was in other threads than the first, in ns.
    pub elsewhere_ns: u64,
    /// Time on a CPU in ns, by the name of the program in [`Recording::names`]; the longest first.
    pub cpu: Vec<(u32, u64)>,
    /// Waits and times in the run queue, by cause; the longest first.
    pub causes: Vec<(Cause, Sum)>,
}

impl PathSums {
    /// Those of the path of a process.
    fn of(recording: &Recording, path: &Path, pid: i32) -> Self {
        let mut out = Self { total_ns: path.total_ns(), ..Self::default() };
        let mut elsewhere = |thread, ns| {
            if !is_main(recording, thread, pid) {
                out.elsewhere_ns = out.elsewhere_ns.saturating_add(ns);
            }
        };
        let mut cpu: HashMap<u32, u64> = HashMap::new();
        for (thread, ns) in &path.cpu_ns {
            elsewhere(*thread, *ns);
            let thread = recording.threads.get(*thread as usize);
            let program =
                thread.and_then(|thread| recording.processes.get(thread.process as usize));
            *cpu.entry(program.map_or(0, |program| program.name)).or_default() += ns;
        }
        let mut causes: HashMap<Cause, Sum> = HashMap::new();
        for wait in &path.waits {
            elsewhere(wait.thread, wait.ns());
            causes.entry(cause(wait)).or_default().add(wait.ns());
        }
        out.cpu = cpu.into_iter().filter(|(_, ns)| *ns > 0).collect();
        out.cpu.sort_by_key(|(name, ns)| (std::cmp::Reverse(*ns), *name));
        out.causes = causes.into_iter().collect();
        out.causes.sort_by_key(|(cause, sum)| (std::cmp::Reverse(sum.time_ns), *cause));
        out
    }

    /// Time on a CPU, in ns.
    pub fn cpu_ns(&self) -> u64 {
        self.cpu.iter().map(|(_, ns)| ns).sum()
    }
}

/// All sums.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sums {
    /// The first thread of the recorded process: in all programs that it executed.
    pub main: Account,
    /// All threads together.
    pub all: Account,
    /// By thread, in [`Recording::threads`], those that live longest first.
    pub threads: Vec<(u32, Account)>,
    /// By cause, the sum of the first thread and that of all; those for which the first waited
    /// longest first.
    pub causes: Vec<(Cause, Sum, Sum)>,
    /// By device.
    pub devices: Vec<(Dev, Device)>,
    /// Of what the end depended on.
    pub path: PathSums,
}

impl Sums {
    /// Those of a recording of a process.
    pub fn of(recording: &Recording, waits: &Waits, pid: i32) -> Self {
        let mut out = Self::default();
        let mut threads: HashMap<u32, Account> = HashMap::new();
        let mut causes: BTreeMap<Cause, (Sum, Sum)> = BTreeMap::new();
        let is_main = |thread| is_main(recording, thread, pid);
        for life in &waits.lives {
            out.all.live(life);
            threads.entry(life.thread).or_default().live(life);
            if is_main(life.thread) {
                out.main.live(life);
            }
        }
        for wait in &waits.waits {
            out.all.wait(wait);
            threads.entry(wait.thread).or_default().wait(wait);
            let (main, all) = causes.entry(cause(wait)).or_default();
            all.add(wait.ns());
            if is_main(wait.thread) {
                out.main.wait(wait);
                main.add(wait.ns());
            }
        }
        out.threads = threads.into_iter().collect();
        out.threads.sort_by_key(|(thread, row)| (std::cmp::Reverse(row.total_ns()), *thread));
        out.causes = causes.into_iter().map(|(cause, (main, all))| (cause, main, all)).collect();
        out.causes.sort_by_key(|(_, main, all)| std::cmp::Reverse((main.time_ns, all.time_ns)));
        let mut devices: BTreeMap<Dev, Vec<&Request>> = BTreeMap::new();
        for request in &waits.requests {
            devices.entry(request.device).or_default().push(request);
        }
        out.devices = devices
            .into_iter()
            .map(|(device, requests)| (device, Device::of(requests.into_iter())))
            .collect();
        out.path = PathSums::of(recording, &Path::of(recording, waits, pid), pid);
        out
    }
}

/// Whether a thread, in [`Recording::threads`], is the first one of a process.
pub(super) fn is_main(recording: &Recording, thread: u32, pid: i32) -> bool {
    let thread = recording.threads.get(thread as usize).filter(|thread| thread.tid == pid);
    let process = thread.and_then(|thread| recording.processes.get(thread.process as usize));
    process.is_some_and(|process| process.pid == pid)
}

fn cause(wait: &Wait) -> Cause {
    Cause {
        kind: wait.kind,
        file: wait.file,
        call: wait.call.filter(|_| wait.kind == Kind::Call),
        runner: wait.runner,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Process, Thread};

    fn request(issue: u64, complete: Option<u64>, operation: Operation) -> Request {
        let request = Request::new(issue, Dev::new(8, 0), issue, 4096, operation, false);
        Request { complete, ..request }
    }

    #[test]
    fn a_device_is_busy_while_a_request_is_in_flight_and_idle_between() {
        let requests = [
            request(10, Some(30), Operation::Read),
            request(20, Some(25), Operation::Read),
            request(21, Some(40), Operation::Write),
            request(50, Some(60), Operation::Other),
            request(55, None, Operation::Read),
            request(90, Some(95), Operation::Read),
        ];
        let device = Device::of(requests.iter());
        assert_eq!((device.reads, device.writes, device.others, device.unended), (4, 1, 1, 1));
        assert_eq!((device.busy_ns, device.requests_ns), (45, 59));
        assert_eq!((device.gaps, device.idle_ns, device.longest_idle_ns), (2, 40, 30));
        assert_eq!(Device::default().mean_depth(), 0.0);
    }

    #[test]
    fn the_first_thread_and_all_have_their_parts_and_causes_are_apart_by_file() {
        let thread = |tid, process| Thread { tid, process, name: 0 };
        let recording = Recording {
            processes: vec![Process { pid: 7, name: 0 }, Process { pid: 7, name: 0 }],
            threads: vec![thread(7, 0), thread(7, 1), thread(8, 1)],
            ..Recording::default()
        };
        let life =
            |thread, start, end, user_ns| Life { thread, start, end, user_ns, ..Life::default() };
        let wait = |thread, start, end, kind, file| Wait {
            thread,
            start,
            end,
            kind,
            file,
            offset: None,
            call: Some(3),
            runner: None,
            waker: None,
        };
        let waits = Waits {
            lives: vec![life(0, 0, 10, 4), life(1, 10, 30, 15), life(2, 15, 30, 5)],
            waits: vec![
                wait(0, 0, 6, Kind::Read, Some(0)),
                wait(1, 12, 17, Kind::Read, Some(1)),
                wait(2, 15, 25, Kind::Read, Some(1)),
            ],
            ..Waits::default()
        };
        let sums = Sums::of(&recording, &waits, 7);
        assert_eq!((sums.main.total_ns(), sums.all.total_ns()), (30, 45));
        assert_eq!((sums.main.wait_ns(Kind::Read), sums.all.wait_ns(Kind::Read)), (11, 21));
        let causes =
            sums.causes.iter().map(|(cause, main, all)| (cause.file, main.time_ns, all.time_ns));
        assert_eq!(causes.collect::<Vec<_>>(), [(Some(0), 6, 6), (Some(1), 5, 15)]);
        assert_eq!(sums.threads[0].0, 1);
        assert_eq!(
            (sums.path.total_ns, sums.path.elsewhere_ns, &sums.path.cpu[..]),
            (30, 0, &[(0, 19)][..])
        );
        let of_path = sums.path.causes.iter().map(|(cause, sum)| (cause.file, sum.time_ns));
        assert_eq!(of_path.collect::<Vec<_>>(), [(Some(0), 6), (Some(1), 5)]);
    }
}

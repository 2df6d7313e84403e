//! What the end of a process depended on: the time of its first thread, in which each wait for another
//! recorded thread is what that thread did meanwhile. Pure.
//!
//! A thread that waits for another (futex(2), a pipe, wait4(2)) is woken by it. From its start to its end
//! such a wait is cut into what the other did then: it ran, waited for a file or a CPU, or waited for a
//! third one, which is followed in turn; before it was started, its parent is followed. The parts are the
//! time of the first thread, to the nanosecond. It says where the time went, not what would have gone on
//! if one part had been shorter.

use super::sums::is_main;
use super::{Kind, Life, Wait, Waits};
use crate::recording::Recording;
use std::collections::{BTreeMap, HashMap};

/// A wait is followed through no more threads: a record that is wrong could make a circle of them.
const DEEPEST: usize = 64;

/// The parts of the time of a process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Path {
    /// Time on a CPU, in ns, by thread, in [`Recording::threads`]. Waits that were not kept are part of it.
    pub cpu_ns: BTreeMap<u32, u64>,
    /// Waits and times in the run queue, by their start, without those that were followed. Their times are
    /// those of the path.
    pub waits: Vec<Wait>,
}

impl Path {
    /// That of a process.
    pub fn of(recording: &Recording, waits: &Waits, pid: i32) -> Self {
        let threads = Threads::of(waits);
        let main = waits.lives.iter().filter(|life| is_main(recording, life.thread, pid));
        let of_life = |life: &Life| Stretch {
            thread: Some(life.thread),
            start: life.start,
            end: life.end,
            depth: 0,
        };
        let (mut out, mut left): (_, Vec<_>) = (Self::default(), main.map(of_life).collect());
        while let Some(stretch) = left.pop() {
            out.follow(&threads, stretch, &mut left);
        }
        out.waits.sort_by_key(|wait| wait.start);
        out
    }

    /// All of it, in ns.
    pub fn total_ns(&self) -> u64 {
        let waits = self.waits.iter().map(Wait::ns);
        self.cpu_ns.values().copied().chain(waits).fold(0, u64::saturating_add)
    }

    /// What a thread did in a time. What another did is `left`.
    fn follow(&mut self, threads: &Threads, stretch: Stretch, left: &mut Vec<Stretch>) {
        let Stretch { thread, mut start, end, depth } = stretch;
        let Some((life, waits)) = thread.and_then(|thread| threads.0.get(&thread)) else {
            return self.unexplained(thread, start, end);
        };
        let until = end.min(life.end);
        self.unexplained(thread, until.max(start), end);
        if start < life.start {
            let end = until.min(life.start);
            match life.origin.filter(|_| depth < DEEPEST) {
                Some(origin) => {
                    left.push(Stretch { thread: Some(origin), start, end, depth: depth + 1 });
                }
                None => self.unexplained(thread, start, end),
            }
            start = life.start;
        }
        let first = waits.partition_point(|wait| wait.end <= start);
        let mut cpu = until.saturating_sub(start);
        for wait in waits[first..].iter().take_while(|wait| wait.start < until) {
            let part = Wait { start: wait.start.max(start), end: wait.end.min(until), ..**wait };
            cpu = cpu.saturating_sub(part.ns());
            // What ended a wait after this time is not why it lasted until now.
            let waker = wait.waker.filter(|_| is_for_another(wait) && wait.end <= until);
            match waker.filter(|_| depth < DEEPEST) {
                Some(waker) => left.push(Stretch {
                    thread: Some(waker),
                    start: part.start,
                    end: part.end,
                    depth: depth + 1,
                }),
                None => self.waits.push(part),
            }
        }
        *self.cpu_ns.entry(life.thread).or_default() += cpu;
    }

    /// What a thread did in this time has no record.
    fn unexplained(&mut self, thread: Option<u32>, start: u64, end: u64) {
        if end > start {
            let kind = Kind::Unexplained;
            let (thread, file, offset) = (thread.unwrap_or_default(), None, None);
            let (call, runner, waker) = (None, None, None);
            self.waits.push(Wait { thread, start, end, kind, file, offset, call, runner, waker });
        }
    }
}

/// A time of a thread that is part of the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stretch {
    thread: Option<u32>,
    start: u64,
    end: u64,
    /// Through how many threads it was followed.
    depth: usize,
}

/// The life and the waits of each thread.
struct Threads<'a>(HashMap<u32, (&'a Life, Vec<&'a Wait>)>);

impl<'a> Threads<'a> {
    fn of(waits: &'a Waits) -> Self {
        let lives = waits.lives.iter().map(|life| (life.thread, (life, Vec::new())));
        let mut threads: HashMap<_, (_, Vec<_>)> = lives.collect();
        for wait in &waits.waits {
            if let Some((_, own)) = threads.get_mut(&wait.thread) {
                own.push(wait);
            }
        }
        Self(threads)
    }
}

/// Whether a wait is for what another thread does, and not for a disk: a page that another thread has
/// requested is named by its file.
fn is_for_another(wait: &Wait) -> bool {
    match wait.kind {
        Kind::Stream
        | Kind::Poll
        | Kind::Thread
        | Kind::Timer
        | Kind::Child
        | Kind::Signal
        | Kind::Call
        | Kind::Map => true,
        // The lock of the address space.
        Kind::Fault => wait.offset.is_none(),
        Kind::Read
        | Kind::Write
        | Kind::Open
        | Kind::Lookup
        | Kind::Directory
        | Kind::Execute
        | Kind::Sync
        | Kind::Readahead
        | Kind::RunQueue
        | Kind::Unexplained => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Process, Thread};
    use proptest::prelude::*;

    /// Threads 0 (the first of process 7), 1, 2 … of one process each.
    fn recording(threads: i32) -> Recording {
        Recording {
            processes: (7..7 + threads).map(|pid| Process { pid, name: 0 }).collect(),
            threads: (0..threads)
                .map(|at| Thread { tid: 7 + at, process: at as u32, name: 0 })
                .collect(),
            ..Recording::default()
        }
    }

    fn life(thread: u32, start: u64, end: u64, origin: Option<u32>) -> Life {
        Life { thread, start, end, origin, ..Life::default() }
    }

    fn wait(thread: u32, start: u64, end: u64, kind: Kind, waker: Option<u32>) -> Wait {
        let (file, offset, call, runner) = (None, None, None, None);
        Wait { thread, start, end, kind, file, offset, call, runner, waker }
    }

    fn path(threads: i32, lives: Vec<Life>, waits: Vec<Wait>) -> Path {
        let waits = Waits { lives, waits, ..Waits::default() };
        Path::of(&recording(threads), &waits, 7)
    }

    /// Thread, start, end and kind of each wait.
    fn told(path: &Path) -> Vec<(u32, u64, u64, Kind)> {
        path.waits.iter().map(|wait| (wait.thread, wait.start, wait.end, wait.kind)).collect()
    }

    #[test]
    fn a_wait_for_a_thread_is_what_that_thread_did_meanwhile_also_through_several() {
        let lives = vec![life(0, 0, 100, None), life(1, 5, 100, Some(0)), life(2, 5, 99, Some(0))];
        let waits = vec![
            wait(0, 10, 80, Kind::Thread, Some(1)),
            wait(1, 6, 30, Kind::Read, None),
            wait(1, 40, 70, Kind::Stream, Some(2)),
            wait(2, 20, 60, Kind::Fault, None),
            wait(2, 62, 65, Kind::RunQueue, None),
            wait(0, 90, 95, Kind::Timer, None),
        ];
        let path = path(3, lives, waits);
        let expected = [
            (1, 10, 30, Kind::Read),
            (2, 40, 60, Kind::Fault),
            (2, 62, 65, Kind::RunQueue),
            (0, 90, 95, Kind::Timer),
        ];
        assert_eq!(told(&path), expected);
        // The first before and after, the second from 30 to 40 and 70 to 80, the third in between.
        assert_eq!(path.cpu_ns, BTreeMap::from([(0, 25), (1, 20), (2, 7)]));
        assert_eq!(path.total_ns(), 100);
    }

    #[test]
    fn before_a_process_was_started_its_parent_is_followed_and_after_its_end_nothing_is_known() {
        let lives = vec![
            life(0, 0, 100, None),
            life(1, 5, 90, Some(0)),
            life(2, 30, 60, Some(1)),
            life(3, 60, 78, Some(2)),
        ];
        let waits = vec![
            wait(0, 10, 80, Kind::Child, Some(3)),
            wait(1, 8, 20, Kind::Open, None),
            wait(2, 40, 50, Kind::Execute, None),
        ];
        let path = path(4, lives, waits);
        let expected =
            [(1, 10, 20, Kind::Open), (2, 40, 50, Kind::Execute), (3, 78, 80, Kind::Unexplained)];
        assert_eq!(told(&path), expected);
        assert_eq!(path.total_ns(), 100);
    }

    #[test]
    fn waits_for_disks_and_for_threads_that_are_not_known_stay_what_they_are() {
        let lives = vec![life(0, 0, 100, None), life(1, 0, 100, None)];
        let fault = Wait { offset: Some(4096), ..wait(0, 50, 60, Kind::Fault, Some(1)) };
        let waits = vec![
            wait(0, 0, 10, Kind::Poll, None),
            wait(0, 20, 30, Kind::Read, Some(1)),
            wait(0, 35, 40, Kind::Thread, Some(9)),
            fault,
            // Memory: a lock.
            wait(0, 70, 80, Kind::Fault, Some(1)),
        ];
        let path = path(2, lives, waits);
        let expected = [
            (0, 0, 10, Kind::Poll),
            (0, 20, 30, Kind::Read),
            (9, 35, 40, Kind::Unexplained),
            (0, 50, 60, Kind::Fault),
        ];
        assert_eq!(told(&path), expected);
        assert_eq!(path.cpu_ns, BTreeMap::from([(0, 55), (1, 10)]));
    }

    #[test]
    fn threads_that_wake_each_other_in_a_circle_end() {
        let lives = vec![life(0, 0, 100, None), life(1, 0, 100, None)];
        let waits =
            vec![wait(0, 10, 50, Kind::Thread, Some(1)), wait(1, 10, 50, Kind::Thread, Some(0))];
        assert_eq!(path(2, lives, waits).total_ns(), 100);
    }

    proptest! {
        #[test]
        fn whatever_is_recorded_the_parts_are_the_time_of_the_first_thread(
            lives in proptest::collection::vec((0u64..100, 0u64..300, 0u32..5), 4),
            waits in proptest::collection::vec(
                (0u32..4, 0u64..9, 0u64..60, 0usize..19, 0u32..6), 0..60),
        ) {
            let lives: Vec<_> = lives.into_iter().enumerate()
                .map(|(at, (start, length, origin))| {
                    life(at as u32, start, start + length, (origin < 4).then_some(origin))
                })
                .collect();
            let mut free: Vec<u64> = lives.iter().map(|life| life.start).collect();
            let mut all = Vec::new();
            for (thread, gap, length, kind, waker) in waits {
                let at = &mut free[thread as usize];
                let (start, end) = (*at + gap, *at + gap + length);
                if end <= lives[thread as usize].end && end > start {
                    all.push(wait(thread, start, end, Kind::ALL[kind], (waker < 5).then_some(waker)));
                    *at = end;
                }
            }
            all.sort_by_key(|wait| wait.start);
            let time = lives[0].end - lives[0].start;
            prop_assert_eq!(path(4, lives, all).total_ns(), time);
        }
    }
}

//! The waits of the first thread of a start, as [`headstart::outcome::waited`] takes them.

use super::sums::is_main;
use super::{Kind, Life, Wait, Waits};
use crate::recording::Recording;
use headstart::outcome::waited::{RequestsOf, WaitFor, WaitSpan, Waited};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// What the first thread of process `pid` waited for. `replay`: the threads that prefetched, and what
/// they requested.
pub fn waited(
    recording: &Recording,
    waits: &Waits,
    pid: i32,
    replay: &HashSet<i32>,
    requests: &RequestsOf,
) -> Waited {
    let lives = || waits.lives.iter().filter(|life| is_main(recording, life.thread, pid));
    let wall = lives().map(|life| life.end.saturating_sub(life.start)).sum();
    let cpu = lives().map(Life::cpu_ns).sum();
    // Of waits that were not kept only the time is known.
    let unkept = lives().map(|life| WaitSpan { start: 0, end: life.unkept_ns, what: UNKNOWN });
    let of_main = waits.waits.iter().filter(|wait| is_main(recording, wait.thread, pid));
    let spans = of_main.map(|wait| WaitSpan {
        start: wait.start,
        end: wait.end,
        what: what(recording, waits, wait, replay),
    });
    let spans: Vec<_> = spans.chain(unkept).collect();
    Waited::of(wall, cpu, &spans, requests)
}

const UNKNOWN: WaitFor = WaitFor::Unexplained;

fn what(recording: &Recording, waits: &Waits, wait: &Wait, replay: &HashSet<i32>) -> WaitFor {
    match wait.kind {
        Kind::Fault | Kind::Read | Kind::Readahead => {
            let file = wait.file.and_then(|at| waits.files.get(at as usize));
            let path = file.and_then(|file| file.name).map(|name| recording.name(name));
            match path.filter(|path| path.starts_with(b"/")) {
                Some(path) => WaitFor::Pages(PathBuf::from(OsStr::from_bytes(path)), wait.offset),
                // Of memory, or of a file whose name is not found.
                None => WaitFor::Other,
            }
        }
        Kind::Open | Kind::Lookup | Kind::Directory | Kind::Execute => WaitFor::Names,
        Kind::RunQueue => {
            let runner = wait.runner.and_then(|at| waits.runners.get(at as usize));
            WaitFor::Cpu { by_replay: runner.is_some_and(|who| replay.contains(&who.tid)) }
        }
        Kind::Unexplained => UNKNOWN,
        _ => WaitFor::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Process, Thread};
    use crate::waits::{File, Runner};

    #[test]
    fn only_the_first_thread_counts_and_each_kind_has_its_cause() {
        let recording = Recording {
            names: vec![b"/a".to_vec(), b"[heap]".to_vec()],
            processes: vec![Process { pid: 7, name: 0 }],
            threads: vec![
                Thread { tid: 7, process: 0, name: 0 },
                Thread { tid: 8, process: 0, name: 0 },
            ],
            ..Recording::default()
        };
        let wait = |thread, kind, us: u64, file, runner| Wait {
            thread,
            start: 0,
            end: us * 1000,
            kind,
            file,
            offset: Some(0),
            call: None,
            runner,
        };
        let waits = Waits {
            files: vec![File { id: None, name: Some(0) }, File { id: None, name: Some(1) }],
            runners: vec![Runner { tid: 50, name: 0 }, Runner { tid: 51, name: 0 }],
            lives: vec![
                Life { thread: 0, start: 0, end: 400_000, user_ns: 99_000, ..Life::default() },
                Life { thread: 1, start: 0, end: 900_000, ..Life::default() },
            ],
            waits: vec![
                wait(0, Kind::Fault, 1, Some(0), None),
                wait(0, Kind::Read, 2, Some(0), None),
                wait(0, Kind::Fault, 4, Some(1), None),
                wait(0, Kind::Lookup, 8, None, None),
                wait(0, Kind::RunQueue, 16, None, Some(0)),
                wait(0, Kind::RunQueue, 32, None, Some(1)),
                wait(0, Kind::Timer, 64, None, None),
                wait(0, Kind::Unexplained, 128, None, None),
                wait(1, Kind::Read, 256, Some(0), None),
            ],
            ..Waits::default()
        };
        let found = waited(&recording, &waits, 7, &HashSet::from([50]), &RequestsOf::new());
        let expected = Waited {
            wall_us: 400,
            cpu_us: 99,
            not_requested_us: 3,
            names_us: 8,
            replay_cpu_us: 16,
            other_cpu_us: 32,
            other_us: 68,
            unexplained_us: 128,
            files: found.files.clone(),
            ..Waited::default()
        };
        assert_eq!(found, expected);
        assert_eq!(found.files.len(), 1);
    }
}

//! What the end of a start depended on ([`Path`]), as [`headstart::outcome::waited`] takes it.

use super::path::Path;
use super::{Kind, Wait, Waits};
use crate::recording::Recording;
use headstart::host::id::InodeId;
use headstart::outcome::waited::{RequestsOf, WaitFor, WaitSpan, Waited};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// What process `pid` waited for, along its path. `replay`: the threads that prefetched, what they
/// requested, and the paths of those files: a process in another root directory has other ones.
pub fn waited(
    recording: &Recording,
    waits: &Waits,
    pid: i32,
    replay: &HashSet<i32>,
    requests: &RequestsOf,
    paths: &HashMap<InodeId, PathBuf>,
) -> Waited {
    let path = Path::of(recording, waits, pid);
    let cpu = path.cpu_ns.values().sum();
    let spans = path.waits.iter().map(|wait| WaitSpan {
        start: wait.start,
        end: wait.end,
        what: what(recording, waits, wait, replay, paths),
    });
    let spans: Vec<_> = spans.collect();
    Waited::of(path.total_ns(), cpu, &spans, requests)
}

fn what(
    recording: &Recording,
    waits: &Waits,
    wait: &Wait,
    replay: &HashSet<i32>,
    paths: &HashMap<InodeId, PathBuf>,
) -> WaitFor {
    match wait.kind {
        Kind::Fault | Kind::Read | Kind::Readahead => {
            let file = wait.file.and_then(|at| waits.files.get(at as usize));
            let requested = file.and_then(|file| paths.get(&file.id?)).cloned();
            let name = file.and_then(|file| file.name).map(|name| recording.name(name));
            let named = name.filter(|name| name.starts_with(b"/"));
            match requested.or_else(|| named.map(|name| OsStr::from_bytes(name).into())) {
                Some(path) => WaitFor::Pages(path, wait.offset),
                // Of memory, or of a file whose name is not found.
                None => WaitFor::Other,
            }
        }
        Kind::Open | Kind::Lookup | Kind::Directory | Kind::Execute => WaitFor::Names,
        Kind::RunQueue => {
            let runner = wait.runner.and_then(|at| waits.runners.get(at as usize));
            WaitFor::Cpu { by_replay: runner.is_some_and(|who| replay.contains(&who.tid)) }
        }
        Kind::Unexplained => WaitFor::Unexplained,
        _ => WaitFor::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Process, Thread};
    use crate::waits::{File, Life, Runner};
    use headstart::host::id::Dev;

    const FILE: InodeId = InodeId { dev: Dev::new(8, 1), ino: 7 };

    #[test]
    fn each_kind_has_its_cause_and_what_another_thread_waited_for_counts_while_it_is_waited_for() {
        let recording = Recording {
            names: vec![b"/a".to_vec(), b"[heap]".to_vec()],
            processes: vec![Process { pid: 7, name: 0 }],
            threads: vec![
                Thread { tid: 7, process: 0, name: 0 },
                Thread { tid: 8, process: 0, name: 0 },
            ],
            ..Recording::default()
        };
        let mut now = 0;
        let mut wait = |thread, kind, us: u64, file, runner| {
            let start = now;
            now += us * 1000;
            Wait {
                thread,
                start,
                end: now,
                kind,
                file,
                offset: file.map(u64::from),
                call: None,
                runner,
                waker: (kind == Kind::Thread).then_some(1),
            }
        };
        let mut all = vec![
            wait(0, Kind::Fault, 1, Some(0), None),
            wait(0, Kind::Read, 2, Some(0), None),
            wait(0, Kind::Fault, 4, Some(1), None),
            wait(0, Kind::Lookup, 8, None, None),
            wait(0, Kind::RunQueue, 16, None, Some(0)),
            wait(0, Kind::RunQueue, 32, None, Some(1)),
            wait(0, Kind::Timer, 64, None, None),
            wait(0, Kind::Unexplained, 128, None, None),
            wait(0, Kind::Thread, 256, None, None),
        ];
        let (start, end) = (all[8].start - 50_000, all[8].end - 6000);
        all.push(Wait { thread: 1, start, end, kind: Kind::Read, waker: None, ..all[1] });
        let waits = Waits {
            files: vec![File { id: Some(FILE), name: Some(0) }, File { id: None, name: Some(1) }],
            runners: vec![Runner { tid: 50, name: 0 }, Runner { tid: 51, name: 0 }],
            lives: vec![
                Life { thread: 0, start: 0, end: 600_000, ..Life::default() },
                Life { thread: 1, start: 0, end: 900_000, ..Life::default() },
            ],
            waits: all,
            ..Waits::default()
        };
        let known = HashMap::from([(FILE, "/root/a".into())]);
        let found = waited(&recording, &waits, 7, &HashSet::from([50]), &RequestsOf::new(), &known);
        let expected = Waited {
            wall_us: 600,
            cpu_us: 600 - 511 + 6,
            not_requested_us: 3 + 250,
            names_us: 8,
            replay_cpu_us: 16,
            other_cpu_us: 32,
            other_us: 68,
            unexplained_us: 128,
            files: found.files.clone(),
            ..Waited::default()
        };
        assert_eq!(found, expected);
        let files: Vec<_> = found.files.iter().map(|file| file.path.shown()).collect();
        assert_eq!(files, ["/root/a"]);
    }
}

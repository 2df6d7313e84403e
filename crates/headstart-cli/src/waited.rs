//! `--waits` of `run`, `record` and `bench`: what a start waited for, recorded while it is prefetched.

use crate::output::{self, Table, size};
use anyhow::{Context, anyhow, ensure};
use headstart::host::id::{Dev, InodeId};
use headstart::host::mounts::MountTable;
use headstart::host::proc;
use headstart::outcome::waited::{RequestsOf, Waited, WaitedFile, by_inode};
use headstart_faults::capture::points::Points;
use headstart_faults::capture::{self, Access, Captured, MOST_BYTES, Over, Scope, names};
use headstart_faults::recorder::Recorder;
use headstart_faults::waits::start;
use rustix::pipe::{PipeFlags, pipe_with};
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

/// Waits that are being recorded, by a thread of their own.
#[derive(Debug)]
pub struct Recording {
    thread: JoinHandle<anyhow::Result<Captured>>,
    /// Closing it ends the recording.
    stop: OwnedFd,
    /// Threads of this process so far: those that prefetch, and the one that records.
    own: HashSet<i32>,
    /// The latter.
    recorder: i32,
}

impl Recording {
    /// Begins to record a thread that will execute the program, whose end a pidfd reports.
    ///
    /// # Errors
    /// It can't be recorded, which the message explains.
    pub fn begin(tid: i32, end: BorrowedFd) -> anyhow::Result<Self> {
        let end = end.try_clone_to_owned().context("Can't watch the program")?;
        Self::until(tid, Some(end))
    }

    /// Begins to record what this thread will start, until it is ended.
    ///
    /// # Errors
    /// It can't be recorded, which the message explains.
    pub fn of_children() -> anyhow::Result<Self> {
        Self::until(own_tid(), None)
    }

    fn until(tid: i32, end: Option<OwnedFd>) -> anyhow::Result<Self> {
        let (points, access) = (Points::find()?, Access::find(false)?);
        let (stopped, stop) = pipe_with(PipeFlags::CLOEXEC).context("Can't make a pipe")?;
        let (sender, began) = mpsc::channel();
        // The events belong to the thread that opens them.
        let record = move || {
            let mut capture = capture::start(Scope::Threads(&[tid]), access, &points)?;
            // The receiver has gone if nobody waits any more.
            let _ = sender.send(own_tid());
            let end = end.as_ref().unwrap_or(&stopped);
            let over = capture.run(end.as_fd(), Some(stopped.as_fd()), None)?;
            // What is known of a part would be taken for all.
            ensure!(over != Over::Full, "their records take more than {}", size(MOST_BYTES as u64));
            Ok(capture.finish()?)
        };
        let thread = thread::Builder::new().name("waits".into()).spawn(record)?;
        let Ok(recorder) = began.recv() else {
            // It has failed.
            return Err(joined(thread).err().unwrap_or_else(|| anyhow!("it ended at once")));
        };
        Ok(Self { thread, stop, own: own_threads(), recorder })
    }

    /// Notes the threads of this process that there are now.
    pub fn note_threads(&mut self) {
        self.own.extend(own_threads());
    }

    /// Ends it: what this process waited for.
    ///
    /// # Errors
    /// It could not be recorded.
    pub fn end_of(mut self, pid: i32, requests: &RequestsOf) -> anyhow::Result<Waited> {
        self.note_threads();
        let Self { thread, stop, mut own, recorder } = self;
        own.remove(&recorder);
        drop(stop);
        let captured = joined(thread)?;
        let mut decoded = captured.decode(Recorder::of_program(pid).with_waits());
        // Without names the time is part of what else was waited for.
        let _ = names::find(&mut decoded.recording, &HashSet::new());
        let recording = &decoded.recording;
        let waits = recording.waits.as_ref().context("nothing was recorded")?;
        let (requests, paths) = inodes(requests);
        Ok(start::waited(recording, waits, pid, &own, &requests, &paths))
    }
}

/// What was requested by inodes; without those of files whose server may not answer.
fn inodes(requests: &RequestsOf) -> (RequestsOf, HashMap<InodeId, PathBuf>) {
    let mounts = MountTable::read().ok();
    by_inode(requests, |path| {
        if !mounts.as_ref()?.path_answers(path) {
            return None;
        }
        let meta = path.metadata().ok()?;
        Some(InodeId { dev: Dev::from_stat(meta.dev()), ino: meta.ino() })
    })
}

fn own_tid() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

fn own_threads() -> HashSet<i32> {
    proc::own_threads().into_iter().collect()
}

fn joined(thread: JoinHandle<anyhow::Result<Captured>>) -> anyhow::Result<Captured> {
    thread.join().unwrap_or_else(|_| Err(anyhow!("the thread that records has failed")))
}

/// A part of a time, in µs.
pub type Part = fn(&Waited) -> u64;

/// The parts, each with what it was for.
pub const PARTS: [(&str, Part); 9] = [
    ("on the CPU", |waited| waited.cpu_us),
    ("pages in flight", |waited| waited.in_flight_us),
    ("pages requested too late", |waited| waited.too_late_us),
    ("pages not requested", |waited| waited.not_requested_us),
    ("names and directories", |waited| waited.names_us),
    ("CPU used by prefetching", |waited| waited.replay_cpu_us),
    ("CPU used by others", |waited| waited.other_cpu_us),
    ("something else", |waited| waited.other_us),
    ("unexplained", |waited| waited.unexplained_us),
];

/// One line: the parts that took time.
pub fn line(waited: &Waited) -> String {
    let parts = PARTS.iter().map(|(what, part)| (what, part(waited))).filter(|(_, us)| *us > 0);
    let parts: Vec<_> = parts.map(|(what, us)| format!("{} {what}", ms(us))).collect();
    format!("{} to the end of the program: {}", ms(waited.wall_us), parts.join(", "))
}

/// The files that were waited for longest, as lines.
pub fn files(waited: &Waited, most: usize) -> Vec<String> {
    if waited.files.is_empty() {
        return Vec::new();
    }
    use output::Align::{Left, Right};
    let columns = [("WAITED", Right), ("IN FLIGHT", Right), ("TOO LATE", Right)];
    let [first, second, third] = columns;
    let mut table = Table::new([first, second, third, ("NOT REQUESTED", Right), ("FILE", Left)]);
    for file in waited.files.iter().take(most) {
        let WaitedFile { path, not_requested_us, too_late_us, in_flight_us } = file;
        let some = |us: u64| if us == 0 { String::new() } else { ms(us) };
        table.row([
            ms(file.us()),
            some(*in_flight_us),
            some(*too_late_us),
            some(*not_requested_us),
            path.shown(),
        ]);
    }
    let mut text = Vec::new();
    // Writing to a Vec can't fail.
    let _ = table.write(&mut text);
    let mut lines: Vec<_> = String::from_utf8_lossy(&text).lines().map(str::to_owned).collect();
    let more =
        (waited.files.len().saturating_sub(most) as u64).saturating_add(waited.files_skipped);
    lines.extend((more > 0).then(|| output::counted(more, "more file")));
    lines
}

fn ms(us: u64) -> String {
    format!("{:.1} ms", us as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn parts_without_time_are_not_told_and_files_that_are_not_shown_are_counted() {
        let file = |path: &str, in_flight_us| WaitedFile {
            path: Path::new(path).into(),
            in_flight_us,
            ..WaitedFile::default()
        };
        let waited = Waited {
            wall_us: 10_000,
            cpu_us: 2000,
            in_flight_us: 8000,
            files: vec![file("/a", 7000), file("/b\n", 600), file("/c", 400)],
            files_skipped: 2,
            ..Waited::default()
        };
        let told = "10.0 ms to the end of the program: 2.0 ms on the CPU, 8.0 ms pages in flight";
        assert_eq!(line(&waited), told);
        let lines = files(&waited, 2);
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(lines[2].ends_with("/b\\012") && lines[3] == "3 more files", "{lines:?}");
        assert!(files(&Waited::default(), 2).is_empty());
    }
}

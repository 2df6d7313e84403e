//! Starts a program and records it until its end, as a plain parent ([`crate::parent`]).

use super::recorded::{Recorded, Wanted, cpu_time, warn_if_full};
use crate::exit::ExitStatus;
use crate::in_place::say_why_not;
use crate::parent::{Child, status_in_shell};
use anyhow::Context;
use headstart::host::clock::monotonic_ns;
use headstart_faults::attached;
use headstart_faults::capture::points::Points;
use headstart_faults::capture::{self, Access, Over, Scope, files};
use headstart_faults::document::Usage;
use headstart_faults::recorder::Recorder;
use headstart_faults::waits::descriptors::Opened;
use headstart_sys::descriptors;
use headstart_sys::exec;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{PidfdFlags, pidfd_open};
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Runs a program: the status to end with, and what was recorded. Only while there is a single
/// thread.
///
/// # Errors
/// It can't be recorded. Then it did not run, or has ended.
pub fn record(
    command: &[OsString],
    limit: Option<Duration>,
    wanted: Wanted,
) -> anyhow::Result<(ExitStatus, Recorded)> {
    let (access, points) = wanted.find()?;
    let root = files::root(Path::new("/")).context("Can't open the root directory")?;
    let (go, sender) = pipe_with(PipeFlags::CLOEXEC).context("Can't make a pipe")?;
    let mut sender = Some(sender);
    let child = Child::fork(|| {
        drop(sender.take());
        become_program(&go, command)
    })?;
    drop(go);
    // An event of each thread on each CPU has one.
    descriptors::allow_most();
    match sender
        .context("Can't start the program")
        .and_then(|go| follow(&child, go, access, &points, limit))
    {
        Ok(followed) => {
            let (pid, before) = (child.pid().as_raw_nonzero().get(), followed.before);
            let (change, usage) = child.wait()?;
            let usage = before.filter(|_| followed.over == Over::Process).map(|before| Usage {
                minor: usage.minor_faults.saturating_sub(before.minor),
                major: usage.major_faults.saturating_sub(before.major),
            });
            let mut recorder = wanted.of(Recorder::of_program(pid));
            for opened in &followed.descriptors {
                recorder.has_open(pid, opened);
            }
            let recorded = Recorded {
                captured: followed.captured,
                recorder,
                pid,
                over: followed.over,
                began: followed.began,
                usage,
                recorder_us: followed.recorder_us,
                root,
            };
            Ok((ExitStatus::Program(status_in_shell(change)), recorded))
        }
        Err(error) => {
            // It ends by itself, or runs without being recorded.
            let _ = child.wait();
            Err(error)
        }
    }
}

/// Waits until it may, and executes the program. Returns the status to end with if it can't.
fn become_program(go: &OwnedFd, command: &[OsString]) -> u8 {
    let mut byte = [0];
    loop {
        match rustix::io::read(go, &mut byte) {
            Ok(1) => break,
            Err(Errno::INTR) => {}
            // It can't be recorded.
            _ => return 1,
        }
    }
    say_why_not(command, &exec::exec(command))
}

/// What is known when the recording ends.
struct Followed {
    captured: capture::Captured,
    over: Over,
    began: u64,
    /// The faults of the process that waits.
    before: Option<Usage>,
    /// Its descriptors.
    descriptors: Vec<Opened>,
    recorder_us: u64,
}

/// Records the process that waits, lets it go on, and waits for its end or that of the time.
fn follow(
    child: &Child,
    go: OwnedFd,
    access: Access,
    points: &Points,
    limit: Option<Duration>,
) -> anyhow::Result<Followed> {
    let pid = child.pid();
    let end = pidfd_open(pid, PidfdFlags::empty()).context("Can't watch the program")?;
    let pid = pid.as_raw_nonzero().get();
    let before = attached::faults_when_asleep(pid);
    let descriptors = attached::descriptors(pid);
    let mut capture = capture::start(Scope::Threads(&[pid]), access, points)?;
    let (began, cpu_before) = (monotonic_ns(), cpu_time());
    rustix::io::write(&go, b"g").context("Can't start the program")?;
    // execve(2) closes the other end, or the end of the process does. The time is counted from then on.
    let mut over = capture.run(end.as_fd(), Some(go.as_fd()), None);
    if matches!(over, Ok(Over::Stop)) {
        over = capture.run(end.as_fd(), None, limit);
    }
    let over = over.context("Can't record the program")?;
    let captured = capture.finish().context("Can't end the recording")?;
    let recorder_us = cpu_time().saturating_sub(cpu_before);
    warn_if_full(over, captured.counted.begun);
    Ok(Followed { captured, over, began, before, descriptors, recorder_us })
}

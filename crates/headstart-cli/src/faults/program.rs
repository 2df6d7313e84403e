//! Starts a program and records it until its end, as a plain parent: it does what time(1) does,
//! forwards no signal, and if it is killed the program goes on.

use super::recorded::{Recorded, cpu_time, now, warn_if_full};
use crate::exit::ExitStatus;
use crate::output;
use crate::parent::status_in_shell;
use anyhow::Context;
use headstart_faults::attached;
use headstart_faults::capture::{self, Access, Over, Scope};
use headstart_faults::document::Usage;
use headstart_faults::recording::Recorder;
use headstart_sys::{exec, process, signals};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

/// Runs a program: the status to end with, and what was recorded. Only while there is a single
/// thread.
///
/// # Errors
/// It can't be recorded, and did not run.
pub fn record(
    command: &[OsString],
    limit: Option<Duration>,
    huge: bool,
) -> anyhow::Result<(ExitStatus, Recorded)> {
    let access = Access::find(huge)?;
    let (go, sender) = pipe_with(PipeFlags::CLOEXEC).context("Can't make a pipe")?;
    let mut sender = Some(sender);
    let pid = process::fork(|| {
        drop(sender.take());
        become_program(&go, command)
    })
    .context("Can't start a process")?;
    drop(go);
    // Signals of the terminal are for the program, as with time(1); and messages may be written to
    // a file beyond RLIMIT_FSIZE.
    for signal in [Signal::INT, Signal::QUIT, Signal::XFSZ] {
        signals::ignore(signal.as_raw());
    }
    let followed = follow(pid, sender, access, limit);
    if followed.is_err() {
        // It has ended by itself, or runs without being recorded.
        let _ = process::wait(pid);
    }
    for signal in [Signal::INT, Signal::QUIT] {
        signals::obey(signal.as_raw());
    }
    followed
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
    let failure = exec::exec(command);
    let name = command.first().map(PathBuf::from).unwrap_or_default();
    output::message(format_args!("Can't run {}: {failure}", output::shown(&name)));
    exec::status_of_failure(&failure)
}

/// Records the process that waits, lets it go on, and waits for its end.
fn follow(
    process: Pid,
    mut go: Option<OwnedFd>,
    access: Access,
    limit: Option<Duration>,
) -> anyhow::Result<(ExitStatus, Recorded)> {
    let pid = process.as_raw_nonzero().get();
    let end = pidfd_open(process, PidfdFlags::empty()).context("Can't watch the program")?;
    let before = attached::faults_when_asleep(pid);
    let mut capture = capture::start(Scope::Threads(&[pid]), access)?;
    let cpu_before = cpu_time();
    let began = now();
    if let Some(go) = go.take() {
        rustix::io::write(&go, b"g").context("Can't start the program")?;
    }
    let over = capture.run(end.as_fd(), None, limit).context("Can't record the program")?;
    let ended = now();
    let captured = capture.finish().context("Can't end the recording")?;
    let recorder_us = cpu_time().saturating_sub(cpu_before);
    warn_if_full(over, captured.counted.begun);
    let (change, usage) = process::wait(process).context("Can't wait for the program")?;
    let usage = before.filter(|_| over == Over::Process).map(|before| Usage {
        minor: usage.minor_faults.saturating_sub(before.minor),
        major: usage.major_faults.saturating_sub(before.major),
    });
    let recorded = Recorded {
        captured,
        recorder: Recorder::of_program(pid),
        pid,
        over,
        began,
        ended,
        usage,
        recorder_us,
        threads: Vec::new(),
        root: PathBuf::from("/"),
    };
    Ok((ExitStatus::Program(status_in_shell(change)), recorded))
}

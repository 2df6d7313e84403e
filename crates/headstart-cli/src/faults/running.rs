//! Records a running process until it ends, a signal comes, or the time is up.

use super::recorded::{Recorded, cpu_time, now, warn_if_full};
use anyhow::{Context, anyhow};
use headstart::host::proc;
use headstart_faults::attached;
use headstart_faults::capture::{self, Access, CaptureError, Scope};
use headstart_faults::record::{Record, What};
use headstart_faults::recording::Recorder;
use headstart_sys::interrupt::Interrupt;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Resource, getrlimit, pidfd_open, setrlimit};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Records all threads of a process, and what they start.
///
/// # Errors
/// There is no such process, or this user may not.
pub fn record(pid: i32, limit: Option<Duration>, huge: bool) -> anyhow::Result<Recorded> {
    let process = Pid::from_raw(pid).context("No process has this number")?;
    let end = pidfd_open(process, PidfdFlags::empty()).map_err(|error| match error {
        Errno::SRCH => anyhow!("There is no process {pid}"),
        // Before Linux 6.9 the number of another thread is refused.
        Errno::INVAL => anyhow!("{pid} is a thread; give the number of its process"),
        error => anyhow!("Can't watch process {pid}: {error}"),
    })?;
    let interrupt = Interrupt::catch().context("Can't wait for signals")?;
    let access = Access::find(huge)?;
    // An event of each thread on each CPU has a descriptor.
    let files = getrlimit(Resource::Nofile);
    let raised = rustix::process::Rlimit { current: files.maximum, ..files };
    // Without it, opening says what is missing.
    let _ = setrlimit(Resource::Nofile, raised);
    let threads = proc::threads_of(pid);
    let mut capture = capture::start(Scope::Threads(&threads), access).map_err(|error| {
        let context = format!("Process {pid}");
        if matches!(error, CaptureError::NotOwn(_) | CaptureError::Gone) {
            anyhow::Error::new(error).context(context)
        } else {
            error.into()
        }
    })?;
    let (began, cpu_before) = (now(), cpu_time());
    let mut recorder = Recorder::of_running(pid, began);
    for tid in std::iter::once(pid).chain(threads.iter().copied().filter(|tid| *tid != pid)) {
        recorder.knows(pid, tid, &attached::name(pid, tid));
    }
    // It may have ended meanwhile.
    let maps = attached::maps(pid).unwrap_or_default();
    for mapped in attached::mapped(&maps) {
        recorder.add(Record { time: 0, pid, tid: pid, what: What::Map(mapped) });
    }
    let later = proc::threads_of(pid);
    let over = capture
        .run(end.as_fd(), Some(interrupt.as_fd()), limit)
        .context("Can't record the process")?;
    let ended = now();
    let captured = capture.finish().context("Can't end the recording")?;
    warn_if_full(over, captured.counted.begun);
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    Ok(Recorded {
        captured,
        recorder,
        pid,
        over,
        began,
        ended,
        usage: None,
        recorder_us: cpu_time().saturating_sub(cpu_before),
        threads: later,
        root: if root.exists() { root } else { Path::new("/").into() },
    })
}

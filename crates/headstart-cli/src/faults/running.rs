//! Records a running process until it ends, a signal comes, or the time is up.

use super::recorded::{Recorded, Wanted, cpu_time, warn_if_full};
use crate::output;
use anyhow::{Context, anyhow};
use headstart::host::clock::monotonic_ns;
use headstart::host::proc;
use headstart_faults::attached;
use headstart_faults::capture::{self, CaptureError, Scope, files};
use headstart_faults::recorder::Recorder;
use headstart_sys::descriptors;
use headstart_sys::interrupt::Interrupt;
use headstart_sys::signals;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Records all threads of a process, and what they start.
///
/// # Errors
/// There is no such process, or this user may not.
pub fn record(pid: i32, limit: Option<Duration>, wanted: Wanted) -> anyhow::Result<Recorded> {
    let process = Pid::from_raw(pid).context("No process has this number")?;
    let end = pidfd_open(process, PidfdFlags::empty()).map_err(|error| match error {
        Errno::SRCH => anyhow!("There is no process {pid}"),
        // The number of another thread than the first is refused, on newer kernels as not there.
        Errno::INVAL | Errno::NOENT => {
            anyhow!("{pid} is a thread; give the number of its process")
        }
        error => anyhow!("Can't watch process {pid}: {error}"),
    })?;
    let interrupt = Interrupt::catch().context("Can't wait for signals")?;
    // Results may be written to a file beyond RLIMIT_FSIZE.
    signals::ignore(Signal::XFSZ.as_raw());
    let (access, points) = wanted.find()?;
    // An event of each thread on each CPU has one.
    descriptors::allow_most();
    // Of other users' processes only root may know it; files are compared with what was mapped.
    let root = files::root(&PathBuf::from(format!("/proc/{pid}/root")))
        .or_else(|_| files::root(Path::new("/")))
        .context("Can't open the root directory")?;
    let (children, threads) = (proc::children(pid), proc::threads_of(pid));
    let mut capture =
        capture::start(Scope::Threads(&threads), access, &points).map_err(|error| {
            let context = format!("Process {pid}");
            if matches!(error, CaptureError::NotOwn(_) | CaptureError::Gone) {
                anyhow::Error::new(error).context(context)
            } else {
                error.into()
            }
        })?;
    let (began, cpu_before) = (monotonic_ns(), cpu_time());
    let mut recorder = wanted.of(Recorder::of_running(pid, began));
    for tid in std::iter::once(pid).chain(threads.iter().copied().filter(|tid| *tid != pid)) {
        recorder.knows(pid, tid, &attached::name(pid, tid));
    }
    if wanted.waits {
        for opened in attached::descriptors(pid) {
            recorder.has_open(pid, &opened);
        }
        for tid in &threads {
            if let Some(call) = attached::call(pid, *tid) {
                recorder.is_in_call(*tid, call, monotonic_ns());
            }
        }
    }
    match attached::maps(pid) {
        Ok(maps) => attached::map(&mut recorder, pid, &maps),
        Err(error) => output::message(format_args!(
            "What process {pid} has mapped before can't be read ({error}), and is [unknown]"
        )),
    }
    let now = [proc::threads_of(pid), proc::children(pid)].concat();
    let is_new = |tid: &i32| !threads.contains(tid) && !children.contains(tid);
    now.into_iter().filter(is_new).for_each(|tid| recorder.found(tid));
    let over = capture
        .run(end.as_fd(), Some(interrupt.as_fd()), limit)
        .context("Can't record the process")?;
    interrupt.release();
    let captured = capture.finish().context("Can't end the recording")?;
    warn_if_full(over, captured.counted.begun);
    Ok(Recorded {
        captured,
        recorder,
        pid,
        over,
        began,
        usage: None,
        recorder_us: cpu_time().saturating_sub(cpu_before),
        root,
    })
}

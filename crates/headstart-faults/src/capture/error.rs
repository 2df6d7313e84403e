//! Why nothing can be recorded, and what to do.

use headstart::host::contents;
use rustix::io::Errno;
use std::io;

/// Why nothing is recorded.
#[derive(thiserror::Error, Debug)]
pub enum CaptureError {
    /// The setting of the machine forbids it.
    #[error(
        "page faults can't be recorded: kernel.perf_event_paranoid is {0}, and 2 is needed for \
             the user's own programs; set it by sysctl kernel.perf_event_paranoid=2, or run as root"
    )]
    Paranoid(i32),
    /// Something else forbids it.
    #[error(
        "page faults can't be recorded: perf_event_open is forbidden ({0}), as containers do by \
             seccomp; allow it, as docker run --cap-add PERFMON does, or run headstart outside"
    )]
    Forbidden(io::Error),
    /// The process is another user's, or has privileges.
    #[error("this user may not record that process ({0}); run as root")]
    NotOwn(io::Error),
    /// It has ended.
    #[error("the process has ended")]
    Gone,
    /// The kernel lacks it.
    #[error("this kernel has no perf events (CONFIG_PERF_EVENTS)")]
    NoEvents,
    /// No room for records.
    #[error(
        "this user may not lock enough memory for the records ({0}); raise \
             kernel.perf_event_mlock_kb or the limit of locked memory (ulimit -l)"
    )]
    Memory(io::Error),
    /// Too many descriptors.
    #[error(
        "too many files are open for an event of each thread on each CPU ({0}); raise the limit \
             (ulimit -n)"
    )]
    Descriptors(io::Error),
    /// Something else.
    #[error("page faults can't be recorded: {0}")]
    Other(#[from] io::Error),
}

/// The most restrictive setting with which users may record their own programs.
const OWN_PROGRAMS: i32 = 2;

impl CaptureError {
    /// Why the events of this thread can't be opened.
    pub(super) fn of_open(error: io::Error) -> Self {
        let setting = contents::text("/proc/sys/kernel/perf_event_paranoid");
        of_open(error, setting.ok().and_then(|text| text.trim().parse().ok()))
    }

    /// Why those of another can't.
    pub(super) fn of_attaching(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(Errno::ACCESS | Errno::PERM) => Self::NotOwn(error),
            _ => of_open(error, None),
        }
    }

    /// Why a ring can't be mapped.
    pub(super) fn of_ring(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(Errno::PERM | Errno::ACCESS | Errno::NOMEM) => Self::Memory(error),
            _ => Self::Other(error),
        }
    }
}

fn of_open(error: io::Error, setting: Option<i32>) -> CaptureError {
    match (Errno::from_io_error(&error), setting) {
        (Some(Errno::ACCESS | Errno::PERM), Some(setting)) if setting > OWN_PROGRAMS => {
            CaptureError::Paranoid(setting)
        }
        (Some(Errno::ACCESS | Errno::PERM), _) => CaptureError::Forbidden(error),
        (Some(Errno::MFILE | Errno::NFILE), _) => CaptureError::Descriptors(error),
        (Some(Errno::SRCH), _) => CaptureError::Gone,
        (Some(Errno::NOSYS), _) => CaptureError::NoEvents,
        _ => CaptureError::Other(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_says_what_to_do() {
        for (number, setting, words) in [
            (Errno::ACCESS, Some(4), "perf_event_paranoid is 4"),
            (Errno::PERM, Some(2), "--cap-add PERFMON"),
            (Errno::PERM, None, "--cap-add PERFMON"),
            (Errno::MFILE, Some(2), "ulimit -n"),
            (Errno::NOSYS, Some(2), "CONFIG_PERF_EVENTS"),
            (Errno::SRCH, Some(2), "has ended"),
        ] {
            let message = of_open(number.into(), setting).to_string();
            assert!(message.contains(words), "{number}: {message}");
        }
        let error = || io::Error::from(Errno::PERM);
        assert!(CaptureError::of_attaching(error()).to_string().contains("run as root"));
        assert!(CaptureError::of_ring(error()).to_string().contains("ulimit -l"));
    }
}

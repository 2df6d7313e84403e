//! Real-time scheduling of the calling thread: sched_setscheduler(2).

use std::io;

/// Puts the calling thread under `SCHED_FIFO`; threads it starts from then on
/// inherit that. Priorities go from 1 to 99.
///
/// By system call, because musl's function of that name only fails: POSIX
/// means a process by it, Linux a thread.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE` or a high enough `RLIMIT_RTPRIO`, `EINVAL`
/// for another priority.
pub fn set_fifo(priority: i32) -> io::Result<()> {
    // The kernel's `sched_param` is this alone; that of musl has more.
    let param = &raw const priority;
    // SAFETY: 0 is the calling thread; `param` outlives the call, which only
    // reads it.
    let result = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, param) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_out_of_range_is_refused() {
        for priority in [0, 100] {
            assert_eq!(set_fifo(priority).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}

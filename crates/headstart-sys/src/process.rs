//! Child processes: fork, wait, and processes that go on by themselves. fork(2), wait4(2).

use rustix::process::{Pid, child_subreaper, getpid};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Runs `act` in a child, which ends with the status that it returns. Only while there is a
/// single thread. fork(2).
///
/// # Errors
/// What fork(2) said.
pub fn fork(act: impl FnOnce() -> u8) -> io::Result<Pid> {
    // SAFETY: the caller has a single thread, so the child is whole.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let status = act();
            // SAFETY: ends the child without the parent's exit handlers.
            unsafe { libc::_exit(status.into()) }
        }
        pid => Pid::from_raw(pid).ok_or_else(|| io::ErrorKind::InvalidData.into()),
    }
}

/// Waits for the end of a child. Other children of this process that end meanwhile, as it is
/// the first process of its PID namespace or a subreaper, are reaped. wait4(2).
///
/// # Errors
/// `ECHILD` when there is no such child.
pub fn wait(pid: Pid) -> io::Result<(Change, Usage)> {
    let adopts = getpid().is_init() || child_subreaper().is_ok_and(|reaper| reaper.is_some());
    loop {
        match wait4(if adopts { -1 } else { pid.as_raw_nonzero().get() }, 0) {
            Ok(Some((ended, change, usage))) if ended == pid.as_raw_nonzero().get() => {
                return Ok((change, usage));
            }
            Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
            _ => {}
        }
    }
}

/// How a child that was waited for has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// It ended with this status.
    Exited(i32),
    /// A signal killed it.
    Killed(i32),
    /// A signal stopped it.
    Stopped(i32),
}

/// What the kernel accounted to an ended child and its waited-for children.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Faults that needed I/O.
    pub major_faults: u64,
    /// Faults that did not.
    pub minor_faults: u64,
    /// CPU time in user space, in µs.
    pub user_us: u64,
    /// CPU time in the kernel, in µs.
    pub system_us: u64,
}

/// Looks whether the child has ended or was stopped since it was last looked
/// at. wait4(2).
///
/// # Errors
/// `ECHILD` when there is no such child.
pub fn look(pid: i32) -> io::Result<Option<(Change, Usage)>> {
    let seen = wait4(pid, libc::WUNTRACED | libc::WNOHANG)?;
    Ok(seen.map(|(_, change, usage)| (change, usage)))
}

/// The child that has changed, how, and what it cost.
fn wait4(pid: i32, flags: i32) -> io::Result<Option<(i32, Change, Usage)>> {
    let mut status = 0;
    // SAFETY: all-zero bytes are a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to writable values of the right types.
    let pid = match unsafe { libc::wait4(pid, &raw mut status, flags, &raw mut usage) } {
        -1 => return Err(io::Error::last_os_error()),
        0 => return Ok(None),
        pid => pid,
    };
    let change = if libc::WIFSTOPPED(status) {
        Change::Stopped(libc::WSTOPSIG(status))
    } else if libc::WIFSIGNALED(status) {
        Change::Killed(libc::WTERMSIG(status))
    } else {
        Change::Exited(libc::WEXITSTATUS(status))
    };
    let us = |t: libc::timeval| t.tv_sec.cast_unsigned() * 1_000_000 + t.tv_usec.cast_unsigned();
    let usage = Usage {
        major_faults: usage.ru_majflt.cast_unsigned(),
        minor_faults: usage.ru_minflt.cast_unsigned(),
        user_us: us(usage.ru_utime),
        system_us: us(usage.ru_stime),
    };
    Ok(Some((pid, change, usage)))
}

/// Removes empty directories in a process of its own, which holds none of
/// our descriptors but the directory `at` that they are in, so that nobody waits for a slow
/// removal. One that is busy is tried again for ten seconds. unlinkat(2).
///
/// # Errors
/// What fork(2) said; the removal's own outcome is not known.
pub fn remove_dirs_detached(at: impl AsFd, dirs: &[impl AsRef<Path>]) -> io::Result<()> {
    let dirs: Vec<CString> = dirs
        .iter()
        .map(|dir| CString::new(dir.as_ref().as_os_str().as_bytes()))
        .collect::<Result<_, _>>()
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
    if dirs.is_empty() {
        return Ok(());
    }
    // SAFETY: the child calls only async-signal-safe functions.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => remover(at.as_fd().as_raw_fd(), &dirs),
        pid => {
            let pid = rustix::process::Pid::from_raw(pid);
            rustix::process::waitpid(pid, rustix::process::WaitOptions::empty())?;
            Ok(())
        }
    }
}

/// The remover's side: forks once more, so that it has no parent to wait.
fn remover(at: RawFd, dirs: &[CString]) -> ! {
    // SAFETY: still a single thread that calls async-signal-safe functions.
    if unsafe { libc::fork() } == 0 {
        // SAFETY: leaves the caller's session, so that no terminal signal
        // reaches the removal.
        unsafe { libc::setsid() };
        // SAFETY: `at` is open; what was 0 is not needed here.
        unsafe { libc::dup2(at, 0) };
        // SAFETY: closes every other descriptor; the child needs none.
        unsafe { libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0) };
        for dir in dirs {
            remove_when_unused(dir);
        }
    }
    // SAFETY: ends the process without running exit handlers.
    unsafe { libc::_exit(0) }
}

/// Removes a directory below descriptor 0. A trace instance is busy while anybody has one of its
/// files open, such as one who looks at all instances.
fn remove_when_unused(dir: &CStr) {
    const TRIES: u32 = 200;
    let pause = libc::timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    for _ in 0..TRIES {
        // SAFETY: `dir` is a C string.
        let removed = unsafe { libc::unlinkat(0, dir.as_ptr(), libc::AT_REMOVEDIR) };
        if removed == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EBUSY) {
            return;
        }
        // SAFETY: `pause` is a valid time; the rest of it is of no interest.
        unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) };
    }
}

/// Goes on in a new session, without the standard descriptors, while the calling process ends with
/// status 0. Only while there is a single thread. fork(2), setsid(2).
///
/// # Errors
/// What fork(2) said.
pub fn detach() -> io::Result<()> {
    // SAFETY: the caller has a single thread, so the child is whole.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            rustix::process::setsid()?;
            let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
            rustix::stdio::dup2_stdin(&null)?;
            rustix::stdio::dup2_stdout(&null)?;
            rustix::stdio::dup2_stderr(&null)?;
            Ok(())
        }
        // SAFETY: ends this process without running its exit handlers, which
        // belong to the child now.
        _ => unsafe { libc::_exit(0) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_waited_for_and_its_status_reported() {
        for (status, expected) in [(0, Change::Exited(0)), (7, Change::Exited(7))] {
            let pid = fork(|| status).unwrap();
            assert_eq!(wait(pid).unwrap().0, expected);
        }
    }
}

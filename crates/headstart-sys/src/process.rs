//! Starting a program exactly as if nobody stood between: fork(2) and exec(3)
//! by hand, because std's `Command` resets signals and std's start-up code
//! replaces closed standard descriptors and ignores SIGPIPE.

use crate::{abort, signals};
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};

/// What the process was handed at its start, before std changed it: the
/// standard descriptors that were closed, as bits 0 to 2.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Runs before std's start-up code.
extern "C" fn note_inherited() {
    let mut closed = 0;
    for fd in 0..3 {
        // SAFETY: F_GETFD only looks, at any number.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
            closed |= 1 << fd;
        }
    }
    CLOSED.store(closed, Ordering::Relaxed);
    signals::note_inherited();
}

// SAFETY: the section holds pointers to functions that the C start-up code
// calls before `main`; ours touches no state but its own.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_INHERITED: extern "C" fn() = note_inherited;

/// A child that waits before its exec.
#[derive(Debug)]
pub struct Gated {
    pid: i32,
    gate: OwnedFd,
    failure: OwnedFd,
}

/// What execvp(3) is given.
pub(crate) struct Arguments {
    /// What the pointers lead to.
    _strings: Vec<CString>,
    pointers: Vec<*const libc::c_char>,
}

impl Arguments {
    pub(crate) fn new(argv: &[impl AsRef<OsStr>]) -> io::Result<Self> {
        let strings: Vec<CString> = argv
            .iter()
            .map(|a| CString::new(a.as_ref().as_bytes()))
            .collect::<Result<_, _>>()
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        if strings.is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut pointers: Vec<*const libc::c_char> = strings.iter().map(|s| s.as_ptr()).collect();
        pointers.push(std::ptr::null());
        Ok(Self { _strings: strings, pointers })
    }

    /// Becomes the program, or tells why not. Async-signal-safe.
    fn exec(&self) -> i32 {
        if let Some(program) = self.pointers.first() {
            // SAFETY: the pointers are a null-terminated array of C strings
            // that live as long as `self`.
            unsafe { libc::execvp(*program, self.pointers.as_ptr()) };
        }
        io::Error::last_os_error().raw_os_error().unwrap_or(libc::ENOENT)
    }
}

/// Forks a child that will execute `argv` (found by `$PATH`) with the present
/// environment and the signals, stdin and descriptors this process was
/// started with, and holds it back until [`Gated::release`]. fork(2),
/// execvp(3).
///
/// # Errors
/// `InvalidInput` when `argv` is empty or has a NUL byte, or what pipe(2) or
/// fork said.
pub fn spawn_gated(argv: &[impl AsRef<OsStr>]) -> io::Result<Gated> {
    let arguments = Arguments::new(argv)?;
    let (gate_in, gate) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let (failure, failure_in) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let parent = Parent {
        pid: rustix::process::getpid().as_raw_nonzero().get(),
        // Forking clears it.
        death_signal: rustix::process::parent_process_death_signal()?.map_or(0, |s| s.as_raw()),
    };
    abort::will_fork();
    // Else the child would handle one that comes before its exec as if it were this process.
    let mask = signals::hold_back_abort();
    // SAFETY: the child calls only async-signal-safe functions until it has
    // become another program or ended: other threads may hold any lock.
    let pid = unsafe { libc::fork() };
    let error = io::Error::last_os_error();
    if pid == 0 {
        child(&arguments, &gate_in, &gate, &failure_in, &parent);
    }
    abort::forked((pid > 0).then_some((pid, &gate)));
    signals::give_back(mask);
    if pid > 0 { Ok(Gated { pid, gate, failure }) } else { Err(error) }
}

/// Executes `argv` in this process, with the signals and descriptors that it
/// was started with. Returns only when that fails, with the reason, and the
/// process may then only report it and end.
pub fn exec(argv: &[impl AsRef<OsStr>]) -> io::Error {
    match Arguments::new(argv) {
        Ok(arguments) => {
            restore();
            io::Error::from_raw_os_error(arguments.exec())
        }
        Err(error) => error,
    }
}

/// The same; returns the status with which a shell says why it failed. Async-signal-safe.
pub(crate) fn become_program(arguments: &Arguments) -> u8 {
    restore();
    status_of_failure(&io::Error::from_raw_os_error(arguments.exec()))
}

/// The status with which a shell says why a program could not be executed (sh(1)).
pub fn status_of_failure(error: &io::Error) -> u8 {
    const NOT_FOUND: u8 = 127;
    const NOT_EXECUTABLE: u8 = 126;
    if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
}

/// What a child knows of its parent.
struct Parent {
    pid: i32,
    /// The signal that the parent gets when its own parent ends, or 0.
    death_signal: i32,
}

/// The child's side, async-signal-safe throughout.
fn child(
    arguments: &Arguments,
    gate: &OwnedFd,
    parents_end: &OwnedFd,
    failure: &OwnedFd,
    parent: &Parent,
) -> ! {
    // Our own copy of the writing end would keep the gate open for ever.
    // SAFETY: the descriptor is open and used by nothing else in the child.
    unsafe { libc::close(parents_end.as_raw_fd()) };
    if parent.death_signal != 0 {
        die_with(parent);
    }
    let mut byte = 0u8;
    // SAFETY: `byte` is one writable byte. An end of file (the parent died)
    // starts the program too: it must start whatever happens to us.
    unsafe { libc::read(gate.as_raw_fd(), (&raw mut byte).cast(), 1) };
    restore();
    let errno = arguments.exec();
    // SAFETY: `errno` is four readable bytes.
    unsafe { libc::write(failure.as_raw_fd(), (&raw const errno).cast(), 4) };
    let status = status_of_failure(&io::Error::from_raw_os_error(errno));
    // SAFETY: ends the child without running the parent's exit handlers.
    unsafe { libc::_exit(status.into()) }
}

/// Somebody wanted this program to end when its parent does. That parent will
/// now end us, and so we end the program.
fn die_with(parent: &Parent) {
    // SAFETY: takes numbers. PR_SET_PDEATHSIG(2const)
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, parent.death_signal, 0, 0, 0) };
    // SAFETY: takes nothing.
    if unsafe { libc::getppid() } != parent.pid {
        // It ended before the call above. The signal is blocked until exec.
        // SAFETY: takes a number.
        unsafe { libc::raise(parent.death_signal) };
    }
}

/// Undoes what std's start-up code and this program changed.
fn restore() {
    let closed = CLOSED.load(Ordering::Relaxed);
    for fd in (0..3).filter(|fd| closed & 1 << fd != 0) {
        // SAFETY: std opened /dev/null here; nothing in the child uses it.
        unsafe { libc::close(fd) };
    }
    signals::restore();
}

impl Gated {
    /// The child's process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Lets the child execute its program; does not wait until it has. The
    /// child may be stopped or ended by a signal before.
    pub fn release(self) -> Released {
        // It fails when the child has ended, which shows soon enough.
        let _ = rustix::io::write(&self.gate, b"g");
        abort::released(self.gate);
        Released { failure: self.failure }
    }
}

/// A child that executes its program.
#[derive(Debug)]
pub struct Released {
    failure: OwnedFd,
}

impl Released {
    /// For a child that has ended in this way: why it could not execute its
    /// program, if it could not.
    pub fn failure(&self, end: Change) -> Option<io::Error> {
        let mut errno = [0; 4];
        if !matches!(end, Change::Exited(_)) {
            return None;
        }
        // The kernel closed the writing end at a successful exec.
        match rustix::io::read(&self.failure, &mut errno) {
            Ok(4) => Some(io::Error::from_raw_os_error(i32::from_ne_bytes(errno))),
            _ => None,
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
    /// Processor time in user space, in µs.
    pub user_us: u64,
    /// Processor time in the kernel, in µs.
    pub system_us: u64,
}

/// Looks whether the child has ended or was stopped since it was last looked
/// at. wait4(2).
///
/// # Errors
/// `ECHILD` when there is no such child.
pub fn look(pid: i32) -> io::Result<Option<(Change, Usage)>> {
    let mut status = 0;
    let flags = libc::WUNTRACED | libc::WNOHANG;
    // SAFETY: all-zero bytes are a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to writable values of the right types.
    match unsafe { libc::wait4(pid, &raw mut status, flags, &raw mut usage) } {
        -1 => return Err(io::Error::last_os_error()),
        0 => return Ok(None),
        _ => {}
    }
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
    Ok(Some((change, usage)))
}

/// Removes empty directories in a process of its own, which holds none of
/// our descriptors, so that nobody waits for a slow removal. rmdir(2).
///
/// # Errors
/// What fork(2) said; the removal's own outcome is not known.
pub fn remove_dirs_detached(dirs: &[impl AsRef<Path>]) -> io::Result<()> {
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
        0 => remover(&dirs),
        pid => {
            let pid = rustix::process::Pid::from_raw(pid);
            rustix::process::waitpid(pid, rustix::process::WaitOptions::empty())?;
            Ok(())
        }
    }
}

/// The remover's side: forks once more, so that it has no parent to wait.
fn remover(dirs: &[CString]) -> ! {
    // SAFETY: still a single thread that calls async-signal-safe functions.
    if unsafe { libc::fork() } == 0 {
        // SAFETY: leaves the caller's session, so that no terminal signal
        // reaches the removal.
        unsafe { libc::setsid() };
        // SAFETY: closes every descriptor; the child needs none.
        unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) };
        for dir in dirs {
            // SAFETY: `dir` is a C string.
            unsafe { libc::rmdir(dir.as_ptr()) };
        }
    }
    // SAFETY: ends the process without running exit handlers.
    unsafe { libc::_exit(0) }
}

/// Goes on in a new session, without the standard descriptors and with no signal held
/// back, while the calling process ends with status 0. Only while there is a single thread.
/// fork(2), setsid(2).
///
/// # Errors
/// What fork(2) said.
pub fn detach() -> io::Result<()> {
    // SAFETY: the caller has a single thread, so the child is whole.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // Who starts programs holds signals back, and what it starts inherits that.
            signals::let_in();
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

/// Whether this process leads its session. A leader outside of our PID
/// namespace has no number here. getsid(2).
pub fn leads_session() -> bool {
    // SAFETY: takes a number; 0 is the calling process.
    let session = unsafe { libc::getsid(0) };
    session == rustix::process::getpid().as_raw_nonzero().get()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the inner test says which signals are held back in the background.
    const SAYS: &str = "HEADSTART_TEST_SAYS";

    #[test]
    #[ignore = "run by another test, in a process of its own"]
    fn inner_detach() {
        let Some(says) = std::env::var_os(SAYS) else { return };
        crate::signals::hold_back();
        // The harness has a thread that waits, which the child does without.
        detach().unwrap();
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        let written = Path::new(&says).with_extension("new");
        std::fs::write(&written, blocked.trim()).unwrap();
        std::fs::rename(written, says).unwrap();
        // SAFETY: ends the process without what the harness does at its end.
        unsafe { libc::_exit(0) }
    }

    #[test]
    fn in_the_background_no_signal_is_held_back() {
        let dir = tempfile::tempdir().unwrap();
        let says = dir.path().join("says");
        let mut inner = std::process::Command::new(std::env::current_exe().unwrap());
        inner.args(["--ignored", "--exact", "process::tests::inner_detach"]).env(SAYS, &says);
        assert!(inner.stdout(std::process::Stdio::null()).status().unwrap().success());
        let from = std::time::Instant::now();
        while !says.exists() {
            assert!(from.elapsed() < std::time::Duration::from_secs(20), "it has died");
            std::thread::yield_now();
        }
        assert_eq!(std::fs::read_to_string(&says).unwrap(), "0000000000000000");
    }
}

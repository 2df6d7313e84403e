//! Starting a program exactly as if nobody stood between: fork(2) and exec(3)
//! by hand, because std's `Command` resets signals and std's start-up code
//! replaces closed standard descriptors and ignores SIGPIPE.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};

/// What the process was handed at its start, before std changed it: bits 0
/// to 2 are standard descriptors that were closed, bit 3 an ignored SIGPIPE.
static INHERITED: AtomicU8 = AtomicU8::new(0);
const SIGPIPE_IGNORED: u8 = 1 << 3;

/// Runs before std's start-up code.
extern "C" fn note_inherited() {
    let mut noted = 0;
    for fd in 0..3 {
        // SAFETY: F_GETFD only looks, at any number.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
            noted |= 1 << fd;
        }
    }
    // SAFETY: all-zero bytes are a valid `sigaction`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a null new action only reads the old one into `action`.
    let read = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) };
    if read == 0 && action.sa_sigaction == libc::SIG_IGN {
        noted |= SIGPIPE_IGNORED;
    }
    INHERITED.store(noted, Ordering::Relaxed);
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

/// Forks a child that will execute `argv` (found by `$PATH`) with the present
/// environment and the signals, stdin and descriptors this process was
/// started with, and holds it back until [`Gated::release`]. fork(2),
/// execvp(3).
///
/// # Errors
/// `InvalidInput` when `argv` is empty or has a NUL byte, or what fork said.
pub fn spawn_gated(argv: &[impl AsRef<OsStr>]) -> io::Result<Gated> {
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
    let (gate_in, gate) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let (failure, failure_in) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let inherited = INHERITED.load(Ordering::Relaxed);
    // SAFETY: the child calls only async-signal-safe functions until it has
    // become another program or ended: other threads may hold any lock.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => child(&pointers, &gate_in, &gate, &failure_in, inherited),
        pid => Ok(Gated { pid, gate, failure }),
    }
}

/// The child's side, async-signal-safe throughout.
fn child(
    argv: &[*const libc::c_char],
    gate: &OwnedFd,
    parents_end: &OwnedFd,
    failure: &OwnedFd,
    inherited: u8,
) -> ! {
    // Our own copy of the writing end would keep the gate open for ever.
    // SAFETY: the descriptor is open and used by nothing else in the child.
    unsafe { libc::close(parents_end.as_raw_fd()) };
    let mut byte = 0u8;
    // SAFETY: `byte` is one writable byte. An end of file (the parent died)
    // starts the program too: it must start whatever happens to us.
    unsafe { libc::read(gate.as_raw_fd(), (&raw mut byte).cast(), 1) };
    restore(inherited);
    if let Some(program) = argv.first() {
        // SAFETY: `argv` is a null-terminated array of C strings that live as
        // long as the parent's frame, of which the child has a copy.
        unsafe { libc::execvp(*program, argv.as_ptr()) };
    }
    let errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::ENOENT);
    // SAFETY: `errno` is four readable bytes.
    unsafe { libc::write(failure.as_raw_fd(), (&raw const errno).cast(), 4) };
    // SAFETY: ends the child without running the parent's exit handlers.
    unsafe { libc::_exit(127) }
}

/// Undoes what std's start-up code and this program changed.
fn restore(inherited: u8) {
    let pipe = if inherited & SIGPIPE_IGNORED == 0 { libc::SIG_DFL } else { libc::SIG_IGN };
    // SAFETY: sets a disposition that has no handler.
    unsafe { libc::signal(libc::SIGPIPE, pipe) };
    crate::signals::restore_mask();
    for fd in (0..3).filter(|fd| inherited & 1 << fd != 0) {
        // SAFETY: std opened /dev/null here; nothing in the child uses it.
        unsafe { libc::close(fd) };
    }
}

impl Gated {
    /// The child's process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Lets the child execute its program and waits until it has.
    ///
    /// # Errors
    /// What execvp(3) said; the child has ended and was reaped.
    pub fn release(self) -> io::Result<()> {
        let Self { pid, gate, failure } = self;
        rustix::io::write(&gate, b"g")?;
        drop(gate);
        let mut errno = [0; 4];
        // The writing end closes by itself at a successful exec. Our own copy
        // of it was closed when `spawn_gated` returned.
        match rustix::io::read(&failure, &mut errno)? {
            4 => {
                let pid = rustix::process::Pid::from_raw(pid);
                rustix::process::waitpid(pid, rustix::process::WaitOptions::empty())?;
                Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno)))
            }
            _ => Ok(()),
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

/// Waits until the child ends or is stopped. wait4(2).
///
/// # Errors
/// `ECHILD` when there is no such child.
pub fn wait(pid: i32) -> io::Result<(Change, Usage)> {
    let mut status = 0;
    // SAFETY: all-zero bytes are a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to writable values of the right types.
        let got = unsafe { libc::wait4(pid, &raw mut status, libc::WUNTRACED, &raw mut usage) };
        let error = io::Error::last_os_error();
        match got {
            -1 if error.kind() == io::ErrorKind::Interrupted => {}
            -1 => return Err(error),
            _ => break,
        }
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
    Ok((change, usage))
}

/// Removes an empty directory in a process of its own, which holds none of
/// our descriptors, so that nobody waits for a slow removal. rmdir(2).
///
/// # Errors
/// What fork(2) said; the removal's own outcome is not known.
pub fn remove_dir_detached(dir: &Path) -> io::Result<()> {
    let dir = CString::new(dir.as_os_str().as_bytes())
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
    // SAFETY: the child calls only async-signal-safe functions.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => remover(&dir),
        pid => {
            let pid = rustix::process::Pid::from_raw(pid);
            rustix::process::waitpid(pid, rustix::process::WaitOptions::empty())?;
            Ok(())
        }
    }
}

/// The remover's side: forks once more, so that it has no parent to wait.
fn remover(dir: &CStr) -> ! {
    // SAFETY: still a single thread that calls async-signal-safe functions.
    if unsafe { libc::fork() } == 0 {
        // SAFETY: leaves the caller's session, so that no terminal signal
        // reaches the removal.
        unsafe { libc::setsid() };
        // SAFETY: closes every descriptor; the child needs none.
        unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) };
        // SAFETY: `dir` is a C string.
        unsafe { libc::rmdir(dir.as_ptr()) };
    }
    // SAFETY: ends the process without running exit handlers.
    unsafe { libc::_exit(0) }
}

/// Sends a signal to a process. kill(2).
///
/// # Errors
/// `ESRCH` when it has ended, `EPERM`.
pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: takes two numbers.
    if unsafe { libc::kill(pid, signal) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Goes on in a new session, without the standard descriptors, while the
/// calling process ends with status 0. Only while there is a single thread.
/// fork(2), setsid(2).
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

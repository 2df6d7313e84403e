//! Follows another process from system call to system call, or from breakpoint to breakpoint:
//! ptrace(2), by `PTRACE_SEIZE` only. All calls have to come from the thread that seized.
//!
//! Functions that need the registers of a stopped process ([`run_syscall`], [`breakpoint`]) exist
//! on x86-64 only.

use crate::process::Change;
use std::io;
#[cfg(target_arch = "x86_64")]
use std::mem::MaybeUninit;

/// Why a followed thread does not run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// It has ended and is gone.
    Gone(Change),
    /// It enters or leaves a system call; [`syscall`] says which.
    Syscall,
    /// It has just executed a program and is about to return from execve.
    Exec,
    /// It has just started a thread or process.
    Started,
    /// It begins to be followed, or its whole process was stopped by a signal.
    Group(i32),
    /// It is to get this signal.
    Signal(i32),
}

/// Where in a system call a thread is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Syscall {
    /// Before it.
    Entry {
        /// Its number.
        number: u64,
        /// Its arguments.
        arguments: [u64; 6],
    },
    /// Behind it, with this result: negative numbers down to -4095 are errors.
    Exit(i64),
    /// In none.
    Elsewhere,
}

/// close(2)
pub const CLOSE: i64 = libc::SYS_close;
/// mmap(2)
pub const MMAP: u64 = libc::SYS_mmap as u64;
/// mprotect(2)
pub const MPROTECT: u64 = libc::SYS_mprotect as u64;
/// The flag of mmap(2) for memory that is no file.
pub const MAP_ANONYMOUS: u64 = libc::MAP_ANONYMOUS as u64;
/// The signal of [`Stop::Group`] when nothing but following begins.
pub const TRAP: i32 = libc::SIGTRAP;
/// `PTRACE_GET_SYSCALL_INFO` and what it tells (`include/uapi/linux/ptrace.h`), which libc lacks
/// for musl.
const GET_SYSCALL_INFO: i32 = 0x420e;
const SYSCALL_INFO_ENTRY: u8 = 1;
const SYSCALL_INFO_EXIT: u8 = 2;
/// Marks stops at system calls (`PTRACE_O_TRACESYSGOOD`).
const AT_SYSCALL: i32 = libc::SIGTRAP | 0x80;

/// Follows a thread and all that it will start, from its next system call on.
///
/// # Errors
/// `EPERM` when it is followed already or may not be, `ESRCH` when it is gone.
pub fn seize(pid: i32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, pid, FOLLOW)
}

/// The same, and the kernel kills what is followed when this process ends: breakpoints in it
/// would kill it too.
///
/// # Errors
/// Those of [`seize`].
pub fn seize_for_breakpoints(pid: i32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, pid, FOLLOW | libc::PTRACE_O_EXITKILL)
}

/// All that a thread starts is followed too, and what it executes is told.
const FOLLOW: i32 = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE;

/// The next stop of any followed thread; `None` if none has stopped yet.
/// The kernel sends `SIGCHLD` when there is one again.
///
/// # Errors
/// `ECHILD` when no thread is followed any more.
pub fn stopped() -> io::Result<Option<(i32, Stop)>> {
    wait(-1, libc::WNOHANG)
}

/// Waits for the next stop of any followed thread; `None` when a signal of this process came
/// first.
///
/// # Errors
/// `ECHILD` when no thread is followed any more.
pub fn next_stop() -> io::Result<Option<(i32, Stop)>> {
    match wait(-1, 0) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
        other => other,
    }
}

fn wait(pid: i32, flags: i32) -> io::Result<Option<(i32, Stop)>> {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    let found = unsafe { libc::waitpid(pid, &raw mut status, flags | libc::__WALL) };
    match found {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some((pid, stop(status)))),
    }
}

/// What a status of wait(2) says.
fn stop(status: i32) -> Stop {
    if libc::WIFSIGNALED(status) {
        return Stop::Gone(Change::Killed(libc::WTERMSIG(status)));
    }
    if !libc::WIFSTOPPED(status) {
        return Stop::Gone(Change::Exited(libc::WEXITSTATUS(status)));
    }
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        0 if signal == AT_SYSCALL => Stop::Syscall,
        0 => Stop::Signal(signal),
        libc::PTRACE_EVENT_EXEC => Stop::Exec,
        libc::PTRACE_EVENT_STOP => Stop::Group(signal),
        _ => Stop::Started,
    }
}

/// Lets a stopped thread run to its next system call, with a signal or 0.
///
/// # Errors
/// `ESRCH` when it was killed.
pub fn resume(pid: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_SYSCALL, pid, signal)
}

/// Lets a stopped thread run, with a signal or 0, to what else stops it than a system call.
///
/// # Errors
/// `ESRCH` when it was killed.
pub fn run_on(pid: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_CONT, pid, signal)
}

/// Makes a running thread stop as [`Stop::Group`] with [`TRAP`].
///
/// # Errors
/// `ESRCH` when it is gone.
pub fn interrupt(pid: i32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, pid, 0)
}

/// Stops following a stopped thread; it runs on, with a signal or 0.
///
/// # Errors
/// `ESRCH` when it was killed.
pub fn let_go(pid: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, pid, signal)
}

/// Leaves a thread whose process was stopped by a signal stopped, until it is continued.
///
/// # Errors
/// `ESRCH` when it was killed.
pub fn leave_stopped(pid: i32) -> io::Result<()> {
    request(libc::PTRACE_LISTEN, pid, 0)
}

/// Where in a system call a stopped thread is.
///
/// # Errors
/// `EIO` before Linux 5.3.
pub fn syscall(pid: i32) -> io::Result<Syscall> {
    // `struct ptrace_syscall_info`: the operation and the architecture, where it is, its
    // stack, and the number and arguments or the result.
    let mut info = [0u64; 11];
    exchange(GET_SYSCALL_INFO, pid, size_of_val(&info), &mut info)?;
    let [what, _, _, number, a, b, c, d, e, f, _] = info;
    Ok(match what.to_ne_bytes()[0] {
        SYSCALL_INFO_ENTRY => Syscall::Entry { number, arguments: [a, b, c, d, e, f] },
        SYSCALL_INFO_EXIT => Syscall::Exit(number as i64),
        _ => Syscall::Elsewhere,
    })
}

/// Makes a stopped thread execute a system call at `at`, where its memory has the instruction, and
/// restores everything. Its signals wait meanwhile.
///
/// # Errors
/// What the system call says; `ESRCH` when the thread was killed, `Unsupported` for 32-bit
/// programs and on other machines than x86-64.
#[cfg(target_arch = "x86_64")]
pub fn run_syscall(pid: i32, at: u64, number: i64, arguments: [u64; 3]) -> io::Result<i64> {
    /// The code segment of 64-bit programs (`arch/x86/include/asm/segment.h`).
    const USER_CS: u64 = 0x33;
    let mut before = registers(pid)?;
    if before.cs != USER_CS {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let (mut mask, mut all) = (0u64, u64::MAX);
    exchange(libc::PTRACE_GETSIGMASK, pid, size_of::<u64>(), &mut mask)?;
    exchange(libc::PTRACE_SETSIGMASK, pid, size_of::<u64>(), &mut all)?;
    let [rdi, rsi, rdx] = arguments;
    // No system call of its own is to be begun again: that is for when all is put back.
    let mut during = libc::user_regs_struct {
        rip: at,
        rax: number as u64,
        orig_rax: u64::MAX,
        rdi,
        rsi,
        rdx,
        ..before
    };
    let mut stopped_by = None;
    let done = (|| {
        exchange(libc::PTRACE_SETREGS, pid, 0, &mut during)?;
        loop {
            resume(pid, 0)?;
            match wait(pid, 0)? {
                Some((_, Stop::Gone(_))) | None => {
                    return Err(io::Error::from_raw_os_error(libc::ESRCH));
                }
                Some((_, Stop::Syscall)) => {
                    if let Syscall::Exit(result) = syscall(pid)? {
                        return Ok(result);
                    }
                }
                // The one signal that can't be made to wait.
                Some((_, Stop::Signal(signal))) => stopped_by = Some(signal),
                Some(_) => {}
            }
        }
    })();
    exchange(libc::PTRACE_SETREGS, pid, 0, &mut before)?;
    exchange(libc::PTRACE_SETSIGMASK, pid, size_of::<u64>(), &mut mask)?;
    if let Some(signal) = stopped_by {
        // SAFETY: this only sends a signal.
        unsafe { libc::kill(pid, signal) };
    }
    match done? {
        error @ -4095..0 => Err(io::Error::from_raw_os_error(-error as i32)),
        result => Ok(result),
    }
}

/// The same elsewhere.
///
/// # Errors
/// `Unsupported`.
#[cfg(not(target_arch = "x86_64"))]
pub fn run_syscall(_: i32, _: u64, _: i64, _: [u64; 3]) -> io::Result<i64> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The one-byte instruction of a breakpoint (`int3`).
pub const BREAKPOINT: u8 = 0xcc;

/// The address of the breakpoint that a thread has just executed, if one is why it is to get a
/// `SIGTRAP`; `None` where something else sent the signal.
///
/// # Errors
/// `ESRCH` when it was killed, `Unsupported` on other machines than x86-64.
pub fn breakpoint(pid: i32) -> io::Result<Option<u64>> {
    // `siginfo_t`: the signal, an error number, and where it is from.
    let mut info = [0i32; 32];
    exchange(libc::PTRACE_GETSIGINFO, pid, 0, &mut info)?;
    let [signal, _, code, ..] = info;
    if signal != libc::SIGTRAP || code != FROM_KERNEL {
        return Ok(None);
    }
    before_pointer(pid).map(Some)
}

/// `SI_KERNEL` of `include/uapi/asm-generic/siginfo.h`, the code for `int3` on x86.
const FROM_KERNEL: i32 = 0x80;

/// The address of a breakpoint, if the instruction that a stopped thread executed last is one.
///
/// # Errors
/// `ESRCH` when it was killed, `Unsupported` on other machines than x86-64.
#[cfg(target_arch = "x86_64")]
pub fn before_pointer(pid: i32) -> io::Result<u64> {
    Ok(registers(pid)?.rip.wrapping_sub(1))
}

/// Makes a stopped thread go on at this address.
///
/// # Errors
/// `ESRCH` when it was killed, `Unsupported` on other machines than x86-64.
#[cfg(target_arch = "x86_64")]
pub fn continue_at(pid: i32, address: u64) -> io::Result<()> {
    let mut registers = registers(pid)?;
    registers.rip = address;
    exchange(libc::PTRACE_SETREGS, pid, 0, &mut registers)
}

/// The same elsewhere.
///
/// # Errors
/// `Unsupported`.
#[cfg(not(target_arch = "x86_64"))]
pub fn before_pointer(_: i32) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The same elsewhere.
///
/// # Errors
/// `Unsupported`.
#[cfg(not(target_arch = "x86_64"))]
pub fn continue_at(_: i32, _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// A request that reads and writes no memory of this process. C libraries differ in the type of
/// its number.
fn request(request: impl Into<i64>, pid: i32, data: i32) -> io::Result<()> {
    // SAFETY: `data` is a number to the requests that are given here.
    let result = unsafe { libc::ptrace(request.into() as _, pid, 0usize, data as usize) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A request that reads or writes a value of this process; `size` is what it wants to be
/// told as an address.
fn exchange<T: Copy>(
    request: impl Into<i64>,
    pid: i32,
    size: usize,
    value: &mut T,
) -> io::Result<()> {
    // SAFETY: the requests that are given here read or write at most as many bytes as the
    // value has, which are numbers throughout.
    let result = unsafe { libc::ptrace(request.into() as _, pid, size, &raw mut *value) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The registers of a stopped thread.
#[cfg(target_arch = "x86_64")]
fn registers(pid: i32) -> io::Result<libc::user_regs_struct> {
    let registers = MaybeUninit::zeroed();
    // SAFETY: any bytes are valid in it.
    let mut registers: libc::user_regs_struct = unsafe { registers.assume_init() };
    exchange(libc::PTRACE_GETREGS, pid, 0, &mut registers)?;
    Ok(registers)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_followed_program_tells_its_system_calls_and_ends_as_by_itself() {
        let mut cat =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let pid = cat.id() as i32;
        seize(pid).unwrap();
        request(libc::PTRACE_INTERRUPT, pid, 0).unwrap();
        // Kept until the first stop, so that there is a read to be seen.
        let mut input = cat.stdin.take();
        let (mut calls, mut asked, mut in_read) = (0, None, false);
        loop {
            match wait(pid, 0).unwrap().unwrap().1 {
                Stop::Gone(_) => break,
                Stop::Syscall => {
                    calls += 1;
                    match syscall(pid).unwrap() {
                        Syscall::Entry { number, .. } => in_read = number == libc::SYS_read as u64,
                        // Behind others, as execve(2), there is no instruction for them.
                        Syscall::Exit(_) if in_read && asked.is_none() => asked = Some(ask(pid)),
                        _ => {}
                    }
                }
                _ => {}
            }
            drop(input.take());
            resume(pid, 0).unwrap();
        }
        assert!(calls > 2, "{calls}");
        assert_eq!(asked, Some((Some(i64::from(pid)), Some(libc::EBADF))));
        // It is gone already.
        assert!(cat.wait().is_err());
    }

    /// What getpid(2) and close(2) of nothing say when a process is made to call them.
    fn ask(pid: i32) -> (Option<i64>, Option<i32>) {
        let at = registers(pid).map_or(0, |registers| registers.rip - 2);
        let own = run_syscall(pid, at, libc::SYS_getpid, [0; 3]).ok();
        let wrong = run_syscall(pid, at, libc::SYS_close, [9999, 0, 0]).err();
        (own, wrong.and_then(|error| error.raw_os_error()))
    }

    #[test]
    fn a_process_that_is_not_there_can_not_be_followed() {
        let error = seize(i32::MAX).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn statuses_of_wait_are_distinguished() {
        let stopped = |signal: i32, event: i32| event << 16 | signal << 8 | 0x7f;
        for (status, expected) in [
            (0, Stop::Gone(Change::Exited(0))),
            (3 << 8, Stop::Gone(Change::Exited(3))),
            (9, Stop::Gone(Change::Killed(9))),
            (stopped(AT_SYSCALL, 0), Stop::Syscall),
            (stopped(libc::SIGTRAP, 0), Stop::Signal(libc::SIGTRAP)),
            (stopped(libc::SIGTERM, 0), Stop::Signal(libc::SIGTERM)),
            (stopped(libc::SIGTRAP, libc::PTRACE_EVENT_EXEC), Stop::Exec),
            (stopped(libc::SIGTRAP, libc::PTRACE_EVENT_FORK), Stop::Started),
            (stopped(libc::SIGTRAP, libc::PTRACE_EVENT_STOP), Stop::Group(libc::SIGTRAP)),
            (stopped(libc::SIGSTOP, libc::PTRACE_EVENT_STOP), Stop::Group(libc::SIGSTOP)),
        ] {
            assert_eq!(stop(status), expected, "{status:#x}");
        }
    }
}

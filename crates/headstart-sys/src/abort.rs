//! The program starts, and its end is told, also where this process can't go on: a panic and
//! an allocation that fails end in abort(3), and whoever started us would be told that the
//! program was aborted. sigaction(2), waitid(2).
//!
//! What kills this process at once can't be helped: the kernel when memory is short, and a
//! stack that overflows, since SIGSEGV is held back. While a program is waited for here no
//! signals are passed on to it.

use crate::process::{self, Arguments};
use crate::signals::{self, Sent};
use std::ffi::OsStr;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering::Relaxed};

/// What is executed where there is no program yet, or null.
static COMMAND: AtomicPtr<Arguments> = AtomicPtr::new(std::ptr::null_mut());
/// The program's process, or 0.
static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// What it waits for an end of before its exec, or -1.
static GATE: AtomicI32 = AtomicI32::new(-1);
/// Its exit status when it was waited for, before that `RUNS`.
static STATUS: AtomicI32 = AtomicI32::new(RUNS);
const RUNS: i32 = -1;
/// Whether somebody sent SIGABRT before there was a program.
static CAME_EARLY: AtomicBool = AtomicBool::new(false);
/// Added to the number of the signal that killed a program (sh(1)).
const KILLED: i32 = 128;
/// How often it is looked whether another thread, which waited for the program first, has
/// told its status, and the time between, in nanoseconds.
const LOOKS: u32 = 100;
const BETWEEN: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// From now on, where this process aborts, it becomes the program of `argv`, which is found
/// and started as by [`process::exec`]; when that was started already it waits for its end,
/// and ends with the status that a shell would give. A SIGABRT that others send goes to the
/// program: after this, [`signals::hold_back`] leaves it alone.
///
/// # Errors
/// `InvalidInput` when `argv` is empty or has a NUL byte.
pub fn guard(argv: &[impl AsRef<OsStr>]) -> io::Result<()> {
    let command = Box::leak(Box::new(Arguments::new(argv)?));
    COMMAND.store(command, Relaxed);
    signals::handle_abort(on_abort);
    Ok(())
}

/// The program is this child, which waits until `gate` is written to or closed.
pub(crate) fn holds(program: i32, gate: i32) {
    GATE.store(gate, Relaxed);
    PROGRAM.store(program, Relaxed);
    if CAME_EARLY.swap(false, Relaxed) {
        // If it has ended, there is nobody to tell.
        let _ = signals::kill(program, libc::SIGABRT);
    }
}

/// The program was let go.
pub(crate) fn released() {
    GATE.store(-1, Relaxed);
}

/// The program has ended and was waited for: an abort ends this process with `status`.
pub fn ended(status: u8) {
    STATUS.store(status.into(), Relaxed);
}

/// The handler. abort(3) goes on when it returns.
extern "C" fn on_abort(_: libc::c_int, info: *const libc::siginfo_t, _: *const libc::c_void) {
    // SAFETY: the kernel hands over a whole one.
    let sent = Sent::from(unsafe { *info });
    let program = PROGRAM.load(Relaxed);
    if !sent.is_own() {
        match program {
            0 => CAME_EARLY.store(true, Relaxed),
            // It signals its own group.
            program if sent.sender() == Some(program) => {}
            // It may have ended.
            program => drop(sent.pass_on(program)),
        }
    } else if program == 0 {
        // SAFETY: null, or made by `guard` and never freed.
        if let Some(command) = unsafe { COMMAND.load(Relaxed).as_ref() } {
            end(process::become_program(command).into());
        }
    } else {
        let gate = GATE.swap(-1, Relaxed);
        if gate >= 0 {
            // SAFETY: nothing else is done any more with what was to be written to.
            unsafe { libc::close(gate) };
        }
        end_as(program);
    }
}

/// Ends this process as the program does. Async-signal-safe.
fn end_as(program: i32) {
    for _ in 0..LOOKS {
        match STATUS.load(Relaxed) {
            RUNS => drop(end_of(program).map(end)),
            status => end(status),
        }
        // SAFETY: the time is a constant, and nanosleep(2) is async-signal-safe.
        unsafe { libc::nanosleep(&BETWEEN, std::ptr::null_mut()) };
    }
}

fn end(status: i32) {
    // SAFETY: ends the process without exit handlers, which might allocate.
    unsafe { libc::_exit(status) };
}

/// Waits until a child has ended, and leaves it to be waited for. `None` when it was.
fn end_of(program: i32) -> Option<i32> {
    let child = libc::id_t::try_from(program).ok()?;
    // SAFETY: all-zero bytes are a valid `siginfo_t`.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    loop {
        let flags = libc::WEXITED | libc::WNOWAIT;
        // SAFETY: `info` is writable, and waitid(2) is async-signal-safe.
        let done = unsafe { libc::waitid(libc::P_PID, child, &raw mut info, flags) };
        if done == 0 {
            break;
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return None;
        }
    }
    // SAFETY: waitid(2) has filled in what ended and how.
    let status = unsafe { info.si_status() };
    Some(if info.si_code == libc::CLD_EXITED { status } else { KILLED + status })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{look, spawn_gated};
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    /// What the program of the inner test does, and when that aborts.
    const SCRIPT: &str = "HEADSTART_TEST_SCRIPT";
    const WHEN: &str = "HEADSTART_TEST_WHEN";

    #[test]
    #[ignore = "run by another test, in a process of its own"]
    fn inner_abort() {
        let (Ok(script), Ok(when)) = (std::env::var(SCRIPT), std::env::var(WHEN)) else { return };
        let command = ["sh", "-c", &script];
        guard(&command).unwrap();
        signals::hold_back();
        if when == "before there is a program" {
            std::process::abort();
        }
        let program = spawn_gated(&command).unwrap();
        let pid = program.pid();
        if when == "while it is held back" {
            std::process::abort();
        }
        let _released = program.release();
        if when == "sent by another" {
            let own = std::process::id().to_string();
            assert!(Command::new("kill").args(["-ABRT", &own]).status().unwrap().success());
        }
        if when == "in a thread" {
            let _ = std::thread::spawn(|| std::process::abort()).join();
        }
        if when != "while it runs" {
            while look(pid).unwrap().is_none() {
                std::thread::yield_now();
            }
            ended(3);
        }
        std::process::abort();
    }

    #[test]
    fn an_abort_starts_the_program_or_waits_for_it_and_ends_as_it_does() {
        for (when, script, expected) in [
            ("before there is a program", "exit 7", 7),
            ("before there is a program", "/no/such/program", 127),
            ("while it is held back", "exit 7", 7),
            ("while it runs", "exit 7", 7),
            ("while it runs", "kill -9 $$", 137),
            ("in a thread", "exit 7", 7),
            ("when it was waited for", "exit 7", 3),
            ("sent by another", "trap 'exit 9' ABRT; while :; do :; done", 3),
        ] {
            let mut inner = Command::new(std::env::current_exe().unwrap());
            inner.args(["--ignored", "--exact", "abort::tests::inner_abort"]);
            inner.env(SCRIPT, script).env(WHEN, when).stdout(Stdio::null());
            let ended = inner.status().unwrap();
            assert_eq!((ended.code(), ended.signal()), (Some(expected), None), "{when}: {script}");
        }
    }
}

//! The program starts, and its end is told, also where this process can't go on: a panic and
//! an allocation that fails end in abort(3), and whoever started us would be told that the
//! program was aborted. sigaction(2), waitid(2).
//!
//! What kills this process at once can't be helped: the kernel when memory is short, and a
//! stack that overflows, since SIGSEGV is held back. When it is the main thread that aborts,
//! no signals are passed on to the program any more.

use crate::process::{self, Arguments};
use crate::signals::{self, Sent};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering::Relaxed};

/// What is executed where there is no program yet, or null.
static COMMAND: AtomicPtr<Arguments> = AtomicPtr::new(std::ptr::null_mut());
/// The program's process, or who is about to be it.
static PROGRAM: AtomicI32 = AtomicI32::new(NOBODY);
const NOBODY: i32 = 0;
/// A child that is being forked.
const A_CHILD: i32 = -1;
/// This process.
const OURSELVES: i32 = -2;
/// What the program waits for a byte from before its exec, or -1.
static GATE: AtomicI32 = AtomicI32::new(-1);
/// Its exit status when it was waited for, before that `RUNS`.
static STATUS: AtomicI32 = AtomicI32::new(RUNS);
const RUNS: i32 = -1;
/// Whether somebody sent SIGABRT before there was a program.
static CAME_EARLY: AtomicBool = AtomicBool::new(false);
/// Added to the number of the signal that killed a program (sh(1)).
const KILLED: i32 = 128;
/// How often it is looked whether another thread, which waited for the program first, has
/// told its status; and the time between.
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

/// A child is about to be forked that will be the program. Where another thread has aborted
/// meanwhile this never returns: the process becomes the program.
pub(crate) fn will_fork() {
    while PROGRAM.compare_exchange(NOBODY, A_CHILD, Relaxed, Relaxed) == Err(OURSELVES) {
        nap();
    }
}

/// The program is this child, which waits for a byte from `gate`; or it could not be forked.
pub(crate) fn forked(child: Option<(i32, &OwnedFd)>) {
    let Some((program, gate)) = child else { return PROGRAM.store(NOBODY, Relaxed) };
    GATE.store(gate.as_raw_fd(), Relaxed);
    PROGRAM.store(program, Relaxed);
    if CAME_EARLY.swap(false, Relaxed) {
        // If it has ended, there is nobody to tell.
        let _ = signals::kill(program, libc::SIGABRT);
    }
}

/// The program was let go, and the gate may be closed; or a thread that aborts needs it.
pub(crate) fn released(gate: OwnedFd) {
    if GATE.swap(-1, Relaxed) == -1 {
        std::mem::forget(gate);
    }
}

/// The program has ended and was waited for: an abort ends this process with `status`.
pub fn ended(status: u8) {
    STATUS.store(status.into(), Relaxed);
}

/// The handler. abort(3) goes on when it returns.
extern "C" fn on_abort(_: libc::c_int, info: *const libc::siginfo_t, _: *const libc::c_void) {
    // SAFETY: the kernel hands over a whole one.
    let sent = Sent::from(unsafe { *info });
    if sent.is_own() {
        return go_on_as_program();
    }
    match PROGRAM.load(Relaxed) {
        NOBODY | A_CHILD => CAME_EARLY.store(true, Relaxed),
        OURSELVES => {}
        // It has ended: its number may be another's. It signals its own group.
        program if STATUS.load(Relaxed) != RUNS || sent.sender() == Some(program) => {}
        // It may have ended just now.
        program => drop(sent.pass_on(program)),
    }
}

/// Becomes the program, or ends as it does. Returns where that is not possible.
/// Async-signal-safe.
fn go_on_as_program() {
    loop {
        match PROGRAM.compare_exchange(NOBODY, OURSELVES, Relaxed, Relaxed) {
            Ok(_) => {
                // SAFETY: null, or made by `guard` and never freed.
                let Some(command) = (unsafe { COMMAND.load(Relaxed).as_ref() }) else { return };
                end(process::become_program(command).into());
            }
            // It has a number in a moment, or another thread executes it.
            Err(A_CHILD | OURSELVES) => nap(),
            Err(program) => return end_as(program),
        }
    }
}

/// Ends this process as the program does. Async-signal-safe.
fn end_as(program: i32) {
    let gate = GATE.swap(-1, Relaxed);
    if gate >= 0 {
        // SAFETY: a readable byte; nobody else closes what was taken from there.
        unsafe { libc::write(gate, b"g".as_ptr().cast(), 1) };
    }
    for _ in 0..LOOKS {
        let status = match STATUS.load(Relaxed) {
            RUNS => end_of(program),
            status => Some(status),
        };
        if let Some(status) = status {
            end(status);
        }
        nap();
    }
}

fn nap() {
    // SAFETY: the time is a constant, and nanosleep(2) is async-signal-safe.
    unsafe { libc::nanosleep(&BETWEEN, std::ptr::null_mut()) };
}

fn end(status: i32) -> ! {
    // SAFETY: ends the process without exit handlers, which might allocate.
    unsafe { libc::_exit(status) }
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
    use crate::process::{Change, look, spawn_gated};
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    /// What the program of the inner test does, when that aborts, and what the program makes
    /// when it can be sent a signal.
    const SCRIPT: &str = "HEADSTART_TEST_SCRIPT";
    const WHEN: &str = "HEADSTART_TEST_WHEN";
    const TOLD: &str = "HEADSTART_TEST_TOLD";

    #[test]
    #[ignore = "run by another test, in a process of its own"]
    fn inner_abort() {
        let (Ok(script), Ok(when)) = (std::env::var(SCRIPT), std::env::var(WHEN)) else { return };
        let command = match script.starts_with('/') {
            true => vec![script.as_str()],
            false => vec!["sh", "-c", &script],
        };
        let others_abort = || {
            let own = std::process::id().to_string();
            assert!(Command::new("kill").args(["-ABRT", &own]).status().unwrap().success());
        };
        guard(&command).unwrap();
        signals::hold_back();
        match when.as_str() {
            "before there is a program" => std::process::abort(),
            "sent before there is one" => others_abort(),
            _ => {}
        }
        let program = spawn_gated(&command).unwrap();
        let pid = program.pid();
        match when.as_str() {
            "while it is held back" => std::process::abort(),
            "sent while it is held back" => others_abort(),
            _ => {}
        }
        let _released = program.release();
        match when.as_str() {
            "while it runs" => std::process::abort(),
            "in a thread" => drop(std::thread::spawn(|| std::process::abort()).join()),
            "sent while it runs" => {
                let told = std::env::var(TOLD).unwrap();
                while !std::path::Path::new(&told).exists() {
                    std::thread::yield_now();
                }
                others_abort();
            }
            _ => {}
        }
        let change = loop {
            if let Some((change, _)) = look(pid).unwrap() {
                break change;
            }
            std::thread::yield_now();
        };
        if when == "when it was waited for" {
            ended(3);
            // It reaches nobody.
            others_abort();
            std::process::abort();
        }
        end(match change {
            Change::Exited(status) => status,
            Change::Killed(signal) | Change::Stopped(signal) => KILLED + signal,
        });
    }

    #[test]
    fn an_abort_starts_the_program_or_waits_for_it_and_ends_as_it_does() {
        let dir = tempfile::tempdir().unwrap();
        let told = dir.path().join("told");
        let waits = "trap 'exit 9' ABRT; : >$HEADSTART_TEST_TOLD; while :; do :; done";
        for (when, script, expected) in [
            ("before there is a program", "exit 7", 7),
            ("before there is a program", "/no/such/program", 127),
            ("before there is a program", "/", 126),
            ("while it is held back", "/", 126),
            ("while it is held back", "exit 7", 7),
            ("while it runs", "exit 7", 7),
            ("while it runs", "kill -9 $$", 137),
            ("in a thread", "exit 7", 7),
            ("when it was waited for", "exit 7", 3),
            ("sent before there is one", "while :; do :; done", 128 + libc::SIGABRT),
            ("sent while it is held back", "while :; do :; done", 128 + libc::SIGABRT),
            ("sent while it runs", waits, 9),
        ] {
            let mut inner = Command::new(std::env::current_exe().unwrap());
            inner.args(["--ignored", "--exact", "abort::tests::inner_abort"]);
            inner.env(SCRIPT, script).env(WHEN, when).env(TOLD, &told);
            let ended = inner.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
            assert_eq!((ended.code(), ended.signal()), (Some(expected), None), "{when}: {script}");
        }
    }
}

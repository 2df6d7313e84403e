//! Standing between a program and whoever sends it signals, unnoticed.
//!
//! Signals for the program arrive here when its parent sends them to the
//! process it knows. They are blocked, fetched by a thread and passed on.
//! What a terminal sends goes to the whole process group, the program
//! included, and is dropped here. sigprocmask(2), sigwaitinfo(2).

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// The mask this process was started with, as the kernel's 64-bit set.
static ORIGINAL_MASK: AtomicU64 = AtomicU64::new(0);
const MASK_BYTES: usize = 8;

/// Signals that are not passed on: those that act on this process itself,
/// those that the wait for the program answers (stops), and the two that
/// glibc keeps for its threads (nptl(7)).
const KEPT: [i32; 18] = [
    libc::SIGKILL,
    libc::SIGSTOP,
    libc::SIGCHLD,
    libc::SIGCONT,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGSYS,
    libc::SIGPIPE,
    libc::SIGURG,
    32,
    33,
    34,
];

/// Signals that a terminal sends to the whole foreground process group.
const TERMINAL: [i32; 5] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP, libc::SIGWINCH];

fn forwarded() -> u64 {
    KEPT.iter().fold(u64::MAX, |set, signal| set & !(1 << (signal - 1)))
}

fn set_mask(new: u64) -> io::Result<u64> {
    let mut old = 0u64;
    // SAFETY: both pointers are to eight bytes, the kernel's size of a set.
    let done = unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const new,
            &raw mut old,
            MASK_BYTES,
        )
    };
    if done == 0 { Ok(old) } else { Err(io::Error::last_os_error()) }
}

/// Blocks the signals that are to be passed on. Call it before the first
/// thread starts, which inherits the mask.
///
/// # Errors
/// None that a sane kernel returns.
pub fn block_forwarded() -> io::Result<()> {
    ORIGINAL_MASK.store(set_mask(forwarded())?, Ordering::Relaxed);
    BLOCKED.store(1, Ordering::Relaxed);
    Ok(())
}

/// Whether [`block_forwarded`] was called.
static BLOCKED: AtomicU64 = AtomicU64::new(0);

/// Gives a child its inherited mask back. Async-signal-safe.
pub(crate) fn restore_mask() {
    if BLOCKED.load(Ordering::Relaxed) == 1 {
        // Fails for bad pointers only.
        let _ = set_mask(ORIGINAL_MASK.load(Ordering::Relaxed));
    }
}

/// Waits for a blocked signal that the program should get too and returns its
/// number. Those of the terminal, which the program has got, are dropped.
///
/// # Errors
/// None that a sane kernel returns.
pub fn next_sent() -> io::Result<i32> {
    let set = forwarded();
    loop {
        // SAFETY: all-zero bytes are a valid `siginfo_t`.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set has the kernel's size, `info` is writable, and a
        // null time-out waits for ever.
        let got = unsafe {
            libc::syscall(
                libc::SYS_rt_sigtimedwait,
                &raw const set,
                &raw mut info,
                std::ptr::null::<libc::timespec>(),
                MASK_BYTES,
            )
        };
        let error = io::Error::last_os_error();
        match got {
            -1 if error.kind() == io::ErrorKind::Interrupted => {}
            -1 => return Err(error),
            // SI_USER is 0 and other senders are negative; the kernel's own
            // signals have positive codes (sigaction(2)).
            _ if info.si_code > 0 && TERMINAL.contains(&info.si_signo) => {}
            _ => return Ok(info.si_signo),
        }
    }
}

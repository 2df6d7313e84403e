//! Signals: their inherited state, and waiting for them. sigaction(2), sigprocmask(2),
//! sigwaitinfo(2).

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The kernel's size of a signal set.
const MASK_BYTES: usize = 8;
/// What can't be blocked, and the two that glibc keeps for its threads (nptl(7)).
const KEPT: [i32; 4] = [libc::SIGKILL, libc::SIGSTOP, 32, 33];

/// The signals that were ignored when this process was started.
static IGNORED: AtomicU64 = AtomicU64::new(0);
const SIGNALS: i32 = 64;

fn held() -> u64 {
    KEPT.iter().fold(u64::MAX, |set, signal| set & !bit(*signal))
}

/// A signal as a set; numbers begin with 1.
const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Tells what the process does on a signal, and changes it to `to`. Handlers
/// can't be set. The C library would refuse the signals it keeps for itself.
fn disposition(signal: i32, to: Option<libc::sighandler_t>) -> libc::sighandler_t {
    // The kernel's structure begins with the disposition; flags, mask and on
    // some machines a return address follow (include/linux/signal_types.h).
    let new = [to.unwrap_or(libc::SIG_DFL), 0, 0, 0, 0, 0, 0, 0];
    let mut old = [libc::SIG_DFL; 8];
    let change = if to.is_some() { new.as_ptr() } else { std::ptr::null() };
    // SAFETY: both are at least as large as the kernel's structure, and the new one
    // has no handler.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, change, old.as_mut_ptr(), MASK_BYTES) };
    old[0]
}

/// Notes which signals are ignored, before std's and the C library's start-up
/// change that.
pub(crate) fn note_inherited() {
    let ignored = (1..=SIGNALS).filter(|signal| disposition(*signal, None) == libc::SIG_IGN);
    IGNORED.store(ignored.fold(0, |set, signal| set | bit(signal)), Ordering::Relaxed);
    // While it is ignored, the kernel throws away how children ended, and wait(2) fails. The program
    // that this process becomes is given it back.
    disposition(libc::SIGCHLD, Some(libc::SIG_DFL));
}

/// Gives this process the dispositions that it was started with: std ignores SIGPIPE.
pub(crate) fn restore() {
    let ignored = IGNORED.load(Ordering::Relaxed);
    if ignored & bit(libc::SIGPIPE) == 0 {
        disposition(libc::SIGPIPE, Some(libc::SIG_DFL));
    }
    for signal in (1..=SIGNALS).filter(|signal| ignored & bit(*signal) != 0) {
        disposition(signal, Some(libc::SIG_IGN));
    }
}

/// Blocks all signals that can be, so that they can be waited for with [`next`], those of
/// children included. Call it before the first thread starts, which inherits the mask.
pub fn block() {
    // Were it ignored, the kernel would throw away how children ended.
    disposition(libc::SIGCHLD, Some(libc::SIG_DFL));
    let set = held();
    // SAFETY: the pointer is to eight bytes, the kernel's size of a set; it fails for bad
    // pointers only.
    unsafe {
        let none = std::ptr::null_mut::<u64>();
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const set, none, MASK_BYTES)
    };
}

/// Waits for a signal that was blocked.
///
/// # Errors
/// None that a sane kernel returns.
pub fn next() -> io::Result<()> {
    let set = held();
    loop {
        // SAFETY: the set has the kernel's size; nothing is to be written, and no time ends it.
        let got = unsafe {
            libc::syscall(
                libc::SYS_rt_sigtimedwait,
                &raw const set,
                std::ptr::null_mut::<libc::siginfo_t>(),
                std::ptr::null::<libc::timespec>(),
                MASK_BYTES,
            )
        };
        match io::Error::last_os_error() {
            _ if got > 0 => return Ok(()),
            e if e.kind() == io::ErrorKind::Interrupted => {}
            e => return Err(e),
        }
    }
}

/// Ends waits of this process with `EINTR` from some time on, again and again, as a signal may
/// come just before one. Only for processes that nobody sends SIGALRM. setitimer(2).
///
/// # Errors
/// What sigaction(2) or setitimer(2) said.
pub fn wake_after(time: Duration) -> io::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: all-zero bytes are a valid `sigaction` without flags, so that waits do not go on.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the handler does nothing.
    if unsafe { libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()) } == -1 {
        return Err(io::Error::last_os_error());
    }
    let of = |time: Duration| libc::timeval {
        tv_sec: time.as_secs().try_into().unwrap_or(i32::MAX.into()),
        tv_usec: time.subsec_micros().into(),
    };
    let timer = libc::itimerval {
        it_value: of(time.max(Duration::from_micros(1))),
        it_interval: of(Duration::from_millis(100)),
    };
    // SAFETY: the pointer is to a timer; the old one is not wanted.
    if unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Ignores a signal.
pub fn ignore(signal: i32) {
    disposition(signal, Some(libc::SIG_IGN));
}

/// Restores the disposition of a signal that this process was started with.
pub fn obey(signal: i32) {
    let is_ignored = IGNORED.load(Ordering::Relaxed) & bit(signal) != 0;
    disposition(signal, Some(if is_ignored { libc::SIG_IGN } else { libc::SIG_DFL }));
}

/// Sends a signal to a process. kill(2).
///
/// # Errors
/// `ESRCH` when it has ended, `EPERM`.
pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: takes two numbers.
    if unsafe { libc::kill(pid, signal) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

//! Standing between a program and whoever sends it signals, unnoticed.
//!
//! Signals for the program arrive here when their sender knows only this
//! process. They are blocked, fetched one by one and sent on; which of them
//! the program should get is decided elsewhere. sigprocmask(2),
//! sigwaitinfo(2), rt_sigqueueinfo(2).

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The kernel's size of a signal set.
const MASK_BYTES: usize = 8;
/// What can't be blocked, the two that glibc keeps for its threads (nptl(7)), and
/// what has a handler ([`crate::abort`]): not every C library lets it in to abort.
const KEPT: [i32; 5] = [libc::SIGKILL, libc::SIGSTOP, 32, 33, libc::SIGABRT];

/// The mask this process was started with, as the kernel's set.
static ORIGINAL_MASK: AtomicU64 = AtomicU64::new(0);
/// Whether [`hold_back`] was called.
static HELD: AtomicBool = AtomicBool::new(false);
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

fn set_mask(new: u64) -> io::Result<u64> {
    change_mask(libc::SIG_SETMASK, new)
}

fn change_mask(how: i32, new: u64) -> io::Result<u64> {
    let mut old = 0u64;
    // SAFETY: both pointers are to eight bytes, the kernel's size of a set.
    let done = unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, how, &raw const new, &raw mut old, MASK_BYTES)
    };
    if done == 0 { Ok(old) } else { Err(io::Error::last_os_error()) }
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
}

/// Gives a child the dispositions and the mask that this process was started
/// with. Async-signal-safe.
pub(crate) fn restore() {
    let ignored = IGNORED.load(Ordering::Relaxed);
    // std ignores the one. The other has a handler, which would be called for what came
    // before the exec.
    for signal in [libc::SIGPIPE, libc::SIGABRT] {
        disposition(signal, Some(libc::SIG_DFL));
    }
    for signal in (1..=SIGNALS).filter(|signal| ignored & bit(*signal) != 0) {
        disposition(signal, Some(libc::SIG_IGN));
    }
    if HELD.load(Ordering::Relaxed) {
        // Fails for bad pointers only.
        let _ = set_mask(ORIGINAL_MASK.load(Ordering::Relaxed));
    }
}

/// Blocks all signals that can be, but SIGABRT, so that they can be fetched with [`next`],
/// those of children included. Call it before the first thread starts, which
/// inherits the mask.
pub fn hold_back() {
    // Were it ignored, the kernel would throw away how the program ended.
    disposition(libc::SIGCHLD, Some(libc::SIG_DFL));
    // Fails for bad pointers only.
    if let Ok(mask) = set_mask(held()) {
        ORIGINAL_MASK.store(mask, Ordering::Relaxed);
        HELD.store(true, Ordering::Relaxed);
    }
}

/// Blocks SIGABRT in this thread; returns what was blocked before.
pub(crate) fn hold_back_abort() -> Option<u64> {
    change_mask(libc::SIG_BLOCK, bit(libc::SIGABRT)).ok()
}

/// Blocks again what was blocked before, and no more.
pub(crate) fn give_back(before: Option<u64>) {
    // Fails for bad pointers only.
    let _ = before.map(set_mask);
}

/// Blocks no signal any more.
pub(crate) fn let_in() {
    // Fails for bad pointers only.
    let _ = set_mask(0);
}

/// A handler with three arguments (sigaction(2)).
pub(crate) type Handler = extern "C" fn(libc::c_int, *const libc::siginfo_t, *const libc::c_void);

/// Calls this on SIGABRT.
pub(crate) fn handle_abort(handler: Handler) {
    // SAFETY: all-zero bytes are a valid `sigaction`, with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the handler is async-signal-safe. It fails for bad pointers only.
    unsafe { libc::sigaction(libc::SIGABRT, &raw const action, std::ptr::null_mut()) };
}

/// A signal that was sent to this process.
#[derive(Clone, Copy)]
pub struct Sent(libc::siginfo_t);

impl Sent {
    /// Its number.
    pub fn number(&self) -> i32 {
        self.0.si_signo
    }

    /// Where it comes from: above 0 the kernel, else a process (`si_code` of
    /// sigaction(2)).
    pub fn code(&self) -> i32 {
        self.0.si_code
    }

    /// The process that sent it; `None` when that was the kernel.
    pub fn sender(&self) -> Option<i32> {
        // SAFETY: every byte of the structure was set, by the kernel or to 0,
        // and any is a valid number.
        (self.code() <= 0).then(|| unsafe { self.0.si_pid() })
    }

    /// Whether a thread of this process sent it with raise(3) or abort(3).
    pub(crate) fn is_own(&self) -> bool {
        self.code() == libc::SI_TKILL && self.sender() == Some(own_pid())
    }

    /// Sends it on. A value that came with it goes with it; the sender's
    /// number can't, unless it was queued. kill(2), rt_sigqueueinfo(2).
    ///
    /// # Errors
    /// `ESRCH` when the process has ended, `EPERM`.
    pub fn pass_on(&self, pid: i32) -> io::Result<()> {
        // Of SI_USER (0) and SI_TKILL the kernel lets nobody make copies.
        if self.code() < 0 && self.code() != libc::SI_TKILL {
            // SAFETY: the pointer is to a whole `siginfo_t`.
            let queued = unsafe {
                libc::syscall(libc::SYS_rt_sigqueueinfo, pid, self.number(), &raw const self.0)
            };
            return if queued == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        }
        kill(pid, self.number())
    }
}

impl From<libc::siginfo_t> for Sent {
    fn from(info: libc::siginfo_t) -> Self {
        Self(info)
    }
}

impl fmt::Debug for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sent")
            .field("number", &self.number())
            .field("code", &self.code())
            .field("sender", &self.sender())
            .finish()
    }
}

/// Waits for a signal that was held back.
///
/// # Errors
/// None that a sane kernel returns.
pub fn next() -> io::Result<Sent> {
    loop {
        if let Some(sent) = fetch(held(), std::ptr::null())? {
            return Ok(sent);
        }
    }
}

/// A signal that was held back, if there is one now.
///
/// # Errors
/// None that a sane kernel returns.
pub fn pending() -> io::Result<Option<Sent>> {
    fetch(held(), &NO_TIME)
}

/// This signal, if it is among those held back now.
///
/// # Errors
/// None that a sane kernel returns.
pub fn take(signal: i32) -> io::Result<Option<Sent>> {
    fetch(bit(signal), &NO_TIME)
}

const NO_TIME: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 0 };

/// `timeout` is null or leads to a time.
fn fetch(set: u64, timeout: *const libc::timespec) -> io::Result<Option<Sent>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the set has the kernel's size, `info` is writable, and the time
    // is a constant or null, which waits for ever.
    let got = unsafe {
        libc::syscall(
            libc::SYS_rt_sigtimedwait,
            &raw const set,
            info.as_mut_ptr(),
            timeout,
            MASK_BYTES,
        )
    };
    if got > 0 {
        // SAFETY: all-zero bytes are valid, and the kernel wrote over them.
        return Ok(Some(Sent(unsafe { info.assume_init() })));
    }
    match io::Error::last_os_error() {
        e if e.kind() == io::ErrorKind::Interrupted => Ok(None),
        e if e.raw_os_error() == Some(libc::EAGAIN) => Ok(None),
        e => Err(e),
    }
}

/// Sends a signal to a process. kill(2).
///
/// # Errors
/// `ESRCH` when it has ended, `EPERM`.
pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: takes two numbers.
    if unsafe { libc::kill(pid, signal) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Stops this process as one of the stop signals does that has no handler:
/// the shell that waits for us is told of this very signal. Returns when the
/// process was continued, or at once where the signal stops nobody (in an
/// orphaned process group). Only [`next`] may be waiting elsewhere.
///
/// # Errors
/// What kill(2) said.
pub fn stop_by(signal: i32) -> io::Result<()> {
    if signal == libc::SIGSTOP {
        return kill(own_pid(), signal);
    }
    let before = disposition(signal, Some(libc::SIG_DFL));
    let sent = kill(own_pid(), signal);
    // Unblocked here and in no other thread, so it takes effect here.
    let mask = set_mask(held() & !bit(signal));
    let blocked = mask.and_then(set_mask);
    disposition(signal, Some(before));
    sent.and(blocked.map(drop))
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

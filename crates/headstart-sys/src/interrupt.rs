//! Termination signals as a descriptor that can be polled with others. sigaction(2), eventfd(2).
//!
//! It uses handlers instead of blocked signals: a child would inherit blocked signals and could not
//! be ended.

use crate::signals;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// What asks a program to stop.
const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Where the handler writes; it lives as long as the process.
static EVENT: AtomicI32 = AtomicI32::new(-1);

/// The handler.
extern "C" fn on_signal(_signal: libc::c_int) {
    let one = 1u64;
    // SAFETY: write(2) is async-signal-safe, and the pointer is to eight bytes.
    // It sets no errno, since the counter of an eventfd is never full here.
    unsafe { libc::write(EVENT.load(Ordering::Relaxed), (&raw const one).cast(), 8) };
}

/// A descriptor that can be read once SIGINT, SIGTERM or SIGHUP has come.
#[derive(Debug)]
pub struct Interrupt(OwnedFd);

impl Interrupt {
    /// Keeps these signals from ending this process, but for those that are
    /// ignored already (nohup(1)). Programs that it starts get them as ever.
    ///
    /// # Errors
    /// What eventfd(2) or sigaction(2) said.
    pub fn catch() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        // The handler has a descriptor of its own, which stays.
        let own = std::mem::ManuallyDrop::new(rustix::io::fcntl_dupfd_cloexec(&fd, 3)?);
        EVENT.store(own.as_raw_fd(), Ordering::Relaxed);
        SIGNALS.into_iter().try_for_each(|signal| handle(signal, on_signal))?;
        Ok(Self(fd))
    }

    /// From now on these signals do what they did before: nobody looks at the descriptor any more.
    pub fn release(self) {
        SIGNALS.into_iter().for_each(signals::obey);
    }

    /// Whether such a signal has come. It stays so.
    pub fn came(&self) -> bool {
        self.wait(Duration::ZERO)
    }

    /// Waits for such a signal, at most for `limit`; whether one has come.
    pub fn wait(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        loop {
            let mut fds = [PollFd::new(self, PollFlags::IN)];
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
            match poll(&mut fds, Some(&left)) {
                // The handler has written by now.
                Err(rustix::io::Errno::INTR) => {}
                answer => return answer.is_ok_and(|ready| ready > 0),
            }
        }
    }
}

/// Has this process close every descriptor before such a signal ends it: a thread that waits
/// for a file server keeps it from ending, and nobody shall wait for what it has open. Signals
/// that are ignored stay so.
///
/// # Errors
/// What sigaction(2) said.
pub fn close_all_before_the_end() -> io::Result<()> {
    SIGNALS.into_iter().try_for_each(|signal| handle(signal, end))
}

/// The handler of a process that closes all and ends.
extern "C" fn end(signal: libc::c_int) {
    crate::descriptors::close_all();
    // SAFETY: async-signal-safe, as what is called before; ends the process.
    unsafe { libc::_exit(128 + signal) };
}

fn handle(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid `sigaction`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a null new action only reads the old one into `action`.
    let read = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    if read == -1 {
        return Err(io::Error::last_os_error());
    }
    if action.sa_sigaction == libc::SIG_IGN {
        return Ok(());
    }
    action.sa_sigaction = handler as *const () as libc::sighandler_t;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler is async-signal-safe; its mask is the empty one read.
    let set = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    if set == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl AsFd for Interrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_signal_to_stop_stays_to_be_read_and_ends_a_child_as_ever() {
        let interrupt = Interrupt::catch().unwrap();
        assert!(!interrupt.came());
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        // SAFETY: takes two numbers.
        unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
        // SAFETY: takes a number; the handler is in place.
        unsafe { libc::raise(libc::SIGTERM) };
        assert!(interrupt.came() && interrupt.came());
    }

    #[test]
    fn a_signal_to_stop_ends_this_process_again_when_nobody_waits_for_it() {
        let child = crate::process::fork(|| {
            Interrupt::catch().unwrap().release();
            // SAFETY: takes a number.
            unsafe { libc::raise(libc::SIGTERM) };
            0
        })
        .unwrap();
        let (change, _) = crate::process::wait(child).unwrap();
        assert_eq!(change, crate::process::Change::Killed(libc::SIGTERM));
    }
}

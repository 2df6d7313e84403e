//! Being asked to stop, as something that can be waited for beside other
//! things. signalfd(2), sigprocmask(2).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// What asks a program to stop.
const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// A descriptor that can be read once SIGINT, SIGTERM or SIGHUP has come.
#[derive(Debug)]
pub struct Interrupt(OwnedFd);

impl Interrupt {
    /// Keeps these signals from ending this process. Call it before the first
    /// thread starts, which inherits the mask; programs that
    /// [`std::process::Command`] starts get an empty one.
    ///
    /// # Errors
    /// What signalfd(2) said.
    pub fn catch() -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: makes the set, which is writable, an empty one.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        for signal in SIGNALS {
            // SAFETY: the set was made above, and these are signals.
            unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
        }
        // SAFETY: sigemptyset has made it.
        let set = unsafe { set.assume_init() };
        // SAFETY: both pointers are valid; null asks for no old mask.
        let blocked =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if blocked != 0 {
            return Err(io::Error::from_raw_os_error(blocked));
        }
        // SAFETY: -1 asks for a new descriptor.
        let fd =
            unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it is new and nobody else's.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Whether such a signal has come. It stays so.
    pub fn came(&self) -> bool {
        let mut fds = [rustix::event::PollFd::new(self, rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for Interrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_to_stop_comes_as_something_to_read_and_stays() {
        // The mask is a thread's own, so other tests are not concerned.
        let interrupt = Interrupt::catch().unwrap();
        assert!(!interrupt.came());
        // SAFETY: sends a signal to this very thread, which has blocked it.
        unsafe { libc::raise(libc::SIGTERM) };
        assert!(interrupt.came() && interrupt.came());
    }
}

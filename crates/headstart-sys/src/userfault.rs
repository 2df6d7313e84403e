//! Makes faults of a process map one page at a time: userfaultfd(2),
//! Documentation/admin-guide/mm/userfaultfd.rst.
//!
//! In a mapping that is registered for asynchronous write protection, while nothing is protected,
//! the only difference is that a fault maps its own page and no fault-around pages
//! (`should_fault_around` of `mm/memory.c`). It is used only for that.

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::io;

/// The number of the system call that makes one.
pub const SYSCALL: i64 = libc::SYS_userfaultfd;
/// Its flags: closed by exec, and no say over faults of the kernel, which takes no right.
pub const FLAGS: u64 = libc::O_CLOEXEC as u64 | 1;

/// Version of the interface, from include/uapi/linux/userfaultfd.h as what follows.
const UFFD_API: u64 = 0xaa;
const UFFD_FEATURE_WP_ASYNC: u64 = 1 << 15;
const UFFDIO_REGISTER_MODE_WP: u64 = 1 << 1;
/// `_IOWR(0xaa, 0x3f, struct uffdio_api)`
const UFFDIO_API: u32 = 0xc018_aa3f;
/// `_IOWR(0xaa, 0, struct uffdio_register)`
const UFFDIO_REGISTER: u32 = 0xc020_aa00;

/// A descriptor of userfaultfd(2) of another process, which acts on the memory of that.
#[derive(Debug)]
pub struct Userfault(OwnedFd);

impl Userfault {
    /// The one that process `pid` has as its descriptor `fd`. pidfd_getfd(2).
    ///
    /// # Errors
    /// `EPERM` for processes that this one may not follow, `EINVAL` when the kernel does
    /// not have write protection without a handler (before Linux 6.7).
    pub fn of(pid: i32, fd: i32) -> io::Result<Self> {
        let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        let own = Self(pidfd_getfd(process, fd, PidfdGetfdFlags::empty())?);
        own.ioctl(UFFDIO_API, &mut [UFFD_API, UFFD_FEATURE_WP_ASYNC, 0])?;
        Ok(own)
    }

    /// Makes faults in these addresses map one page each, until this is dropped.
    ///
    /// # Errors
    /// `EPERM` for shared mappings of files that are not open for writing, `EBUSY` when
    /// somebody else registered them.
    pub fn page_by_page(&self, address: u64, bytes: u64) -> io::Result<()> {
        self.ioctl(UFFDIO_REGISTER, &mut [address, bytes, UFFDIO_REGISTER_MODE_WP, 0])
    }

    fn ioctl<const N: usize>(&self, request: u32, argument: &mut [u64; N]) -> io::Result<()> {
        // SAFETY: the structures of both requests are as many numbers of 64 bits as the
        // arrays that they are given.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), request as _, argument.as_mut_ptr()) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

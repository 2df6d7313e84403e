//! Page cache statistics of a file range: cachestat(2), Linux 6.5 and later.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The same number on every architecture that headstart knows
/// (`scripts/syscall.tbl`).
const SYS_CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range` of `include/uapi/linux/mman.h`.
#[repr(C)]
struct Range {
    off: u64,
    len: u64,
}

/// `struct cachestat` of `include/uapi/linux/mman.h`; all are pages.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStat {
    /// In the page cache.
    pub cache: u64,
    /// Of these, not yet written back.
    pub dirty: u64,
    /// Of these, being written back now.
    pub writeback: u64,
    /// Evicted, with a shadow entry left.
    pub evicted: u64,
    /// Of these, evicted so recently that a read would count as a refault.
    pub recently_evicted: u64,
}

/// Counts the pages of `len` bytes from `offset`; a `len` of 0 means to the end.
///
/// For a file on overlayfs it counts none: its pages belong to the inode below.
///
/// # Errors
/// `ENOSYS` before Linux 6.5, `EPERM` for a file that the caller could not
/// write (since 6.13), `EBADF` for an `O_PATH` descriptor, `EOPNOTSUPP` for
/// hugetlbfs.
pub fn cachestat(fd: impl AsFd, offset: u64, len: u64) -> io::Result<CacheStat> {
    let fd = fd.as_fd().as_raw_fd();
    let range = Range { off: offset, len };
    let mut stat = CacheStat::default();
    // SAFETY: the kernel reads one Range and writes one CacheStat; both have
    // the layout of its headers and outlive the call.
    let done = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            fd,
            std::ptr::from_ref(&range),
            std::ptr::from_mut(&mut stat),
            0,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(stat) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn pages_just_written_are_in_the_cache() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 40_000]).unwrap();
        match cachestat(&file, 0, 0) {
            Ok(stat) => {
                let page = rustix::param::page_size() as u64;
                assert_eq!(stat.cache, 40_000u64.div_ceil(page));
                assert_eq!(cachestat(&file, 0, 1).unwrap().cache, 1);
            }
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOSYS)),
        }
    }
}

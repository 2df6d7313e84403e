//! cachestat(2): how many pages of a part of a file are in the page cache.
//!
//! It counts only; [`crate::mincore`] says which pages they are.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libc::{c_int, c_long, c_uint};

/// Pages of a part of a file, as cachestat(2) counts them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct CacheStat {
    /// Pages in the page cache, dirty ones and those under writeback included.
    pub cache: u64,
    /// Pages in the page cache that differ from what the device holds.
    pub dirty: u64,
    /// Pages that are being written to the device.
    pub writeback: u64,
    /// Pages that were in the cache once and left it, as far as still known.
    pub evicted: u64,
    /// Evicted pages that are part of the working set: memory was too small.
    pub recently_evicted: u64,
}

/// `struct cachestat_range` of `include/uapi/linux/mman.h`.
#[repr(C)]
struct CacheStatRange {
    offset: u64,
    len: u64,
}

/// `__NR_cachestat`: the same on all architectures but alpha and, by their
/// offsets, mips and x32.
#[cfg(not(any(
    target_arch = "mips",
    target_arch = "mips64",
    all(target_arch = "x86_64", target_pointer_width = "32")
)))]
const NR_CACHESTAT: c_long = 451;
#[cfg(target_arch = "mips")]
const NR_CACHESTAT: c_long = 4451;
#[cfg(target_arch = "mips64")]
const NR_CACHESTAT: c_long = 5451;
#[cfg(all(target_arch = "x86_64", target_pointer_width = "32"))]
const NR_CACHESTAT: c_long = 0x4000_0000 + 451;

/// `cachestat(fd, {offset, len}, &stat, 0)`: counts the cached pages of `len`
/// bytes from `offset`; a `len` of 0 means to the end of the file.
///
/// A page that is only partly in the range is counted.
///
/// # Errors
///
/// - `ENOSYS`: the kernel is older than 6.5.
/// - `EPERM`: the caller neither owns the file nor may write it (6.14, and
///   stable releases since; before, everybody got an answer).
/// - `EOPNOTSUPP`: the file is on hugetlbfs.
///
/// # References
///
/// `cachestat` and `can_do_cachestat` in `mm/filemap.c`,
/// `include/uapi/linux/mman.h`.
pub fn cachestat(fd: impl AsFd, offset: u64, len: u64) -> io::Result<CacheStat> {
    let range = CacheStatRange { offset, len };
    let mut stat = CacheStat::default();
    let flags: c_uint = 0;
    let fd: c_int = fd.as_fd().as_raw_fd();
    // SAFETY: both structures have the kernel's layout and outlive the call,
    // which reads the first and writes the second.
    let result = unsafe { libc::syscall(NR_CACHESTAT, fd, &raw const range, &raw mut stat, flags) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(stat) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn written_pages_are_counted_and_a_partial_page_counts_whole() {
        let mut file = tempfile::tempfile().unwrap();
        let page = rustix::param::page_size();
        file.write_all(&vec![1; 3 * page + 1]).unwrap();
        let stat = match cachestat(&file, 0, 0) {
            Err(e) if e.raw_os_error() == Some(libc::ENOSYS) => {
                assert!(std::env::var_os("CI").is_none(), "no cachestat in this kernel");
                eprintln!("skipped: this kernel has no cachestat");
                return;
            }
            other => other.unwrap(),
        };
        assert_eq!(stat.cache, 4);
        let page = page as u64;
        assert_eq!(cachestat(&file, page - 1, 2).unwrap().cache, 2);
        assert_eq!(cachestat(&file, 4 * page, page).unwrap().cache, 0);
    }
}

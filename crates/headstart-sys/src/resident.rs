//! Whether any page of a file is resident, through a mapping and mincore(2).
//!
//! Slower than `cachestat` but right where that is not: overlayfs, whose files
//! are mapped through to the inode below, and kernels before 6.5. mincore calls
//! every page resident when the caller could not write the file.

use std::io;
use std::os::fd::AsFd;
use std::ptr::null_mut;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Bytes looked at in one go; a multiple of every page size.
const WINDOW: u64 = 16 << 20;

/// True when at least one page among the first `len` bytes is resident.
///
/// # Errors
/// As for mmap(2) and mincore(2).
pub fn any_page_resident(fd: impl AsFd, len: u64) -> io::Result<bool> {
    let mut offset = 0;
    while offset < len {
        let window = WINDOW.min(len - offset) as usize;
        if window_resident(&fd, offset, window)? {
            return Ok(true);
        }
        offset += WINDOW;
    }
    Ok(false)
}

fn window_resident(fd: impl AsFd, offset: u64, len: usize) -> io::Result<bool> {
    let mut pages = vec![0u8; len.div_ceil(rustix::param::page_size())];
    // SAFETY: a new mapping at an address of the kernel's choice, never read.
    let map =
        unsafe { mmap(null_mut(), len, ProtFlags::READ, MapFlags::SHARED, fd.as_fd(), offset) }?;
    // SAFETY: the range is the mapping just made; `pages` has a byte per page.
    let done = unsafe { libc::mincore(map, len, pages.as_mut_ptr()) };
    let result = if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: nothing points into the mapping.
    unsafe { munmap(map, len) }?;
    result.map(|()| pages.iter().any(|page| page & 1 == 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn written_pages_are_resident_and_holes_are_not() {
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(40 << 20).unwrap();
        assert!(!any_page_resident(&file, 40 << 20).unwrap());
        file.write_all(b"x").unwrap();
        assert!(any_page_resident(&file, 40 << 20).unwrap());
        assert!(!any_page_resident(&file, 0).unwrap());
    }
}

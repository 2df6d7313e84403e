//! mincore(2): which pages of a part of a file are in the page cache.
//!
//! Since Linux 5.0 the kernel says "all" when the caller neither owns the file nor may write it
//! (`can_do_mincore` in `mm/mincore.c`); the caller has to recognise that answer.

use std::io;
use std::os::fd::AsFd;

use crate::mapping::Mapping;

/// Fills `resident` with one entry per page, from byte `offset` of the file on:
/// true when the page is in the page cache.
///
/// The part is mapped for the time of the call and not accessed; it may lie
/// behind the file's end, where nothing is resident. Costs one byte of memory
/// per page, so request large files in windows.
///
/// # Errors
///
/// Those of mmap(2), see [`Mapping::new`]; `EAGAIN` when the kernel is out of
/// memory for the answer.
///
/// # References
///
/// [mincore(2)](https://man7.org/linux/man-pages/man2/mincore.2.html)
pub fn mincore(fd: impl AsFd, offset: u64, resident: &mut [bool]) -> io::Result<()> {
    if resident.is_empty() {
        return Ok(());
    }
    let len = resident
        .len()
        .checked_mul(rustix::param::page_size())
        .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    let mapping = Mapping::new(fd, offset, len)?;
    let mut answer = vec![0u8; resident.len()];
    // SAFETY: the mapping lives until the end of this function, and `answer`
    // has one byte for each of its pages.
    let result =
        unsafe { libc::mincore(mapping.as_ptr().cast(), mapping.len(), answer.as_mut_ptr()) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    for (page, byte) in resident.iter_mut().zip(answer) {
        // The other bits are reserved.
        *page = byte & 1 != 0;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, MetadataExt};

    #[test]
    fn only_the_written_page_of_a_sparse_file_is_resident_and_nothing_stays_mapped() {
        let file = tempfile::tempfile().unwrap();
        let page = rustix::param::page_size() as u64;
        file.set_len(4 * page).unwrap();
        file.write_all_at(b"x", 2 * page).unwrap();
        let mut resident = [true; 6];
        mincore(&file, 0, &mut resident).unwrap();
        assert_eq!(resident, [false, false, true, false, false, false]);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let inode = file.metadata().unwrap().ino().to_string();
        assert!(maps.lines().all(|line| line.split(' ').nth(4) != Some(&inode)), "{maps}");
    }

    #[test]
    fn no_pages_is_no_error_and_a_pipe_is_one() {
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        mincore(&reader, 0, &mut []).unwrap();
        assert!(mincore(&reader, 0, &mut [false]).is_err());
    }
}

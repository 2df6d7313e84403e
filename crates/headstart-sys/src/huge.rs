//! Brings a part of a file in as one large folio: madvise(2) `MADV_HUGEPAGE` and
//! `MADV_POPULATE_READ` over a mapping that is aligned to the size of a huge page.
//!
//! For a mapping with that advice the kernel reads a whole huge page at the first fault, into one
//! folio if the file system has large ones (`do_sync_mmap_readahead` of `mm/filemap.c`).

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};

use crate::mapping::Mapping;

/// Bytes of an entry of `/proc/PID/pagemap`.
const ENTRY: u64 = 8;
/// Its bit that says that the page is mapped (`Documentation/admin-guide/mm/pagemap.rst`).
const PRESENT: u64 = 1 << 63;

/// How the kernel has a part of a file in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Folio {
    /// In one folio that one entry of a page table maps.
    Large,
    /// In smaller ones, or in one that can't be mapped as a whole.
    Small,
}

/// Brings the part of `file` at `offset` in, of the size of a huge page, which is
/// `size` bytes, waits until its first page is there, and tells what folio it is in.
/// What is in memory already stays as it is. `offset` is a multiple of `size`, and the
/// part ends before the file does.
///
/// The pages are faulted by the kernel and never looked at, so that a file that
/// shrinks meanwhile is an error and no SIGBUS.
///
/// # Errors
/// `EINVAL` before Linux 5.14 or for an `offset` that does not fit, `EFAULT` behind the
/// file's end, `EHWPOISON` and `EIO` where reading failed, and those of mmap(2).
pub fn bring_in(file: impl AsFd, offset: u64, size: usize) -> io::Result<Folio> {
    if !size.is_power_of_two() || !offset.is_multiple_of(size as u64) {
        return Err(Errno::INVAL.into());
    }
    let room = Mapping::room(size.checked_mul(2).ok_or(Errno::NOMEM)?)?;
    let at =
        room.as_ptr().wrapping_byte_add(room.address().next_multiple_of(size) - room.address());
    // SAFETY: it lies within our own room, which is twice as long, and which nothing
    // else uses. No reference into it is made.
    unsafe {
        mmap(at, size, ProtFlags::READ, MapFlags::PRIVATE | MapFlags::FIXED, file, offset)?;
    }
    // SAFETY: it only changes how the kernel fills the mapping.
    unsafe { madvise(at, size, Advice::LinuxHugepage)? };
    // SAFETY: it only maps pages that are not mapped.
    unsafe { madvise(at, rustix::param::page_size(), Advice::LinuxPopulateRead)? };
    // A fault maps some pages around it, or all by one entry.
    let far = (at.addr() + size - rustix::param::page_size()) / rustix::param::page_size();
    let mut entry = [0; ENTRY as usize];
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entry, far as u64 * ENTRY)?;
    let mapped = u64::from_ne_bytes(entry) & PRESENT != 0;
    Ok(if mapped { Folio::Large } else { Folio::Small })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const SIZE: usize = 2 << 20;

    #[test]
    fn a_part_that_does_not_fit_is_refused_and_one_behind_the_end_is_an_error() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 9000]).unwrap();
        let error = |offset, size| bring_in(&file, offset, size).unwrap_err().raw_os_error();
        assert_eq!(error(4096, SIZE), Some(22));
        assert_eq!(error(0, 3 << 20), Some(22));
        assert_eq!(error(SIZE as u64, SIZE), Some(14));
    }

    #[test]
    fn what_is_in_memory_page_by_page_is_small() {
        let file = tempfile::tempfile().unwrap();
        // Written page by page, backwards, so that no file system makes one folio of it.
        for page in (0..SIZE as u64 / 4096).rev() {
            file.write_all_at(&[7; 4096], page * 4096).unwrap();
        }
        assert_eq!(bring_in(&file, 0, SIZE).unwrap(), Folio::Small);
    }
}

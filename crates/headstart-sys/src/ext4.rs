//! `EXT4_IOC_MOVE_EXT` of ext4: swaps blocks between two files (`fs/ext4/move_extent.c`).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::ioctl::{self, Updater, opcode};

/// `struct move_extent` of `fs/ext4/ext4.h`.
#[repr(C)]
struct MoveExtent {
    reserved: u32,
    donor_fd: u32,
    orig_start: u64,
    donor_start: u64,
    len: u64,
    moved_len: u64,
}

/// `_IOWR('f', 15, struct move_extent)`.
const EXT4_IOC_MOVE_EXT: ioctl::Opcode = opcode::read_write::<MoveExtent>(b'f', 15);

/// Where a swap begins in both files, and how long it is. All in blocks of the file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocks {
    /// First block of the file.
    pub file: u64,
    /// First block of the donor, at the same place within a page.
    pub donor: u64,
    /// How many.
    pub count: u64,
}

/// Lets a file and a donor swap the blocks of a range. The file's content stays: the kernel copies it
/// to the new blocks before the change is committed. The donor's content becomes what is in the old
/// blocks. Both must be open for reading and writing. Returns how many blocks were swapped, which may
/// be fewer.
///
/// # Errors
/// `EOPNOTSUPP`: no extents, encrypted, bigalloc, or data journalling. `ETXTBSY`, `EBUSY`: a swap
/// file. `EPERM`: immutable or append-only. `ENOTTY`: another file system. `ENOSPC`. Some blocks may be
/// swapped nevertheless.
pub fn swap_blocks(file: impl AsFd, donor: impl AsFd, blocks: Blocks) -> io::Result<u64> {
    let mut request = MoveExtent {
        reserved: 0,
        donor_fd: donor.as_fd().as_raw_fd().cast_unsigned(),
        orig_start: blocks.file,
        donor_start: blocks.donor,
        len: blocks.count,
        moved_len: 0,
    };
    // SAFETY: the kernel reads and writes one `struct move_extent`, whose layout this is.
    let call = unsafe { Updater::<EXT4_IOC_MOVE_EXT, _>::new(&mut request) };
    // SAFETY: as above; memory of this process is not concerned.
    unsafe { ioctl::ioctl(file, call) }?;
    Ok(request.moved_len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_ext4_refuses() {
        let file = std::fs::File::open("/proc/self/status").unwrap();
        assert!(swap_blocks(&file, &file, Blocks { file: 0, donor: 0, count: 1 }).is_err());
        assert_eq!(EXT4_IOC_MOVE_EXT, 0xc028_660f);
    }
}

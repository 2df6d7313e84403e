//! Files that share blocks: `FICLONERANGE` and `FIDEDUPERANGE`, ioctl_ficlonerange(2) and
//! ioctl_fideduperange(2).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::ioctl::{self, Setter, Updater, opcode};

/// `struct file_clone_range` of `include/uapi/linux/fs.h`.
#[repr(C)]
struct CloneRange {
    src_fd: i64,
    src_offset: u64,
    src_length: u64,
    dest_offset: u64,
}

/// `_IOW(0x94, 13, struct file_clone_range)`.
const FICLONERANGE: ioctl::Opcode = opcode::write::<CloneRange>(0x94, 13);

/// Lets `to` share the blocks of a range of `from`, which stays as it is. Offsets are whole blocks; the
/// length too, unless the range ends where `from` does.
///
/// # Errors
/// `EOPNOTSUPP`, `ENOTTY`: the file system shares no blocks. `EINVAL`: parts of blocks, or only one of
/// the files has checksums. `EXDEV`, `ENOSPC`.
pub fn clone_range(
    from: impl AsFd,
    offset: u64,
    length: u64,
    to: impl AsFd,
    at: u64,
) -> io::Result<()> {
    let request = CloneRange {
        src_fd: from.as_fd().as_raw_fd().into(),
        src_offset: offset,
        src_length: length,
        dest_offset: at,
    };
    // SAFETY: the kernel reads one `struct file_clone_range`, whose layout this is.
    let call = unsafe { Setter::<FICLONERANGE, _>::new(request) };
    // SAFETY: as above; memory of this process is not concerned.
    unsafe { ioctl::ioctl(to, call) }?;
    Ok(())
}

/// `struct file_dedupe_range` with one `struct file_dedupe_range_info`.
#[repr(C)]
struct DedupeRange {
    src_offset: u64,
    src_length: u64,
    dest_count: u16,
    reserved1: u16,
    reserved2: u32,
    dest_fd: i64,
    dest_offset: u64,
    bytes_deduped: u64,
    status: i32,
    reserved: u32,
}

/// `_IOWR(0x94, 54, struct file_dedupe_range)`; the array at its end is not part of the size.
const FIDEDUPERANGE: ioctl::Opcode =
    opcode::from_components(ioctl::Direction::ReadWrite, 0x94, 54, 24);
/// `FILE_DEDUPE_RANGE_DIFFERS`.
const DIFFERS: i32 = 1;

/// Lets `to` share the blocks of a range of `from` at the same offset, if both hold the same bytes
/// there: the kernel locks both, compares, and changes the blocks then. Content and times stay. `to`
/// may be open for reading only where the process has `CAP_SYS_ADMIN`. Returns how many bytes were
/// shared, which may be fewer; `None` if they differ.
///
/// # Errors
/// `EOPNOTSUPP`, `ENOTTY`: the file system shares no blocks. `EINVAL`: parts of blocks, or only one of
/// the files has checksums. `EPERM`: immutable. `ETXTBSY`: swap space. `EXDEV`, `ENOSPC`, `EDQUOT`.
pub fn dedupe_range(
    from: impl AsFd,
    to: impl AsFd,
    offset: u64,
    length: u64,
) -> io::Result<Option<u64>> {
    let mut request = DedupeRange {
        src_offset: offset,
        src_length: length,
        dest_count: 1,
        reserved1: 0,
        reserved2: 0,
        dest_fd: to.as_fd().as_raw_fd().into(),
        dest_offset: offset,
        bytes_deduped: 0,
        status: 0,
        reserved: 0,
    };
    // SAFETY: the kernel reads and writes the header and one record, whose layouts these are.
    let call = unsafe { Updater::<FIDEDUPERANGE, _>::new(&mut request) };
    // SAFETY: as above; memory of this process is not concerned.
    unsafe { ioctl::ioctl(from, call) }?;
    match request.status {
        DIFFERS => Ok(None),
        0 => Ok(Some(request.bytes_deduped)),
        error => Err(io::Error::from_raw_os_error(error.wrapping_neg())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_have_the_sizes_of_the_kernel_headers() {
        assert_eq!((FICLONERANGE, FIDEDUPERANGE), (0x4020_940d, 0xc018_9436));
        assert_eq!((size_of::<CloneRange>(), size_of::<DedupeRange>()), (32, 56));
    }

    #[test]
    fn what_shares_no_blocks_refuses() {
        let file = std::fs::File::open("/proc/self/status").unwrap();
        assert!(clone_range(&file, 0, 0, &file, 0).is_err());
        assert!(dedupe_range(&file, &file, 0, 4096).is_err());
    }
}

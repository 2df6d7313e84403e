//! btrfs: moves the data of one block group to others, which frees its space as a whole.
//!
//! Layouts from `include/uapi/linux/btrfs.h`. The kernel does so by copying extents in transactions of its own, so
//! nothing is lost whatever ends it (`fs/btrfs/relocation.c`).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

const MAGIC: u8 = 0x94;

/// `struct btrfs_balance_args`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Args {
    profiles: u64,
    usage: u64,
    devid: u64,
    pstart: u64,
    pend: u64,
    vstart: u64,
    vend: u64,
    target: u64,
    flags: u64,
    limit: u64,
    stripes_min: u32,
    stripes_max: u32,
    unused: [u64; 6],
}

/// `struct btrfs_ioctl_balance_args`.
#[repr(C)]
struct Balance {
    flags: u64,
    state: u64,
    data: Args,
    metadata: Args,
    system: Args,
    expected: u64,
    considered: u64,
    completed: u64,
    unused: [u64; 72],
}

/// `BTRFS_IOC_BALANCE_V2`.
const BTRFS_IOC_BALANCE_V2: rustix::ioctl::Opcode =
    rustix::ioctl::opcode::read_write::<Balance>(MAGIC, 32);
/// `BTRFS_BALANCE_DATA`: block groups of data.
const DATA: u64 = 1;
/// `BTRFS_BALANCE_ARGS_VRANGE`: those in a range of addresses.
const RANGE: u64 = 1 << 4;

/// Moves what lies in the block group of data at these addresses of the file system to others, or to a new one,
/// and frees it. Returns whether that was done: `false` if it is gone already, or the kernel skips it for swap space.
/// Takes as long as its bytes take to be read and written, up to 1 GiB for each device.
///
/// # Errors
/// `ENOSPC`: the rest has no room for it. `EINPROGRESS`, `EBUSY`: there is another balance, running or paused, or a
/// device is being added or removed. `EPERM`: needs `CAP_SYS_ADMIN`. `ENOTTY`: not btrfs.
pub fn relocate(fs: impl AsFd, start: u64, length: u64) -> io::Result<bool> {
    let none = Args::default();
    let mut call = Balance {
        flags: DATA,
        state: 0,
        data: Args { vstart: start, vend: start.saturating_add(length), flags: RANGE, ..none },
        metadata: none,
        system: none,
        expected: 0,
        considered: 0,
        completed: 0,
        unused: [0; 72],
    };
    // By libc, since rustix drops the value that is returned.
    // SAFETY: the kernel reads and writes one `struct btrfs_ioctl_balance_args`, whose layout this is.
    match unsafe { libc::ioctl(fs.as_fd().as_raw_fd(), BTRFS_IOC_BALANCE_V2 as _, &raw mut call) } {
        0 => Ok(call.completed > 0),
        -1 => Err(io::Error::last_os_error()),
        // `BTRFS_ERROR_DEV_EXCL_RUN_IN_PROGRESS`.
        _ => Err(io::Error::from_raw_os_error(libc::EBUSY)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_have_the_sizes_of_the_kernel_headers() {
        assert_eq!((size_of::<Args>(), size_of::<Balance>()), (136, 1024));
        assert_eq!(BTRFS_IOC_BALANCE_V2, 0xc400_9420);
    }

    #[test]
    fn what_is_not_on_btrfs_is_refused() {
        let file = std::fs::File::open("/proc/self/status").unwrap();
        assert!(relocate(&file, 0, 4096).is_err());
    }
}

//! Which space of a file system is free: `FS_IOC_GETFSMAP`, ioctl_getfsmap(2). XFS and ext4 have it.
//!
//! Layouts from `include/uapi/linux/fsmap.h`.

use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{self, Updater, opcode};

/// Records requested in one call.
const ROOM: usize = 4096;

/// `struct fsmap`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Record {
    device: u32,
    flags: u32,
    physical: u64,
    owner: u64,
    offset: u64,
    length: u64,
    reserved: [u64; 3],
}

/// `struct fsmap_head`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Header {
    iflags: u32,
    oflags: u32,
    count: u32,
    entries: u32,
    reserved: [u64; 6],
    keys: [Record; 2],
}

/// Both, as the kernel takes them.
#[repr(C)]
struct Request {
    header: Header,
    records: [Record; ROOM],
}

/// `_IOWR('X', 59, struct fsmap_head)`; the array at its end is not part of the size.
const FS_IOC_GETFSMAP: ioctl::Opcode = opcode::read_write::<Header>(b'X', 59);

/// Devices are `dev_t` numbers.
const FMH_OF_DEV_T: u32 = 1;
/// The owner is one of those below, and no inode.
const FMR_OF_SPECIAL_OWNER: u32 = 0x10;
/// The last one of the file system.
const FMR_OF_LAST: u32 = 0x20;
/// Free space.
const FMR_OWN_FREE: u64 = 1;

impl Record {
    fn is_free(&self) -> bool {
        self.flags & FMR_OF_SPECIAL_OWNER != 0 && self.owner == FMR_OWN_FREE
    }
}

/// The free space of the device that a file system's files are on: where each part begins, and its length, in bytes,
/// in ascending order.
///
/// `fs` is any file of the file system.
///
/// # Errors
/// `EOPNOTSUPP`, `ENOTTY`: this file system doesn't tell, or not by the numbers of devices.
pub fn free_space(fs: impl AsFd) -> io::Result<Vec<(u64, u64)>> {
    let dev = rustix::fs::fstat(&fs)?.st_dev;
    // As the kernel encodes it (`new_encode_dev`): a log and realtime files have devices of their own.
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let device = minor & 0xff | major << 8 | (minor & !0xff) << 12;
    let all = u64::MAX;
    let mut from = Record::default();
    let to = Record { device: !0, flags: !0, physical: all, owner: all, offset: all, ..from };
    let mut found = Vec::new();
    loop {
        let count = ROOM as u32;
        let reserved = [0; 6];
        let header = Header { iflags: 0, oflags: 0, count, entries: 0, reserved, keys: [from, to] };
        let mut request = Box::new(Request { header, records: [from; ROOM] });
        // SAFETY: the kernel reads the header and writes it and at most `count` records behind it, which is what
        // the array holds.
        let call = unsafe { Updater::<FS_IOC_GETFSMAP, _>::new(&mut *request) };
        // SAFETY: as above; the call has no other effect.
        unsafe { ioctl::ioctl(&fs, call) }?;
        if request.header.oflags & FMH_OF_DEV_T == 0 {
            return Err(rustix::io::Errno::OPNOTSUPP.into());
        }
        let told = &request.records[..ROOM.min(request.header.entries as usize)];
        let free = told.iter().filter(|record| record.is_free() && record.device == device);
        found.extend(free.map(|record| (record.physical, record.length)));
        match told.last() {
            // The next call goes on behind it.
            Some(last) if last.flags & FMR_OF_LAST == 0 => from = *last,
            _ => return Ok(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_have_the_sizes_of_the_kernel_headers() {
        assert_eq!((size_of::<Record>(), size_of::<Header>()), (64, 192));
        assert_eq!(FS_IOC_GETFSMAP, 0xc0c0_583b);
    }

    #[test]
    fn free_space_has_the_owner_that_is_no_inode() {
        let record = |flags, owner| Record { flags, owner, ..Record::default() };
        for (flags, owner, is_free) in [
            (FMR_OF_SPECIAL_OWNER, FMR_OWN_FREE, true),
            (FMR_OF_SPECIAL_OWNER | FMR_OF_LAST, FMR_OWN_FREE, true),
            (FMR_OF_SPECIAL_OWNER, 2, false),
            (0, FMR_OWN_FREE, false),
        ] {
            assert_eq!(record(flags, owner).is_free(), is_free, "{flags} {owner}");
        }
    }

    #[test]
    fn what_does_not_tell_is_an_error() {
        let file = std::fs::File::open("/proc/self/status").unwrap();
        assert!(free_space(&file).is_err());
    }
}

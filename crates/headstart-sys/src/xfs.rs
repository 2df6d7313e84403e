//! XFS: generations of inodes and the file system's UUID.
//!
//! Layouts from `fs/xfs/libxfs/xfs_fs.h`.

use std::fmt;
use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{self, Direction, Getter, Updater, opcode};

/// Records in a [`Bulk`]: one inode chunk of XFS.
pub const BULK_MAX: u32 = 64;

/// `struct xfs_bulk_ireq`.
#[repr(C)]
struct BulkHeader {
    ino: u64,
    flags: u32,
    icount: u32,
    ocount: u32,
    agno: u32,
    reserved: [u64; 5],
}

/// `struct xfs_bulkstat`, 192 bytes; only what is used has its name.
#[repr(C)]
#[derive(Clone, Copy)]
struct Record {
    ino: u64,
    unused_before: [u64; 7],
    generation: u32,
    unused_after: [u32; 31],
}

/// `struct xfs_bulkstat_req`.
#[repr(C)]
struct Request {
    header: BulkHeader,
    records: [Record; BULK_MAX as usize],
}

/// `XFS_IOC_BULKSTAT`, `_IOR('X', 127, struct xfs_bulkstat_req)`; the array at
/// its end is not part of the size.
const XFS_IOC_BULKSTAT: ioctl::Opcode =
    opcode::from_components(Direction::Read, b'X', 127, size_of::<BulkHeader>());

/// A buffer for [`Bulk::read`].
pub struct Bulk(Box<Request>);

impl fmt::Debug for Bulk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bulk").field("records", &self.0.header.ocount).finish()
    }
}

impl Default for Bulk {
    fn default() -> Self {
        let record = Record { ino: 0, unused_before: [0; 7], generation: 0, unused_after: [0; 31] };
        let header =
            BulkHeader { ino: 0, flags: 0, icount: 0, ocount: 0, agno: 0, reserved: [0; 5] };
        Self(Box::new(Request { header, records: [record; BULK_MAX as usize] }))
    }
}

impl Bulk {
    /// Number and generation of the inodes in use from `first` on, at most
    /// `count` (and [`BULK_MAX`]) of them, in ascending order.
    ///
    /// `fs` is any file of the file system.
    ///
    /// # Errors
    /// `EPERM`: needs `CAP_SYS_ADMIN`. `ENOTTY`: not XFS, or before Linux 5.3.
    pub fn read(
        &mut self,
        fs: impl AsFd,
        first: u64,
        count: u32,
    ) -> io::Result<impl Iterator<Item = (u64, u32)> + '_> {
        self.0.header.ino = first;
        self.0.header.icount = count.min(BULK_MAX);
        self.0.header.ocount = 0;
        // SAFETY: the kernel writes the header and at most `icount` records.
        let call = unsafe { Updater::<XFS_IOC_BULKSTAT, _>::new(&mut *self.0) };
        // SAFETY: as above; the call has no other effect.
        unsafe { ioctl::ioctl(fs, call) }?;
        let filled = self.0.header.ocount.min(BULK_MAX) as usize;
        Ok(self.0.records[..filled].iter().map(|record| (record.ino, record.generation)))
    }
}

/// `struct xfs_fsop_geom_v1`.
#[repr(C)]
struct GeometryV1 {
    sizes: [u32; 8],
    blocks: [u64; 4],
    uuid: [u8; 16],
    rest: [u32; 8],
}

/// `XFS_IOC_FSGEOMETRY_V1`, `_IOR('X', 100, struct xfs_fsop_geom_v1)`.
const XFS_IOC_FSGEOMETRY_V1: ioctl::Opcode = opcode::read::<GeometryV1>(b'X', 100);

/// The UUID of an XFS file system, from `XFS_IOC_FSGEOMETRY_V1`, which every
/// kernel with XFS has.
///
/// # Errors
/// `ENOTTY`: not XFS.
pub fn uuid(fs: impl AsFd) -> io::Result<[u8; 16]> {
    // SAFETY: the kernel writes one `struct xfs_fsop_geom_v1`, whose layout
    // and size this is.
    let call = unsafe { Getter::<XFS_IOC_FSGEOMETRY_V1, GeometryV1>::new() };
    // SAFETY: as above; the call has no other effect.
    let geometry = unsafe { ioctl::ioctl(fs, call) }?;
    Ok(geometry.uuid)
}

/// `struct fsxattr` of `include/uapi/linux/fs.h`.
#[repr(C)]
struct Attributes {
    flags: u32,
    rest: [u32; 6],
}

/// `FS_IOC_FSGETXATTR`, `_IOR('X', 31, struct fsxattr)`.
const FS_IOC_FSGETXATTR: ioctl::Opcode = opcode::read::<Attributes>(b'X', 31);
/// `FS_XFLAG_REALTIME`.
const REALTIME: u32 = 1;

/// Whether the data of a file lie on the realtime device.
///
/// # Errors
/// `ENOTTY`: not XFS.
pub fn is_realtime(file: impl AsFd) -> io::Result<bool> {
    // SAFETY: the kernel writes one `struct fsxattr`, whose layout and size this is.
    let call = unsafe { Getter::<FS_IOC_FSGETXATTR, Attributes>::new() };
    // SAFETY: as above; the call has no other effect.
    let attributes = unsafe { ioctl::ioctl(file, call) }?;
    Ok(attributes.flags & REALTIME != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_have_the_sizes_of_the_kernel_headers() {
        assert_eq!(size_of::<BulkHeader>(), 64);
        assert_eq!(size_of::<Record>(), 192);
        assert_eq!(size_of::<GeometryV1>(), 112);
        assert_eq!(FS_IOC_FSGETXATTR, 0x801c_581f);
    }
}

//! The UUID of a mounted file system, from the file system itself.
//!
//! XFS and btrfs have older calls of their own: see `xfs` and `btrfs`.

use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{self, Direction, Updater, opcode};

/// `struct fsuuid2` of `include/uapi/linux/fs.h`.
#[repr(C)]
struct FsUuid2 {
    len: u8,
    uuid: [u8; 16],
}

/// `FS_IOC_GETFSUUID`, `_IOR(0x15, 0, struct fsuuid2)`.
const FS_IOC_GETFSUUID: ioctl::Opcode = opcode::read::<FsUuid2>(0x15, 0);

/// `struct fsuuid` of `include/uapi/linux/ext4.h` with room for one UUID.
#[repr(C)]
struct Ext4Uuid {
    len: u32,
    flags: u32,
    uuid: [u8; 16],
}

/// `EXT4_IOC_GETFSUUID`, `_IOR('f', 44, struct fsuuid)`; the array at its end
/// is not part of the size.
const EXT4_IOC_GETFSUUID: ioctl::Opcode = opcode::from_components(Direction::Read, b'f', 44, 8);

/// The UUID that the file system of `fd` gives itself (Linux 6.9 and later).
///
/// # Errors
/// `ENOTTY`: an older kernel, or a file system without one. `EINVAL` when its
/// UUID is not 16 bytes long.
pub fn fs_uuid(fd: impl AsFd) -> io::Result<[u8; 16]> {
    let mut value = FsUuid2 { len: 0, uuid: [0; 16] };
    // SAFETY: the kernel writes one `struct fsuuid2`, whose layout this is.
    let call = unsafe { Updater::<FS_IOC_GETFSUUID, _>::new(&mut value) };
    // SAFETY: as above; the call has no other effect.
    unsafe { ioctl::ioctl(fd, call) }?;
    sixteen(value.len.into(), value.uuid)
}

/// The UUID of an ext2, ext3 or ext4 file system (Linux 6.0 and later).
///
/// # Errors
/// `ENOTTY`: an older kernel or another file system.
pub fn ext4_uuid(fd: impl AsFd) -> io::Result<[u8; 16]> {
    let mut value = Ext4Uuid { len: 16, flags: 0, uuid: [0; 16] };
    // SAFETY: the kernel reads the header and writes `len` bytes behind it.
    let call = unsafe { Updater::<EXT4_IOC_GETFSUUID, _>::new(&mut value) };
    // SAFETY: as above; the call has no other effect.
    unsafe { ioctl::ioctl(fd, call) }?;
    sixteen(value.len, value.uuid)
}

fn sixteen(len: u32, uuid: [u8; 16]) -> io::Result<[u8; 16]> {
    if len == 16 { Ok(uuid) } else { Err(io::Error::from_raw_os_error(libc::EINVAL)) }
}

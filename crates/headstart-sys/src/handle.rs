//! File handles: `name_to_handle_at` and `open_by_handle_at` (open_by_handle_at(2)).
//!
//! A handle names an inode of one file system without a path. The meaning of its bytes depends on
//! the file system (`include/linux/exportfs.h` and `fs/*/export.c`) and is the caller's concern.

use std::ffi::CStr;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::fs::{AtFlags, OFlags};

/// The kernel's `MAX_HANDLE_SZ` (`include/linux/exportfs.h`).
pub const MAX_HANDLE_BYTES: usize = 128;

/// `struct file_handle` of `include/linux/fs.h`, with room for the longest.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FileHandle {
    handle_bytes: u32,
    handle_type: i32,
    f_handle: [u8; MAX_HANDLE_BYTES],
}

impl FileHandle {
    /// A handle of the given type (`enum fid_type`), or `None` when `bytes` is
    /// longer than [`MAX_HANDLE_BYTES`].
    pub fn new(kind: i32, bytes: &[u8]) -> Option<Self> {
        let mut f_handle = [0; MAX_HANDLE_BYTES];
        f_handle.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self { handle_bytes: bytes.len() as u32, handle_type: kind, f_handle })
    }

    /// The handle's type, one of `enum fid_type` or a file system's own.
    pub fn kind(&self) -> i32 {
        self.handle_type
    }

    /// What the file system put into it.
    pub fn bytes(&self) -> &[u8] {
        &self.f_handle[..(self.handle_bytes as usize).min(MAX_HANDLE_BYTES)]
    }
}

impl fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileHandle")
            .field("kind", &self.kind())
            .field("bytes", &self.bytes())
            .finish()
    }
}

/// Opens the inode that `handle` names in the file system of `mount`, which is
/// any file or directory there, opened for reading (`O_PATH` will not do).
///
/// # Errors
/// `ESTALE`: there is no such inode (any more). `EPERM`: needs
/// `CAP_DAC_READ_SEARCH`. `EOPNOTSUPP`: the file system has no handles.
pub fn open_by_handle(mount: impl AsFd, handle: &FileHandle, flags: OFlags) -> io::Result<OwnedFd> {
    let mount = mount.as_fd().as_raw_fd();
    let flags = (flags | OFlags::CLOEXEC).bits() as libc::c_int;
    // SAFETY: the kernel reads `handle_bytes` (never above the array's length)
    // bytes behind the header and writes nothing.
    let fd = unsafe {
        libc::syscall(libc::SYS_open_by_handle_at, mount, std::ptr::from_ref(handle), flags)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so this is a new descriptor that nobody owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

/// The handle of `path` (relative to `dir`) and the id of the mount it is on.
///
/// # Errors
/// `EOPNOTSUPP`: the file system has no handles; else as for stat(2).
pub fn name_to_handle(
    dir: impl AsFd,
    path: &CStr,
    flags: AtFlags,
) -> io::Result<(FileHandle, i32)> {
    let dir = dir.as_fd().as_raw_fd();
    let mut handle = FileHandle {
        handle_bytes: MAX_HANDLE_BYTES as u32,
        handle_type: 0,
        f_handle: [0; MAX_HANDLE_BYTES],
    };
    let mut mount_id = 0i32;
    // SAFETY: the kernel writes at most `handle_bytes` bytes behind the header
    // and one int; both outlive the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            dir,
            path.as_ptr(),
            std::ptr::from_mut(&mut handle),
            std::ptr::from_mut(&mut mount_id),
            flags.bits() as libc::c_int,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok((handle, mount_id)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_keeps_its_bytes_and_refuses_too_many() {
        let handle = FileHandle::new(1, &[1, 2, 3]).unwrap();
        assert_eq!((handle.kind(), handle.bytes()), (1, &[1u8, 2, 3][..]));
        assert!(FileHandle::new(1, &[0; MAX_HANDLE_BYTES + 1]).is_none());
    }
}

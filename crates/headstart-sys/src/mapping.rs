//! mmap(2) of a part of a file without access: its pages can't be touched, so it neither faults nor
//! holds pages, and it can't end in SIGBUS when the file shrinks. Also reserves address space for
//! several such mappings.

use std::io;
use std::os::fd::AsFd;
use std::ptr::null_mut;

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// A part of a file mapped without any access, or room for several; unmapped when
/// dropped.
#[derive(Debug)]
pub struct Mapping {
    address: *mut std::ffi::c_void,
    len: usize,
}

impl Mapping {
    /// `mmap(NULL, len, PROT_NONE, MAP_SHARED, fd, offset)`. `offset` is in
    /// bytes, a multiple of the page size, and may lie behind the file's end.
    ///
    /// # Errors
    ///
    /// Those of mmap(2): `ENODEV` for files that cannot be mapped (most of
    /// procfs), `EINVAL` for a `len` of 0, `EOVERFLOW` for an `offset` behind
    /// what the file system can hold, `ENOMEM`.
    pub fn new(fd: impl AsFd, offset: u64, len: usize) -> io::Result<Self> {
        // SAFETY: the kernel chooses the place, so no memory in use is mapped
        // over, and without access rights no reference into it can be made.
        let address =
            unsafe { mmap(null_mut(), len, ProtFlags::empty(), MapFlags::SHARED, fd, offset)? };
        Ok(Self { address, len })
    }

    /// Room for mappings: a part of the address space without any access.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a `len` of 0, `ENOMEM`.
    pub(crate) fn room(len: usize) -> io::Result<Self> {
        // SAFETY: as above.
        let address =
            unsafe { mmap_anonymous(null_mut(), len, ProtFlags::empty(), MapFlags::PRIVATE)? };
        Ok(Self { address, len })
    }

    /// What is left of it without these parts, which are not ours any more: where each
    /// begins in it, in order, and how long it is, in multiples of the page size.
    pub(crate) fn without(self, parts: &[(usize, usize)]) -> Vec<Self> {
        let whole = std::mem::ManuallyDrop::new(self);
        let end = (whole.len, 0);
        let mut from = 0;
        let mut left = Vec::new();
        for &(begin, len) in parts.iter().chain([&end]) {
            if begin > from {
                let address = whole.address.wrapping_byte_add(from);
                left.push(Self { address, len: begin - from });
            }
            from = begin + len;
        }
        left
    }

    /// Where it is in this process, as `/proc/self/maps` shows it.
    pub fn address(&self) -> usize {
        self.address as usize
    }

    pub(crate) fn as_ptr(&self) -> *mut std::ffi::c_void {
        self.address
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: address and length are those of our own mapping, to which no
        // reference exists.
        let result = unsafe { munmap(self.address, self.len) };
        // munmap of a whole own mapping has no way to fail.
        debug_assert!(result.is_ok(), "{result:?}");
    }
}

//! madvise(2) `MADV_WILLNEED` over pieces of several files in one call.
//!
//! The kernel holds requests back while one such call lasts (`blk_start_plug` in
//! `mm/madvise.c`), so that pieces of different files that lie side by side on the
//! disk become one request, if they are named in that order. With posix_fadvise(2)
//! each piece is a request.

use std::ffi::c_void;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// A piece of a file.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// The file.
    pub file: BorrowedFd<'a>,
    /// Where the piece begins, in bytes; a multiple of the page size.
    pub offset: u64,
    /// How long it is, in bytes.
    pub length: usize,
}

/// Asks the kernel to read the pieces ahead, in this order, and does not wait for
/// them. Each is cut to what one `readahead` may ask of its device. Mapping a file
/// counts as an access to it (atime) unless it was opened with `O_NOATIME`.
///
/// # Errors
/// Those of mmap(2): `ENODEV` for files that cannot be mapped, `EINVAL` for a
/// length of 0 and an offset within a page, `ENOMEM` also where the address space
/// is limited. Nothing was asked for then.
pub fn will_need(pieces: &[Piece<'_>]) -> io::Result<()> {
    let page = rustix::param::page_size();
    let total = pieces.iter().map(|piece| piece.length.next_multiple_of(page)).sum();
    let room = Room::new(total)?;
    let mut at = 0;
    for (i, piece) in pieces.iter().enumerate() {
        // Neighbours of one kind and one file would become one mapping, and the
        // kernel would cut what is asked of both to what it asks of one.
        let sharing = if i % 2 == 0 { MapFlags::SHARED } else { MapFlags::PRIVATE };
        // SAFETY: the place lies in our own room, which nothing uses. Without access
        // rights no reference into it can be made.
        unsafe {
            mmap(
                room.address.wrapping_byte_add(at),
                piece.length,
                ProtFlags::empty(),
                sharing | MapFlags::FIXED,
                piece.file,
                piece.offset,
            )?;
        }
        at += piece.length.next_multiple_of(page);
    }
    // SAFETY: it changes nothing in memory.
    unsafe { madvise(room.address, room.length, Advice::WillNeed)? };
    Ok(())
}

/// A part of the address space, given back when dropped with all that was mapped
/// there.
struct Room {
    address: *mut c_void,
    length: usize,
}

impl Room {
    fn new(length: usize) -> io::Result<Self> {
        // SAFETY: the kernel chooses the place, and without access rights no
        // reference into it can be made.
        let address =
            unsafe { mmap_anonymous(null_mut(), length, ProtFlags::empty(), MapFlags::PRIVATE)? };
        Ok(Self { address, length })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: address and length are those of our own room, to which no
        // reference exists.
        let result = unsafe { munmap(self.address, self.length) };
        // munmap of a whole own room has no way to fail.
        debug_assert!(result.is_ok(), "{result:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn what_can_not_be_mapped_is_refused_and_no_pieces_are_too_few() {
        let file = std::fs::File::open("/proc/self/status").unwrap();
        let piece = Piece { file: file.as_fd(), offset: 0, length: 4096 };
        assert_eq!(will_need(&[piece]).unwrap_err().raw_os_error(), Some(19));
        assert_eq!(will_need(&[]).unwrap_err().raw_os_error(), Some(22));
    }

    #[test]
    fn pieces_may_be_neighbours_or_lie_behind_the_end() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 9000]).unwrap();
        let page = rustix::param::page_size();
        let piece = |page_number, length| Piece {
            file: file.as_fd(),
            offset: page_number * page as u64,
            length,
        };
        will_need(&[piece(0, page), piece(1, page), piece(1, 1), piece(100, 3 * page)]).unwrap();
    }
}

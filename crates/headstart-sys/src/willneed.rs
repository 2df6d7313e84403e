//! madvise(2) `MADV_WILLNEED` over pieces of several files in one call.
//!
//! The kernel plugs requests during such a call (`blk_start_plug` in `mm/madvise.c`), so pieces of
//! different files that are adjacent on the disk become one request if they are named in that
//! order. With posix_fadvise(2) each piece is a request.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};

use crate::mapping::Mapping;

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

/// Requests readahead of the pieces, in this order, and does not wait for
/// them. Each is cut to what one `readahead` may ask of its device. Mapping a file
/// counts as an access to it (atime) unless it was opened with `O_NOATIME`.
///
/// Returns the numbers of the pieces that were skipped because they can't be mapped.
///
/// # Errors
/// `EINVAL` without any pieces, `ENOMEM` where they are too large for the address
/// space or what is allowed of it. Nothing was requested then.
pub fn will_need(pieces: &[Piece<'_>]) -> io::Result<Vec<usize>> {
    let page = rustix::param::page_size();
    let pages = |piece: &Piece<'_>| piece.length.checked_next_multiple_of(page);
    let total = pieces.iter().try_fold(0usize, |sum, piece| sum.checked_add(pages(piece)?));
    let room = Mapping::room(total.ok_or(Errno::NOMEM)?)?;
    let (mut skipped, mut lost) = (Vec::new(), Vec::new());
    let mut used = 0;
    for (number, piece) in pieces.iter().enumerate() {
        // Adjacent mappings of one kind and one file would become one mapping, and the kernel would
        // shorten the request for both to that for one.
        let sharing = if number % 2 == 0 { MapFlags::SHARED } else { MapFlags::PRIVATE };
        // SAFETY: it fits behind what is used of our own room, which has place for
        // all pieces and of which nothing behind that was given up. Without access rights
        // no reference into it can be made.
        let mapped = unsafe {
            mmap(
                room.as_ptr().wrapping_byte_add(used),
                piece.length,
                ProtFlags::empty(),
                sharing | MapFlags::FIXED,
                piece.file,
                piece.offset,
            )
        };
        let taken = piece.length.next_multiple_of(page);
        if mapped.is_err() {
            skipped.push(number);
            // A file system that refuses comes after what was there has been unmapped
            // (mmap_region of mm/vma.c), and another thread may have got the place.
            lost.push((used, taken));
        }
        used += taken;
    }
    for filled in room.without(&lost) {
        // SAFETY: it changes nothing in memory.
        unsafe { madvise(filled.as_ptr(), filled.len(), Advice::WillNeed)? };
    }
    Ok(skipped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn what_can_not_be_mapped_is_skipped_and_no_pieces_are_too_few() {
        let other = std::fs::File::open("/proc/self/status").unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 9000]).unwrap();
        let piece = |file, length| Piece { file, offset: 0, length };
        let pieces =
            [piece(other.as_fd(), 4096), piece(file.as_fd(), 9000), piece(file.as_fd(), 0)];
        assert_eq!(will_need(&pieces).unwrap(), [0, 2]);
        assert_eq!(will_need(&pieces[..1]).unwrap(), [0]);
        assert_eq!(will_need(&[]).unwrap_err().raw_os_error(), Some(22));
        let huge = [piece(file.as_fd(), usize::MAX - 1), piece(file.as_fd(), 4096)];
        assert_eq!(will_need(&huge).unwrap_err().raw_os_error(), Some(12));
    }

    #[test]
    fn what_lies_behind_a_piece_that_is_skipped_is_requested() {
        let other = std::fs::File::open("/proc/self/status").unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 9000]).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let piece = |file, length| Piece { file, offset: 0, length };
        let pieces = [piece(other.as_fd(), 4096), piece(file.as_fd(), 9000)];
        assert_eq!(will_need(&pieces).unwrap(), [0]);
        let from = std::time::Instant::now();
        let mut resident = vec![false; 9000usize.div_ceil(rustix::param::page_size())];
        while !resident.iter().all(|page| *page) {
            crate::mincore::mincore(&file, 0, &mut resident).unwrap();
            assert!(from.elapsed() < std::time::Duration::from_secs(20), "it does not come");
            std::thread::yield_now();
        }
    }

    #[test]
    fn pieces_may_be_adjacent_or_lie_behind_the_end() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 9000]).unwrap();
        let page = rustix::param::page_size();
        let piece = |page_number, length| Piece {
            file: file.as_fd(),
            offset: page_number * page as u64,
            length,
        };
        let pieces = [piece(0, page), piece(1, page), piece(1, 1), piece(100, 3 * page)];
        assert_eq!(will_need(&pieces).unwrap(), []);
    }
}

//! ext4: a file and the donor swap blocks (`EXT4_IOC_MOVE_EXT`). The kernel copies the content into the new
//! blocks, and the donor has the old ones then.

use super::step::{Mover, Stop, errno};
use crate::direction::Direction;
use crate::error::LayoutError;
use crate::examine::writable;
use crate::extents::{compare, shifted};
use crate::journal::{Journal, Swap};
use crate::skip::Skip;
use crate::volume::Store;
use headstart::host::range::ByteRange;
use headstart_sys::ext4::{Blocks, swap_blocks};
use headstart_sys::fiemap;
use rustix::io::Errno;
use std::fs::File;

/// Swaps blocks with the donor.
pub(super) struct Swapper {
    donor: File,
    block: u64,
    direction: Direction,
    /// Where the donor has nothing but its tail.
    tail: u64,
}

impl Swapper {
    /// With the donor of a journal.
    pub(super) fn new(
        store: &Store,
        journal: &Journal,
        direction: Direction,
    ) -> Result<Self, LayoutError> {
        let ends = journal.all().map(|swap| swap.piece.donor + swap.piece.bytes.length());
        let (donor, tail) = (store.donor(journal)?, ends.max().unwrap_or(0));
        Ok(Self { donor, block: journal.block, direction, tail })
    }

    /// Swaps a part of a range. If the file system is full, the tail of the donor is given up.
    fn move_range(&self, file: &File, swap: &Swap, range: ByteRange) -> Result<(), Errno> {
        let (mut at, mut has_tail) = (range.offset, true);
        while at < range.end {
            let rest = ByteRange { offset: at, end: range.end };
            let blocks = Blocks {
                file: at / self.block,
                donor: (swap.piece.donor + (at - swap.piece.bytes.offset)) / self.block,
                count: rest.length() / self.block,
            };
            let swapped = swap_blocks(file, &self.donor, blocks);
            match swapped.map_err(|error| errno(&error)) {
                Ok(0) => return Err(Errno::OPNOTSUPP),
                Ok(count) => at += count.min(blocks.count) * self.block,
                Err(Errno::INTR) => at += self.made(file, swap, rest)?,
                Err(Errno::NOSPC) if has_tail => {
                    has_tail = false;
                    // Free blocks can be used once they are free on the disk.
                    rustix::fs::ftruncate(&self.donor, self.tail)?;
                    rustix::fs::fsync(&self.donor)?;
                    at += self.made(file, swap, rest)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// How much of the start of a range was swapped, in bytes: a call that failed may have swapped
    /// some, and to swap that once more would take it back.
    fn made(&self, file: &File, swap: &Swap, range: ByteRange) -> Result<u64, Errno> {
        let now = fiemap::extents_in(file, range.offset, range.length());
        let now = now.map_err(|error| errno(&error))?;
        let todo = self.direction.todo(compare(&now, &swap.piece.old, &swap.new, range));
        Ok(todo.first().map_or(range.end, |first| first.offset) - range.offset)
    }
}

impl Swapper {
    /// Whether the donor has the blocks that these parts of a range are to get.
    fn is_donor_in_place(&self, swap: &Swap, todo: &[ByteRange]) -> Result<bool, Errno> {
        let (bytes, begin) = (swap.piece.bytes, swap.piece.donor);
        let now = fiemap::extents_in(&self.donor, begin, bytes.length());
        let now = shifted(&now.map_err(|error| errno(&error))?, begin, bytes.offset);
        let wanted = match self.direction {
            Direction::Apply => &swap.new,
            Direction::Undo => &swap.piece.old,
        };
        Ok(todo.iter().all(|range| compare(&now, wanted, &[], *range).elsewhere == 0))
    }
}

impl Mover for Swapper {
    fn move_ranges(&self, file: &File, swap: &Swap, ranges: &[ByteRange]) -> Result<(), Stop> {
        let writable = writable(file).map_err(Stop::Skip)?;
        let is_in_place = self.is_donor_in_place(swap, ranges);
        if !is_in_place.map_err(|_| Stop::Skip(Skip::Refused))? {
            return Err(Stop::Skip(Skip::Displaced));
        }
        for range in ranges {
            match self.move_range(&writable, swap, *range) {
                Ok(()) => {}
                // The rest of them would fail too.
                Err(Errno::NOSPC) => return Err(Stop::Full),
                Err(Errno::DQUOT) => return Err(Stop::Skip(Skip::Quota)),
                Err(_) => return Err(Stop::Skip(Skip::Refused)),
            }
        }
        Ok(())
    }
}

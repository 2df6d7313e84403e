//! xfs and btrfs: a file gets the blocks of its copy in the other place (`FIDEDUPERANGE`). The kernel
//! locks both, compares their bytes, and changes blocks only if they are the same: so no writer at
//! the same time and no wrong copy can cost content. It needs no descriptor for writing, so a program that
//! is executed can be moved, too.

use super::step::{Mover, Stop, errno};
use crate::direction::Direction;
use crate::journal::Swap;
use crate::names::Copy;
use crate::skip::Skip;
use crate::volume::Store;
use headstart::host::range::ByteRange;
use headstart_sys::reflink::dedupe_range;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::File;

/// Shares blocks with copies.
pub(super) struct Share<'a> {
    pub(super) store: &'a Store,
    pub(super) direction: Direction,
}

impl Mover for Share<'_> {
    fn move_ranges(&self, file: &File, swap: &Swap, ranges: &[ByteRange]) -> Result<(), Stop> {
        let copy = match self.direction {
            Direction::Apply => Copy::New,
            Direction::Undo => Copy::Old,
        };
        let name = copy.name(swap.piece.file);
        let Ok(Some((copy, _))) = self.store.file(&name, OFlags::RDONLY) else {
            return Err(Stop::Skip(Skip::NoCopy));
        };
        let size = file.metadata().map_err(|_| Stop::Skip(Skip::Unreadable))?.len();
        for range in ranges {
            let (mut at, end) = (range.offset, range.end.min(size));
            while at < end {
                match dedupe_range(&copy, file, at, end - at).map_err(|error| errno(&error)) {
                    Ok(Some(shared)) if shared > 0 => at += shared,
                    Ok(_) => return Err(Stop::Skip(Skip::Changed)),
                    Err(Errno::INTR) => {}
                    Err(Errno::NOSPC) => return Err(Stop::Full),
                    Err(Errno::DQUOT) => return Err(Stop::Skip(Skip::Quota)),
                    Err(_) => return Err(Stop::Skip(Skip::Refused)),
                }
            }
        }
        Ok(())
    }
}

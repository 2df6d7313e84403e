//! What each way of moving has to do.

use crate::journal::Swap;
use crate::skip::Skip;
use headstart::host::range::ByteRange;
use rustix::io::Errno;
use std::fs::File;
use std::io;

/// Why a range was not moved, or not all of it. The file has its content all the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// The file system is full.
    Full,
    /// This file can't be moved.
    Skip(Skip),
}

/// Gives ranges of files their blocks in another place.
pub(crate) trait Mover {
    /// Gives ranges of a file, which is open for reading, their blocks in the other place of a swap.
    /// Content, size and times of the file stay.
    fn move_ranges(&self, file: &File, swap: &Swap, ranges: &[ByteRange]) -> Result<(), Stop>;
}

pub(super) fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

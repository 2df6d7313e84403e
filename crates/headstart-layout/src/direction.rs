//! To the new places, or back. Pure.

use super::extents::Compared;
use headstart::host::range::ByteRange;

/// In which direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// To the new places.
    Apply,
    /// To the old places.
    Undo,
}

impl Direction {
    /// What is not where it should be.
    pub(crate) fn todo(self, found: Compared) -> Vec<ByteRange> {
        match self {
            Self::Apply => found.old,
            Self::Undo => found.new,
        }
    }
}

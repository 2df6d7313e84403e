//! Where the targets of a plan lie on their devices.

use crate::host::range::ByteRange;
use headstart_sys::fiemap::{Extent, extents, first_extent};
use std::fs::File;

/// Where a file lies: its device, and its extents by their place in the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The device's number.
    pub dev: u64,
    /// Its pieces, those first in the file first.
    pub extents: Vec<Extent>,
}

impl Place {
    /// Asks the file system; `None` where it does not tell, as tmpfs.
    pub fn of(file: &File, dev: u64) -> Option<Self> {
        Some(Self { dev, extents: extents(file).ok()? })
    }

    /// The device and the position on it of a byte of the file. One in a hole
    /// is where the data behind the hole is.
    pub fn find(&self, offset: u64) -> Option<(u64, u64)> {
        let behind = self.extents.partition_point(|e| e.logical + e.length <= offset);
        let extent = self.extents.get(behind)?;
        Some((self.dev, extent.physical + offset.saturating_sub(extent.logical)))
    }
}

/// A stretch of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Stretch {
    /// The device's number.
    pub dev: u64,
    /// The bytes of it.
    pub bytes: ByteRange,
}

/// Where a range of a file begins on its device, as far as it lies in one piece;
/// `None` where the file system does not tell, or the range begins with a hole.
pub fn stretch(file: &File, dev: u64, bytes: ByteRange) -> Option<Stretch> {
    let extent = first_extent(file, bytes.offset, bytes.length()).ok()??;
    let into = bytes.offset.checked_sub(extent.logical)?;
    let length = extent.length.checked_sub(into)?.min(bytes.length());
    let offset = extent.physical.checked_add(into)?;
    Some(Stretch { dev, bytes: ByteRange { offset, end: offset.checked_add(length)? } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(dev: u64, extents: &[(u64, u64)]) -> Place {
        let extent = |&(logical, physical)| Extent { logical, physical, length: 100 };
        Place { dev, extents: extents.iter().map(extent).collect() }
    }

    #[test]
    fn a_byte_is_found_in_its_extent_and_one_in_a_hole_before_the_next() {
        let file = place(7, &[(0, 5000), (300, 1000)]);
        for (offset, expected) in
            [(50, Some((7, 5050))), (350, Some((7, 1050))), (200, Some((7, 1000))), (400, None)]
        {
            assert_eq!(file.find(offset), expected, "{offset}");
        }
    }
}

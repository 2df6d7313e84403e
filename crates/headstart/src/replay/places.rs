//! The positions of a plan's targets on their devices.

use super::elevator::DevicePosition;
use crate::host::range::ByteRange;
use headstart_sys::fiemap::{Extent, extents, first_extent};
use std::fs::File;

/// Where a file lies: its device, and its extents by their place in the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileLayout {
    /// The device's number.
    pub dev: u64,
    /// Its pieces, those first in the file first, and [`joined`].
    pub extents: Vec<Extent>,
}

impl FileLayout {
    /// Asks the file system; `None` where it does not tell, as tmpfs.
    pub fn of(file: &File, dev: u64) -> Option<Self> {
        Some(Self { dev, extents: joined(extents(file).ok()?) })
    }

    /// Where a byte of the file lies. One in a hole is where the data behind the hole is.
    pub fn find(&self, offset: u64) -> Option<DevicePosition> {
        let behind = self.extents.partition_point(|e| e.logical + e.length <= offset);
        let extent = self.extents.get(behind)?;
        let offset = extent.physical + offset.saturating_sub(extent.logical);
        Some(DevicePosition { dev: self.dev, offset })
    }
}

/// The same extents, with those joined that continue each other in the file and on the device.
pub fn joined(extents: Vec<Extent>) -> Vec<Extent> {
    let mut out: Vec<Extent> = Vec::new();
    for extent in extents {
        match out.last_mut() {
            Some(last)
                if last.logical.saturating_add(last.length) == extent.logical
                    && last.physical.saturating_add(last.length) == extent.physical =>
            {
                last.length += extent.length;
            }
            _ => out.push(extent),
        }
    }
    out
}

/// The extent that a byte of a file is in.
pub fn holder(extents: &[Extent], offset: u64) -> Option<&Extent> {
    let behind = extents.partition_point(|e| e.logical.saturating_add(e.length) <= offset);
    extents.get(behind).filter(|extent| extent.logical <= offset)
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

    fn place(dev: u64, extents: &[(u64, u64)]) -> FileLayout {
        let extent = |&(logical, physical)| Extent { logical, physical, length: 100 };
        FileLayout { dev, extents: extents.iter().map(extent).collect() }
    }

    #[test]
    fn a_byte_is_found_in_its_extent_and_one_in_a_hole_before_the_next() {
        let file = place(7, &[(0, 5000), (300, 1000)]);
        for (offset, expected) in
            [(50, Some(5050)), (350, Some(1050)), (200, Some(1000)), (400, None)]
        {
            let expected = expected.map(|offset| DevicePosition { dev: 7, offset });
            assert_eq!(file.find(offset), expected, "{offset}");
        }
    }
}

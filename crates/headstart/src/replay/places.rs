//! Where the targets of a plan lie on their devices, for a sweep in disk order.

use super::plan::Step;
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

/// A stretch of a device, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Stretch {
    /// The device's number.
    pub dev: u64,
    /// Where it begins.
    pub begin: u64,
    /// Where it ends.
    pub end: u64,
}

/// Where a range of a file begins on its device, as far as it lies in one piece;
/// `None` where the file system does not tell, or the range begins with a hole.
pub fn stretch(file: &File, dev: u64, offset: u64, length: u64) -> Option<Stretch> {
    let extent = first_extent(file, offset, length).ok()??;
    let into = offset.checked_sub(extent.logical)?;
    let length = extent.length.checked_sub(into)?.min(length);
    let begin = extent.physical.checked_add(into)?;
    Some(Stretch { dev, begin, end: begin.checked_add(length)? })
}

/// Steps in the order of their places; those without one come last and keep
/// their order.
pub fn sorted<'a>(steps: &[Step], place: impl Fn(u32) -> Option<&'a Place>) -> Vec<Step> {
    let mut steps = steps.to_vec();
    steps.sort_by_cached_key(|step| {
        place(step.target).and_then(|place| place.find(step.offset)).unwrap_or((u64::MAX, u64::MAX))
    });
    steps
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

    #[test]
    fn steps_go_up_each_device_and_those_without_a_place_come_last() {
        let places =
            [Some(place(1, &[(0, 9000), (100, 10)])), None, Some(place(0, &[(0, 70_000)]))];
        let step = |target, offset| Step { target, offset, length: 8 };
        let steps = [step(1, 8), step(0, 0), step(1, 0), step(0, 104), step(2, 0)];
        let sorted = sorted(&steps, |target| places[target as usize].as_ref());
        assert_eq!(sorted, [step(2, 0), step(0, 104), step(0, 0), step(1, 8), step(1, 0)]);
    }
}

//! The positions of a plan's targets on their devices.

use super::elevator::DevicePosition;
use crate::host::range::ByteRange;
use headstart_sys::fiemap::{Extent, Stored, extents, first_extent, pieces_in};
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

/// The parts of a range of a file that lie in one piece each, in whole pages of this size, if it has these extents
/// ([`joined`]). A page in two pieces belongs to the first.
pub fn in_pieces(bytes: ByteRange, extents: &[Extent], page: u64) -> Vec<ByteRange> {
    let continues = |before: &Extent, next: &Extent| {
        before.physical.saturating_add(before.length) == next.physical
    };
    let within = extents.partition_point(|extent| extent.logical <= bytes.offset);
    let (mut out, mut from) = (Vec::new(), bytes.offset);
    for pair in extents[within.saturating_sub(1)..].windows(2) {
        let [before, next] = pair else { break };
        let at = next.logical.next_multiple_of(page);
        if at >= bytes.end {
            break;
        }
        if at > from && !continues(before, next) {
            out.push(ByteRange { offset: from, end: at });
            from = at;
        }
    }
    out.push(ByteRange { offset: from, end: bytes.end });
    out
}

/// What a range has of a file, in whole pages of this size: not what lies behind its end, nor what is only allocated.
/// Where the file system does not tell, all up to the end.
pub fn existing(file: &File, bytes: ByteRange, page: u64) -> Vec<ByteRange> {
    let Ok(stat) = rustix::fs::fstat(file) else { return vec![bytes] };
    let end = bytes.end.min(stat.st_size.cast_unsigned().next_multiple_of(page));
    let bytes = ByteRange { end, ..bytes };
    if bytes.is_empty() {
        return Vec::new();
    }
    match pieces_in(file, bytes.offset, bytes.length()) {
        Ok(pieces) => written(bytes, &pieces, page),
        Err(_) => vec![bytes],
    }
}

/// The last page of a file, if it is not full: who appends to the file reads it.
pub fn partial_page(file: &File, page: u64) -> Option<ByteRange> {
    let size = rustix::fs::fstat(file).ok()?.st_size.cast_unsigned();
    (size % page > 0).then(|| ByteRange::of(size / page * page, page))
}

/// What a range has of these pieces, in whole pages of this size, as far as they are written.
fn written(bytes: ByteRange, pieces: &[(Extent, Stored)], page: u64) -> Vec<ByteRange> {
    let mut out: Vec<ByteRange> = Vec::new();
    for (Extent { logical, length, .. }, stored) in pieces {
        let end = logical.saturating_add(*length).min(bytes.end).next_multiple_of(page);
        let offset = (logical / page * page).max(bytes.offset);
        if *stored == Stored::Unwritten || offset >= end {
            continue;
        }
        match out.last_mut() {
            Some(last) if offset <= last.end => last.end = last.end.max(end),
            _ => out.push(ByteRange { offset, end }),
        }
    }
    out
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

    #[test]
    fn only_what_is_written_of_a_file_is_there_to_be_read() {
        use Stored::{Later, Unwritten, Written};
        for (name, pieces, expected) in [
            ("all", vec![(0, 90, Written)], vec![(10, 60)]),
            ("preallocated behind it", vec![(0, 25, Written), (25, 90, Unwritten)], vec![(10, 30)]),
            ("all preallocated", vec![(0, 90, Unwritten)], vec![]),
            ("a hole", vec![(0, 20, Written), (40, 50, Later)], vec![(10, 20), (40, 50)]),
            ("in one page", vec![(0, 23, Written), (27, 32, Written)], vec![(10, 40)]),
            ("elsewhere", vec![(0, 5, Written), (70, 80, Written)], vec![]),
        ] {
            let piece = |&(logical, end, stored): &(u64, u64, Stored)| {
                (Extent { logical, physical: 7, length: end - logical }, stored)
            };
            let pieces: Vec<_> = pieces.iter().map(piece).collect();
            let found = written(ByteRange { offset: 10, end: 60 }, &pieces, 10);
            let found: Vec<_> = found.iter().map(|part| (part.offset, part.end)).collect();
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn nothing_behind_the_end_of_a_file_is_there_to_be_read() {
        // Where the build is, since /tmp may be in memory.
        let build = std::env::current_exe().unwrap();
        let file = tempfile::tempfile_in(build.parent().unwrap()).unwrap();
        for (size, bytes, expected) in [
            (0, (0, 4096), vec![]),
            (9000, (0, 1 << 20), vec![(0, 12288)]),
            (9000, (12288, 16384), vec![]),
        ] {
            rustix::fs::ftruncate(&file, 0).unwrap();
            rustix::io::pwrite(&file, &vec![1; size], 0).unwrap();
            let bytes = ByteRange { offset: bytes.0, end: bytes.1 };
            let found = existing(&file, bytes, 4096);
            let found: Vec<_> = found.iter().map(|part| (part.offset, part.end)).collect();
            assert_eq!(found, expected, "{size} {bytes:?}");
        }
        for (size, expected) in [(0, None), (1, Some(0)), (8192, None), (8193, Some(8192))] {
            rustix::fs::ftruncate(&file, size).unwrap();
            let found = partial_page(&file, 4096).map(|page| (page.offset, page.length()));
            assert_eq!(found, expected.map(|offset| (offset, 4096)), "{size}");
        }
    }

    fn place(dev: u64, extents: &[(u64, u64)]) -> FileLayout {
        let extent = |&(logical, physical)| Extent { logical, physical, length: 100 };
        FileLayout { dev, extents: extents.iter().map(extent).collect() }
    }

    #[test]
    fn a_range_is_divided_where_what_follows_lies_elsewhere() {
        let extents = |list: &[(u64, u64, u64)]| {
            let extent = |&(logical, end, physical): &(u64, u64, u64)| Extent {
                logical,
                physical,
                length: end - logical,
            };
            joined(list.iter().map(extent).collect())
        };
        let apart = extents(&[(0, 20, 500), (20, 30, 900), (30, 60, 910), (60, 90, 100)]);
        for (name, extents, bytes, expected) in [
            ("in three pieces", &apart, (5, 80), vec![(5, 20), (20, 60), (60, 80)]),
            ("in one of them", &apart, (20, 60), vec![(20, 60)]),
            ("in the end of one", &apart, (19, 60), vec![(19, 20), (20, 60)]),
            ("from one to the beginning of the next", &apart, (0, 20), vec![(0, 20)]),
            ("to its first byte", &apart, (0, 21), vec![(0, 20), (20, 21)]),
            ("behind its end", &apart, (70, 200), vec![(70, 200)]),
            ("not known", &extents(&[]), (5, 80), vec![(5, 80)]),
            (
                "around a hole",
                &extents(&[(0, 10, 500), (40, 50, 540)]),
                (5, 45),
                vec![(5, 40), (40, 45)],
            ),
            (
                "from a hole on",
                &extents(&[(40, 50, 540), (50, 60, 0)]),
                (5, 55),
                vec![(5, 50), (50, 55)],
            ),
            ("behind a hole", &extents(&[(0, 10, 500), (40, 50, 510)]), (0, 45), vec![(0, 45)]),
            (
                "within a page",
                &extents(&[(0, 12, 500), (12, 30, 900)]),
                (0, 30),
                vec![(0, 15), (15, 30)],
            ),
            (
                "twice within a page",
                &extents(&[(0, 11, 500), (11, 13, 900), (13, 30, 100)]),
                (0, 30),
                vec![(0, 15), (15, 30)],
            ),
            (
                "in the same place",
                &extents(&[(0, 10, 500), (10, 20, 500)]),
                (0, 20),
                vec![(0, 10), (10, 20)],
            ),
        ] {
            let range = |(offset, end)| ByteRange { offset, end };
            let expected: Vec<_> = expected.into_iter().map(range).collect();
            assert_eq!(in_pieces(range(bytes), extents, 5), expected, "{name}");
        }
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

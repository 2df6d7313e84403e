//! Which parts of a pack's files benefit from a huge page. Pure.

use crate::pack::Pack;
use std::collections::BTreeMap;

/// A part of a file, as large as a huge page and aligned to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Part {
    /// Index of the pack's file.
    pub file: u32,
    /// Where it begins, in bytes.
    pub offset: u64,
}

/// The parts of `size` bytes, that of a huge page, of which starts touch at least half
/// through a mapping, in the order of files. A part that a file ends in is none: no
/// folio is larger than its file.
pub fn dense_parts(pack: &Pack, size: u64) -> Vec<Part> {
    let mut touched = BTreeMap::new();
    for range in pack.ranges.iter().filter(|range| range.is_mapped()) {
        let mut rest = range.page_range().bytes(pack.page_size());
        while !rest.is_empty() {
            let offset = rest.offset - rest.offset % size;
            let next = offset.saturating_add(size).min(rest.end);
            *touched.entry(Part { file: range.file, offset }).or_insert(0) += next - rest.offset;
            rest.offset = next;
        }
    }
    let fits = |part: &Part| {
        let file = pack.files.get(part.file as usize);
        file.is_some_and(|file| part.offset.saturating_add(size) <= file.identity.size)
    };
    touched
        .into_iter()
        .filter(|(part, bytes)| bytes * 2 >= size && fits(part))
        .map(|(p, _)| p)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::usage::How;
    use crate::pack::{File, History, Identity, Origin, Range};

    const SIZE: u64 = 2 << 20;

    /// A pack of one file of so many pages, with ranges of it.
    fn pack(pages: u64, ranges: &[(u64, u32, How)]) -> Pack {
        let range = |&(first, pages, how): &(u64, u32, How)| Range {
            file: 0,
            first,
            pages,
            at_us: 0,
            how,
            history: History(1),
        };
        let identity = Identity { size: pages * 4096, ..Identity::default() };
        Pack {
            origin: Origin { page_shift: 12, ..Origin::default() },
            files: vec![File {
                file_system: 0,
                node: Default::default(),
                identity,
                changes: History(0),
            }],
            ranges: ranges.iter().map(range).collect(),
            ..Pack::default()
        }
    }

    #[test]
    fn a_part_counts_when_half_of_it_is_touched_through_a_mapping() {
        let (map, exec, read) = (How::MAPPED, How::EXECUTED, How::READ);
        for (name, pages, ranges, offsets) in [
            ("nothing", 2048, &[][..], &[][..]),
            ("half of the first", 2048, &[(0, 256, map)], &[0]),
            ("a page less", 2048, &[(0, 255, map)], &[]),
            ("half in two ranges", 2048, &[(0, 100, map), (300, 156, exec)], &[0]),
            ("read only", 2048, &[(0, 512, read)], &[]),
            ("read and mapped", 2048, &[(0, 512, read | map)], &[0]),
            ("over a border", 2048, &[(500, 12 + 256, map)], &[SIZE]),
            ("over three", 2048, &[(256, 1024, map)], &[0, SIZE, 2 * SIZE]),
            ("the file's end", 600, &[(0, 600, map)], &[0]),
            ("behind the end", 100, &[(0, 512, map)], &[]),
        ] {
            let found = dense_parts(&pack(pages, ranges), SIZE);
            let expected: Vec<_> = offsets.iter().map(|&offset| Part { file: 0, offset }).collect();
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn a_hostile_pack_makes_no_parts() {
        let mut hostile = pack(2048, &[(u64::MAX / 4096, u32::MAX, How::MAPPED)]);
        hostile.ranges.push(Range { file: 7, first: 0, ..hostile.ranges[0] });
        assert_eq!(dense_parts(&hostile, SIZE), []);
    }
}

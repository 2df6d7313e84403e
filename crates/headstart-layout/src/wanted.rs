//! Which ranges of files are laid out, in touch order. Pure.
//!
//! They are those that a replay prefetches. A file is moved as a whole where that costs little;
//! of others, ranges. Of several packs, a page goes where the first pack that touches it wants it.

use headstart::host::identity::Identity;
use headstart::host::range::ByteRange;
use headstart::pack::Pack;
use headstart::replay::frequency::Frequency;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Files up to this size are moved as a whole, in bytes: the kernel's readahead reads hardly less.
const SMALL: u64 = 256 << 10;
/// So are those of which at least one in this many bytes is read.
const PART: u64 = 2;
/// Gaps up to this size within a file are moved too, in bytes: on most devices a replay reads them.
const GAP: u64 = 64 << 10;

/// A file of packs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WantedFile {
    /// Its path.
    pub path: PathBuf,
    /// What it was when it was learned.
    pub identity: Identity,
}

/// A part of it that is moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WantedRange {
    /// Index of the file.
    pub file: usize,
    /// Whole pages, the last of which may reach beyond the end of the file.
    pub bytes: ByteRange,
}

/// What is to be moved.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// The files.
    pub files: Vec<WantedFile>,
    /// Their parts in touch order.
    pub ranges: Vec<WantedRange>,
}

/// What of these packs is laid out. `page` is the size of a page, in bytes.
pub fn wanted(packs: &[Pack], page: u64) -> Wanted {
    // By file: its number, and its ranges with their order.
    let mut files: BTreeMap<PathBuf, (Identity, Vec<(ByteRange, u64)>)> = BTreeMap::new();
    let mut order = 0;
    for pack in packs {
        let choice = Frequency::HALF.choice(pack);
        let mut of_file: BTreeMap<u32, Vec<(ByteRange, u64)>> = BTreeMap::new();
        for range in pack.ranges.iter().filter(|range| choice.has(range)) {
            let bytes = range.page_range().bytes(pack.page_size()).pages(page).bytes(page);
            of_file.entry(range.file).or_default().push((bytes, order));
            order += 1;
        }
        for (number, ranges) in of_file {
            let Some(file) = pack.files.get(number as usize) else { continue };
            let path = pack.paths.path(file.node);
            let known = files.entry(path).or_insert_with(|| (file.identity, Vec::new()));
            // The one that was learned last is the one that is there, if any is.
            if file.identity.ctime_ns > known.0.ctime_ns {
                known.0 = file.identity;
            }
            known.1.extend(ranges);
        }
    }
    let mut out = Wanted::default();
    let mut ordered = Vec::new();
    for (path, (identity, ranges)) in files {
        let parts = parts(ranges, identity.size, page);
        ordered.extend(
            parts
                .into_iter()
                .map(|(bytes, order)| (order, WantedRange { file: out.files.len(), bytes })),
        );
        out.files.push(WantedFile { path, identity });
    }
    ordered.sort_unstable_by_key(|(order, range)| (*order, range.file, range.bytes));
    out.ranges = ordered.into_iter().map(|(_, range)| range).collect();
    out
}

/// The parts of a file of this size that are moved, by offset.
fn parts(mut ranges: Vec<(ByteRange, u64)>, size: u64, page: u64) -> Vec<(ByteRange, u64)> {
    let whole = ByteRange::of(0, size).pages(page).bytes(page);
    ranges.sort_unstable();
    let mut out: Vec<(ByteRange, u64)> = Vec::new();
    let mut touched = 0u64;
    let mut reached = 0;
    for (bytes, order) in ranges {
        let bytes = ByteRange { offset: bytes.offset, end: bytes.end.min(whole.end) };
        if bytes.is_empty() {
            continue;
        }
        touched += bytes.end.saturating_sub(bytes.offset.max(reached));
        reached = reached.max(bytes.end);
        match out.last_mut() {
            Some((last, first)) if bytes.offset <= last.end.saturating_add(GAP) => {
                last.end = last.end.max(bytes.end);
                *first = (*first).min(order);
            }
            _ => out.push((bytes, order)),
        }
    }
    let is_whole = size <= SMALL || touched >= size / PART;
    match out.iter().map(|(_, order)| *order).min() {
        Some(order) if is_whole => vec![(whole, order)],
        _ => out,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart::host::usage::How;
    use headstart::pack::paths::PathInterner;
    use headstart::pack::{File, History, Origin, Range};
    use proptest::prelude::*;

    const PAGE: u64 = 4096;

    /// A pack with ranges (file, first page, pages) of files of these sizes.
    fn pack(names: &[(&str, u64)], ranges: &[(u32, u64, u32)]) -> Pack {
        let mut interner = PathInterner::default();
        let file = |(name, size): &(&str, u64)| File {
            node: interner.intern(format!("/{name}").as_ref()).unwrap(),
            identity: Identity { size: *size, ..Identity::default() },
            ..File::default()
        };
        let files = names.iter().map(file).collect();
        let range = |&(file, first, pages): &(u32, u64, u32)| Range {
            file,
            first,
            pages,
            at_us: 0,
            how: How::READ,
            history: History(1),
        };
        Pack {
            origin: Origin { page_shift: 12, starts: 1, ..Origin::default() },
            files,
            ranges: ranges.iter().map(range).collect(),
            paths: interner.finish(),
            ..Pack::default()
        }
    }

    fn found(packs: &[Pack]) -> Vec<(String, u64, u64)> {
        let wanted = wanted(packs, PAGE);
        let name = |file: usize| wanted.files[file].path.to_str().unwrap()[1..].to_owned();
        let range = |r: &WantedRange| (name(r.file), r.bytes.offset / PAGE, r.bytes.end / PAGE);
        wanted.ranges.iter().map(range).collect()
    }

    #[test]
    fn small_files_are_moved_as_a_whole_and_of_large_ones_the_ranges_in_touch_order() {
        const LARGE: u64 = 10 << 20;
        for (name, files, ranges, expected) in [
            (
                "small files in touch order",
                &[("a", 5000), ("b", 100)][..],
                &[(1, 0, 1), (0, 1, 1)][..],
                &[("b", 0, 1), ("a", 0, 2)][..],
            ),
            (
                "a large file's ranges, with a small gap",
                &[("a", LARGE)],
                &[(0, 1000, 5), (0, 10, 5), (0, 20, 5)],
                &[("a", 1000, 1005), ("a", 10, 25)],
            ),
            (
                "other files come between",
                &[("a", LARGE), ("b", 1)],
                &[(0, 1000, 5), (1, 0, 1), (0, 10, 5)],
                &[("a", 1000, 1005), ("b", 0, 1), ("a", 10, 15)],
            ),
            ("most of a large file", &[("a", LARGE)], &[(0, 0, 1280)], &[("a", 0, 2560)]),
            ("beyond the end", &[("a", 300 << 10)], &[(0, 70, 9), (0, 800, 1)], &[("a", 70, 75)]),
            ("an empty file", &[("a", 0)], &[(0, 0, 1)], &[]),
            ("a file that is not there", &[], &[(3, 0, 1)], &[]),
        ] {
            let expected: Vec<_> =
                expected.iter().map(|&(name, first, end)| (name.to_owned(), first, end)).collect();
            assert_eq!(found(&[pack(files, ranges)]), expected, "{name}");
        }
    }

    #[test]
    fn what_two_packs_touch_is_moved_once_where_the_first_wants_it() {
        let first = pack(&[("a", 9000), ("b", 9000)], &[(1, 0, 1), (0, 0, 1)]);
        let second = pack(&[("c", 9000), ("a", 9000)], &[(1, 2, 1), (0, 0, 1)]);
        let names: Vec<_> = found(&[first, second]).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["b", "a", "c"]);
    }

    proptest! {
        #[test]
        fn all_that_is_read_is_moved_once_within_its_file(
            size in 0u64..3_000_000,
            ranges in prop::collection::vec((any::<u64>(), any::<u32>(), 0u64..900), 0..20),
        ) {
            let ranges: Vec<_> = ranges.iter().map(|&(first, pages, near)| {
                // Most of them are within the file.
                if first % 4 == 0 { (0, first, pages) } else { (0, near, pages % 50) }
            }).collect();
            let whole = size.div_ceil(PAGE);
            let found = found(&[pack(&[("a", size)], &ranges)]);
            let mut pages: Vec<u64> = found.iter().flat_map(|r| r.1..r.2).collect();
            pages.sort_unstable();
            prop_assert!(pages.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(pages.last().is_none_or(|last| *last < whole));
            for (_, first, count) in ranges {
                for page in first..first.saturating_add(count.into()).min(whole) {
                    prop_assert!(pages.binary_search(&page).is_ok());
                }
            }
        }
    }
}

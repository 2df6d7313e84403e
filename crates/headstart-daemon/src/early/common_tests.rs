use super::*;
use headstart::pack::paths::PathInterner;
use headstart::pack::{File, FileSystem, Identity, MetadataRange, Range};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::PathBuf;

const PAGE: u64 = 4096;

/// A page, how many, and the touch time.
type Pages = (u64, u32, u32);

/// A program's pack: files with their inode and ranges.
fn program(files: &[(&str, u64, &[Pages])]) -> Pack {
    let mut names = PathInterner::default();
    let mut pack = Pack {
        origin: Origin { page_shift: 12, starts: 1, learned_at: 5, ..Origin::default() },
        file_systems: vec![FileSystem { uuid: Some([7; 16]), ..FileSystem::default() }],
        ..Pack::default()
    };
    for (number, (path, ino, ranges)) in files.iter().enumerate() {
        let node = names.intern(&PathBuf::from(path)).unwrap();
        let identity = Identity { ino: *ino, size: 1 << 30, ..Identity::default() };
        pack.files.push(File { file_system: 0, node, identity, changes: History(0) });
        pack.ranges.extend(ranges.iter().map(|&(first, pages, at_us)| Range {
            file: number as u32,
            first,
            pages,
            at_us,
            how: How::READ,
            history: History(1),
        }));
    }
    pack.paths = names.finish();
    pack
}

fn candidate(chance: f64, after_ms: u32, pack: Pack) -> Candidate {
    Candidate { pack, likely: Likely { file_name: "a.pack".into(), chance, after_ms } }
}

/// The pages of each file, and its first touch.
fn files(pack: &Pack) -> BTreeMap<String, Vec<(u64, u64, u32)>> {
    let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for range in &pack.ranges {
        let path = pack.paths.path(pack.files[range.file as usize].node);
        let PageRange { first, end } = range.page_range();
        found.entry(path.display().to_string()).or_default().push((first, end, range.at_us));
    }
    found.values_mut().for_each(|ranges| ranges.sort_unstable());
    found
}

#[test]
fn what_two_programs_share_is_in_the_pack_and_of_one_only_if_logins_start_it() {
    let a = program(&[("/lib/c", 1, &[(0, 10, 5)]), ("/bin/a", 2, &[(0, 4, 9)])]);
    let b = program(&[("/lib/c", 1, &[(5, 10, 7)]), ("/bin/b", 3, &[(0, 4, 9)])]);
    let third = 1.0 / 3.0;
    let unknown = [candidate(third, u32::MAX, a.clone()), candidate(third, u32::MAX, b.clone())];
    let found = files(&common(unknown.to_vec(), u64::MAX));
    assert_eq!(found, [("/lib/c".into(), vec![(5, 10, LATE_US + 5)])].into());
    // One of them follows most logins, three seconds after.
    let known = [candidate(0.9, 3000, a), candidate(0.1, u32::MAX, b)];
    let found = files(&common(known.to_vec(), u64::MAX));
    let expected = [
        ("/bin/a".into(), vec![(0, 4, 3_000_009)]),
        ("/lib/c".into(), vec![(0, 5, 3_000_005), (5, 10, 3_000_005)]),
    ];
    assert_eq!(found, expected.into());
}

#[test]
fn a_file_that_was_replaced_counts_as_the_latest_pack_knows_it() {
    let old = program(&[("/lib/c", 1, &[(0, 10, 0)])]);
    let mut new = program(&[("/lib/c", 2, &[(3, 4, 0)])]);
    new.origin.learned_at = 6;
    let pack = common(vec![candidate(0.9, 0, old), candidate(0.9, 0, new)], u64::MAX);
    assert_eq!(files(&pack), [("/lib/c".into(), vec![(3, 7, 0)])].into());
    assert_eq!(pack.files[0].identity.ino, 2);
}

#[test]
fn the_most_likely_pages_are_taken_until_the_bound_and_metadata_first() {
    let often = program(&[("/bin/often", 1, &[(0, 4, 0)])]);
    let seldom = program(&[("/bin/seldom", 2, &[(0, 4, 0)])]);
    let mut both = [candidate(0.6, 0, seldom), candidate(0.8, 0, often)];
    let found = files(&common(both.to_vec(), 6 * PAGE));
    let expected =
        [("/bin/often".into(), vec![(0, 4, 0)]), ("/bin/seldom".into(), vec![(0, 2, 0)])];
    assert_eq!(found, expected.into());
    let range = MetadataRange { file_system: 0, first: 9, pages: 3, at_us: 0, history: History(1) };
    both[0].pack.metadata = vec![range];
    let pack = common(both.to_vec(), 4 * PAGE);
    assert_eq!((pack.metadata_bytes(), pack.data_bytes()), (3 * PAGE, PAGE));
}

#[test]
fn nothing_makes_an_empty_pack() {
    assert_eq!(common(Vec::new(), u64::MAX).data_bytes(), 0);
}

proptest! {
    #[test]
    fn a_page_is_in_the_pack_if_and_only_if_it_is_likely_and_the_bound_holds(
        programs in proptest::collection::vec(
            (0u32..=10, proptest::collection::vec((0u64..30, 1u32..8), 0..4)), 0..6),
        most in 0u64..60,
    ) {
        let candidates: Vec<_> = programs.iter().map(|(chance, ranges)| {
            // Ranges of a pack do not overlap.
            let mut end = 0;
            let mut ranges = ranges.clone();
            ranges.sort_unstable();
            ranges.retain(|(first, pages)| {
                let is_behind = *first >= end;
                if is_behind { end = first + u64::from(*pages); }
                is_behind
            });
            let ranges: Vec<_> = ranges.iter().map(|&(first, pages)| (first, pages, 0)).collect();
            candidate(f64::from(*chance) / 10.0, 0, program(&[("/f", 1, &ranges)]))
        }).collect();
        let all = common(candidates.clone(), u64::MAX);
        let has = |pack: &Pack, page| {
            pack.ranges.iter().any(|range| range.first <= page && page < range.page_range().end)
        };
        for page in 0..40 {
            let miss: f64 = candidates.iter()
                .filter(|one| has(&one.pack, page))
                .map(|one| 1.0 - one.likely.chance)
                .product();
            if (miss - 0.5).abs() > 1e-9 {
                prop_assert_eq!(has(&all, page), miss < 0.5, "page {}", page);
            }
        }
        let bounded = common(candidates, most * PAGE);
        prop_assert_eq!(bounded.data_bytes(), all.data_bytes().min(most * PAGE));
    }
}

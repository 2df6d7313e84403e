//! Which ranges of files are laid out, and in which order. Pure.
//!
//! They are what a replay reads, in its order, so that what it requests together lies side by side; on a rotational
//! disk, large parts that are touched much later are apart. Small files are moved as a whole. Of several packs, what
//! the same ones touch lies together: see [`wanted`].

use super::divide::{Touch, divided, near_us};
use super::parts::{Group, Part, Touched, parts, without};
use headstart::host::identity::Identity;
use headstart::host::range::ByteRange;
use headstart::pack::Pack;
use headstart::replay::frequency::{Choice, Frequency};
use headstart::replay::plan::{Limits, Plan};
use headstart::replay::strategy::{Order, ReadStrategy};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Of what a replay reads first, so many bytes are moved with all gaps. A program may read that itself before it is
/// requested; then the kernel reads whole folios, and one that reaches into a gap is only there when the gap is,
/// behind all that was requested meanwhile.
const FIRST: u64 = 4 << 20;

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
    /// Their parts, in the order of their places.
    pub ranges: Vec<WantedRange>,
}

/// These keys in falling order are a reflected binary code (Gray): from one group to the next one pack
/// comes or goes, as long as no group is empty.
fn gray(group: &Group) -> Reverse<Vec<bool>> {
    let mut is_odd = false;
    let bit = |is_touched: &bool| {
        is_odd ^= is_touched;
        is_odd
    };
    Reverse(group.iter().map(bit).collect())
}

/// What it costs to read groups that lie in this order: how many pieces each pack lies in, times its
/// weight.
fn cost(groups: &[&Group], weights: &[u64]) -> u64 {
    let pieces = |pack: usize| {
        let begins = |at: &usize| groups[*at][pack] && (*at == 0 || !groups[at - 1][pack]);
        (0..groups.len()).filter(begins).count() as u64
    };
    let costs =
        weights.iter().enumerate().map(|(pack, weight)| weight.saturating_mul(pieces(pack)));
    costs.fold(0, u64::saturating_add)
}

/// The place of each group: the cheaper of Gray's order and that of first touches, which is never worse
/// than each part where the weightiest pack that touches it wants it. In both the weightiest pack lies in
/// one piece.
fn places(parts: &[Part], weights: &[u64]) -> BTreeMap<Group, usize> {
    let mut first: BTreeMap<&Group, u64> = BTreeMap::new();
    for part in parts {
        let order = first.entry(&part.group).or_insert(part.order);
        *order = part.order.min(*order);
    }
    let mut by_gray: Vec<&Group> = first.keys().copied().collect();
    let mut by_touch = by_gray.clone();
    by_gray.sort_by_cached_key(|group| gray(group));
    by_touch.sort_by_key(|group| first[group]);
    let is_gray = cost(&by_gray, weights) <= cost(&by_touch, weights);
    let chosen = if is_gray { by_gray } else { by_touch };
    chosen.into_iter().enumerate().map(|(place, group)| (group.clone(), place)).collect()
}

/// What a pack weighs against others: how often it is started, for which stand its learned starts, times
/// how much a layout saves at most, which is a seek or a request for each range that it prefetches.
fn weight(pack: &Pack) -> u64 {
    let choice = Frequency::HALF.choice(pack);
    let ranges = pack.ranges.iter().filter(|range| choice.has(range)).count() as u64;
    ranges.saturating_mul(pack.origin.starts.into())
}

/// What of these packs is laid out. `page` is the size of a page, in bytes; `strategy` tells how a replay of a
/// pack reads. What it reads as one is moved; of the gaps in that those of up to `gaps` bytes are, and among the
/// first bytes all. On a rotational disk large parts of that are separate if they are touched much later.
///
/// Parts that the same packs touch are a group. Groups lie in an order in which the weightiest pack finds
/// all that it touches in one piece, the next one too unless there are more than two, and so on, see
/// `places`; within a group the order of the weightiest pack's replay counts. So a page lies where it saves
/// most, and a pack that shares it seeks once for a group, and not for each page between those of others.
pub fn wanted(
    packs: &[Pack],
    page: u64,
    gaps: u64,
    strategy: impl Fn(&Pack) -> ReadStrategy,
) -> Wanted {
    let mut sorted: Vec<(u64, &Pack)> = packs.iter().map(|pack| (weight(pack), pack)).collect();
    sorted.sort_by_key(|(weight, _)| Reverse(*weight));
    let mut files: BTreeMap<PathBuf, (Identity, Vec<Touched>)> = BTreeMap::new();
    let mut order = 0;
    for (number, (_, pack)) in sorted.iter().enumerate() {
        let limits = Limits { budget: u64::MAX, metadata: false };
        // However long it is: steps of their size are no better (doc/layout.md), and of a hostile pack they
        // would be too many.
        let strategy = ReadStrategy { step_bytes: u64::MAX, ..strategy(pack) };
        let choice = Frequency::HALF.choice(pack).without_growth();
        // Without metadata, targets are the files of the pack.
        let plan = Plan::of_pack(pack, &choice, limits, strategy);
        let mut reads: BTreeMap<u32, Vec<Touch>> = BTreeMap::new();
        let mut before = 0;
        for step in &plan.steps {
            let stays = |gap: &ByteRange| gap.length() > gaps && before >= FIRST;
            let read = without(step.bytes, plan.gaps.of(step).filter(stays)).map(|bytes| Touch {
                bytes: bytes.pages(page).bytes(page),
                at_us: step.touched_us,
            });
            reads.entry(step.target).or_default().extend(read);
            before = step.bytes.length().saturating_add(before);
        }
        if strategy.order == Order::Elevator {
            divide(&mut reads, pack, &choice, page);
        }
        let mut in_order: Vec<(u32, u32, ByteRange)> = reads
            .iter()
            .flat_map(|(file, reads)| reads.iter().map(|read| (read.at_us, *file, read.bytes)))
            .collect();
        in_order.sort_unstable();
        let mut of_file: BTreeMap<u32, Vec<Touched>> = BTreeMap::new();
        for (_, file, bytes) in in_order {
            of_file.entry(file).or_default().push(Touched { bytes, order, pack: number });
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
    let mut ranges = Vec::new();
    let mut all_parts = Vec::new();
    for (path, (identity, touched)) in files {
        let parts = parts(touched, identity.size, page, packs.len());
        ranges.extend(
            parts.iter().map(|part| WantedRange { file: out.files.len(), bytes: part.bytes }),
        );
        all_parts.extend(parts);
        out.files.push(WantedFile { path, identity });
    }
    let weights: Vec<u64> = sorted.iter().map(|(weight, _)| *weight).collect();
    let places = places(&all_parts, &weights);
    let key = |part: &Part| (places.get(&part.group).copied(), part.order);
    let mut ordered: Vec<_> = all_parts.iter().map(key).zip(ranges).collect();
    ordered.sort_unstable_by_key(|(key, range)| (*key, range.file, range.bytes));
    out.ranges = ordered.into_iter().map(|(_, range)| range).collect();
    out
}

/// Divides what is read of the files of a pack by the times of its touches.
fn divide(reads: &mut BTreeMap<u32, Vec<Touch>>, pack: &Pack, choice: &Choice, page: u64) {
    let mut touches: BTreeMap<u32, Vec<Touch>> = BTreeMap::new();
    let mut lasts_us = 0;
    for range in pack.ranges.iter().filter(|range| choice.has(range)) {
        let bytes = range.page_range().bytes(pack.page_size());
        touches.entry(range.file).or_default().push(Touch { bytes, at_us: range.at_us });
        lasts_us = range.at_us.max(lasts_us);
    }
    for (file, reads) in reads {
        let Some((file, touches)) = pack.files.get(*file as usize).zip(touches.get_mut(file))
        else {
            continue;
        };
        reads.sort_unstable();
        touches.sort_unstable();
        let end = ByteRange::of(0, file.identity.size).pages(page).bytes(page).end;
        *reads = divided(reads, touches, end, near_us(lasts_us));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart::host::usage::How;
    use headstart::pack::paths::PathInterner;
    use headstart::pack::{File, History, Origin, Range};
    use proptest::prelude::*;
    use std::slice;

    const PAGE: u64 = 4096;
    /// Ranges of a file whose touches have at least this many others between them are steps of their own.
    const NEAR_US: u32 = 4;

    /// A pack with ranges (file, first page, pages) of files of these sizes.
    fn pack(names: &[(&str, u64)], ranges: &[(u32, u64, u32)]) -> Pack {
        let mut interner = PathInterner::default();
        let file = |(name, size): &(&str, u64)| File {
            node: interner.intern(format!("/{name}").as_ref()).unwrap(),
            identity: Identity { size: *size, ..Identity::default() },
            ..File::default()
        };
        let files = names.iter().map(file).collect();
        let range = |(at_us, &(file, first, pages)): (u32, &(u32, u64, u32))| Range {
            file,
            first,
            pages,
            at_us,
            how: How::READ,
            history: History(1),
        };
        Pack {
            origin: Origin { page_shift: 12, starts: 1, ..Origin::default() },
            files,
            ranges: (0..).zip(ranges).map(range).collect(),
            paths: interner.finish(),
            ..Pack::default()
        }
    }

    fn found(packs: &[Pack]) -> Vec<(String, u64, u64)> {
        found_with(packs, u64::MAX)
    }

    /// With gaps of up to so many bytes.
    fn found_with(packs: &[Pack], gaps: u64) -> Vec<(String, u64, u64)> {
        let strategy = |_: &Pack| ReadStrategy { near_us: NEAR_US, ..ReadStrategy::default() };
        shape(&wanted(packs, PAGE, gaps, strategy))
    }

    /// The names of files, and the pages of each part.
    fn shape(wanted: &Wanted) -> Vec<(String, u64, u64)> {
        let name = |file: usize| wanted.files[file].path.to_str().unwrap()[1..].to_owned();
        let range = |r: &WantedRange| (name(r.file), r.bytes.offset / PAGE, r.bytes.end / PAGE);
        wanted.ranges.iter().map(range).collect()
    }

    #[test]
    fn small_files_are_moved_as_a_whole_and_of_large_ones_the_steps_in_the_order_of_a_replay() {
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
                "what is touched later is read later",
                &[("a", LARGE), ("b", 1)],
                &[(0, 10, 20), (1, 0, 1), (1, 0, 1), (1, 0, 1), (1, 0, 1), (0, 30, 20)],
                &[("a", 10, 30), ("b", 0, 1), ("a", 30, 50)],
            ),
            (
                "a long range is several steps and one part",
                &[("a", LARGE)],
                &[(0, 0, 300), (0, 900, 1)],
                &[("a", 0, 300), ("a", 900, 901)],
            ),
            (
                "other files come between",
                &[("a", LARGE), ("b", 1)],
                &[(0, 1000, 5), (1, 0, 1), (0, 10, 5)],
                &[("a", 1000, 1005), ("b", 0, 1), ("a", 10, 15)],
            ),
            ("most of a larger file", &[("a", 68 << 10)], &[(0, 0, 16)], &[("a", 0, 16)]),
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
    fn gaps_stay_where_they_are_if_they_are_larger_than_those_that_are_moved() {
        const FIRST_PAGES: u32 = (FIRST / PAGE) as u32;
        // The first bytes are those of one file, with a gap.
        let first = [(2, 0, 10), (2, 12, FIRST_PAGES - 12)];
        let ranges = [(1, 0, 2), (0, 34, 9), (0, 10, 5), (0, 17, 3), (0, 21, 9), (1, 3, 1)];
        let ranges = [&first[..], &ranges].concat();
        let pack = [pack(&[("a", 10 << 20), ("b", 16_000), ("c", FIRST)], &ranges)];
        let whole = ("b", 0, 4);
        for (gaps, expected) in [
            (u64::MAX, &[whole, ("a", 10, 43)][..]),
            (2 * PAGE, &[whole, ("a", 10, 30), ("a", 34, 43)]),
            (2 * PAGE - 1, &[whole, ("a", 10, 15), ("a", 17, 30), ("a", 34, 43)]),
            (0, &[whole, ("a", 10, 15), ("a", 17, 20), ("a", 21, 30), ("a", 34, 43)]),
        ] {
            let expected: Vec<_> =
                expected.iter().map(|&(name, first, end)| (name.to_owned(), first, end)).collect();
            let found = found_with(&pack, gaps);
            assert_eq!(found[0], ("c".to_owned(), 0, FIRST / PAGE));
            assert_eq!(found[1..], expected, "{gaps}");
        }
    }

    #[test]
    fn what_is_touched_much_later_is_apart_on_a_rotational_disk_and_nowhere_else() {
        let mut pack =
            pack(&[("a", 400 << 10), ("b", 80 << 10)], &[(0, 0, 50), (1, 0, 20), (0, 50, 50)]);
        for (range, at_us) in pack.ranges.iter_mut().zip([0, 50_000, 90_000]) {
            range.at_us = at_us;
        }
        for (order, expected) in [
            (Order::Elevator, &[("a", 0, 50), ("b", 0, 20), ("a", 50, 100)][..]),
            (Order::Touch, &[("a", 0, 100), ("b", 0, 20)]),
        ] {
            let strategy = ReadStrategy { order, ..ReadStrategy::default() };
            let wanted = wanted(slice::from_ref(&pack), PAGE, u64::MAX, |_| strategy);
            let expected: Vec<_> =
                expected.iter().map(|&(name, first, end)| (name.to_owned(), first, end)).collect();
            assert_eq!(shape(&wanted), expected, "{order:?}");
        }
    }

    /// A pack that touches small files of these names in this order, learned so many times.
    fn of_names(names: &[&str], starts: u32) -> Pack {
        let files: Vec<_> = names.iter().map(|name| (*name, 9000)).collect();
        let ranges: Vec<_> = (0..names.len() as u32).map(|file| (file, 0, 1)).collect();
        let mut pack = pack(&files, &ranges);
        pack.origin.starts = starts;
        pack
    }

    fn names(packs: &[Pack]) -> Vec<String> {
        found(packs).into_iter().map(|(name, ..)| name).collect()
    }

    #[test]
    fn what_the_same_packs_touch_lies_together_where_the_weightiest_has_all_in_one_piece() {
        let often = of_names(&["both", "own", "all", "first"], 9);
        let rare = of_names(&["all", "second", "both"], 2);
        for packs in [[often.clone(), rare.clone()], [rare.clone(), often.clone()]] {
            assert_eq!(names(&packs), ["own", "first", "both", "all", "second"]);
        }
        // More ranges outweigh as many starts.
        let third = of_names(&["all", "x", "y", "z", "u", "v", "own"], 9);
        let expected = ["x", "y", "z", "u", "v", "all", "own", "both", "first", "second"];
        let found = names(&[often, rare, third]);
        assert_eq!(found.len(), expected.len());
        assert_eq!(found[..5], expected[..5], "{found:?}");
    }

    #[test]
    fn from_one_group_to_the_next_one_pack_comes_or_goes() {
        let group = |number: usize| (0..3).map(|pack| number & (1 << pack) != 0).collect();
        let mut groups: Vec<Group> = (1..8).map(group).collect();
        groups.sort_by_cached_key(gray);
        let name = |group: &Group| -> String {
            "ABC".chars().zip(group).filter(|(_, is_in)| **is_in).map(|(name, _)| name).collect()
        };
        let names: Vec<String> = groups.iter().map(name).collect();
        assert_eq!(names, ["A", "AC", "ABC", "AB", "B", "BC", "C"]);
    }

    #[test]
    fn of_packs_that_know_different_states_of_a_file_the_last_one_counts() {
        let learned = |ctime_ns, starts| {
            let mut pack = of_names(&["a"], starts);
            pack.files[0].identity.ctime_ns = ctime_ns;
            pack
        };
        let (old, new) = (learned(1, 9), learned(2, 1));
        for packs in [[old.clone(), new.clone()], [new.clone(), old]] {
            let found = wanted(&packs, PAGE, 0, |_| ReadStrategy::default());
            assert_eq!(found.files[0].identity, new.files[0].identity);
        }
    }

    #[test]
    fn where_groups_are_empty_first_touches_decide_if_they_leave_fewer_pieces() {
        let packs = [
            of_names(&["e"], 14),
            of_names(&["c", "b"], 2),
            of_names(&["n", "i", "k", "e", "c"], 4),
        ];
        assert_eq!(names(&packs), ["n", "i", "k", "e", "c", "b"]);
    }

    /// How many pieces a pack's files lie in.
    fn pieces(order: &[String], pack: &[&str]) -> usize {
        let mut is_in = false;
        let begins = |name: &&String| {
            let was = std::mem::replace(&mut is_in, pack.contains(&name.as_str()));
            is_in && !was
        };
        order.iter().filter(begins).count()
    }

    proptest! {
        #[test]
        fn packs_lie_in_no_more_pieces_than_with_each_page_where_the_first_wants_it(
            packs in prop::collection::vec(
                prop::collection::hash_set(0usize..14, 1..12), 1..7),
            starts in prop::collection::vec(1u32..20, 6),
        ) {
            const NAMES: [&str; 14] =
                ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n"];
            // Hash sets give touch orders by chance.
            let mut lists: Vec<(u64, Vec<&str>, u32)> = packs.iter().zip(&starts).map(|(set, starts)| {
                let list: Vec<_> = set.iter().map(|n| NAMES[*n]).collect();
                (list.len() as u64 * u64::from(*starts), list, *starts)
            }).collect();
            let order = names(&lists.iter().map(|(_, l, s)| of_names(l, *s)).collect::<Vec<_>>());
            lists.sort_by_key(|(weight, ..)| Reverse(*weight));
            let mut first_wins: Vec<String> = Vec::new();
            for name in lists.iter().flat_map(|(_, list, _)| list) {
                if !first_wins.iter().any(|known| known == name) {
                    first_wins.push((*name).to_owned());
                }
            }
            prop_assert_eq!(order.len(), first_wins.len());
            prop_assert_eq!(pieces(&order, &lists[0].1), 1);
            if let Some((_, second, _)) = lists.get(1).filter(|_| lists.len() == 2) {
                prop_assert_eq!(pieces(&order, second), 1);
            }
            let sum = |order: &[String]| -> u64 {
                lists.iter().map(|(weight, list, _)| weight * pieces(order, list) as u64).sum()
            };
            prop_assert!(sum(&order) <= sum(&first_wins), "{:?} {:?}", order, first_wins);
        }

        #[test]
        fn all_that_is_read_is_moved_once_within_its_file(
            size in 0u64..3_000_000,
            ranges in prop::collection::vec((any::<u64>(), any::<u32>(), 0u64..900), 0..20),
            gaps in 0u64..10 * PAGE,
            order in prop_oneof![Just(Order::Touch), Just(Order::Elevator)],
        ) {
            let ranges: Vec<_> = ranges.iter().map(|&(first, pages, near)| {
                // Most of them are within the file.
                if first % 4 == 0 { (0, first, pages) } else { (0, near, pages % 50) }
            }).collect();
            let whole = size.div_ceil(PAGE);
            let mut pack = pack(&[("a", size)], &ranges);
            pack.ranges.iter_mut().for_each(|range| range.at_us *= 30_000);
            let strategy = ReadStrategy { order, ..ReadStrategy::default() };
            let found = shape(&wanted(slice::from_ref(&pack), PAGE, gaps, |_| strategy));
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

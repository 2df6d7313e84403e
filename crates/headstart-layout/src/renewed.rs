//! Packs that know in which blocks the extents of their files lie, so that a replay reads them with other
//! metadata, in the order of the disk, and not one by one when files are opened. Pure.

use super::trees::Trees;
use headstart::host::range::PageRange;
use headstart::pack::{History, MetadataRange, Pack};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The same pack, of a file system with this UUID, whose files had their extents in the blocks `before`, and have
/// them in those of `now`: it knows these, each wanted when its file is, and as often, and no longer those that hold none
/// any more. `None` if nothing changes.
pub fn renewed(pack: &Pack, uuid: [u8; 16], before: &Trees, now: &Trees) -> Option<Pack> {
    let number = pack.file_systems.iter().position(|known| known.uuid == Some(uuid))?;
    let number = u16::try_from(number).ok()?;
    let metadata = without(pack, number, &unused(before, now, pack.page_size()));
    let unknown = unknown(pack, number, &metadata, now);
    if unknown.is_empty() && metadata == pack.metadata {
        return None;
    }
    let mut out = Pack { metadata, ..pack.clone() };
    out.metadata.extend(unknown.into_iter().map(|(first, (at_us, history))| MetadataRange {
        file_system: number,
        first,
        pages: 1,
        at_us,
        history,
    }));
    out.metadata.sort_by_key(|range| (range.at_us, range.file_system, range.first));
    Some(out)
}

/// The pages that held nothing but extents before, and hold none now. What else is in a page with blocks that are
/// smaller is not known.
fn unused(before: &Trees, now: &Trees, page: u64) -> BTreeSet<u64> {
    let pages = |(block, trees): &Trees| -> BTreeSet<u64> {
        let whole = trees.values().flatten().filter(|_| *block >= page);
        let all = whole.flat_map(|at| (at / page)..at.saturating_add(*block) / page);
        all.collect()
    };
    pages(before).difference(&pages(now)).copied().collect()
}

/// The metadata that a pack knows, but these pages of a file system.
fn without(pack: &Pack, number: u16, pages: &BTreeSet<u64>) -> Vec<MetadataRange> {
    let mut out = Vec::with_capacity(pack.metadata.len());
    for range in &pack.metadata {
        let Range { start, end } = range.page_range().iter();
        let mut first = start;
        let gone = pages.range(start..end).filter(|_| range.file_system == number);
        // What lies between those that are gone; behind the last one is the rest.
        for next in gone.map(|page| (*page, page + 1)).chain([(end, end)]) {
            if let Some(pages) = u32::try_from(next.0 - first).ok().filter(|pages| *pages > 0) {
                out.push(MetadataRange { first, pages, ..*range });
            }
            first = next.1;
        }
    }
    out
}

/// The pages of trees of the files of a pack that are not in this metadata; when each is wanted, and how often.
fn unknown(
    pack: &Pack,
    number: u16,
    metadata: &[MetadataRange],
    (block, trees): &Trees,
) -> BTreeMap<u64, (u32, History)> {
    let mut touched: BTreeMap<u32, (u32, History)> = BTreeMap::new();
    for range in &pack.ranges {
        add(&mut touched, range.file, (range.at_us, range.history));
    }
    let mut unknown: BTreeMap<u64, (u32, History)> = BTreeMap::new();
    for (file, wanted) in touched {
        let Some(file) = pack.files.get(file as usize) else { continue };
        let Some(blocks) = trees.get(&file.identity.ino) else { continue };
        if file.file_system != number {
            continue;
        }
        for at in blocks {
            let end = at.saturating_add(*block);
            let pages = PageRange::from(at / pack.page_size()..end.div_ceil(pack.page_size()));
            pages.iter().for_each(|page| add(&mut unknown, page, wanted));
        }
    }
    for range in metadata.iter().filter(|range| range.file_system == number) {
        let Range { start, end } = range.page_range().iter();
        let known: Vec<u64> = unknown.range(start..end).map(|(page, _)| *page).collect();
        for page in known {
            unknown.remove(&page);
        }
    }
    unknown
}

/// Notes that something is wanted, which may be wanted for something else, too.
fn add<K: Ord>(to: &mut BTreeMap<K, (u32, History)>, what: K, (at_us, history): (u32, History)) {
    let wanted = to.entry(what).or_insert((at_us, history));
    *wanted = (wanted.0.min(at_us), wanted.1.union(history));
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart::host::identity::Identity;
    use headstart::host::usage::How;
    use headstart::pack::{self, File, FileSystem, Origin};
    use proptest::prelude::*;

    /// Trees of inodes in blocks of this length.
    fn of<const N: usize>(block: u64, trees: [(u64, Vec<u64>); N]) -> Trees {
        (block, trees.into())
    }

    fn none() -> Trees {
        of(4096, [])
    }

    fn blocks(list: &[u64]) -> Vec<u64> {
        list.iter().map(|block| block * 4096).collect()
    }

    #[test]
    fn a_pack_gets_to_know_the_blocks_of_its_files_once() {
        let range = |file, at_us, history| pack::Range {
            file,
            first: 0,
            pages: 1,
            at_us,
            how: How::READ,
            history: History(history),
        };
        let file = |ino, file_system| File {
            file_system,
            identity: Identity { ino, ..Identity::default() },
            ..File::default()
        };
        let known = |first, at_us, history| MetadataRange {
            file_system: 1,
            first,
            pages: 1,
            at_us,
            history: History(history),
        };
        let system = |uuid| FileSystem { uuid: Some([uuid; 16]), ..FileSystem::default() };
        let pack = Pack {
            origin: Origin { page_shift: 12, starts: 3, ..Origin::default() },
            file_systems: vec![system(8), system(7)],
            files: vec![file(12, 1), file(13, 1), file(13, 0), file(14, 1)],
            ranges: vec![range(0, 9, 1), range(1, 5, 0b100), range(1, 3, 0b10), range(2, 1, 1)],
            metadata: vec![known(9, 4, 1)],
            ..Pack::default()
        };
        let known_to = |pack: &Pack, uuid, trees: &Trees| renewed(pack, uuid, &none(), trees);
        let trees = of(4096, [(13, blocks(&[9, 7, 700])), (14, blocks(&[3]))]);
        let found = known_to(&pack, [7; 16], &trees).unwrap();
        let expected = [known(7, 3, 0b110), known(700, 3, 0b110), known(9, 4, 1)];
        assert_eq!(found.metadata, expected);
        assert_eq!(known_to(&found, [7; 16], &trees), None);
        assert_eq!(known_to(&pack, [9; 16], &trees), None);
        // Blocks of 1 KiB, several to a page.
        let small = of(1024, [(13, vec![28 << 10, 29 << 10, 32 << 10])]);
        let found = known_to(&pack, [7; 16], &small).unwrap();
        let pages: Vec<u64> = found.metadata.iter().map(|range| range.first).collect();
        assert_eq!(pages, [7, 8, 9]);
        // In one page with those of another file.
        let shared = of(1024, [(12, vec![29 << 10]), (13, vec![28 << 10])]);
        let found = known_to(&pack, [7; 16], &shared).unwrap();
        assert_eq!(found.metadata, [known(7, 3, 0b111), known(9, 4, 1)]);
        // A pack that claims to know all of the device.
        let all = MetadataRange { pages: u32::MAX, ..known(0, 4, 1) };
        let pack = Pack { metadata: vec![all], ..pack };
        assert_eq!(known_to(&pack, [7; 16], &trees), None);
    }

    #[test]
    fn a_pack_forgets_the_blocks_that_hold_no_extents_any_more() {
        let range = |file_system, first, pages| MetadataRange {
            file_system,
            first,
            pages,
            at_us: 5,
            history: History(1),
        };
        let system = |uuid| FileSystem { uuid: Some([uuid; 16]), ..FileSystem::default() };
        let pack = Pack {
            origin: Origin { page_shift: 12, starts: 1, ..Origin::default() },
            file_systems: vec![system(8), system(7)],
            metadata: vec![range(0, 7, 1), range(1, 5, 6), range(1, 20, 1), range(1, 30, 2)],
            ..Pack::default()
        };
        let before =
            of(4096, [(13, blocks(&[7, 10, 20])), (14, blocks(&[9, 30])), (15, blocks(&[40]))]);
        // Another file has one of them.
        let now = of(4096, [(14, blocks(&[30, 10]))]);
        let found = renewed(&pack, [7; 16], &before, &now).unwrap();
        let expected =
            [range(0, 7, 1), range(1, 5, 2), range(1, 8, 1), range(1, 10, 1), range(1, 30, 2)];
        assert_eq!(found.metadata, expected);
        assert_eq!(renewed(&found, [7; 16], &before, &now), None);
        assert_eq!(renewed(&pack, [7; 16], &before, &before), None);
        // What else is in a page is not known.
        let small = of(1024, [(13, vec![28 << 10])]);
        assert_eq!(renewed(&pack, [7; 16], &small, &none()), None);
        // Blocks of two pages.
        let large = of(8192, [(13, vec![30 << 12])]);
        let found = renewed(&pack, [7; 16], &large, &none()).unwrap();
        assert_eq!(found.metadata, pack.metadata[..3]);
    }

    proptest! {
        #[test]
        fn of_the_metadata_just_these_pages_are_forgotten(
            ranges in prop::collection::vec((0u16..2, 0u64..60, 1u32..9), 0..9),
            gone in prop::collection::btree_set(0u64..70, 0..20),
        ) {
            let metadata = ranges.into_iter().map(|(file_system, first, pages)| MetadataRange {
                file_system,
                first,
                pages,
                at_us: 0,
                history: History(1),
            });
            let pack = Pack { metadata: metadata.collect(), ..Pack::default() };
            let pages = |list: &[MetadataRange]| -> Vec<(u16, u64)> {
                let all = list.iter().flat_map(|r| r.page_range().iter().map(|p| (r.file_system, p)));
                all.collect()
            };
            let mut expected = pages(&pack.metadata);
            expected.retain(|(number, page)| *number != 1 || !gone.contains(page));
            prop_assert_eq!(pages(&without(&pack, 1, &gone)), expected);
        }
    }
}

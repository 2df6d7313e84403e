//! What the packs of a boot's phases need to know of each other: touches that move from one phase
//! to the next, and times that count from the first phase. Pure.

use crate::pack::build::{FilePart, Parts};
use crate::pack::changing::carries_on;
use crate::pack::paths::PathInterner;
use crate::pack::pieces::{Piece, overlay};
use crate::pack::{History, Pack};
use std::collections::HashMap;

/// Makes the times in packs count from the beginning of the first phase instead of that of their
/// own. Each pack comes with the number of its phase, in the order of the phases.
pub fn chain_times<'a>(packs: impl Iterator<Item = (usize, &'a mut Pack)>) {
    let (mut current, mut begin, mut end) = (None, 0u32, 0u32);
    for (phase, pack) in packs {
        if current != Some(phase) {
            (current, begin) = (Some(phase), end);
        }
        end = end.max(begin.saturating_add(lasted(pack)));
        let times = pack.ranges.iter_mut().map(|range| &mut range.at_us);
        for at in times.chain(pack.metadata.iter_mut().map(|range| &mut range.at_us)) {
            *at = at.saturating_add(begin);
        }
    }
}

/// From the beginning of the phase until its last touch, without waits, in µs. Times of touches by
/// other phases are computed, so they do not count.
fn lasted(pack: &Pack) -> u32 {
    let touched = pack.ranges.iter().filter(|range| range.history.is_in_last());
    let last = touched.map(|range| range.at_us).max().unwrap_or(0);
    last.min(u32::try_from(pack.origin.duration_us).unwrap_or(u32::MAX))
}

/// Corrects the pack of a phase after a boot was joined into it, knowing the `whole`
/// boot and the pack as it was `before`:
///
/// - A range counts as touched when any phase of this boot touched it. A touch near the end
///   of a phase comes before it in one boot and after it in another, and both phases would
///   forget the range.
/// - A file that was replaced inherits the history of the one before it, else each
///   upgrade would cost two boots. Files that change at each start keep theirs anyway.
pub fn settle(merged: &mut Pack, before: Option<&Pack>, whole: &Pack) {
    let mut names = PathInterner::default();
    let whole = Parts::of(whole, &mut names);
    let before = before.map(|pack| Parts::of(pack, &mut names)).unwrap_or_default();
    let mut parts = Parts::of(merged, &mut names);
    let touched = |was: Vec<Piece>, is: &[Piece]| {
        overlay(was, is.to_vec(), |was, is| {
            let now = History::default().after_start(is.is_some());
            was.map(|was| Piece { history: was.history.union(now), ..was })
        })
    };
    for (node, file) in &mut parts.files {
        let same = |other: &&FilePart| other.identity == file.identity;
        let seen = whole.files.get(node).filter(same);
        if let Some(seen) = seen {
            file.pieces = touched(std::mem::take(&mut file.pieces), &seen.pieces);
        }
        let is_new = |old: &&FilePart| {
            let carried_on = !old.is_assumed() && carries_on(old, seen.unwrap_or(file));
            !file.is_assumed() && !carried_on
        };
        if let Some(old) = before.files.get(node).filter(is_new) {
            let seen = old.pieces.iter().map(|piece| piece.history);
            let inherited = seen.fold(History::default(), History::union).after_start(false);
            for piece in &mut file.pieces {
                piece.history = piece.history.union(inherited);
            }
        }
    }
    let of_whole: HashMap<_, _> = whole
        .metadata
        .iter()
        .filter_map(|(fs, pieces)| Some((whole.file_systems.get(usize::from(*fs))?.uuid?, pieces)))
        .collect();
    for (fs, pieces) in &mut parts.metadata {
        let uuid = parts.file_systems.get(usize::from(*fs)).and_then(|fs| fs.uuid);
        if let Some(seen) = uuid.and_then(|uuid| of_whole.get(&uuid)) {
            *pieces = touched(std::mem::take(pieces), seen);
        }
    }
    *merged = parts.build(names.table());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::range::PageRange;
    use crate::host::usage::How;
    use crate::pack::merge::{Rule, merge};
    use crate::pack::{FileSystem, Identity, Origin};
    use crate::replay::frequency::Frequency;
    use std::path::Path;

    const NEXT: Rule = Rule::NextStart { keep: 8, metadata_seen: true, keep_time_us: 0 };

    /// A boot that touched pages of `/a` with this inode number, and as many of metadata.
    fn boot(ino: u64, ranges: &[(u64, u64)]) -> Pack {
        let mut names = PathInterner::default();
        let origin = Origin { page_shift: 12, starts: 1, ..Origin::default() };
        let mut parts = Parts { origin, ..Parts::default() };
        let fs = FileSystem { uuid: Some([7; 16]), ..FileSystem::default() };
        let file_system = parts.file_system(&fs).unwrap();
        let piece = |&(first, end): &(u64, u64)| Piece {
            pages: PageRange { first, end },
            at_us: 0,
            how: How::READ,
            history: History(1),
        };
        let pieces: Vec<Piece> = ranges.iter().map(piece).collect();
        parts.metadata.insert(file_system, pieces.clone());
        let identity = Identity { ino, ..Identity::default() };
        let part = FilePart { file_system, identity, changes: History(0), pieces };
        parts.files.insert(names.intern(Path::new("/a")).unwrap(), part);
        parts.build(names.table())
    }

    fn histories(pack: &Pack) -> Vec<(u64, u8)> {
        pack.ranges.iter().map(|r| (r.first, r.history.0)).collect()
    }

    #[test]
    fn one_odd_boot_changes_nothing_that_is_read() {
        let usual = boot(1, &[(0, 4)]);
        let mut pack = merge(&usual, &usual, NEXT);
        pack = merge(&pack, boot(1, &[(8, 16)]), NEXT);
        let read = Frequency::TWO_OF_THREE.chosen(&pack);
        assert_eq!(read.ranges.iter().map(|r| r.first).collect::<Vec<_>>(), [0]);
        assert_eq!(read.metadata.len(), 1);
    }

    #[test]
    fn what_another_phase_of_the_boot_touched_is_not_forgotten() {
        let before = boot(1, &[(0, 4), (8, 12)]);
        let whole = boot(1, &[(0, 4), (8, 12), (20, 24)]);
        let mut merged = merge(&before, boot(1, &[(0, 4)]), NEXT);
        assert_eq!(histories(&merged), [(0, 0b11), (8, 0b10)]);
        settle(&mut merged, Some(&before), &whole);
        assert_eq!(histories(&merged), [(0, 0b11), (8, 0b11)]);
        assert!(merged.metadata.iter().all(|r| r.history.0 == 0b11));
    }

    #[test]
    fn a_file_that_was_only_assumed_is_read_as_often_as_the_one_before_it_was() {
        let old = boot(1, &[(0, 4)]);
        let known = merge(&old, &old, NEXT);
        let mut before = known.clone();
        before.files[0].identity.ino = 2;
        before.ranges[0].how |= How::INFERRED;
        let new = boot(2, &[(2, 6)]);
        let mut merged = merge(&before, &new, NEXT);
        settle(&mut merged, Some(&before), &new);
        assert_eq!(histories(&merged), [(2, 0b111)]);
        // As long as no boot touches it, it stays assumed and grows older.
        let other = Pack { ranges: Vec::new(), files: Vec::new(), ..boot(3, &[]) };
        let mut merged = merge(&before, &other, NEXT);
        settle(&mut merged, Some(&before), &other);
        assert_eq!(histories(&merged), [(0, 0b110)]);
        assert!(merged.ranges[0].how.has(How::INFERRED));
    }

    #[test]
    fn a_replaced_file_is_read_as_often_as_the_one_before_it_was() {
        let old = boot(1, &[(0, 4)]);
        let before = merge(&old, &old, NEXT);
        let new = boot(2, &[(0, 2)]);
        let mut merged = merge(&before, &new, NEXT);
        assert_eq!(histories(&merged), [(0, 0b1)]);
        settle(&mut merged, Some(&before), &new);
        assert_eq!(histories(&merged), [(0, 0b111)]);
        // Whose pages another boot touched are not those of this file.
        settle(&mut merged, None, &boot(3, &[(0, 9)]));
        assert_eq!(histories(&merged), [(0, 0b111)]);
    }

    #[test]
    fn times_of_several_phases_count_from_the_begin_of_the_first() {
        let phase = |at_us: &[(u32, u8)], duration_us: u64| {
            let mut pack = boot(1, &[(0, 1), (2, 3), (4, 5)]);
            pack.origin.duration_us = duration_us;
            pack.ranges.truncate(at_us.len());
            for (range, &(at_us, history)) in pack.ranges.iter_mut().zip(at_us) {
                (range.at_us, range.history) = (at_us, History(history));
            }
            pack
        };
        let mut packs = [
            (0, phase(&[(5, 1), (70, 1), (900, 2)], 1000)),
            (1, phase(&[(1, 3), (4, 1), (9, 1)], 8)),
            (1, phase(&[(2, 1)], 8)),
            (3, phase(&[(1, 1)], 8)),
        ];
        chain_times(packs.iter_mut().map(|(phase, pack)| (*phase, pack)));
        let times: Vec<Vec<u32>> =
            packs.iter().map(|(_, pack)| pack.ranges.iter().map(|r| r.at_us).collect()).collect();
        // An old time says nothing of the end, nor one behind it.
        assert_eq!(times, [vec![5, 70, 900], vec![71, 74, 79], vec![72], vec![79]]);
        assert_eq!(packs[1].1.metadata[0].at_us, 70);
    }
}

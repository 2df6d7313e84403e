//! Which ranges of a pack a boot reads ahead, and how a pack follows boots that are not
//! all alike. Pure.

use crate::pack::build::Parts;
use crate::pack::paths::PathInterner;
use crate::pack::pieces::{Piece, overlay};
use crate::pack::{FileSystem, Pack};
use std::collections::{HashMap, HashSet};

/// How often a range has to have been touched lately.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Often {
    /// In so many boots …
    pub least: u32,
    /// … of the last so many, 1 to 8.
    pub of: u32,
}

impl Default for Often {
    /// One odd boot, with a check of the file system or an upgrade, neither adds its
    /// pages nor takes others away.
    fn default() -> Self {
        Self { least: 2, of: 3 }
    }
}

impl Often {
    /// Whether a range with this history is read, of a pack that has learned so many
    /// boots. With fewer than it takes to be sure all of it is.
    pub fn takes(self, history: u8, boots: u32) -> bool {
        let recent = history & (u8::MAX >> (u8::BITS - self.of.clamp(1, u8::BITS)));
        boots < self.least || recent.count_ones() >= self.least
    }
}

/// What of a pack is read: the ranges that were touched often enough, on file systems
/// that are `wanted`.
pub fn chosen(pack: &Pack, often: Often, wanted: impl Fn(&FileSystem) -> bool) -> Pack {
    let wanted: Vec<bool> = pack.file_systems.iter().map(wanted).collect();
    let is_wanted = |fs: u16| wanted.get(usize::from(fs)).copied().unwrap_or(false);
    let boots = pack.origin.starts;
    let mut out = pack.clone();
    out.ranges.retain(|range| {
        let file = pack.files.get(range.file as usize);
        file.is_some_and(|file| is_wanted(file.file_system)) && often.takes(range.history, boots)
    });
    out.metadata.retain(|r| is_wanted(r.file_system) && often.takes(r.history, boots));
    out
}

/// The file systems that a pack reads something of.
pub fn file_systems(pack: &Pack) -> Vec<&FileSystem> {
    let of_files = pack.ranges.iter().filter_map(|r| pack.files.get(r.file as usize));
    let used: HashSet<u16> = of_files
        .map(|f| f.file_system)
        .chain(pack.metadata.iter().map(|m| m.file_system))
        .collect();
    let all = pack.file_systems.iter().enumerate();
    all.filter(|(i, _)| u16::try_from(*i).is_ok_and(|i| used.contains(&i)))
        .map(|(_, fs)| fs)
        .collect()
}

/// Corrects the pack of a phase after a boot was joined into it, knowing the `whole`
/// boot and the pack as it was `before`:
///
/// - A range counts as touched when any phase of this boot touched it. What is needed
///   at about the end of a phase comes now before it, now after it, and would else be
///   forgotten by both.
/// - A file that was replaced inherits the history of the one before it, else each
///   upgrade would cost two boots.
pub fn settle(merged: &mut Pack, before: Option<&Pack>, whole: &Pack) {
    let mut names = PathInterner::default();
    let whole = Parts::of(whole, &mut names);
    let before = before.map(|pack| Parts::of(pack, &mut names)).unwrap_or_default();
    let mut parts = Parts::of(merged, &mut names);
    let touched = |was: Vec<Piece>, is: &[Piece]| {
        overlay(was, is.to_vec(), |was, is| {
            let now = u8::from(is.is_some());
            was.map(|was| Piece { history: was.history | now, ..was })
        })
    };
    for (node, file) in &mut parts.files {
        let same = |other: &&crate::pack::build::FilePart| other.identity == file.identity;
        if let Some(seen) = whole.files.get(node).filter(same) {
            file.pieces = touched(std::mem::take(&mut file.pieces), &seen.pieces);
        }
        if let Some(old) = before.files.get(node).filter(|old| !same(old)) {
            let inherited = old.pieces.iter().fold(0, |all, piece| all | piece.history) << 1;
            file.pieces.iter_mut().for_each(|piece| piece.history |= inherited);
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
    use crate::pack::build::FilePart;
    use crate::pack::merge::{Rule, merge};
    use crate::pack::{Identity, Origin};
    use crate::profile::spans::How;
    use std::path::Path;

    const NEXT: Rule = Rule::NextStart { keep: 8, metadata_seen: true };

    /// A boot that touched pages of `/a` with this inode number, and as many of metadata.
    fn boot(ino: u64, ranges: &[(u64, u64)]) -> Pack {
        let mut names = PathInterner::default();
        let origin = Origin { page_shift: 12, starts: 1, ..Origin::default() };
        let mut parts = Parts { origin, ..Parts::default() };
        let fs = FileSystem { uuid: Some([7; 16]), ..FileSystem::default() };
        let file_system = parts.file_system(&fs).unwrap();
        let piece =
            |&(first, end): &(u64, u64)| Piece { first, end, at_us: 0, how: How::READ, history: 1 };
        let pieces: Vec<Piece> = ranges.iter().map(piece).collect();
        parts.metadata.insert(file_system, pieces.clone());
        let identity = Identity { ino, ..Identity::default() };
        let part = FilePart { file_system, identity, pieces };
        parts.files.insert(names.intern(Path::new("/a")).unwrap(), part);
        parts.build(names.table())
    }

    fn histories(pack: &Pack) -> Vec<(u64, u8)> {
        pack.ranges.iter().map(|r| (r.first, r.history)).collect()
    }

    #[test]
    fn a_range_is_read_that_was_touched_in_two_of_the_last_three_boots() {
        let often = Often::default();
        for (history, boots, taken) in [
            (0b1, 1, true),
            (0b0, 1, true),
            (0b11, 2, true),
            (0b10, 2, false),
            (0b01, 9, false),
            (0b110, 3, true),
            (0b101, 3, true),
            (0b1111_1001, 9, false),
            (0b1111_1000, 9, false),
        ] {
            assert_eq!(often.takes(history, boots), taken, "{history:b} of {boots}");
        }
        assert!(Often { least: 1, of: 99 }.takes(0x80, 9));
    }

    #[test]
    fn one_odd_boot_changes_nothing_that_is_read() {
        let usual = boot(1, &[(0, 4)]);
        let mut pack = merge(&usual, &usual, NEXT);
        pack = merge(&pack, &boot(1, &[(8, 16)]), NEXT);
        let all = |_: &FileSystem| true;
        let read = chosen(&pack, Often::default(), all);
        assert_eq!(read.ranges.iter().map(|r| r.first).collect::<Vec<_>>(), [0]);
        assert_eq!(read.metadata.len(), 1);
        assert!(chosen(&pack, Often::default(), |_| false).ranges.is_empty());
        assert_eq!((file_systems(&read).len(), file_systems(&Pack::default()).len()), (1, 0));
    }

    #[test]
    fn what_another_phase_of_the_boot_touched_is_not_forgotten() {
        let before = boot(1, &[(0, 4), (8, 12)]);
        let whole = boot(1, &[(0, 4), (8, 12), (20, 24)]);
        let mut merged = merge(&before, &boot(1, &[(0, 4)]), NEXT);
        assert_eq!(histories(&merged), [(0, 0b11), (8, 0b10)]);
        settle(&mut merged, Some(&before), &whole);
        assert_eq!(histories(&merged), [(0, 0b11), (8, 0b11)]);
        assert!(merged.metadata.iter().all(|r| r.history == 0b11));
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
}

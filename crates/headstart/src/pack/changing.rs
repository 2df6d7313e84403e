//! Files that change at each start, as journals, state files and databases: what says
//! that a file is one, and which of its ranges are read although it is no longer what
//! was learned. Pure; that a file is another one than was learned is found where it is
//! opened.
//!
//! Prefetching is only a hint, so a wrong range costs a request and nothing else. Yet
//! a file that was replaced once, as by an upgrade, is left alone: its old ranges say
//! little of the new one.

use super::Pack;
use super::build::FilePart;
use super::history::{
    HISTORY_STARTS, after_start, count_in_last, first_seen, is_in_last, recent, recurs,
};
use crate::host::usage::How;

/// Whether a file that changed in these starts (bit 0 the last) is expected to change at
/// each: two of the last four did.
pub fn changes_often(changes: u8) -> bool {
    recurs(changes)
}

/// Whether what is known of a file before a start holds for it after that start: it is
/// the same, that start wrote it itself, or it had changed shortly before.
pub fn carries_on(before: &FilePart, after: &FilePart) -> bool {
    before.identity == after.identity || is_in_last(after.changes) || recent(before.changes) != 0
}

/// In which starts a file changed, after another one.
pub fn changes_after(before: &FilePart, after: &FilePart) -> u8 {
    let changed = before.identity != after.identity || is_in_last(after.changes);
    after_start(before.changes, changed)
}

/// What is read of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ChangePattern {
    /// It stays what it is: all that starts touch often enough.
    #[default]
    Same,
    /// It changes at each start: what was touched in several of its states.
    Recurs,
    /// The same, and what was new in the last start, because most of what was new in the
    /// one before was touched again: it grows, and what was added is looked at later.
    Grows,
}

impl ChangePattern {
    /// Whether a range is read, as far as that depends on the file.
    pub fn allows(self, how: How, history: u8) -> bool {
        let recurs = match self {
            Self::Same | Self::Grows => true,
            Self::Recurs => count_in_last(history, HISTORY_STARTS) >= 2,
        };
        recurs && how != How::WRITTEN
    }

    /// In how many of the last starts a range could have been touched, if in so many the
    /// file could: a range of a file that grows was not there before its first touch.
    pub fn known(self, file: u32, history: u8) -> u32 {
        if self == Self::Grows { file.min(first_seen(history)) } else { file }
    }
}

/// How each file of a pack is read; empty when none changes at each start.
pub fn change_patterns(pack: &Pack) -> Vec<ChangePattern> {
    if !pack.files.iter().any(|file| changes_often(file.changes)) {
        return Vec::new();
    }
    // Pages that were new in the start before the last, and how many of them came again.
    let mut new = vec![(0u64, 0u64); pack.files.len()];
    for range in pack.ranges.iter().filter(|range| range.how != How::WRITTEN) {
        if first_seen(range.history) == 2
            && let Some((all, again)) = new.get_mut(range.file as usize)
        {
            *all = all.saturating_add(range.pages.into());
            *again =
                again.saturating_add(u64::from(range.pages) * u64::from(is_in_last(range.history)));
        }
    }
    let pattern =
        |(file, (all, again)): (&super::File, &(u64, u64))| match changes_often(file.changes) {
            false => ChangePattern::Same,
            true if *all > 0 && again.saturating_mul(2) >= *all => ChangePattern::Grows,
            true => ChangePattern::Recurs,
        };
    pack.files.iter().zip(&new).map(pattern).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::paths::NodeId;
    use crate::pack::{File, Identity, Range};
    use proptest::prelude::*;

    fn pack(changes: u8, ranges: &[(u32, How, u8)]) -> Pack {
        let file =
            File { file_system: 0, node: NodeId::ROOT, identity: Identity::default(), changes };
        let range =
            |&(pages, how, history)| Range { file: 0, first: 0, pages, at_us: 0, how, history };
        Pack { files: vec![file], ranges: ranges.iter().map(range).collect(), ..Pack::default() }
    }

    #[test]
    fn two_changes_in_four_starts_make_a_file_one_that_changes() {
        for (changes, expected) in
            [(0, false), (0b1, false), (0b11, true), (0b1001, true), (0b1_0001, false)]
        {
            assert_eq!(changes_often(changes), expected, "{changes:b}");
        }
    }

    #[test]
    fn what_is_known_of_a_file_holds_unless_it_was_replaced_once() {
        let part = |ino, changes| FilePart {
            file_system: 0,
            identity: Identity { ino, ..Identity::default() },
            changes,
            pieces: Vec::new(),
        };
        for (name, before, after, carries, changes) in [
            ("the same", part(1, 0), part(1, 0), true, 0),
            ("an upgrade", part(1, 0), part(2, 0), false, 0b1),
            ("an upgrade long ago", part(1, 0b1_0000), part(2, 0), false, 0b10_0001),
            ("replaced twice", part(1, 0b1), part(2, 0), true, 0b11),
            ("written by the start", part(1, 0), part(1, 1), true, 0b1),
            ("replaced by the start", part(1, 0), part(2, 1), true, 0b1),
            ("no more", part(1, 0b11), part(1, 0), true, 0b110),
        ] {
            assert_eq!(carries_on(&before, &after), carries, "{name}");
            assert_eq!(changes_after(&before, &after), changes, "{name}");
        }
    }

    #[test]
    fn of_a_file_that_grows_what_is_new_is_read_too() {
        let read = How::READ;
        for (name, changes, ranges, expected) in [
            ("nothing changes", 0, vec![(1, read, 0b1)], None),
            ("one change", 0b1, vec![(1, read, 0b1)], None),
            ("nothing was new", 0b11, vec![(1, read, 0b111)], Some(ChangePattern::Recurs)),
            (
                "new and gone",
                0b11,
                vec![(3, read, 0b10), (2, read, 0b11)],
                Some(ChangePattern::Recurs),
            ),
            (
                "new and again",
                0b11,
                vec![(2, read, 0b10), (3, read, 0b11)],
                Some(ChangePattern::Grows),
            ),
            ("only written", 0b11, vec![(9, How::WRITTEN, 0b11)], Some(ChangePattern::Recurs)),
        ] {
            assert_eq!(
                change_patterns(&pack(changes, &ranges)).first().copied(),
                expected,
                "{name}"
            );
        }
        for (pattern, how, history, allowed) in [
            (ChangePattern::Same, read, 0b1, true),
            (ChangePattern::Recurs, read, 0b1, false),
            (ChangePattern::Recurs, read, 0b101, true),
            (ChangePattern::Grows, read, 0b1, true),
            (ChangePattern::Same, How::WRITTEN, 0b11, false),
            (ChangePattern::Grows, How::WRITTEN, 0b11, false),
            (ChangePattern::Recurs, How::WRITTEN | read, 0b11, true),
        ] {
            assert_eq!(pattern.allows(how, history), allowed, "{pattern:?} {how:?} {history:b}");
        }
        assert_eq!(
            (ChangePattern::Recurs.known(8, 0b11), ChangePattern::Grows.known(8, 0b11)),
            (8, 2)
        );
    }

    proptest! {
        #[test]
        fn files_that_stay_the_same_are_read_as_ever(
            changes in any::<u8>(),
            ranges in proptest::collection::vec((1u32.., any::<u8>(), any::<u8>()), 0..9),
        ) {
            let ranges: Vec<_> = ranges.iter().map(|&(n, how, h)| (n, How(how), h)).collect();
            let found = change_patterns(&pack(changes, &ranges));
            prop_assert_eq!(found.is_empty(), !changes_often(changes));
            prop_assert!(found.iter().all(|pattern| *pattern != ChangePattern::Same));
        }
    }
}

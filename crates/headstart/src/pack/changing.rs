//! Files that change at each start, such as journals, state files and databases: how they are
//! detected, and which of their ranges are read although the file changed. Pure; the change itself
//! is detected when the file is opened.
//!
//! A wrong range costs only a request. But a file that was replaced once, as by an upgrade, is
//! skipped: its old ranges say little about the new one.

use super::build::FilePart;
use super::history::HISTORY_STARTS;
use super::{History, Pack};
use crate::host::usage::How;

/// Whether a file that changed in these starts (bit 0 the last) is expected to change at
/// each: two of the last four did.
pub fn changes_often(changes: History) -> bool {
    changes.recurs()
}

/// Whether the ranges of a file remain valid after a start: the file is the same, the start wrote
/// it, or it had changed shortly before.
pub fn carries_on(before: &FilePart, after: &FilePart) -> bool {
    before.identity == after.identity || after.changes.is_in_last() || before.changes.is_recent()
}

/// In which starts a file changed, after another one.
pub fn changes_after(before: &FilePart, after: &FilePart) -> History {
    let changed = before.identity != after.identity || after.changes.is_in_last();
    before.changes.after_start(changed)
}

/// Which ranges of a file are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ChangePattern {
    /// The file does not change: all ranges that starts touch often enough.
    #[default]
    Same,
    /// It changes at each start: ranges that were touched in several of its versions.
    Recurs,
    /// The same, and ranges that were new in the last start, since most of those that were new in
    /// the start before were touched again: the file grows, and the added part is read later.
    Grows,
}

impl ChangePattern {
    /// Whether the file's pattern allows to read a range.
    pub fn allows(self, how: How, history: History) -> bool {
        let recurs = match self {
            Self::Same | Self::Grows => true,
            Self::Recurs => history.count_in_last(HISTORY_STARTS) >= 2,
        };
        recurs && !how.is_only_written()
    }

    /// In how many of the last starts a range could have been touched, if the file could be in
    /// this many: a range of a growing file did not exist before its first touch.
    pub fn known(self, file: u32, history: History) -> u32 {
        if self == Self::Grows { file.min(history.first_seen()) } else { file }
    }
}

/// The pattern of each file of a pack; empty if no file changes at each start.
pub fn change_patterns(pack: &Pack) -> Vec<ChangePattern> {
    if !pack.files.iter().any(|file| changes_often(file.changes)) {
        return Vec::new();
    }
    // Pages that were new in the start before the last, and how many of them were touched again.
    let mut new = vec![(0u64, 0u64); pack.files.len()];
    for range in pack.ranges.iter().filter(|range| !range.how.is_only_written()) {
        if range.history.first_seen() == 2
            && let Some((all, again)) = new.get_mut(range.file as usize)
        {
            *all = all.saturating_add(range.pages.into());
            let came_again = u64::from(range.history.is_in_last());
            *again = again.saturating_add(u64::from(range.pages) * came_again);
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
    use crate::pack::{File, Identity, Range};
    use proptest::prelude::*;

    fn pack(changes: u8, ranges: &[(u32, How, u8)]) -> Pack {
        let file = File { changes: History(changes), ..File::default() };
        let range = |&(pages, how, history)| {
            let history = History(history);
            Range { file: 0, first: 0, pages, at_us: 0, how, history }
        };
        Pack { files: vec![file], ranges: ranges.iter().map(range).collect(), ..Pack::default() }
    }

    #[test]
    fn two_changes_in_four_starts_make_a_file_one_that_changes() {
        for (changes, expected) in
            [(0, false), (0b1, false), (0b11, true), (0b1001, true), (0b1_0001, false)]
        {
            assert_eq!(changes_often(History(changes)), expected, "{changes:b}");
        }
    }

    #[test]
    fn what_is_known_of_a_file_holds_unless_it_was_replaced_once() {
        let part = |ino, changes| FilePart {
            file_system: 0,
            identity: Identity { ino, ..Identity::default() },
            changes: History(changes),
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
            assert_eq!(changes_after(&before, &after), History(changes), "{name}");
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
            (ChangePattern::Recurs, How::WRITTEN | How::APPENDED, 0b11, false),
        ] {
            let history = History(history);
            assert_eq!(pattern.allows(how, history), allowed, "{pattern:?} {how:?} {history:?}");
        }
        let known = |pattern: ChangePattern| pattern.known(8, History(0b11));
        assert_eq!((known(ChangePattern::Recurs), known(ChangePattern::Grows)), (8, 2));
    }

    proptest! {
        #[test]
        fn files_that_stay_the_same_are_read_as_ever(
            changes in any::<u8>(),
            ranges in proptest::collection::vec((1u32.., any::<u8>(), any::<u8>()), 0..9),
        ) {
            let ranges: Vec<_> = ranges.iter().map(|&(n, how, h)| (n, How(how), h)).collect();
            let found = change_patterns(&pack(changes, &ranges));
            prop_assert_eq!(found.is_empty(), !changes_often(History(changes)));
            prop_assert!(found.iter().all(|pattern| *pattern != ChangePattern::Same));
        }
    }
}

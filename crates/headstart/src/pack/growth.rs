//! What files that starts append to have at their ends, beyond what is known of them. Pure; how long they are
//! is known when they are opened.

use super::changing::{ChangePattern, changes_often};
use super::history::HISTORY_STARTS;
use super::{History, Pack, Range};
use crate::host::range::PageRange;
use crate::host::usage::How;
use std::collections::{BTreeMap, BTreeSet};

/// A file may have grown by this many times what one start added, since others write it, too.
const GROWTH: u64 = 8;
/// The most that a file is expected to have grown by, in bytes.
const MOST_GROWTH: u64 = 4 << 20;

/// What a growing file is expected to have behind what is known of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Growth {
    /// Index of the file.
    pub file: u32,
    /// From the first page that the last start added, at most so many pages: how far the file goes is
    /// known when it is opened.
    pub pages: PageRange,
    /// When the last start touched the first of them, in µs.
    pub at_us: u32,
}

/// What growing files are expected to have at their ends. `patterns` are those of the pack.
///
/// The pages that a start adds are read by the next one as a whole, also those without an event of
/// their own: a fault maps a whole folio. What comes behind them was added after the recording.
pub fn growths(pack: &Pack, patterns: &[ChangePattern]) -> Vec<Growth> {
    // Of each growing file: the end of what was known before, and what the last start added.
    let mut known: BTreeMap<u32, (u64, Option<(PageRange, u32)>)> = BTreeMap::new();
    let grows = |file: u32| patterns.get(file as usize) == Some(&ChangePattern::Grows);
    let read = pack.ranges.iter().filter(|range| !range.how.is_only_written() && grows(range.file));
    let (new, old): (Vec<&Range>, Vec<&Range>) =
        read.partition(|range| range.history == History(1));
    for range in old {
        let (end, _) = known.entry(range.file).or_default();
        *end = range.page_range().end.max(*end);
    }
    for range in new {
        let (end, added) = known.entry(range.file).or_default();
        let pages = range.page_range();
        if pages.first < *end {
            continue;
        }
        let (all, at_us) = added.get_or_insert((pages, range.at_us));
        *all = PageRange { first: all.first.min(pages.first), end: all.end.max(pages.end) };
        *at_us = range.at_us.min(*at_us);
    }
    let most = MOST_GROWTH / pack.page_size().max(1);
    let growth = |(file, (_, added)): (u32, (u64, Option<(PageRange, u32)>))| {
        let (pages, at_us) = added?;
        let further = pages.count().saturating_mul(GROWTH).min(most);
        let end = pages.end.saturating_add(further);
        Some(Growth { file, pages: PageRange { end, ..pages }, at_us })
    };
    known.into_iter().filter_map(growth).collect()
}

/// The end of a file that starts append to without reading it: its last page is read for that, where it is not full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tail {
    /// Index of the file.
    pub file: u32,
    /// The last page when it was learned.
    pub page: u64,
    /// When the start first wrote, in µs.
    pub at_us: u32,
}

/// The files that several starts appended to, and read nothing of.
pub fn tails(pack: &Pack) -> Vec<Tail> {
    let read = pack.ranges.iter().filter(|range| !range.how.is_only_written());
    let read: BTreeSet<u32> = read.map(|range| range.file).collect();
    let tail = |range: &Range| {
        let is_appended =
            range.how.has(How::APPENDED) && range.history.count_in_last(HISTORY_STARTS) >= 2;
        let file = pack.files.get(range.file as usize)?;
        let page = file.identity.size.saturating_sub(1) / pack.page_size();
        let tail = Tail { file: range.file, page, at_us: range.at_us };
        let is_read = read.contains(&range.file);
        (is_appended && !is_read && changes_often(file.changes)).then_some(tail)
    };
    pack.ranges.iter().filter_map(tail).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::{File, Identity, Origin};

    #[test]
    fn a_file_is_expected_to_grow_as_it_did() {
        let read = How::READ;
        let range = |file, first, pages, how, history, at_us| Range {
            file,
            first,
            pages,
            at_us,
            how,
            history: History(history),
        };
        for (name, ranges, pattern, expected) in [
            (
                "with a hole that has no event",
                vec![
                    range(1, 0, 4, read, 0b11, 1),
                    range(1, 8, 2, read, 1, 7),
                    range(1, 12, 2, read, 1, 5),
                ],
                ChangePattern::Grows,
                Some((8, 14 + 6 * GROWTH, 5)),
            ),
            (
                "new pages among those that are known are no growth",
                vec![
                    range(1, 0, 2, read, 1, 1),
                    range(1, 2, 2, read, 0b10, 1),
                    range(1, 4, 1, read, 1, 9),
                ],
                ChangePattern::Grows,
                Some((4, 5 + GROWTH, 9)),
            ),
            ("nothing was added", vec![range(1, 0, 9, read, 0b11, 1)], ChangePattern::Grows, None),
            ("only written", vec![range(1, 0, 9, How::WRITTEN, 1, 1)], ChangePattern::Grows, None),
            ("it does not grow", vec![range(1, 0, 9, read, 1, 1)], ChangePattern::Recurs, None),
            (
                "no more than that",
                vec![range(1, 1, u32::MAX, read, 1, 1)],
                ChangePattern::Grows,
                Some((1, 1 + u64::from(u32::MAX) + (MOST_GROWTH >> 12), 1)),
            ),
        ] {
            let origin = Origin { page_shift: 12, ..Origin::default() };
            let files = vec![File::default(); 2];
            let pack = Pack { origin, files, ranges, ..Pack::default() };
            let found = growths(&pack, &[ChangePattern::Grows, pattern]);
            let found: Vec<_> =
                found.iter().map(|g| (g.file, g.pages.first, g.pages.end, g.at_us)).collect();
            let expected = expected.map(|(first, end, at)| (1, first, end, at));
            assert_eq!(found, Vec::from_iter(expected), "{name}");
        }
    }

    #[test]
    fn the_last_page_of_a_file_is_read_that_several_starts_appended_to() {
        let appended = How::WRITTEN | How::APPENDED;
        for (name, how, history, changes, size, expected) in [
            ("two starts", appended, 0b11, 0b11, 9000, Some(2)),
            ("one start", appended, 0b1, 0b11, 9000, None),
            ("it was made", How::WRITTEN, 0b11, 0b11, 9000, None),
            ("it changes no more", appended, 0b11, 0b11_0000, 9000, None),
            ("read, too", appended | How::READ, 0b11, 0b11, 8192, None),
            ("full pages", appended, 0b11, 0b11, 8192, Some(1)),
            ("empty", appended, 0b11, 0b11, 0, Some(0)),
        ] {
            let identity = Identity { size, ..Identity::default() };
            let file = File { identity, changes: History(changes), ..File::default() };
            let history = History(history);
            let range = Range { file: 0, first: 0, pages: 1, at_us: 7, how, history };
            let origin = Origin { page_shift: 12, ..Origin::default() };
            let pack = Pack { origin, files: vec![file], ranges: vec![range], ..Pack::default() };
            let expected = expected.map(|page| Tail { file: 0, page, at_us: 7 });
            assert_eq!(tails(&pack), Vec::from_iter(expected), "{name}");
        }
    }
}

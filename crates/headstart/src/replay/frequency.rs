//! Which ranges of a pack are read, by how many starts touched them. Pure.

use crate::pack::changing::{ChangePattern, change_patterns};
use crate::pack::growth::{Growth, Tail, growths, tails};
use crate::pack::history::HISTORY_STARTS;
use crate::pack::{History, MetadataRange, Pack, Range};
use std::borrow::Cow;

/// How often the last starts must have touched a range for it to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frequency {
    /// Of this many of the last starts (1 to 8),
    pub of: u32,
    /// this many must have touched it; the same share if fewer are known.
    pub least: u32,
    /// With fewer known starts than this, everything is read.
    pub from: u32,
    /// Which starts are known of a range.
    pub since: Since,
}

/// From when on starts that did not touch a range count against it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Since {
    /// From the pack's first start: new ranges need several touches.
    Learned,
    /// From the first touch of its file: new files are read at once.
    FileSeen,
}

impl Frequency {
    /// All that is in the pack.
    pub const EVER: Self = Self { of: 1, least: 0, from: 0, since: Since::Learned };
    /// What at least half of the last eight starts touched; all while fewer than three are known.
    pub const HALF: Self = Self { of: 8, least: 4, from: 3, since: Since::FileSeen };
    /// What two of the last three boots touched: one unusual boot, with a file system check or an
    /// upgrade, neither adds nor removes pages.
    pub const TWO_OF_THREE: Self = Self { of: 3, least: 2, from: 2, since: Since::Learned };

    /// Whether a range with this history is read, if this many starts are known.
    pub fn reads(self, history: History, known: u32) -> bool {
        let of = self.of.clamp(1, HISTORY_STARTS);
        let known = known.min(of);
        let touched = history.count_in_last(of);
        known < self.from || touched * of >= self.least * known
    }

    /// The pack with only the ranges that are read.
    pub fn chosen(self, pack: &Pack) -> Cow<'_, Pack> {
        let choice = self.choice(pack);
        let is_whole = pack.ranges.iter().all(|range| choice.has(range))
            && pack.metadata.iter().all(|range| choice.has_metadata(range));
        if is_whole {
            return Cow::Borrowed(pack);
        }
        let mut out = pack.clone();
        out.ranges.retain(|range| choice.has(range));
        out.metadata.retain(|range| choice.has_metadata(range));
        Cow::Owned(out)
    }

    /// Which ranges of this pack are read.
    pub fn choice(self, pack: &Pack) -> Choice {
        let change_patterns = change_patterns(pack);
        let (growths, tails) = match self == Self::EVER {
            true => Default::default(),
            false => (growths(pack, &change_patterns), tails(pack)),
        };
        let mut choice = Choice {
            often: self,
            starts: pack.origin.starts.min(HISTORY_STARTS),
            files: Vec::new(),
            file_systems: Vec::new(),
            change_patterns,
            growths,
            tails,
        };
        if self.since == Since::FileSeen {
            let data = pack.ranges.iter().map(|r| (r.file as usize, r.history));
            choice.files = seen(pack.files.len(), data);
            let metadata = pack.metadata.iter().map(|r| (usize::from(r.file_system), r.history));
            choice.file_systems = seen(pack.file_systems.len(), metadata);
        }
        choice
    }
}

/// Which ranges of a pack are read.
#[derive(Clone, Debug)]
pub struct Choice {
    often: Frequency,
    starts: u32,
    /// The starts that touched each file and the metadata of each file system; empty
    /// where that doesn't matter.
    files: Vec<History>,
    file_systems: Vec<History>,
    /// The change pattern of each file; empty if no file changes.
    change_patterns: Vec<ChangePattern>,
    /// What growing files are expected to have behind their ranges.
    growths: Vec<Growth>,
    /// What files that starts append to have at their ends.
    tails: Vec<Tail>,
}

impl Choice {
    /// The same without the ends of growing files, which are expected, and not known.
    #[must_use]
    pub fn without_growth(self) -> Self {
        Self { growths: Vec::new(), tails: Vec::new(), ..self }
    }

    /// The files that starts append to without reading them.
    pub fn tails(&self) -> &[Tail] {
        &self.tails
    }

    /// What growing files are expected to have behind their ranges.
    pub fn growths(&self) -> &[Growth] {
        &self.growths
    }

    /// Whether a range of a file is read.
    pub fn has(&self, range: &Range) -> bool {
        let file = range.file as usize;
        let pattern = self.change_patterns.get(file).copied().unwrap_or_default();
        let expected =
            self.often == Frequency::EVER || range.history.expects(self.starts, range.how);
        expected
            && pattern.allows(range.how, range.history)
            && self.often.reads(
                range.history,
                pattern.known(self.known(self.files.get(file)), range.history),
            )
    }

    /// Whether a range of metadata is read.
    pub fn has_metadata(&self, range: &MetadataRange) -> bool {
        let known = self.known(self.file_systems.get(usize::from(range.file_system)));
        self.often.reads(range.history, known)
    }

    /// How many starts are known of a file that these starts touched.
    fn known(&self, seen: Option<&History>) -> u32 {
        seen.map_or(self.starts, |history| self.starts.min(history.first_seen()))
    }
}

/// The starts that touched any of the ranges of each file.
fn seen(count: usize, ranges: impl Iterator<Item = (usize, History)>) -> Vec<History> {
    let mut seen = vec![History::default(); count];
    for (at, history) in ranges {
        if let Some(all) = seen.get_mut(at) {
            *all = all.union(history);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::usage::How;
    use crate::pack::{File, Origin};
    use proptest::prelude::*;

    #[test]
    fn half_of_the_starts_that_are_known_must_have_touched_a_range() {
        let boots = Frequency::TWO_OF_THREE;
        for (name, often, history, known, expected) in [
            ("half of eight", Frequency::HALF, 0b0101_0101, 8, true),
            ("under half of eight", Frequency::HALF, 0b0101_0001, 8, false),
            ("two of four", Frequency::HALF, 0b1001, 4, true),
            ("one of three", Frequency::HALF, 0b001, 3, false),
            ("two of three", Frequency::HALF, 0b110, 3, true),
            ("two starts say nothing", Frequency::HALF, 0b10, 2, true),
            ("one start says nothing", Frequency::HALF, 0b1, 1, true),
            ("all that is known", Frequency::EVER, 0b1000_0000, 8, true),
            ("two of the last three", boots, 0b101, 8, true),
            ("earlier ones do not count", boots, 0b1111_1001, 8, false),
            ("one of two is less than two of three", boots, 0b10, 2, false),
            ("the only boot", boots, 0b1, 1, true),
        ] {
            assert_eq!(often.reads(History(history), known), expected, "{name}");
        }
    }

    fn pack(starts: u32, histories: &[(u32, u8)]) -> Pack {
        let range = |&(file, history)| Range {
            file,
            first: 0,
            pages: 1,
            at_us: 0,
            how: How::READ,
            history: History(history),
        };
        Pack {
            origin: Origin { starts, page_shift: 12, ..Origin::default() },
            files: vec![File::default(); 3],
            ranges: histories.iter().map(range).collect(),
            ..Pack::default()
        }
    }

    #[test]
    fn a_file_that_is_new_is_read_at_once_unless_it_has_to_prove_itself() {
        let pack = pack(8, &[(0, 0xff), (0, 0b1), (1, 0b1), (2, 0b100), (2, 0b11)]);
        for (since, expected) in [
            (Since::FileSeen, [true, false, true, false, true]),
            (Since::Learned, [true, false, false, false, false]),
        ] {
            let choice = Frequency { since, ..Frequency::HALF }.choice(&pack);
            let found: Vec<_> = pack.ranges.iter().map(|r| choice.has(r)).collect();
            assert_eq!(found, expected, "{since:?}");
        }
    }

    #[test]
    fn ends_of_growing_files_are_expected_where_ranges_are_chosen() {
        let file = |changes| File { changes: History(changes), ..File::default() };
        let range = |file, first, how, history| Range {
            file,
            first,
            pages: 1,
            at_us: 0,
            how,
            history: History(history),
        };
        let pack = Pack {
            origin: Origin { page_shift: 12, starts: 3, ..Origin::default() },
            files: vec![file(0b11), file(0b11)],
            ranges: vec![
                range(0, 0, How::READ, 0b11),
                range(0, 1, How::READ, 0b1),
                range(1, 0, How::WRITTEN | How::APPENDED, 0b11),
            ],
            ..Pack::default()
        };
        let found = |choice: Choice| {
            let growths: Vec<u32> = choice.growths().iter().map(|growth| growth.file).collect();
            let tails: Vec<u32> = choice.tails().iter().map(|tail| tail.file).collect();
            (growths, tails)
        };
        let half = Frequency::HALF.choice(&pack);
        assert_eq!(found(half.clone()), (vec![0], vec![1]));
        assert_eq!(found(half.without_growth()), (vec![], vec![]));
        assert_eq!(found(Frequency::EVER.choice(&pack)), (vec![], vec![]));
    }

    proptest! {
        #[test]
        fn what_every_start_touched_is_read_and_a_touch_more_never_leaves_a_range_out(
            (of, least, from) in (1u32..=8).prop_flat_map(|of| (Just(of), 0..=of, 0u32..9)),
            since in prop_oneof![Just(Since::Learned), Just(Since::FileSeen)],
            starts in 0u32..20,
            histories in proptest::collection::vec((0u32..3, any::<u8>()), 1..9),
            bit in 0u32..8,
        ) {
            let often = Frequency { of, least, from, since };
            let known = starts.min(HISTORY_STARTS);
            let all = u8::MAX.checked_shr(HISTORY_STARTS - known).unwrap_or(0);
            prop_assert!(often.reads(History(all), known));
            let histories: Vec<_> = histories.iter().map(|&(f, h)| (f, h & all)).collect();
            let pack = pack(starts, &histories);
            let choice = often.choice(&pack);
            for range in &pack.ranges {
                // Another touch among the starts that are known of the file.
                let seen = pack.ranges.iter().filter(|r| r.file == range.file);
                let seen = seen.map(|r| r.history).fold(History::default(), History::union);
                let another = History(1 << bit & seen.0);
                let more = Range { history: range.history.union(another), ..*range };
                prop_assert!(choice.has(&more) || !choice.has(range));
            }
        }
    }
}

//! What a pack reads of files, as far as the read strategy depends on it: how many ranges, how large,
//! and with which gaps. Pure. Which gaps are read is decided by `gap_size.rs`.

use crate::host::range::PageRange;
use crate::pack::Pack;

/// The largest gap that is considered to be read, in bytes: what a rotational disk reads in the
/// time of a seek.
pub const LARGEST_GAP: u64 = 256 << 10;

/// Ranges that are smaller than this on the average are small, in bytes.
const SMALL_BYTES: u64 = 16 << 10;

/// What a pack reads of files, as far as it decides about gaps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ranges {
    /// How many ranges there are.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Gaps between adjacent ranges in a file up to [`LARGEST_GAP`], in bytes, the
    /// smallest first.
    pub gaps: Vec<u64>,
}

impl Ranges {
    /// Whether they are so small that their number decides how long it takes to
    /// read them on nearly all devices.
    pub fn are_small(&self) -> bool {
        self.bytes < self.count.saturating_mul(SMALL_BYTES)
    }

    /// The same where gaps up to this size are read, too. Ranges without a gap between them differ in
    /// what is known of them, and are read as one in any case.
    #[must_use]
    pub fn joined(&self, largest_gap: u64) -> Self {
        let (read, left) = self.gaps.split_at(self.gaps.partition_point(|gap| *gap <= largest_gap));
        Self {
            count: self.count.saturating_sub(read.len() as u64),
            bytes: read.iter().fold(self.bytes, |sum, gap| sum.saturating_add(*gap)),
            gaps: left.to_vec(),
        }
    }

    /// Those of a pack.
    pub fn of(pack: &Pack) -> Self {
        let mut places: Vec<_> = pack.ranges.iter().map(|r| (r.file, r.page_range())).collect();
        places.sort_unstable();
        let adjacent = places.windows(2).filter(|pair| pair[0].0 == pair[1].0);
        let gap = |pair: &[(u32, PageRange)]| {
            pair[1].1.first.checked_sub(pair[0].1.end)?.checked_mul(pack.page_size())
        };
        let mut gaps: Vec<u64> =
            adjacent.filter_map(gap).filter(|gap| *gap <= LARGEST_GAP).collect();
        gaps.sort_unstable();
        Self { count: pack.ranges.len() as u64, bytes: pack.data_bytes(), gaps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::History;

    #[test]
    fn gaps_of_a_pack_are_those_between_adjacent_ranges_in_a_file() {
        use crate::host::usage::How;
        use crate::pack::{Origin, Range};
        let range = |&(file, first, pages): &(u32, u64, u32)| Range {
            file,
            first,
            pages,
            at_us: 0,
            how: How::READ,
            history: History(1),
        };
        let list = [(0, 90, 1), (0, 9, 2), (1, 92, 1), (0, 0, 1), (0, 11, 1)];
        let pack = Pack {
            origin: Origin { page_shift: 12, ..Origin::default() },
            ranges: list.iter().map(range).collect(),
            ..Pack::default()
        };
        let expected = Ranges { count: 5, bytes: 6 << 12, gaps: vec![0, 8 << 12] };
        assert_eq!(Ranges::of(&pack), expected);
    }

    #[test]
    fn ranges_that_are_read_as_one_count_as_one() {
        const KIB: u64 = 1 << 10;
        let gaps = vec![0, 0, 4 * KIB, 32 * KIB, 64 * KIB];
        let ranges = Ranges { count: 9, bytes: 100 * KIB, gaps };
        for (largest, expected) in [
            (0, (7, 100, 3)),
            (4 * KIB, (6, 104, 2)),
            (63 * KIB, (5, 136, 1)),
            (64 * KIB, (4, 200, 0)),
        ] {
            let joined = ranges.joined(largest);
            let found = (joined.count, joined.bytes / KIB, joined.gaps.len());
            assert_eq!(found, expected, "{largest}");
        }
    }
}

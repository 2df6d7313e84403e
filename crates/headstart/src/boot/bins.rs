//! Bytes over time in intervals of equal length, up to a maximum number. Pure.

use serde::{Deserialize, Serialize};

/// The most intervals: a boot of 80 s at the finest resolution.
pub const MOST: usize = 8192;
/// The shortest interval, in µs. Times of pages are not finer either.
pub const FINEST_US: u64 = 10_000;

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Row {
    /// Prefetched, when it came in.
    Prefetched,
    /// Prefetched and not touched until the recording ended, when it came in.
    Wasted,
    /// What the boot brought in itself, when it came in.
    Demand,
    /// Touched before it was prefetched.
    Late,
    /// Touched and not in the pack.
    Missing,
}

impl Row {
    /// All, in the order in which they are kept.
    pub const ALL: [Self; 5] =
        [Self::Prefetched, Self::Wasted, Self::Demand, Self::Late, Self::Missing];
}

/// Bytes over time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bins {
    /// The length of an interval, in µs.
    pub bin_us: u64,
    /// Prefetched.
    pub prefetched: Vec<u64>,
    /// Of that, not touched.
    pub wasted: Vec<u64>,
    /// Brought in by the boot itself.
    pub demand: Vec<u64>,
    /// Touched before it was prefetched.
    pub late: Vec<u64>,
    /// Touched and not in the pack.
    pub missing: Vec<u64>,
}

impl Default for Bins {
    fn default() -> Self {
        let none = Vec::new;
        Self {
            bin_us: FINEST_US,
            prefetched: none(),
            wasted: none(),
            demand: none(),
            late: none(),
            missing: none(),
        }
    }
}

/// A time in which nothing came in, in µs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Gap {
    /// Its begin.
    pub from_us: u64,
    /// Its end.
    pub to_us: u64,
}

impl Bins {
    /// One row.
    pub fn row(&self, row: Row) -> &[u64] {
        match row {
            Row::Prefetched => &self.prefetched,
            Row::Wasted => &self.wasted,
            Row::Demand => &self.demand,
            Row::Late => &self.late,
            Row::Missing => &self.missing,
        }
    }

    fn rows(&mut self) -> [&mut Vec<u64>; 5] {
        [
            &mut self.prefetched,
            &mut self.wasted,
            &mut self.demand,
            &mut self.late,
            &mut self.missing,
        ]
    }

    /// The number of intervals.
    pub fn len(&self) -> usize {
        self.prefetched.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.prefetched.is_empty()
    }

    /// When an interval begins, in µs.
    pub fn at_us(&self, bin: usize) -> u64 {
        self.bin_us.saturating_mul(bin as u64)
    }

    /// All bytes of a row.
    pub fn sum(&self, row: Row) -> u64 {
        self.row(row).iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Adds bytes at a time. If the time is beyond the last interval, pairs of intervals are
    /// merged.
    pub fn add(&mut self, row: Row, at_us: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        while at_us / self.bin_us >= MOST as u64 {
            self.halve();
        }
        let bin = (at_us / self.bin_us) as usize;
        if bin >= self.len() {
            self.rows().into_iter().for_each(|row| row.resize(bin + 1, 0));
        }
        let [prefetched, wasted, demand, late, missing] = self.rows();
        let row = match row {
            Row::Prefetched => prefetched,
            Row::Wasted => wasted,
            Row::Demand => demand,
            Row::Late => late,
            Row::Missing => missing,
        };
        row[bin] = row[bin].saturating_add(bytes);
    }

    /// Adds bytes evenly over a time.
    pub fn spread(&mut self, row: Row, from_us: u64, length_us: u64, bytes: u64) {
        let parts = (length_us / self.bin_us).clamp(1, MOST as u64);
        let (each, rest) = (bytes / parts, bytes % parts);
        for part in 0..parts {
            let at = from_us.saturating_add(part * (length_us / parts));
            self.add(row, at, each + u64::from(part < rest));
        }
    }

    fn halve(&mut self) {
        self.bin_us = self.bin_us.saturating_mul(2);
        for row in self.rows() {
            let sum = |two: &[u64]| two.iter().fold(0, |sum: u64, n| sum.saturating_add(*n));
            *row = row.chunks(2).map(sum).collect();
        }
    }

    /// The idle times between `from_us` and `to_us` that take at least `least_us`.
    pub fn gaps(&self, from_us: u64, to_us: u64, least_us: u64) -> Vec<Gap> {
        let busy = (0..self.len()).filter(|bin| self.prefetched[*bin] > 0 || self.demand[*bin] > 0);
        let ends = busy.map(|bin| (self.at_us(bin), self.at_us(bin + 1)));
        let mut idle_from = from_us;
        let gap = |(begin, end): (u64, u64)| {
            let gap = Gap { from_us: idle_from, to_us: begin.min(to_us) };
            idle_from = idle_from.max(end);
            (gap.to_us.saturating_sub(gap.from_us) >= least_us.max(1)).then_some(gap)
        };
        ends.chain([(to_us, to_us)]).filter_map(gap).collect()
    }

    /// Whether it is valid: it may come from any file.
    pub fn is_sound(&self) -> bool {
        let same = Row::ALL.iter().all(|row| self.row(*row).len() == self.len());
        same && self.len() <= MOST && self.bin_us > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_boot_that_takes_longer_has_longer_stretches() {
        let mut bins = Bins::default();
        bins.add(Row::Prefetched, 15_000, 4096);
        bins.add(Row::Demand, 81_919_999, 1);
        assert_eq!((bins.bin_us, bins.len(), bins.prefetched[1]), (FINEST_US, MOST, 4096));
        bins.add(Row::Demand, 81_920_000, 7);
        assert_eq!((bins.bin_us, bins.len(), bins.prefetched[0]), (20_000, MOST / 2 + 1, 4096));
        assert_eq!((bins.demand[MOST / 2 - 1], bins.demand[MOST / 2]), (1, 7));
    }

    #[test]
    fn nothing_came_in_between_the_stretches_in_which_something_did() {
        let mut bins = Bins::default();
        for at in [50_000, 60_000, 300_000] {
            bins.add(Row::Demand, at, 1);
        }
        let gaps = |from, to, least| -> Vec<(u64, u64)> {
            bins.gaps(from, to, least).iter().map(|g| (g.from_us, g.to_us)).collect()
        };
        assert_eq!(gaps(0, 400_000, 50_000), [(0, 50_000), (70_000, 300_000), (310_000, 400_000)]);
        assert_eq!(gaps(20_000, 320_000, 50_000), [(70_000, 300_000)]);
        assert_eq!(gaps(0, 100_000, 50_000), [(0, 50_000)]);
        assert_eq!(gaps(500_000, 100_000, 1), []);
        assert_eq!(Bins::default().gaps(0, 0, 0), []);
    }

    proptest! {
        #[test]
        fn no_byte_is_lost_and_there_are_never_too_many_stretches(
            added in proptest::collection::vec(
                (0usize..5, prop_oneof![0u64..200_000_000, any::<u64>()], 0u64..1 << 40), 0..40),
            spread in proptest::collection::vec(
                (0usize..5, 0u64..200_000_000, 0u64..1_000_000_000, 0u64..1 << 40), 0..6),
        ) {
            let mut bins = Bins::default();
            let mut sums = [0u64; 5];
            for &(row, at, bytes) in &added {
                bins.add(Row::ALL[row], at, bytes);
                sums[row] += bytes;
            }
            for &(row, from, length, bytes) in &spread {
                bins.spread(Row::ALL[row], from, length, bytes);
                sums[row] += bytes;
            }
            for row in Row::ALL {
                prop_assert_eq!(bins.sum(row), sums[row as usize]);
            }
            prop_assert!(bins.is_sound());
        }

        #[test]
        fn gaps_and_what_came_in_do_not_overlap(
            times in proptest::collection::vec(0u64..3_000_000, 0..30),
            from in 0u64..1_000_000,
            length in 0u64..3_000_000,
        ) {
            let mut bins = Bins::default();
            times.iter().for_each(|at| bins.add(Row::Prefetched, *at, 1));
            let mut end = from;
            for gap in bins.gaps(from, from + length, 20_000) {
                prop_assert!(gap.from_us >= end && gap.to_us >= gap.from_us + 20_000);
                prop_assert!(gap.to_us <= from + length);
                prop_assert!(times.iter().all(|at| !(gap.from_us..gap.to_us).contains(at)));
                end = gap.to_us;
            }
        }
    }
}

//! Counts the pages of a start by class, from what was touched, brought in by the program, and
//! planned. Pure.

use crate::profile::spans::Spans;
use serde::{Deserialize, Serialize};
use std::iter::Sum;

/// Pages of a start, by their class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PageCounts {
    /// Pages of files that the program touched.
    pub touched_pages: u64,
    /// Of those, the ones that were resident or in flight before the program touched them.
    pub ready_pages: u64,
    /// Of those, the ones in the pack that the program requested first.
    pub late_pages: u64,
    /// Of those, the ones that were not planned and had to be brought in.
    pub missing_pages: u64,
    /// Pages of the pack that the program did not touch.
    pub wasted_pages: u64,
    /// Pages that the program brought in and did not touch: the kernel's
    /// readahead, or the program's own.
    pub inserted_untouched_pages: u64,
    /// Files that were touched and have no known name.
    pub unnamed_files: u64,
    /// Their pages, which count as missing: no start can have them prefetched.
    pub unnamed_pages: u64,
    /// Pages of metadata in the pack that the program requested first.
    pub late_metadata_pages: u64,
    /// Pages of metadata that are not in the pack and had to be brought in.
    pub missing_metadata_pages: u64,
}

/// The pages of one file, or of one device's metadata, by class. Touched pages have the time of
/// their first touch, wasted pages the time at which their touch was expected.
#[derive(Clone, Debug, Default)]
pub struct Classification {
    /// Touched, and resident or in flight before.
    pub ready: Spans,
    /// Touched and planned, but the program requested them first.
    pub late: Spans,
    /// Touched, not planned, and brought in by the program.
    pub missing: Spans,
    /// Planned and not touched.
    pub wasted: Spans,
    /// Brought in by the program and not touched.
    pub inserted_untouched: Spans,
}

impl Classification {
    /// Of a file without a known name: all touched pages are missing, resident or not.
    pub fn of_unnamed(touched: &Spans, inserted: &Spans) -> Self {
        let inserted_untouched = inserted.without(touched);
        Self { missing: touched.clone(), inserted_untouched, ..Self::default() }
    }

    /// From what the program touched, what it brought in, and what was planned.
    pub fn of(touched: &Spans, inserted: &Spans, planned: &Spans) -> Self {
        let ready = touched.without(inserted);
        let fetched = touched.without(&ready);
        let missing = fetched.without(planned);
        Self {
            ready,
            late: fetched.without(&missing),
            missing,
            wasted: planned.without(touched),
            inserted_untouched: inserted.without(touched),
        }
    }
}

impl PageCounts {
    /// Adds one file.
    pub fn add(&mut self, classes: &Classification) {
        let (ready, late, missing) =
            (classes.ready.pages(), classes.late.pages(), classes.missing.pages());
        self.touched_pages += ready + late + missing;
        self.ready_pages += ready;
        self.late_pages += late;
        self.missing_pages += missing;
        self.wasted_pages += classes.wasted.pages();
        self.inserted_untouched_pages += classes.inserted_untouched.pages();
    }

    /// Adds a file without a known name.
    pub fn add_unnamed(&mut self, classes: &Classification) {
        self.add(classes);
        self.unnamed_files += 1;
        self.unnamed_pages += classes.missing.pages();
    }

    /// Adds one device's metadata.
    pub fn add_metadata(&mut self, classes: &Classification) {
        self.late_metadata_pages += classes.late.pages();
        self.missing_metadata_pages += classes.missing.pages();
    }

    /// Ready pages as a share of ready and late pages, 0 to 1; 0 without either. It is the part of
    /// the pack's benefit that this start had.
    pub fn in_time_share(&self) -> f64 {
        let known = self.ready_pages.saturating_add(self.late_pages);
        self.ready_pages as f64 / known.max(1) as f64
    }

    /// Share of the touched pages that were ready, 0 to 1; 1 when none was
    /// touched.
    pub fn ready_share(&self) -> f64 {
        if self.touched_pages == 0 {
            1.0
        } else {
            self.ready_pages as f64 / self.touched_pages as f64
        }
    }
}

impl Sum for PageCounts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            touched_pages: sum.touched_pages.saturating_add(one.touched_pages),
            ready_pages: sum.ready_pages.saturating_add(one.ready_pages),
            late_pages: sum.late_pages.saturating_add(one.late_pages),
            missing_pages: sum.missing_pages.saturating_add(one.missing_pages),
            wasted_pages: sum.wasted_pages.saturating_add(one.wasted_pages),
            inserted_untouched_pages: sum
                .inserted_untouched_pages
                .saturating_add(one.inserted_untouched_pages),
            unnamed_files: sum.unnamed_files.saturating_add(one.unnamed_files),
            unnamed_pages: sum.unnamed_pages.saturating_add(one.unnamed_pages),
            late_metadata_pages: sum.late_metadata_pages.saturating_add(one.late_metadata_pages),
            missing_metadata_pages: sum
                .missing_metadata_pages
                .saturating_add(one.missing_metadata_pages),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::range::PageRange;
    use crate::host::usage::How;
    use proptest::prelude::*;

    fn set(pages: &[u64]) -> Spans {
        let mut spans = Spans::default();
        for page in pages {
            spans.touch(PageRange::of(*page, 1), 0, How::READ);
        }
        spans
    }

    #[test]
    fn each_page_is_counted_by_its_class() {
        let mut outcome = PageCounts::default();
        // 1 ready and planned, 2 ready by chance, 3 late, 4 missing,
        // 5 planned and wasted, 6 fetched and wasted.
        let classes = Classification::of(&set(&[1, 2, 3, 4]), &set(&[3, 4, 6]), &set(&[1, 3, 5]));
        outcome.add(&classes);
        outcome.add_metadata(&classes);
        assert_eq!(
            outcome,
            PageCounts {
                touched_pages: 4,
                ready_pages: 2,
                late_pages: 1,
                missing_pages: 1,
                wasted_pages: 1,
                inserted_untouched_pages: 1,
                late_metadata_pages: 1,
                missing_metadata_pages: 1,
                ..PageCounts::default()
            }
        );
        assert!((outcome.ready_share() - 0.5).abs() < 1e-9);
        assert!((PageCounts::default().ready_share() - 1.0).abs() < 1e-9);
        assert!((outcome.in_time_share() - 2.0 / 3.0).abs() < 1e-9);
        assert!(PageCounts::default().in_time_share().abs() < 1e-9);
    }

    #[test]
    fn what_nothing_names_is_missing_also_where_it_was_in_memory() {
        let mut outcome = PageCounts::default();
        outcome.add(&Classification::of(&set(&[1, 2]), &set(&[]), &set(&[1, 2])));
        outcome.add_unnamed(&Classification::of_unnamed(&set(&[1, 2, 3]), &set(&[3, 4])));
        let expected = PageCounts {
            touched_pages: 5,
            ready_pages: 2,
            missing_pages: 3,
            inserted_untouched_pages: 1,
            unnamed_files: 1,
            unnamed_pages: 3,
            ..PageCounts::default()
        };
        assert_eq!(outcome, expected);
    }

    #[test]
    fn outcomes_are_summed_in_all_their_counts() {
        let one = PageCounts {
            touched_pages: 1,
            ready_pages: 2,
            late_pages: 3,
            missing_pages: 4,
            wasted_pages: 5,
            inserted_untouched_pages: 6,
            unnamed_files: 7,
            unnamed_pages: 8,
            late_metadata_pages: 9,
            missing_metadata_pages: u64::MAX,
        };
        let sum: PageCounts = [one, one].into_iter().sum();
        let twice = PageCounts {
            touched_pages: 2,
            ready_pages: 4,
            late_pages: 6,
            missing_pages: 8,
            wasted_pages: 10,
            inserted_untouched_pages: 12,
            unnamed_files: 14,
            unnamed_pages: 16,
            late_metadata_pages: 18,
            missing_metadata_pages: u64::MAX,
        };
        assert_eq!(sum, twice);
    }

    proptest! {
        #[test]
        fn ready_late_and_missing_are_all_that_was_touched(
            touched in proptest::collection::vec(0u64..40, 0..30),
            inserted in proptest::collection::vec(0u64..40, 0..30),
            planned in proptest::collection::vec(0u64..40, 0..30),
        ) {
            let mut o = PageCounts::default();
            o.add(&Classification::of(&set(&touched), &set(&inserted), &set(&planned)));
            prop_assert_eq!(o.touched_pages, set(&touched).pages());
            prop_assert_eq!(o.wasted_pages, set(&planned).without(&set(&touched)).pages());
            prop_assert!(o.late_pages <= set(&planned).pages());
        }
    }
}

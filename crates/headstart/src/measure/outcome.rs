//! Did reading ahead help this start? Compares what was planned with what the
//! program touched and what it had to bring in itself. Pure.

use crate::profile::spans::Spans;
use serde::Serialize;

/// Pages of a start, by what became of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Outcome {
    /// Pages of files that the program touched.
    pub touched_pages: u64,
    /// Of those, the ones that were in memory or on their way before the
    /// program asked: it caused no I/O for them.
    pub ready_pages: u64,
    /// Of those, the ones in the pack that the program asked for first.
    pub late_pages: u64,
    /// Of those, the ones that were not planned and had to be brought in.
    pub missing_pages: u64,
    /// Pages of the pack that the program did not touch.
    pub never_touched_pages: u64,
    /// Pages that the program brought in and did not touch: the kernel's
    /// read-ahead, or the program's own.
    pub inserted_untouched_pages: u64,
}

impl Outcome {
    /// Adds one file: what the program touched, what it brought in, and what
    /// was planned.
    pub fn add(&mut self, touched: &Spans, inserted: &Spans, planned: &Spans) {
        let fetched = common(touched, inserted);
        let fetched_pages = fetched.pages();
        let late = common(&fetched, planned).pages();
        self.touched_pages += touched.pages();
        self.ready_pages += touched.pages() - fetched_pages;
        self.late_pages += late;
        self.missing_pages += fetched_pages - late;
        self.never_touched_pages += planned.without(touched).pages();
        self.inserted_untouched_pages += inserted.without(touched).pages();
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

fn common(a: &Spans, b: &Spans) -> Spans {
    a.without(&a.without(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::spans::How;
    use proptest::prelude::*;

    fn set(pages: &[u64]) -> Spans {
        let mut spans = Spans::default();
        for page in pages {
            spans.touch(*page, 1, 0, How::READ);
        }
        spans
    }

    #[test]
    fn each_page_is_counted_by_what_became_of_it() {
        let mut outcome = Outcome::default();
        // 1 ready and planned, 2 ready by chance, 3 late, 4 missing,
        // 5 planned for nothing, 6 fetched for nothing.
        outcome.add(&set(&[1, 2, 3, 4]), &set(&[3, 4, 6]), &set(&[1, 3, 5]));
        assert_eq!(
            outcome,
            Outcome {
                touched_pages: 4,
                ready_pages: 2,
                late_pages: 1,
                missing_pages: 1,
                never_touched_pages: 1,
                inserted_untouched_pages: 1,
            }
        );
        assert!((outcome.ready_share() - 0.5).abs() < 1e-9);
        assert!((Outcome::default().ready_share() - 1.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn ready_late_and_missing_are_all_that_was_touched(
            touched in proptest::collection::vec(0u64..40, 0..30),
            inserted in proptest::collection::vec(0u64..40, 0..30),
            planned in proptest::collection::vec(0u64..40, 0..30),
        ) {
            let mut o = Outcome::default();
            o.add(&set(&touched), &set(&inserted), &set(&planned));
            prop_assert_eq!(o.ready_pages + o.late_pages + o.missing_pages, o.touched_pages);
        }
    }
}

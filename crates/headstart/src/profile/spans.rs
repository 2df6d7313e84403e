//! A set of page ranges, each with the time of its first touch. Pure.

use super::sorted::Sorted;
use crate::host::range::PageRange;
use crate::host::usage::How;
use crate::pack::pieces::COALESCE_NS;

/// A range of pages that was touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The pages.
    pub pages: PageRange,
    /// When it was first touched, in nanoseconds.
    pub at: u64,
    /// How it was touched.
    pub how: How,
}

/// Ranges that don't overlap.
#[derive(Clone, Default, Debug)]
pub struct Spans(Sorted);

impl Spans {
    /// Adds a touch. Pages known already keep their time; the kind of touch
    /// is added to the whole range they are in. Touches come in the order of
    /// their times.
    pub fn touch(&mut self, pages: PageRange, at: u64, how: How) {
        let PageRange { first: mut from, end } = pages;
        if let Some(span) = self.0.last_upto_mut(from)
            && span.pages.end > from
        {
            span.how |= how;
            from = span.pages.end;
        }
        while from < end {
            let next = self.0.first_in_mut(from, end).map(|span| {
                span.how |= how;
                *span
            });
            let gap = PageRange { first: from, end: next.map_or(end, |span| span.pages.first) };
            if !gap.is_empty() {
                self.add(Span { pages: gap, at, how });
            }
            from = next.map_or(end, |span| span.pages.end);
        }
    }

    /// Adds a range whose pages are not in the set.
    fn add(&mut self, new: Span) {
        match self.0.last_upto_mut(new.pages.first) {
            Some(before)
                if before.pages.end == new.pages.first
                    && new.at.abs_diff(before.at) <= COALESCE_NS =>
            {
                before.pages.end = new.pages.end;
                before.at = before.at.min(new.at);
                before.how |= new.how;
            }
            _ => self.0.insert(new),
        }
    }

    /// Those of which all pages were first touched before this time, in nanoseconds. Of several pages, some
    /// may have been touched later than the first, by as much as is joined.
    #[must_use]
    pub fn before(&self, at: u64) -> Self {
        let last = |span: &Span| match span.pages.count() {
            1 => span.at,
            _ => span.at.saturating_add(COALESCE_NS),
        };
        let mut out = Self::default();
        self.iter().filter(|span| last(span) < at).for_each(|span| out.0.insert(*span));
        out
    }

    /// The same ranges with other times.
    #[must_use]
    pub fn at_times(&self, time: impl Fn(u64) -> u64) -> Self {
        let mut out = self.clone();
        out.0.iter_mut().for_each(|span| span.at = time(span.at));
        out
    }

    /// The pages that are in this set and not in `other`.
    pub fn without(&self, other: &Self) -> Self {
        let mut out = Self::default();
        for span in self.iter() {
            let PageRange { first: mut from, end } = span.pages;
            let before = other.0.last_upto(from);
            let behind = other.0.beginning_in(from + 1, end);
            let cuts = before.into_iter().chain(behind).map(|cut| cut.pages);
            for cut in cuts.chain([PageRange { first: end, end }]) {
                if cut.first > from {
                    out.add(Span { pages: PageRange { first: from, end: cut.first }, ..*span });
                }
                from = from.max(cut.end);
            }
        }
        out
    }

    /// The pages that are in both, as they are in this one.
    pub fn within(&self, other: &Self) -> Self {
        self.without(&self.without(other))
    }

    /// Drops pages from `end` on.
    pub fn cut(&mut self, end: u64) {
        self.0.drop_from(end);
        if let Some(last) = self.0.last_upto_mut(end) {
            last.pages.end = last.pages.end.min(end);
        }
    }

    /// Adds a kind of touch to the ranges that `which` picks.
    pub fn mark(&mut self, how: How, which: impl Fn(&Span) -> bool) {
        for span in self.0.iter_mut().filter(|s| which(s)) {
            span.how |= how;
        }
    }

    /// The ranges in the order of their pages.
    pub fn iter(&self) -> impl Iterator<Item = &Span> {
        self.0.iter()
    }

    /// Number of pages in all.
    pub fn pages(&self) -> u64 {
        self.iter().map(|s| s.pages.count()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn spans(touches: &[(u64, u64, u64)]) -> Spans {
        let mut spans = Spans::default();
        for &(first, pages, at) in touches {
            spans.touch(PageRange::of(first, pages), at, How::READ);
        }
        spans
    }

    fn shape(spans: &Spans) -> Vec<(u64, u64, u64)> {
        spans.iter().map(|s| (s.pages.first, s.pages.end, s.at)).collect()
    }

    #[test]
    fn the_first_touch_of_a_page_gives_its_time() {
        let late = COALESCE_NS + 1;
        for (touches, expected) in [
            (vec![(0, 4, 1), (4, 4, 2)], vec![(0, 8, 1)]),
            (vec![(0, 4, 1), (4, 4, late + 1)], vec![(0, 4, 1), (4, 8, late + 1)]),
            (
                vec![(2, 2, 1), (0, 8, late + 1)],
                vec![(0, 2, late + 1), (2, 4, 1), (4, 8, late + 1)],
            ),
            (vec![(0, 8, 1), (2, 2, late)], vec![(0, 8, 1)]),
            (vec![(5, 0, 1)], vec![]),
        ] {
            assert_eq!(shape(&spans(&touches)), expected, "{touches:?}");
        }
    }

    #[test]
    fn what_is_left_of_a_set_keeps_its_times_whatever_their_order() {
        let late = 9 * COALESCE_NS;
        for (touches, cuts, expected) in [
            (vec![(4, 4, 1), (0, 4, late)], vec![], vec![(0, 4, late), (4, 8, 1)]),
            (vec![(4, 4, 1), (0, 4, 5)], vec![], vec![(0, 8, 1)]),
            (vec![(4, 4, 1), (0, 4, late)], vec![(3, 2, 1)], vec![(0, 3, late), (5, 8, 1)]),
        ] {
            assert_eq!(shape(&spans(&touches).without(&spans(&cuts))), expected, "{touches:?}");
        }
    }

    #[test]
    fn of_joined_pages_the_last_may_have_been_touched_later_than_the_first() {
        const MS: u64 = 1_000_000;
        let joined = spans(&[(0, 1, 5 * MS), (1, 1, 12 * MS), (9, 1, 5 * MS)]);
        for (at_ms, expected) in [(5, vec![]), (6, vec![9]), (15, vec![9]), (16, vec![0, 9])] {
            let before = joined.before(at_ms * MS);
            let found: Vec<_> = before.iter().map(|span| span.pages.first).collect();
            assert_eq!(found, expected, "{at_ms}");
        }
    }

    proptest! {
        #[test]
        fn every_page_is_there_once_with_its_first_time(
            touches in proptest::collection::vec((0u64..60, 0u64..12), 0..40)
        ) {
            let mut spans = Spans::default();
            let mut model = BTreeMap::new();
            for (i, &(first, pages)) in touches.iter().enumerate() {
                let at = i as u64 * (COALESCE_NS + 1);
                spans.touch(PageRange::of(first, pages), at, How::READ);
                for page in first..first + pages {
                    model.entry(page).or_insert(at);
                }
            }
            let mut pages = BTreeMap::new();
            for s in spans.iter() {
                prop_assert!(!s.pages.is_empty());
                for page in s.pages.first..s.pages.end {
                    prop_assert_eq!(pages.insert(page, s.at), None);
                }
            }
            prop_assert_eq!(pages, model);
        }

        #[test]
        fn the_difference_is_that_of_the_pages(
            a in proptest::collection::vec((0u64..60, 0u64..12, 0u64..3), 0..20),
            b in proptest::collection::vec((0u64..60, 0u64..12, 0u64..3), 0..20),
            end in 0u64..70,
        ) {
            let set = |s: &Spans| s.iter().flat_map(|s| s.pages.first..s.pages.end).collect::<std::collections::BTreeSet<_>>();
            let (mut a, b) = (spans(&a), spans(&b));
            let expected: std::collections::BTreeSet<u64> = set(&a).difference(&set(&b)).copied().collect();
            prop_assert_eq!(set(&a.without(&b)), expected);
            let cut = set(&a).into_iter().filter(|p| *p < end).collect();
            a.cut(end);
            prop_assert_eq!(set(&a), cut);
        }
    }
}

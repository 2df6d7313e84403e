//! Cuts what a boot touched into phases, by time. Pure.

use crate::profile::fold::{Observation, Pages};
use crate::profile::spans::{Span, Spans};
use std::ops::Range;

/// For each of these windows, in nanoseconds of the trace clock, the pages that were first touched
/// in it, with times from its beginning. Windows don't overlap.
///
/// A page belongs to the phase that touched it first, since it is resident from then on. So does a
/// page that the boot itself brought in, even if that was earlier; without a touch it belongs to
/// the phase in which it was brought in.
pub fn cut(seen: &Observation, windows: &[Range<u64>]) -> Vec<Observation> {
    windows.iter().map(|window| part(seen, window)).collect()
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

fn part(seen: &Observation, window: &Range<u64>) -> Observation {
    let mut out = Observation {
        began: window.start,
        duration: window.end.saturating_sub(window.start),
        pace: seen.pace.since(signed(window.start).saturating_sub(signed(seen.began))),
        tids: seen.tids.clone(),
        has_access_events: seen.has_access_events,
        ..Observation::default()
    };
    let pages = |pages: &Pages| {
        let touched = within(&pages.touched, seen.began, window);
        let certain = within(&pages.certain, seen.began, window);
        let untouched = pages.inserted.without(&pages.touched);
        let mut inserted = touched.without(&touched.without(&pages.inserted));
        for span in within(&untouched, seen.began, window).iter() {
            inserted.touch(span.pages, span.at, span.how);
        }
        let none = touched.is_empty() && inserted.is_empty();
        (!none).then_some(Pages { touched, certain, inserted })
    };
    out.files = seen.files.iter().filter_map(|(id, p)| Some((*id, pages(p)?))).collect();
    out.metadata = seen.metadata.iter().filter_map(|(dev, p)| Some((*dev, pages(p)?))).collect();
    out
}

/// The spans that were first touched in the window.
fn within(spans: &Spans, began: u64, window: &Range<u64>) -> Spans {
    let moved = |span: &Span| {
        let at = began.saturating_add(span.at);
        window.contains(&at).then(|| Span { at: at - window.start, ..*span })
    };
    let mut found: Vec<Span> = spans.iter().filter_map(moved).collect();
    // Touches come in the order of their times.
    found.sort_by_key(|span| (span.at, span.pages.first));
    let mut out = Spans::default();
    for span in found {
        out.touch(span.pages, span.at, span.how);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::id::{Dev, InodeId};
    use crate::host::range::PageRange;
    use crate::host::usage::How;
    use crate::profile::pace::Pacing;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const FILE: InodeId = InodeId { dev: Dev::new(8, 1), ino: 42 };
    /// Far enough apart that touches are not joined.
    const MS: u64 = 1_000_000;

    fn seen(began: u64, touches: &[(u64, u64, u64)]) -> Observation {
        let mut pages = Pages::default();
        for &(first, count, at) in touches {
            pages.touched.touch(PageRange::of(first, count), at, How::READ);
        }
        Observation { began, files: [(FILE, pages)].into(), ..Observation::default() }
    }

    fn shape(part: &Observation) -> Vec<(u64, u64, u64)> {
        let spans = part.files.get(&FILE).map(|pages| &pages.touched);
        spans
            .into_iter()
            .flat_map(Spans::iter)
            .map(|s| (s.pages.first, s.pages.end, s.at / MS))
            .collect()
    }

    #[test]
    fn a_page_is_in_the_phase_that_touched_it_first_and_its_time_counts_from_there() {
        let seen = seen(100 * MS, &[(0, 4, 0), (8, 4, 50 * MS), (2, 8, 90 * MS)]);
        let windows = [0..120 * MS, 120 * MS..180 * MS, 180 * MS..300 * MS, 300 * MS..400 * MS];
        let parts: Vec<_> = cut(&seen, &windows).iter().map(shape).collect();
        assert_eq!(parts, [vec![(0, 4, 100)], vec![(8, 12, 30)], vec![(4, 8, 10)], vec![]]);
    }

    #[test]
    fn what_was_waited_before_a_phase_is_not_in_its_times() {
        let mut pacing = Pacing::default();
        for at in [10 * MS, 50 * MS, 90 * MS] {
            pacing.missed();
            pacing.used(at);
        }
        let seen = Observation { pace: pacing.finish(), ..seen(100 * MS, &[(0, 4, 60 * MS)]) };
        let parts = cut(&seen, &[0..120 * MS, 120 * MS..200 * MS]);
        let computed = |part: &Observation, ms: u64| part.pace.computed(ms * MS) / MS;
        // It began 100 ms after this window.
        assert_eq!([50, 110, 115].map(|ms| computed(&parts[0], ms)), [50, 101, 102]);
        assert_eq!([0, 30, 70].map(|ms| computed(&parts[1], ms)), [0, 0, 1]);
    }

    #[test]
    fn what_came_in_early_belongs_to_the_phase_that_touches_it() {
        let mut seen = seen(0, &[(0, 4, 50 * MS)]);
        let pages = seen.files.get_mut(&FILE).unwrap();
        pages.inserted.touch(PageRange::of(2, 4), 10 * MS, How::INSERTED);
        let parts = cut(&seen, &[0..20 * MS, 20 * MS..90 * MS]);
        let inserted: Vec<Vec<(u64, u64)>> = parts
            .iter()
            .map(|part| {
                part.files[&FILE].inserted.iter().map(|s| (s.pages.first, s.pages.end)).collect()
            })
            .collect();
        assert_eq!(inserted, [[(4, 6)], [(2, 4)]]);
    }

    proptest! {
        #[test]
        fn every_page_is_in_the_phase_of_its_first_touch_and_in_no_other(
            touches in proptest::collection::vec((0u64..60, 1u64..8, 0u64..20), 0..30),
            ends in proptest::collection::vec(0u64..25, 0..5),
        ) {
            let step = 20 * MS;
            let mut touches = touches;
            touches.sort_by_key(|t| t.2);
            let mut first = BTreeMap::new();
            for &(page, count, at) in &touches {
                (page..page + count).for_each(|p| { first.entry(p).or_insert(at); });
            }
            let mut ends = ends;
            ends.push(25);
            ends.sort_unstable();
            let began = 3 * step;
            let mut from = 0;
            let windows: Vec<_> = ends.iter().map(|end| {
                let window = from..began + end * step;
                from = window.end;
                window
            }).collect();
            let moved: Vec<_> = touches.iter().map(|&(p, c, at)| (p, c, at * step)).collect();
            let parts = cut(&seen(began, &moved), &windows);
            let mut found = BTreeMap::new();
            for (part, window) in parts.iter().zip(&windows) {
                for span in part.files.get(&FILE).iter().flat_map(|pages| pages.touched.iter()) {
                    for page in span.pages.first..span.pages.end {
                        let at = (span.at + window.start - began) / step;
                        prop_assert_eq!(found.insert(page, at), None);
                        prop_assert!(window.contains(&(span.at + window.start)));
                    }
                }
            }
            prop_assert_eq!(found, first);
        }
    }
}

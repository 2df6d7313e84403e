//! Makes the record of a start from the classification of its pages. Pure.

use super::{BINS, FileRun, LastRun, MAX_FILES, MAX_RANGES, OverTime, PageClass, RangeRun, Totals};
use crate::host::range::PageRange;
use crate::outcome::counts::Classification;
use crate::profile::spans::{Span, Spans};
use std::cmp::Reverse;
use std::path::Path;

/// Files in the making: twice those that are named, so that they are seldom sorted.
const MOST: usize = 2 * MAX_FILES;

/// Pages that were prefetched, none twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrefetchedSpan {
    /// The pages.
    pub pages: PageRange,
    /// When they were requested, in ns from the beginning of the start; negative
    /// before that.
    pub at: i64,
}

/// A record in the making.
#[derive(Debug)]
pub struct Timeline {
    duration: u64,
    totals: Totals,
    over_time: OverTime,
    /// For each interval, how long before their touch ranges were requested, and their pages.
    leads: Vec<Vec<(i64, u64)>>,
    files: Vec<FileRun>,
    files_skipped: u64,
}

impl Timeline {
    /// Of a start of so many ns.
    pub fn new(duration: u64) -> Self {
        let bin_us = (duration / 1000).div_ceil(BINS as u64).max(1);
        let bins = usize::try_from((duration / 1000) / bin_us + 1).map_or(BINS, |n| n.min(BINS));
        let none = || vec![0; bins];
        let over_time = OverTime {
            bin_us,
            ready: none(),
            late: none(),
            missing: none(),
            untouched: none(),
            metadata: none(),
            prefetched: none(),
            wasted: none(),
            lead_us: vec![None; bins],
        };
        let leads = vec![Vec::new(); bins];
        Self {
            duration,
            totals: Totals::default(),
            over_time,
            leads,
            files: Vec::new(),
            files_skipped: 0,
        }
    }

    /// Adds a file, with what was requested of it. Without a path it is only counted.
    pub fn add(
        &mut self,
        path: Option<&Path>,
        classes: &Classification,
        prefetched: &[PrefetchedSpan],
    ) {
        let mut file = path.map(FileRun::named).unwrap_or_default();
        let prefetched = Prefetched::new(prefetched);
        for (spans, class) in [(&classes.ready, None), (&classes.late, Some(PageClass::Late))] {
            for span in spans.iter() {
                let bin = self.bin(span.at);
                prefetched.within(span, |at, pages| {
                    let lead = span.at.cast_signed().saturating_sub(at) / 1000;
                    // Ready pages that were requested later were resident.
                    if class.is_some() || lead >= 0 {
                        self.leads[bin].push((lead, pages));
                    }
                    if class.is_some() {
                        let by = u64::try_from(lead.saturating_neg()).unwrap_or(0);
                        file.late_by_us = Some(file.late_by_us.unwrap_or(0).max(by));
                    }
                });
            }
        }
        let mut touched = Spans::default();
        for spans in [&classes.ready, &classes.late, &classes.missing] {
            for s in spans.iter() {
                touched.touch(s.pages, 0, s.how);
            }
        }
        let wasted = prefetched.spans().without(&touched);
        let unplanned = wasted.without(&classes.wasted);
        file.late = self.count(&classes.late, |o| &mut o.late);
        file.missing = self.count(&classes.missing, |o| &mut o.missing);
        file.wasted = self.count(&wasted, |o| &mut o.wasted);
        let ready = self.count(&classes.ready, |o| &mut o.ready);
        self.totals.touched += ready + file.late + file.missing;
        self.totals.ready += ready;
        self.totals.late += file.late;
        self.totals.missing += file.missing;
        self.totals.prefetched += self.count(&prefetched.spans(), |o| &mut o.prefetched);
        self.totals.wasted += file.wasted;
        self.totals.gaps += unplanned.pages();
        self.totals.untouched += self.count(&classes.inserted_untouched, |o| &mut o.untouched);
        if path.is_some() && file.pages() > 0 {
            for (class, spans) in [
                (PageClass::Late, &classes.late),
                (PageClass::Missing, &classes.missing),
                (PageClass::Wasted, &wasted),
            ] {
                file.ranges.extend(spans.iter().map(|s| RangeRun {
                    class,
                    first: s.pages.first,
                    pages: s.pages.count(),
                    at_us: s.at / 1000,
                }));
            }
            self.files.push(file);
            if self.files.len() >= MOST {
                self.keep_worst();
            }
        }
    }

    /// Keeps the files with the most pages, of equal ones those that came first.
    fn keep_worst(&mut self) {
        self.files.sort_by_key(|file| Reverse(file.pages()));
        self.files_skipped += self.files.len().saturating_sub(MAX_FILES) as u64;
        self.files.truncate(MAX_FILES);
    }

    /// Adds a device's metadata.
    pub fn add_metadata(&mut self, classes: &Classification) {
        for spans in [&classes.late, &classes.missing] {
            self.totals.metadata += self.count(spans, |o| &mut o.metadata);
        }
    }

    /// The record without what only the caller knows.
    pub fn finish(mut self) -> LastRun {
        for (leads, median) in self.leads.iter_mut().zip(&mut self.over_time.lead_us) {
            *median = median_of(leads);
        }
        self.keep_worst();
        let (mut room, mut ranges_skipped) = (MAX_RANGES, 0);
        for file in &mut self.files {
            let kept = file.ranges.len().min(room);
            ranges_skipped += (file.ranges.len() - kept) as u64;
            file.ranges.truncate(kept);
            room -= kept;
        }
        LastRun {
            schema: super::SCHEMA.into(),
            duration_us: self.duration / 1000,
            totals: self.totals,
            over_time: self.over_time,
            files: self.files,
            files_skipped: self.files_skipped,
            ranges_skipped,
            ..LastRun::default()
        }
    }

    fn bin(&self, at: u64) -> usize {
        let bin = usize::try_from(at / 1000 / self.over_time.bin_us).unwrap_or(usize::MAX);
        bin.min(self.over_time.len() - 1)
    }

    /// Enters pages at their times; how many they are.
    fn count(&mut self, spans: &Spans, row: fn(&mut OverTime) -> &mut Vec<u64>) -> u64 {
        for span in spans.iter() {
            let bin = self.bin(span.at);
            row(&mut self.over_time)[bin] += span.pages.count();
        }
        spans.pages()
    }
}

/// Half of the pages had at least this.
fn median_of(leads: &mut [(i64, u64)]) -> Option<i64> {
    leads.sort_unstable();
    let half = leads.iter().map(|(_, pages)| pages).sum::<u64>().div_ceil(2);
    let mut before = 0;
    let middle = leads.iter().find(|(_, pages)| {
        before += pages;
        before >= half
    });
    middle.map(|(lead, _)| *lead)
}

/// What was requested of a file, by page.
struct Prefetched(Vec<PrefetchedSpan>);

impl Prefetched {
    fn new(prefetched: &[PrefetchedSpan]) -> Self {
        let mut sorted = prefetched.to_vec();
        sorted.sort_unstable_by_key(|a| a.pages.first);
        let mut end = 0;
        sorted.retain_mut(|a| {
            a.pages.first = a.pages.first.max(end);
            end = end.max(a.pages.end);
            !a.pages.is_empty()
        });
        Self(sorted)
    }

    /// Calls `found` with the time and the number of the pages of each part of
    /// `span` that was requested.
    fn within(&self, span: &Span, mut found: impl FnMut(i64, u64)) {
        let from = self.0.partition_point(|a| a.pages.end <= span.pages.first);
        for a in self.0[from..].iter().take_while(|a| a.pages.first < span.pages.end) {
            found(a.at, a.pages.within(span.pages).count());
        }
    }

    fn spans(&self) -> Spans {
        let mut in_time = self.0.clone();
        in_time.sort_by_key(|a| a.at);
        let mut spans = Spans::default();
        for a in in_time {
            let at = u64::try_from(a.at).unwrap_or(0);
            spans.touch(a.pages, at, Default::default());
        }
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::usage::How;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn set(pages: &[(u64, u64)]) -> Spans {
        let mut sorted = pages.to_vec();
        sorted.sort_by_key(|p| p.1);
        let mut spans = Spans::default();
        for (page, at) in sorted {
            spans.touch(PageRange::of(page, 1), at, How::READ);
        }
        spans
    }

    fn prefetched(first: u64, end: u64, ms: i64) -> PrefetchedSpan {
        PrefetchedSpan { pages: PageRange { first, end }, at: ms * MS as i64 }
    }

    fn sum(list: &[u64]) -> u64 {
        list.iter().sum()
    }

    #[test]
    fn each_page_is_drawn_where_it_was_touched_or_prefetched() {
        let mut timeline = Timeline::new(240 * MS);
        // 1 ready, 3 late and requested 20 ms after it was touched, 5 missing,
        // 7 planned, read and not touched, 8 a gap that was read.
        let touched = set(&[(1, 50 * MS), (3, 100 * MS), (5, 200 * MS)]);
        let inserted = set(&[(3, 100 * MS), (5, 200 * MS), (40, 9 * MS)]);
        let planned = set(&[(1, 0), (3, 0), (7, 0)]);
        let classes = Classification::of(&touched, &inserted, &planned);
        let read = [prefetched(1, 2, -3), prefetched(3, 4, 120), prefetched(7, 9, 130)];
        timeline.add(Some(Path::new("/a")), &classes, &read);
        timeline.add_metadata(&Classification {
            missing: set(&[(9, 30 * MS)]),
            ..Classification::default()
        });
        let run = timeline.finish();
        let o = &run.over_time;
        assert_eq!((o.bin_us, o.len()), (1000, 240));
        assert_eq!((o.ready[50], o.late[100], o.missing[200]), (1, 1, 1));
        assert_eq!(
            (o.prefetched[0], o.prefetched[120], o.prefetched[130], o.wasted[130]),
            (1, 1, 2, 2)
        );
        assert_eq!((o.untouched[9], o.metadata[30]), (1, 1));
        assert_eq!((o.lead_us[50], o.lead_us[100]), (Some(53_000), Some(-20_000)));
        let expected = Totals {
            touched: 3,
            ready: 1,
            late: 1,
            missing: 1,
            prefetched: 4,
            wasted: 2,
            gaps: 1,
            untouched: 1,
            metadata: 1,
        };
        assert_eq!(run.totals, expected);
        let file = &run.files[0];
        assert_eq!((file.late, file.missing, file.wasted), (1, 1, 2));
        assert_eq!(file.late_by_us, Some(20_000));
        let range =
            |class, first, pages, ms: u64| RangeRun { class, first, pages, at_us: ms * 1000 };
        let expected = [
            range(PageClass::Late, 3, 1, 100),
            range(PageClass::Missing, 5, 1, 200),
            range(PageClass::Wasted, 7, 2, 130),
        ];
        assert_eq!(file.ranges, expected);
    }

    #[test]
    fn of_many_files_and_ranges_the_worst_are_kept_and_the_others_counted() {
        let mut timeline = Timeline::new(MS);
        const FILES: u64 = 3 * MAX_FILES as u64 + 3;
        for i in 0..FILES {
            // Two with more pages, one of them late.
            let count = 20 + u64::from(i == 5) + 2 * u64::from(i == FILES - 1);
            let pages: Vec<_> = (0..count).map(|p| (2 * p, 0)).collect();
            let classes = Classification { missing: set(&pages), ..Classification::default() };
            timeline.add(Some(Path::new(&format!("/{i}"))), &classes, &[]);
        }
        let run = timeline.finish();
        assert_eq!((run.files.len() as u64, run.files_skipped), (500, FILES - 500));
        let named: Vec<_> = run.files.iter().map(|file| file.path.shown()).collect();
        let first = [FILES - 1, 5, 0, 1, 2, 3, 4, 6].map(|i| format!("/{i}"));
        assert_eq!((&named[..8], &*named[499]), (&first[..], "/498"));
        let kept: usize = run.files.iter().map(|f| f.ranges.len()).sum();
        assert_eq!((kept, run.ranges_skipped), (MAX_RANGES, 500 * 20 + 3 - MAX_RANGES as u64));
        let bytes = serde_json::to_vec(&run).unwrap();
        assert_eq!(LastRun::parse(&bytes).unwrap(), run);
        assert!(bytes.len() < 700_000, "{}", bytes.len());
    }

    proptest! {
        #[test]
        fn rows_over_time_add_up_to_the_totals(
            duration in 0u64..5_000_000_000,
            touched in proptest::collection::vec((0u64..60, 0u64..6_000_000_000), 0..30),
            inserted in proptest::collection::vec((0u64..60, 0u64..6_000_000_000), 0..30),
            planned in proptest::collection::vec((0u64..60, 0u64..1), 0..30),
            parts in proptest::collection::vec((0u64..60, 1u64..9, -9i64..6000), 0..9),
        ) {
            let classes = Classification::of(&set(&touched), &set(&inserted), &set(&planned));
            let parts: Vec<_> = parts.iter().map(|&(a, n, at)| prefetched(a, a + n, at)).collect();
            let mut timeline = Timeline::new(duration);
            timeline.add(Some(Path::new("/a")), &classes, &parts);
            let run = timeline.finish();
            let (t, o) = (run.totals, &run.over_time);
            prop_assert!(o.len() <= BINS && o.bin_us > 0);
            prop_assert_eq!(t.touched, set(&touched).pages());
            prop_assert_eq!(t.ready + t.late + t.missing, t.touched);
            prop_assert_eq!(sum(&o.ready) + sum(&o.late) + sum(&o.missing), t.touched);
            prop_assert_eq!(sum(&o.prefetched), t.prefetched);
            prop_assert_eq!(sum(&o.wasted), t.wasted);
            prop_assert!(t.gaps <= t.wasted && t.wasted <= t.prefetched);
            let bytes = serde_json::to_vec(&run).unwrap();
            prop_assert_eq!(LastRun::parse(&bytes).unwrap(), run);
        }
    }
}

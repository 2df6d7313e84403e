//! The verdict on a start in one short line: its duration, the share that prefetching saved, and
//! the pages that were not prefetched. Pure.

use super::LearnedStart;
use crate::output;
use headstart::outcome::counts::PageCounts;
use headstart::replay::report::Report;
use std::time::Duration;

/// Less than this share of a start, in percent, is not printed as saved: two starts differ by more.
const NOTABLE_PERCENT: u64 = 5;

/// How long a start took, and how much was saved, if that is known and worth a word.
pub fn times(wall: Duration, saved_us: Option<u64>) -> String {
    let took = match wall.as_secs_f64() {
        seconds if seconds < 1.0 => format!("{seconds:.2} s"),
        seconds => format!("{seconds:.1} s"),
    };
    let least = wall.as_micros() * u128::from(NOTABLE_PERCENT) / 100;
    match saved_us.filter(|us| u128::from(*us) >= least).map(about) {
        Some(saved) => format!("{took}, about {saved} saved"),
        None => took,
    }
}

/// A time that is estimated: one or two digits.
fn about(us: u64) -> String {
    let ms = us as f64 / 1000.0;
    match ms {
        ms if ms < 95.0 => format!("{ms:.0} ms"),
        ms if ms < 9_500.0 => format!("{:.1} s", ms / 1000.0),
        ms => format!("{:.0} s", ms / 1000.0),
    }
}

/// The parts for a start that was prefetched or learned, or both.
pub fn of(report: Option<&Report>, start: Option<&LearnedStart>) -> Vec<String> {
    let said = match (report, start) {
        (Some(_), Some(start)) => Some(pages(start)),
        (Some(report), None) if report.bytes > 0 => {
            Some(format!("{} prefetched", output::size(report.bytes)))
        }
        (None, Some(LearnedStart { learned, outcome })) if learned.written => {
            let files = output::counted(outcome.unnamed_files, "file");
            Some(match (learned.starts, outcome.unnamed_files) {
                (1, 0) => "learned; the next start is prefetched".into(),
                (1, _) => format!(
                    "learned; the next start is prefetched, but for {files} whose names can't be \
                     found"
                ),
                (starts, _) => format!("learned start {starts}"),
            })
        }
        _ => None,
    };
    said.into_iter().collect()
}

/// How many pages were missing, or came too late.
fn pages(start: &LearnedStart) -> String {
    let PageCounts { unnamed_files, unnamed_pages, .. } = start.outcome;
    let known = known_pages(start);
    if unnamed_files == 0 {
        return known;
    }
    let files = output::counted(unnamed_files, "file");
    format!(
        "{known}, {} of them of {files} whose names can't be found",
        output::grouped(unnamed_pages)
    )
}

/// The same, whatever files they are of.
fn known_pages(LearnedStart { learned, outcome }: &LearnedStart) -> String {
    let all = output::grouped(outcome.touched_pages);
    let [missing, late] = [outcome.missing_pages, outcome.late_pages].map(output::grouped);
    match (outcome.missing_pages, outcome.late_pages) {
        (0, 0) => format!("all {all} pages were ready"),
        (1.., _) if learned.after_cut_off => format!(
            "{missing} of {all} pages are new, since the start before was not learned to its end"
        ),
        (_, 0) => format!("{missing} of {all} pages were missing"),
        (0, _) => format!("{late} of {all} pages were late"),
        _ => format!("{missing} of {all} pages were missing, {late} late"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart::launch::learn::Learned;

    fn start(touched_pages: u64, missing_pages: u64, late_pages: u64) -> LearnedStart {
        let outcome =
            PageCounts { touched_pages, missing_pages, late_pages, ..PageCounts::default() };
        LearnedStart {
            learned: Learned { written: true, starts: 2, ..Learned::default() },
            outcome,
        }
    }

    #[test]
    fn a_verdict_says_how_long_a_start_took_and_what_was_saved_if_that_is_worth_a_word() {
        for (wall_ms, saved_ms, expected) in [
            (2_040, Some(15_200), "2.0 s, about 15 s saved"),
            (260, Some(812), "0.26 s, about 0.8 s saved"),
            (260, Some(42), "0.26 s, about 42 ms saved"),
            (9_000, Some(1_240), "9.0 s, about 1.2 s saved"),
            (9_000, Some(449), "9.0 s"),
            (40, None, "0.04 s"),
            (0, Some(1), "0.00 s, about 1 ms saved"),
        ] {
            let saved_us = saved_ms.map(|ms: u64| ms * 1000);
            assert_eq!(times(Duration::from_millis(wall_ms), saved_us), expected);
        }
    }

    #[test]
    fn a_verdict_has_one_part_about_the_pages() {
        let replay = Report { bytes: 4 << 20, ..Report::default() };
        let resident = Report::default();
        let first = LearnedStart {
            learned: Learned { written: true, starts: 1, ..Learned::default() },
            outcome: PageCounts::default(),
        };
        let mut longer = start(20_000, 9695, 7);
        longer.learned.after_cut_off = true;
        let new =
            "9,695 of 20,000 pages are new, since the start before was not learned to its end";
        let mut nameless = start(64, 0, 0);
        (nameless.learned.starts, nameless.outcome.unnamed_files) = (1, 1);
        let but =
            "learned; the next start is prefetched, but for 1 file whose names can't be found";
        let mut unnamed = start(4864, 24, 0);
        (unnamed.outcome.unnamed_files, unnamed.outcome.unnamed_pages) = (2, 20);
        let of_unnamed =
            "24 of 4,864 pages were missing, 20 of them of 2 files whose names can't be found";
        for (report, start, expected) in [
            (Some(&replay), Some(unnamed), of_unnamed),
            (None, Some(nameless), but),
            (Some(&replay), Some(longer), new),
            (Some(&replay), Some(start(4864, 24, 0)), "24 of 4,864 pages were missing"),
            (Some(&replay), Some(start(4864, 24, 3)), "24 of 4,864 pages were missing, 3 late"),
            (Some(&replay), Some(start(4864, 0, 3)), "3 of 4,864 pages were late"),
            (Some(&replay), Some(start(64, 0, 0)), "all 64 pages were ready"),
            (Some(&replay), None, "4.0 MiB prefetched"),
            (Some(&resident), None, ""),
            (None, Some(first), "learned; the next start is prefetched"),
            (None, Some(start(64, 0, 0)), "learned start 2"),
            (None, None, ""),
        ] {
            assert_eq!(of(report, start.as_ref()).join("; "), expected);
        }
    }
}

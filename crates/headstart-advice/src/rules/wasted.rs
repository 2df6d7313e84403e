//! Files of which much was prefetched and little used. What the program itself copies by read(2) and then
//! does not use can't be seen.

use super::found::Found;
use crate::advice::{Rule, Start};
use crate::facts::Facts;
use crate::text::{number, percent, size};
use headstart::outcome::last_run::FileRun;

/// From this part of what was prefetched on.
const LEAST_PERCENT: u64 = 25;

pub(super) fn apply(facts: &Facts) -> Vec<Found> {
    of_last_run(facts).into_iter().collect()
}

fn of_last_run(facts: &Facts) -> Option<Found> {
    let (run, model) = (facts.learned.as_ref()?.last_run.as_ref()?, facts.model?);
    let totals = &run.totals;
    if totals.wasted.saturating_mul(100) < totals.prefetched.max(1).saturating_mul(LEAST_PERCENT) {
        return None;
    }
    let bytes = |pages: u64| pages.saturating_mul(run.page_size);
    let worst: &FileRun = run.files.iter().max_by_key(|file| file.wasted)?;
    Some(Found {
        rule: Rule::Wasted,
        file: None,
        evidence: format!(
            "the last learned start did not touch {} of {} prefetched pages ({}), {} of them in {}",
            number(totals.wasted),
            number(totals.prefetched),
            percent(totals.wasted, totals.prefetched),
            number(worst.wasted),
            worst.path.shown(),
        ),
        start: Start::Cold,
        gain_ns: bytes(totals.wasted) as f64 * 1e3 / f64::from(model.bandwidth_mb_s.max(1)),
        formula: format!(
            "{} at {} MB/s, at most: it is read in parallel with the program",
            size(bytes(totals.wasted)),
            model.bandwidth_mb_s
        ),
        command: format!("sudo headstart record --exact -- {}", facts.command_line()),
        note: String::new(),
        lowers: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::examples::CLOUD;
    use super::*;
    use crate::facts::Learned;
    use headstart::outcome::last_run::{LastRun, Totals};
    use std::path::Path;

    #[test]
    fn a_start_that_did_not_touch_a_quarter_of_what_was_prefetched_wastes() {
        for (wasted, gain) in [(250, Some(8_192_000)), (249, None), (0, None)] {
            let file = FileRun { wasted: 200, path: Path::new("/a").into(), ..FileRun::default() };
            let totals = Totals { prefetched: 1000, wasted, ..Totals::default() };
            let last_run =
                Some(LastRun { totals, page_size: 4096, files: vec![file], ..LastRun::default() });
            let learned = Some(Learned { last_run, ..Learned::default() });
            let facts = Facts { model: Some(CLOUD), learned, ..Facts::default() };
            let found = apply(&facts).pop();
            assert_eq!(found.map(|found| found.gain_ns.round() as u64), gain, "{wasted}");
        }
        assert!(apply(&Facts::default()).is_empty());
    }
}

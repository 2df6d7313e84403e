//! The floor: the least time that the device needs for a pack. Times read strategies.

use std::time::Instant;

use anyhow::Context;
use headstart::host::mounts::Mounts;
use headstart::launch::policy::Purpose;
use headstart::launch::prefetch::{self, plan, strategy_here};
use headstart::replay::plan::Plan;
use headstart::replay::report::Report;
use headstart::replay::strategy::ReadStrategy;
use headstart_bench::floor::{Search, Trial};
use headstart_sys::descriptors;

use super::measure::Bench;

/// A read strategy for a pack.
#[derive(Debug)]
pub struct Floor {
    /// The strategy.
    pub strategy: ReadStrategy,
    plan: Plan,
}

impl Floor {
    /// Reads everything and waits for it; how long that took, in seconds.
    pub fn read(&self) -> anyhow::Result<(Report, f64)> {
        let plan = self.plan.clone();
        let began = Instant::now();
        // As in a start's helper process; the programs that are started later keep their own limit.
        descriptors::allow_most_during(|| {
            let report = prefetch::start(plan, &Purpose::Floor, Mounts::default(), began)
                .context("Can't start to read")?
                .finish();
            Ok((report, began.elapsed().as_secs_f64()))
        })
    }
}

/// Tries strategies until none is left; `None` after an interrupt, or when none worked.
pub fn search(bench: &Bench, progress: impl Fn(usize)) -> anyhow::Result<(Search, Option<Floor>)> {
    let pack = [bench.known_pack()?];
    let floor =
        |strategy: ReadStrategy| Floor { strategy, plan: plan(&pack, strategy, &Purpose::Floor) };
    let usual = strategy_here(&pack[0], &Mounts::default(), &Purpose::Floor);
    let mut search = Search { usual, ..Search::default() };
    while let Some(strategy) = search.next_strategy() {
        if bench.starter.interrupt.came() {
            return Ok((search, None));
        }
        progress(search.trials.len());
        bench.get_cold()?;
        let (report, seconds) = floor(strategy).read()?;
        let worked = report.complete && report.failed == 0;
        search.trials.push(Trial { strategy, seconds: worked.then_some(seconds) });
    }
    let best = search.best().map(floor);
    Ok((search, best))
}

//! The least time the device needs for a pack: times ways of reading it.

use std::time::Instant;

use anyhow::Context;
use headstart::host::mounts::Mounts;
use headstart::launch::policy::{Bounds, strategy_here};
use headstart::replay::engine::{Options, Replay};
use headstart::replay::plan::Plan;
use headstart::replay::report::Report;
use headstart::replay::strategy::ReadStrategy;
use headstart_bench::floor::{Search, Trial};

use super::measure::Bench;

/// A way of reading a pack.
#[derive(Debug)]
pub struct Floor {
    /// The way.
    pub strategy: ReadStrategy,
    plan: Plan,
}

impl Floor {
    /// Reads everything and waits for it; how long that took, in seconds.
    pub fn read(&self) -> anyhow::Result<(Report, f64)> {
        let options = Options { wait: true, exact: true, ..Options::default() };
        let plan = self.plan.clone();
        let began = Instant::now();
        let report = Replay::start(plan, options, Mounts::default(), began)
            .context("Can't start to read")?
            .finish();
        Ok((report, began.elapsed().as_secs_f64()))
    }
}

/// Tries ways until none is left; `None` when we are to stop, or when none
/// worked.
pub fn search(bench: &Bench, progress: impl Fn(usize)) -> anyhow::Result<(Search, Option<Floor>)> {
    let pack = [bench.known_pack()?];
    let bounds = Bounds::default();
    let limits = bounds.limits();
    let floor =
        |strategy: ReadStrategy| Floor { strategy, plan: Plan::of_packs(&pack, limits, strategy) };
    let mounts = Mounts::default();
    let own = strategy_here(&pack[0], &mounts, bounds);
    // What is done for a program beside it is of no use here.
    let ReadStrategy { near_us, metadata_lead, in_flight, seek, .. } = ReadStrategy::default();
    let usual = ReadStrategy { near_us, metadata_lead, in_flight, seek, ..own };
    let mut search = Search { usual, ..Search::default() };
    while let Some(strategy) = search.next_way() {
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

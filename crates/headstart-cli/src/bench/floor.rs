//! The least time the device needs for a pack: times ways of reading it, and
//! knows where the files lie.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use anyhow::Context;
use headstart::measure::bench::floor::{Search, Trial, Way, arrange};
use headstart::replay::engine::{Options, Replay, Report};
use headstart::replay::metadata;
use headstart::replay::plan::{Plan, Target};
use headstart_sys::fiemap::{Extent, extents};

use super::measure::Bench;
use crate::session;

/// A way of reading a pack.
#[derive(Debug)]
pub struct Floor {
    /// The way.
    pub way: Way,
    plan: Plan,
}

impl Floor {
    /// Reads everything and waits for it; how long that took, in seconds.
    pub fn read(&self) -> anyhow::Result<(Report, f64)> {
        let options = Options { threads: self.way.threads, wait: true, timeout: None };
        let plan = self.plan.clone();
        let began = Instant::now();
        let report = Replay::start(plan, options, metadata::devices, began)
            .context("Can't start to read")?
            .finish();
        Ok((report, began.elapsed().as_secs_f64()))
    }
}

/// Tries ways until none is left; `None` when we are to stop, or when none
/// worked.
pub fn search(bench: &Bench, progress: impl Fn(usize)) -> anyhow::Result<(Search, Option<Floor>)> {
    let plan = session::plan(&bench.known_pack()?, None);
    let places = Places::of(&plan);
    let floor = |way: Way| Floor { way, plan: arrange(&plan, way, |t, at| places.find(t, at)) };
    let mut search = Search::default();
    while let Some(way) = search.next_way() {
        if bench.starter.interrupt.came() {
            return Ok((search, None));
        }
        progress(search.trials.len());
        bench.get_cold()?;
        let (report, seconds) = floor(way).read()?;
        let worked = report.complete && report.failed == 0;
        search.trials.push(Trial { way, seconds: worked.then_some(seconds) });
    }
    let best = search.best().map(floor);
    Ok((search, best))
}

/// Where the targets of a plan lie.
struct Places {
    /// The device's number, and for a file its extents.
    targets: Vec<Option<(u64, Option<Vec<Extent>>)>>,
}

impl Places {
    fn of(plan: &Plan) -> Self {
        let devices: HashMap<[u8; 16], _> = metadata::devices(plan);
        let target = |target: &Target| match target {
            Target::Device(fs) => Some((devices.get(&fs.uuid?)?.metadata().ok()?.rdev(), None)),
            Target::File { node, .. } => {
                let file = File::open(plan.paths.path(*node)).ok()?;
                let dev = file.metadata().ok()?.dev();
                // Without an answer the file keeps its place in touch order.
                Some((dev, Some(extents(&file).ok()?)))
            }
        };
        Self { targets: plan.targets.iter().map(target).collect() }
    }

    fn find(&self, target: u32, offset: u64) -> Option<(u64, u64)> {
        let (device, extents) = self.targets.get(target as usize)?.as_ref()?;
        let Some(extents) = extents else { return Some((*device, offset)) };
        let extent = extents.iter().find(|e| offset < e.logical + e.length)?;
        Some((*device, extent.physical + offset.saturating_sub(extent.logical)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_found_in_its_extent_and_one_in_a_hole_before_the_next() {
        let extent = |logical, physical| Extent { logical, physical, length: 100 };
        let file = vec![extent(0, 5000), extent(300, 1000)];
        let places = Places { targets: vec![Some((7, Some(file))), Some((8, None)), None] };
        for (target, offset, expected) in [
            (0, 50, Some((7, 5050))),
            (0, 350, Some((7, 1050))),
            (0, 200, Some((7, 1000))),
            (0, 400, None),
            (1, 12, Some((8, 12))),
            (2, 0, None),
            (3, 0, None),
        ] {
            assert_eq!(places.find(target, offset), expected, "{target} {offset}");
        }
    }
}

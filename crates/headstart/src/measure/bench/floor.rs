//! The least time the device needs for a start's pages: which way of reading
//! them is the fastest, found by trying. Pure; the driver times each way.
//!
//! A way is an order, a number of threads, a step size and the size of holes
//! that are read with their neighbours. Where each file lies on its device is
//! given by the caller.

use std::fmt;

use serde::Serialize;

use crate::replay::plan::{GAP_BYTES, Plan, STEP_BYTES, Step, Target};

/// In which order steps are read. Metadata comes first in either.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Sweep {
    /// As starts touch them.
    Touch,
    /// As they lie on the device.
    Disk,
}

/// A way of reading a plan.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
pub struct Way {
    /// The order.
    pub order: Sweep,
    /// How many threads ask.
    pub threads: usize,
    /// The largest step, in bytes.
    pub step_bytes: u64,
    /// The largest hole that is read too, in bytes.
    pub gap_bytes: u64,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = match self.order {
            Sweep::Touch => "touch",
            Sweep::Disk => "disk",
        };
        let threads = if self.threads == 1 { "thread" } else { "threads" };
        write!(
            f,
            "{order} order, {} {threads}, steps of {} KiB, holes up to {} KiB read too",
            self.threads,
            self.step_bytes >> 10,
            self.gap_bytes >> 10
        )
    }
}

/// One timed way.
#[derive(Clone, Copy, PartialEq, Serialize, Debug)]
pub struct Trial {
    /// The way.
    pub way: Way,
    /// How long it took; `None` when it failed.
    pub seconds: Option<f64>,
}

/// How often a promising way is tried.
const TRIES: usize = 2;
/// A way that took so many times the best is not tried again.
const HOPELESS: f64 = 1.3;

/// A search through the ways: order first, then threads, then steps and holes,
/// each with the best found before.
#[derive(Clone, PartialEq, Default, Serialize, Debug)]
pub struct Search {
    /// What was tried, in this order.
    pub trials: Vec<Trial>,
}

impl Search {
    /// What to try next; `None` when the search is over.
    pub fn next_way(&self) -> Option<Way> {
        let start =
            |order, threads| Way { order, threads, step_bytes: STEP_BYTES, gap_bytes: GAP_BYTES };
        let orders =
            [(Sweep::Touch, 4), (Sweep::Disk, 4), (Sweep::Disk, 1)].map(|(o, t)| start(o, t));
        self.open(&orders)
            .or_else(|| {
                let best = self.best()?;
                let threads = [1, 4, 16, 64].map(|threads| start(best.order, threads));
                self.open(&threads)
            })
            .or_else(|| {
                let best = self.best()?;
                let sizes = [(128, 0), (512, 32), (1024, 64), (2048, 256)].map(|(step, gap)| Way {
                    step_bytes: step << 10,
                    gap_bytes: gap << 10,
                    ..best
                });
                self.open(&sizes)
            })
    }

    /// The first of these that should still be tried.
    fn open(&self, ways: &[Way]) -> Option<Way> {
        let best = self.times().map(|(_, time)| time).fold(f64::INFINITY, f64::min);
        let is_open = |way: &&Way| {
            let tried: Vec<_> = self.trials.iter().filter(|trial| trial.way == **way).collect();
            let hopeless = |trial: &&Trial| trial.seconds.is_none_or(|time| time > HOPELESS * best);
            tried.len() < TRIES && !tried.iter().any(hopeless)
        };
        ways.iter().find(is_open).copied()
    }

    /// The fastest way so far.
    pub fn best(&self) -> Option<Way> {
        self.times().min_by(|a, b| a.1.total_cmp(&b.1)).map(|(way, _)| way)
    }

    fn times(&self) -> impl Iterator<Item = (Way, f64)> {
        self.trials.iter().filter_map(|trial| Some((trial.way, trial.seconds?)))
    }
}

/// A plan rearranged for a way. `place` tells the device and the position on it
/// of a target's byte, for [`Sweep::Disk`]; what has no place comes last, in
/// touch order.
pub fn arrange(plan: &Plan, way: Way, place: impl Fn(u32, u64) -> Option<(u64, u64)>) -> Plan {
    let mut wanted: Vec<(usize, Step)> = plan.steps.iter().copied().enumerate().collect();
    wanted.sort_by_key(|(_, step)| (step.target, step.offset));
    let mut joined: Vec<(usize, Step)> = Vec::with_capacity(wanted.len());
    for (order, step) in wanted {
        let mut from = step.offset;
        let end = step.offset + step.length;
        if let Some((first, last)) = joined.last_mut() {
            let last_end = last.offset + last.length;
            let near = last.target == step.target
                && step.offset <= last_end.saturating_add(way.gap_bytes)
                && step.offset < last.offset + way.step_bytes;
            if near {
                last.length = last_end.max(end.min(last.offset + way.step_bytes)) - last.offset;
                *first = order.min(*first);
                from = from.max(last.offset + last.length);
            }
        }
        while from < end {
            let length = way.step_bytes.max(1).min(end - from);
            joined.push((order, Step { target: step.target, offset: from, length }));
            from += length;
        }
    }
    let is_data = |step: &Step| matches!(plan.targets[step.target as usize], Target::File { .. });
    joined.sort_by_key(|(order, step)| match way.order {
        Sweep::Touch => (is_data(step), None, *order, step.offset),
        Sweep::Disk => {
            let place = place(step.target, step.offset).unwrap_or((u64::MAX, u64::MAX));
            (is_data(step), Some(place), *order, step.offset)
        }
    });
    Plan {
        paths: plan.paths.clone(),
        targets: plan.targets.clone(),
        steps: joined.into_iter().map(|(_, step)| step).collect(),
        // Nobody waits for a part of it.
        head: 0,
        over_budget: plan.over_budget,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::FileSystem;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const KIB: u64 = 1 << 10;

    /// Target 0 is a device, 1 to 3 are files.
    fn plan(steps: &[(u32, u64, u64)]) -> Plan {
        let file = || Target::File { node: Default::default(), identity: None };
        let step = |&(target, offset, length): &(u32, u64, u64)| Step {
            target,
            offset: offset * KIB,
            length: length * KIB,
        };
        Plan {
            targets: vec![Target::Device(FileSystem::default()), file(), file(), file()],
            steps: steps.iter().map(step).collect(),
            ..Plan::default()
        }
    }

    fn shape(plan: &Plan) -> Vec<(u32, u64, u64)> {
        plan.steps.iter().map(|s| (s.target, s.offset / KIB, s.length / KIB)).collect()
    }

    fn way(order: Sweep, step: u64, gap: u64) -> Way {
        Way { order, threads: 1, step_bytes: step * KIB, gap_bytes: gap * KIB }
    }

    #[test]
    fn steps_are_joined_cut_and_sorted_with_metadata_first() {
        let steps = [(2, 0, 8), (1, 64, 8), (0, 12, 4), (1, 0, 8), (2, 8, 8)];
        let on_disk = |target: u32, offset: u64| (target != 3).then_some((9, 1_000_000 - offset));
        for (way, expected) in [
            (way(Sweep::Touch, 512, 0), vec![(0, 12, 4), (2, 0, 16), (1, 64, 8), (1, 0, 8)]),
            (way(Sweep::Touch, 512, 64), vec![(0, 12, 4), (2, 0, 16), (1, 0, 72)]),
            (
                way(Sweep::Touch, 8, 0),
                vec![(0, 12, 4), (2, 0, 8), (1, 64, 8), (1, 0, 8), (2, 8, 8)],
            ),
            (way(Sweep::Disk, 512, 0), vec![(0, 12, 4), (1, 64, 8), (2, 0, 16), (1, 0, 8)]),
        ] {
            assert_eq!(shape(&arrange(&plan(&steps), way, on_disk)), expected, "{way}");
        }
        let lost = arrange(&plan(&[(3, 0, 8), (1, 0, 8)]), way(Sweep::Disk, 512, 0), on_disk);
        assert_eq!(shape(&lost), [(1, 0, 8), (3, 0, 8)], "what has no place comes last");
    }

    /// Lets a search try ways that take as long as `cost` says.
    fn searched(cost: impl Fn(Way) -> Option<f64>) -> Search {
        let mut search = Search::default();
        while let Some(way) = search.next_way() {
            search.trials.push(Trial { way, seconds: cost(way) });
            assert!(search.trials.len() < 50, "the search does not end");
        }
        search
    }

    #[test]
    fn the_search_finds_what_suits_a_disk_and_what_suits_a_network() {
        let disk = searched(|way| {
            let order = if way.order == Sweep::Disk { 1.0 } else { 3.0 };
            Some(order + way.threads as f64 * 0.1 + 100.0 / way.step_bytes as f64)
        });
        let best = disk.best().unwrap();
        assert_eq!((best.order, best.threads, best.step_bytes), (Sweep::Disk, 1, 2048 * KIB));
        let network = searched(|way| Some(64.0 / way.threads as f64 + way.gap_bytes as f64 / 1e6));
        let best = network.best().unwrap();
        assert_eq!((best.threads, best.gap_bytes), (64, 0));
        assert!(disk.trials.len() <= 20 && network.trials.len() <= 20);
    }

    #[test]
    fn ways_that_fail_end_the_search_without_a_best() {
        let search = searched(|_| None);
        assert_eq!(search.best(), None);
        assert_eq!(search.trials.len(), 3, "each order once");
    }

    proptest! {
        #[test]
        fn everything_wanted_is_read_once_in_steps_of_the_size_asked_for(
            steps in prop::collection::vec((0u32..4, 0u64..900, 1u64..600), 0..20),
            disk in any::<bool>(),
            size in 1u64..700,
            gap in 0u64..100,
        ) {
            let plan = plan(&steps);
            let order = if disk { Sweep::Disk } else { Sweep::Touch };
            let arranged = arrange(&plan, way(order, size, gap), |t, o| Some((t.into(), o)));
            let mut read = BTreeSet::new();
            for (target, offset, length) in shape(&arranged) {
                prop_assert!(length <= size);
                for kib in offset..offset + length {
                    prop_assert!(read.insert((target, kib)), "twice");
                }
            }
            for (target, offset, length) in steps {
                for kib in offset..offset + length {
                    prop_assert!(read.contains(&(target, kib)));
                }
            }
        }
    }
}

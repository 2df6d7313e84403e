//! The plan: what is read, in which order and in which portions. Pure.

use crate::host::range::{ByteRange, PageRange};
use crate::pack::changing::changes_often;
use crate::pack::paths::{NodeId, PathInterner, PathTable};
use crate::pack::{FileSystem, Pack};
use crate::replay::frequency::{Choice, Frequency};
use crate::replay::gaps::Gaps;
use crate::replay::interleave::{Interleaved, interleaved};
use crate::replay::list::Entry;
use crate::replay::portions::{PlannedRange, joined};
use crate::replay::ranges::Ranges;
use crate::replay::step::{Step, Target};
use crate::replay::strategy::{Order, ReadStrategy};
use crate::replay::touches::Touches;
use std::path::PathBuf;
use std::slice;

/// A whole replay.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// Names of the targets.
    pub paths: PathTable,
    /// Files and devices.
    pub targets: Vec<Target>,
    /// How they are read.
    pub strategy: ReadStrategy,
    /// Portions in the order in which they are read; in elevator order those of files
    /// are sorted when it is known where these lie.
    pub steps: Vec<Step>,
    /// What steps of files read only because of what is around it.
    pub gaps: Gaps,
    /// When the ranges of files are touched; only in elevator order, where parts of a step may be read apart.
    pub touches: Touches,
    /// Steps at the beginning that read metadata, before the first that reads data.
    pub metadata: usize,
    /// Steps at the beginning that the program needs at once: what it touches within
    /// [`super::step::HEAD_US`], and the metadata that goes ahead of that.
    pub head: usize,
    /// Targets of which the last page is read, with where that began when it was learned; sorted.
    pub tails: Vec<(u32, u64)>,
    /// Files that starts change, also those of which nothing is read.
    pub changing: Vec<u32>,
    /// Whether the start appends to files that it reads, such as a journal.
    pub appends: bool,
    /// Bytes skipped because the budget was used up.
    pub over_budget: u64,
    /// Bytes skipped because too few starts touch them.
    pub seldom: u64,
}

/// What bounds a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes that may be read.
    pub budget: u64,
    /// Whether metadata is read through the block device, which takes root.
    pub metadata: bool,
}

impl Plan {
    /// The plan for those ranges of packs that starts touch `often`: data with metadata ahead of
    /// it, in touch order; in elevator order, metadata in the order of the device.
    pub fn of_packs(
        packs: &[Pack],
        often: Frequency,
        limits: Limits,
        strategy: ReadStrategy,
    ) -> Self {
        let choices: Vec<_> = packs.iter().map(|pack| often.choice(pack)).collect();
        Self::of_chosen(packs, &choices, limits, strategy)
    }

    /// The plan for the chosen ranges of one pack.
    pub fn of_pack(pack: &Pack, choice: &Choice, limits: Limits, strategy: ReadStrategy) -> Self {
        Self::of_chosen(slice::from_ref(pack), slice::from_ref(choice), limits, strategy)
    }

    fn of_chosen(
        packs: &[Pack],
        choices: &[Choice],
        limits: Limits,
        strategy: ReadStrategy,
    ) -> Self {
        let mut plan = Self { strategy, ..Self::default() };
        let (mut metadata, mut data) = (Vec::new(), Vec::new());
        let mut names = PathInterner::default();
        for (pack, choice) in packs.iter().zip(choices) {
            let page = pack.page_size();
            let range = |target, pages: PageRange, order| {
                PlannedRange::new(target, pages.bytes(page), order)
            };
            let mut skipped = 0;
            let mut is_chosen = |chosen: bool, pages: u32| {
                skipped += if chosen { 0 } else { u64::from(pages) };
                chosen
            };
            if limits.metadata {
                let base = plan.targets.len() as u32;
                let device = |fs: &FileSystem| Target::Device(Box::new(fs.clone()));
                plan.targets.extend(pack.file_systems.iter().map(device));
                metadata.extend(
                    pack.metadata
                        .iter()
                        .filter(|r| is_chosen(choice.has_metadata(r), r.pages))
                        .map(|r| range(base + u32::from(r.file_system), r.page_range(), r.at_us)),
                );
            }
            let base = plan.targets.len() as u32;
            // One pack keeps its table; several share one.
            let shared = (packs.len() > 1).then(|| names.adopt(&pack.paths));
            let node = |of: NodeId| match &shared {
                Some(nodes) => nodes.get(of.0 as usize).copied().flatten().unwrap_or_default(),
                None => of,
            };
            plan.targets.extend(pack.files.iter().map(|file| Target::File {
                node: node(file.node),
                identity: Some(file.identity),
                changing: changes_often(file.changes),
            }));
            data.extend(
                pack.ranges
                    .iter()
                    .filter(|r| is_chosen(choice.has(r), r.pages))
                    .map(|r| range(base + r.file, r.page_range(), r.at_us)),
            );
            plan.appends |= !choice.growths().is_empty();
            data.extend(choice.growths().iter().map(|g| range(base + g.file, g.pages, g.at_us)));
            let tails = choice
                .tails()
                .iter()
                .map(|t| range(base + t.file, PageRange::of(t.page, 1), t.at_us));
            plan.tails.extend(tails.clone().map(|tail| (tail.target, tail.bytes.offset)));
            data.extend(tails);
            plan.seldom = plan.seldom.saturating_add(page.saturating_mul(skipped));
        }
        plan.tails.sort_unstable();
        let is_changing = |number: &u32| plan.targets[*number as usize].is_changing();
        plan.changing = (0..plan.targets.len() as u32).filter(is_changing).collect();
        plan.paths = match packs {
            [one] => one.paths.clone(),
            _ => names.finish(),
        };
        if strategy.order == Order::Elevator {
            metadata.iter_mut().for_each(|w| (w.order, w.latest) = (0, 0));
        }
        let (metadata, _) = plan.cut(metadata, strategy.metadata_gap_bytes(), limits.budget);
        let left = limits.budget.saturating_sub(bytes(&metadata));
        if strategy.order == Order::Elevator {
            plan.touches = Touches::of(&data);
        }
        let (data, gaps) = plan.cut(data, strategy.gap_bytes, left);
        plan.gaps = gaps;
        let found = interleaved(&metadata, &data, strategy.metadata_lead());
        Interleaved { steps: plan.steps, before_data: plan.metadata, head: plan.head } = found;
        plan
    }

    /// The plan for a list, in its order. Paths are absolute; `size` returns the length of a whole
    /// file.
    pub fn of_list(
        entries: &[Entry],
        size: impl Fn(&PathBuf) -> Option<u64>,
        limits: Limits,
        strategy: ReadStrategy,
    ) -> Self {
        let mut plan = Self { strategy, ..Self::default() };
        let mut names = PathInterner::default();
        let mut wanted = Vec::new();
        for entry in entries {
            let Some(node) = names.intern(&entry.path) else { continue };
            let target = plan.targets.len() as u32;
            plan.targets.push(Target::File { node, identity: None, changing: false });
            // A file of unknown size is opened, which shows why it is unknown.
            let end = || size(&entry.path).unwrap_or(1);
            let whole = ByteRange::of(0, if entry.ranges.is_empty() { end() } else { 0 });
            wanted.extend(
                entry
                    .ranges
                    .iter()
                    .chain([&whole])
                    .filter(|r| !r.is_empty())
                    .map(|range| PlannedRange::new(target, *range, target)),
            );
        }
        plan.paths = names.finish();
        let bytes = wanted.iter().fold(0u64, |sum, w| sum.saturating_add(w.bytes.length()));
        let ranges = Ranges { count: wanted.len() as u64, bytes, gaps: Vec::new() };
        plan.strategy.batched |= ranges.are_small();
        (plan.steps, plan.gaps) = plan.cut(wanted, strategy.gap_bytes, limits.budget);
        // The first file.
        plan.head = plan.steps.partition_point(|step| step.touched_us == 0);
        plan
    }

    /// Bytes of all steps.
    pub fn bytes(&self) -> u64 {
        bytes(&self.steps)
    }

    /// Cuts ranges into portions until the budget is used up. The rest is not cut: a range of a
    /// hostile pack may have half a billion portions. The gaps in them are returned, too.
    fn cut(&mut self, wanted: Vec<PlannedRange>, gap: u64, budget: u64) -> (Vec<Step>, Gaps) {
        let (mut steps, mut left) = (Vec::new(), budget);
        let step = self.strategy.step_bytes.max(1);
        let (ranges, gaps) = joined(wanted, gap, step, self.strategy.near_us);
        for range in ranges {
            let PlannedRange { target, bytes: mut rest, order, .. } = range;
            while !rest.is_empty() && left > 0 {
                let bytes = ByteRange::of(rest.offset, step.min(rest.length()).min(left));
                steps.push(Step { target, bytes, touched_us: order });
                rest.offset = bytes.end;
                left -= bytes.length();
            }
            self.over_budget = self.over_budget.saturating_add(rest.length());
        }
        (steps, Gaps::new(gaps))
    }
}

fn bytes(steps: &[Step]) -> u64 {
    steps.iter().map(|s| s.bytes.length()).sum()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;

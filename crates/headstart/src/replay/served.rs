//! Divides a plan: files that are reached without a server, and for each server those that it
//! serves, whose threads may wait for ever and must not keep the others from being read. Pure.

use super::plan::Plan;
use super::step::{Step, Target};
use crate::host::id::Dev;
use crate::host::mounts::MountTable;
use std::collections::HashMap;

/// A plan of files that need the same servers.
#[derive(Clone, PartialEq, Debug)]
pub struct Served {
    /// The file systems of these servers, the nearest first.
    pub servers: Vec<Dev>,
    /// What is read of them.
    pub plan: Plan,
}

impl Plan {
    /// The plan without files that need a server, and those of each server.
    pub fn divided(mut self, mounts: &MountTable) -> (Self, Vec<Served>) {
        let points = mounts.served();
        if points.is_empty() {
            return (self, Vec::new());
        }
        let below = self.paths.below(&points);
        let mut numbers: HashMap<Vec<Dev>, usize> = HashMap::new();
        let mut part_of = |target: &Target| {
            let node = target.node().filter(|node| below.get(node.0 as usize) == Some(&true))?;
            let servers = mounts.servers_at(&self.paths.path(node));
            let next = numbers.len();
            Some(*numbers.entry(servers).or_insert(next))
        };
        let parts: Vec<Option<usize>> = self.targets.iter().map(&mut part_of).collect();
        // Files of which nothing is read are looked at only where no server has to answer.
        self.changing.retain(|target| parts.get(*target as usize) == Some(&None));
        let part = |step: &Step| parts.get(step.target as usize).copied().flatten();
        if !self.steps.iter().any(|step| part(step).is_some()) {
            return (self, Vec::new());
        }
        let mut of_servers: Vec<_> = numbers.into_iter().collect();
        of_servers.sort_by_key(|(_, number)| *number);
        let served = of_servers.into_iter().map(|(servers, number)| {
            let plan = self.only(|step| part(step) == Some(number));
            let plan = Self { over_budget: 0, seldom: 0, changing: Vec::new(), ..plan };
            Served { servers, plan }
        });
        let served = served.filter(|served| !served.plan.steps.is_empty()).collect();
        (self.only(|step| part(step).is_none()), served)
    }

    /// How many files its steps are of.
    pub fn files(&self) -> u64 {
        let mut targets: Vec<u32> = self.steps.iter().map(|step| step.target).collect();
        targets.sort_unstable();
        targets.dedup();
        targets.len() as u64
    }

    /// Only some of the steps.
    fn only(&self, is_wanted: impl Fn(&Step) -> bool) -> Self {
        let count = |steps: &[Step]| steps.iter().filter(|step| is_wanted(step)).count();
        Self {
            metadata: count(&self.steps[..self.metadata]),
            head: count(&self.steps[..self.head]),
            steps: self.steps.iter().filter(|step| is_wanted(step)).copied().collect(),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::mounts::parse;
    use crate::host::range::ByteRange;
    use crate::pack::paths::{NodeId, PathTable};

    #[test]
    fn a_plan_is_divided_by_the_servers_that_it_needs_and_keeps_its_order() {
        let mut paths = PathTable::default();
        let mut add = |parent, name: &str| paths.push(parent, name.as_bytes()).unwrap();
        let (net, far) = (add(NodeId::ROOT, "net"), add(NodeId::ROOT, "far"));
        let (local, beside) = (add(NodeId::ROOT, "local"), add(NodeId::ROOT, "network"));
        let (served, other) = (add(net, "file"), add(far, "file"));
        let file = |node| Target::File { node, identity: None, changing: false };
        let targets = [Target::Device(Box::default())]
            .into_iter()
            .chain([local, served, beside, other].map(file))
            .collect();
        let step = |target, offset| Step { target, bytes: ByteRange::of(offset, 1), touched_us: 0 };
        let steps = [(0, 0), (2, 1), (1, 2), (3, 3), (2, 4), (4, 5)];
        let steps = steps.map(|(target, offset)| step(target, offset)).to_vec();
        let changing = vec![1, 2, 4];
        let plan =
            Plan { paths, targets, steps, changing, metadata: 1, head: 3, ..Plan::default() };
        let plan = Plan { over_budget: 7, ..plan };
        let mounts = |text: &str| MountTable::new(parse(text.as_bytes()).unwrap(), None);
        let offsets =
            |plan: &Plan| plan.steps.iter().map(|step| step.bytes.offset).collect::<Vec<_>>();

        let root = "1 0 8:1 / / rw - ext4 /dev/sda rw\n";
        let (all, none) = plan.clone().divided(&mounts(root));
        assert_eq!((&all, none), (&plan, Vec::new()));
        let elsewhere = format!("{root}2 1 0:9 / /other rw - nfs4 server:/ rw\n");
        assert_eq!(plan.clone().divided(&mounts(&elsewhere)).1, []);

        let here = format!(
            "{root}2 1 0:9 / /net rw - nfs4 server:/ rw\n3 1 0:10 / /far rw - fuse.far far rw\n"
        );
        let unread = Plan { steps: plan.steps[..1].to_vec(), head: 1, ..plan.clone() };
        assert_eq!(unread.divided(&mounts(&here)).0.changing, [1], "nothing is read of a server");
        let (rest, parts) = plan.divided(&mounts(&here));
        assert_eq!((offsets(&rest), &rest.changing[..]), (vec![0, 2, 3], &[1][..]));
        assert!(parts.iter().all(|part| part.plan.changing.is_empty()));
        assert_eq!((rest.metadata, rest.head, rest.over_budget), (1, 2, 7));
        let [served, other] = &parts[..] else { panic!("{parts:?}") };
        assert_eq!(
            (&served.servers[..], offsets(&served.plan)),
            (&[Dev::new(0, 9)][..], vec![1, 4])
        );
        assert_eq!((&other.servers[..], offsets(&other.plan)), (&[Dev::new(0, 10)][..], vec![5]));
        assert_eq!((served.plan.files(), other.plan.files()), (1, 1));
        let Plan { metadata, head, over_budget, .. } = served.plan;
        assert_eq!((metadata, head, over_budget), (0, 1, 0));
    }
}

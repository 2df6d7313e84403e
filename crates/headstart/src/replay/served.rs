//! Divides a plan: files that are reached without a server, and those that are not, whose
//! threads may wait for ever and must not keep the others from being read. Pure.

use super::plan::Plan;
use super::step::{Step, Target};
use crate::host::mounts::MountTable;

impl Plan {
    /// The plan without files that need a server, and one of those, if there are any.
    pub fn divided(self, mounts: &MountTable) -> (Self, Option<Self>) {
        let points = mounts.served();
        if points.is_empty() {
            return (self, None);
        }
        let below = self.paths.below(&points);
        let needs_server = |target: &Target| {
            target.node().is_some_and(|node| below.get(node.0 as usize) == Some(&true))
        };
        let is_served: Vec<bool> = self.targets.iter().map(needs_server).collect();
        let of = |step: &Step| is_served.get(step.target as usize) == Some(&true);
        if !self.steps.iter().any(of) {
            return (self, None);
        }
        let served = Self { over_budget: 0, seldom: 0, ..self.only(of) };
        (self.only(|step| !of(step)), Some(served))
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
    use crate::pack::FileSystem;
    use crate::pack::paths::{NodeId, PathTable};

    #[test]
    fn a_plan_is_divided_by_what_needs_a_server_and_keeps_its_order() {
        let mut paths = PathTable::default();
        let mut add = |parent, name: &str| paths.push(parent, name.as_bytes()).unwrap();
        let net = add(NodeId::ROOT, "net");
        let (local, beside) = (add(NodeId::ROOT, "local"), add(NodeId::ROOT, "network"));
        let served = add(net, "file");
        let file = |node| Target::File { node, identity: None, changing: false };
        let targets =
            vec![Target::Device(FileSystem::default()), file(local), file(served), file(beside)];
        let step = |target, offset| Step { target, bytes: ByteRange::of(offset, 1), touched_us: 0 };
        let steps = vec![step(0, 0), step(2, 1), step(1, 2), step(3, 3), step(2, 4)];
        let plan =
            Plan { paths, targets, steps, metadata: 1, head: 3, over_budget: 7, ..Plan::default() };
        let mounts = |text: &str| MountTable::new(parse(text.as_bytes()).unwrap(), None);
        let offsets =
            |plan: &Plan| plan.steps.iter().map(|step| step.bytes.offset).collect::<Vec<_>>();

        let root = "1 0 8:1 / / rw - ext4 /dev/sda rw\n";
        let (all, none) = plan.clone().divided(&mounts(root));
        assert_eq!((&all, none), (&plan, None));
        let elsewhere = format!("{root}2 1 0:9 / /other rw - nfs4 server:/ rw\n");
        assert_eq!(plan.clone().divided(&mounts(&elsewhere)).1, None);

        let here = format!("{root}2 1 0:9 / /net rw - nfs4 server:/ rw\n");
        let (rest, served) = plan.divided(&mounts(&here));
        let served = served.unwrap();
        assert_eq!((offsets(&rest), offsets(&served)), (vec![0, 2, 3], vec![1, 4]));
        assert_eq!((rest.metadata, rest.head, rest.over_budget), (1, 2, 7));
        assert_eq!((served.metadata, served.head, served.over_budget), (0, 1, 0));
    }
}

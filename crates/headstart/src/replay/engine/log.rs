//! What a replay requested, and when, with the inodes that changing files had; learning finds late pages and the
//! names of replaced files with it.

use crate::pack::EarlierNames;
use crate::pack::paths::{NodeId, PathTable};
use crate::replay::plan::Plan;
use crate::replay::step::{Step, Target};
use std::path::PathBuf;

/// A step that was requested, because not all of it was in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Requested {
    /// The step.
    pub step: Step,
    /// When, in µs from the beginning of the process.
    pub at_us: u64,
}

/// What a replay requested.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Log(Vec<OfPlan>);

/// What was requested of a plan, and what it takes to name the files of that: the plan itself is several
/// times as large, and a log may wait for a while until it is learned.
#[derive(Clone, PartialEq, Eq, Debug)]
struct OfPlan {
    paths: PathTable,
    /// The name of each target that is a file.
    nodes: Vec<Option<NodeId>>,
    requested: Vec<Requested>,
    /// The inodes of changing files, with their names.
    inodes: Vec<(u64, NodeId)>,
}

impl Log {
    pub(super) fn of(
        plan: Plan,
        mut requested: Vec<Requested>,
        inodes: Vec<(u64, NodeId)>,
    ) -> Self {
        if requested.is_empty() && inodes.is_empty() {
            return Self::default();
        }
        requested.shrink_to_fit();
        let nodes = plan.targets.iter().map(Target::node).collect();
        Self(vec![OfPlan { paths: plan.paths, nodes, requested, inodes }])
    }

    /// The names that changing files had by their inodes, before the start replaced them.
    pub fn names(&self) -> EarlierNames {
        let mut names = EarlierNames::new();
        for OfPlan { paths, inodes, .. } in &self.0 {
            for (ino, node) in inodes {
                names.entry(*ino).or_default().push(paths.path(*node));
            }
        }
        names
    }

    /// Adds what another plan had requested, of other files.
    pub(super) fn add(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Visits the files with requested parts, each with its parts in any order.
    pub fn each_file(&self, mut visit: impl FnMut(PathBuf, &[Requested])) {
        for OfPlan { paths, nodes, requested, .. } in &self.0 {
            let mut requested = requested.clone();
            requested.sort_by_key(|requested| (requested.step.target, requested.step.bytes.offset));
            for parts in requested.chunk_by(|a, b| a.step.target == b.step.target) {
                let target = parts[0].step.target as usize;
                if let Some(node) = nodes.get(target).copied().flatten() {
                    visit(paths.path(node), parts);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::range::ByteRange;
    use crate::pack::paths::PathInterner;

    #[test]
    fn each_file_is_visited_with_all_its_parts_and_no_device_is() {
        let mut names = PathInterner::default();
        let mut file = |path: &str| {
            let node = names.intern(path.as_ref()).unwrap();
            Target::File { node, identity: None, changing: false }
        };
        let targets = vec![Target::Device(Box::default()), file("/d/a"), file("/d/b")];
        let plan =
            || Plan { targets: targets.clone(), paths: names.table().clone(), ..Plan::default() };
        let part = |target, offset, at_us| {
            let step = Step { target, bytes: ByteRange::of(offset, 10), touched_us: 0 };
            Requested { step, at_us }
        };
        // The last target is in no plan.
        let requested =
            [part(2, 20, 1), part(0, 0, 2), part(1, 0, 3), part(2, 10, 4), part(3, 0, 5)];
        let mut log = Log::of(plan(), requested.to_vec(), Vec::new());
        log.add(Log::of(plan(), vec![part(1, 30, 6)], Vec::new()));
        log.add(Log::of(plan(), Vec::new(), Vec::new()));
        let mut found = Vec::new();
        log.each_file(|path, parts| {
            let times: Vec<_> = parts.iter().map(|part| part.at_us).collect();
            found.push((path.to_str().unwrap().to_owned(), times));
        });
        let expected = [("/d/a", vec![3]), ("/d/b", vec![4, 1]), ("/d/a", vec![6])];
        assert_eq!(found, expected.map(|(path, times)| (path.to_owned(), times)));
    }

    #[test]
    fn names_of_changing_files_are_found_by_their_inodes() {
        let mut names = PathInterner::default();
        let [a, b] = ["/d/a", "/d/b"].map(|path| names.intern(path.as_ref()).unwrap());
        let plan = || Plan { paths: names.table().clone(), ..Plan::default() };
        let mut log = Log::of(plan(), Vec::new(), vec![(7, a)]);
        log.add(Log::of(plan(), Vec::new(), vec![(7, b), (8, b)]));
        let expected = [(7, vec!["/d/a".into(), "/d/b".into()]), (8, vec!["/d/b".into()])];
        assert_eq!(log.names(), expected.into());
    }
}

//! What a replay requested, and when; learning finds late pages with it.

use crate::replay::plan::Plan;
use crate::replay::step::{Step, Target};
use std::path::PathBuf;
use std::sync::Arc;

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
pub struct Log(Vec<(Arc<Plan>, Vec<Requested>)>);

impl Log {
    pub(super) fn of(plan: Arc<Plan>, requested: Vec<Requested>) -> Self {
        Self(vec![(plan, requested)])
    }

    /// Adds what another plan had requested, of other files.
    pub(super) fn add(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Visits the files with requested parts, each with its parts in any order.
    pub fn each_file(&self, mut visit: impl FnMut(PathBuf, &[Requested])) {
        for (plan, requested) in &self.0 {
            let mut requested = requested.clone();
            requested.sort_by_key(|requested| (requested.step.target, requested.step.bytes.offset));
            for parts in requested.chunk_by(|a, b| a.step.target == b.step.target) {
                if let Some(Target::File { node, .. }) =
                    plan.targets.get(parts[0].step.target as usize)
                {
                    visit(plan.paths.path(*node), parts);
                }
            }
        }
    }
}

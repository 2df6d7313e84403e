//! What a replay asked for, and when: with it a learned start tells what was late.

use crate::replay::plan::Plan;
use crate::replay::step::{Step, Target};
use std::path::PathBuf;
use std::sync::Arc;

/// A step that was asked for, because not all of it was in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// The step.
    pub step: Step,
    /// When, in µs from the begin of the process.
    pub at_us: u64,
}

/// What a replay asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Log {
    plan: Arc<Plan>,
    asked: Vec<Asked>,
}

impl Log {
    pub(super) fn of(plan: Arc<Plan>, asked: Vec<Asked>) -> Self {
        Self { plan, asked }
    }

    /// The files that parts were asked of, each with its parts in any order.
    pub fn files(&self) -> Vec<(PathBuf, Vec<Asked>)> {
        let mut asked = self.asked.clone();
        asked.sort_by_key(|asked| (asked.step.target, asked.step.offset));
        let same = asked.chunk_by(|a, b| a.step.target == b.step.target);
        same.filter_map(|parts| match self.plan.targets.get(parts[0].step.target as usize)? {
            Target::File { node, .. } => Some((self.plan.paths.path(*node), parts.to_vec())),
            Target::Device(_) => None,
        })
        .collect()
    }
}

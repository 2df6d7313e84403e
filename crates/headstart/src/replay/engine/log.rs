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
pub struct Log(Vec<(Arc<Plan>, Vec<Asked>)>);

impl Log {
    pub(super) fn of(plan: Arc<Plan>, asked: Vec<Asked>) -> Self {
        Self(vec![(plan, asked)])
    }

    /// Adds what another plan had asked for, of other files.
    pub(super) fn add(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// The files that parts were asked of, each with its parts in any order.
    pub fn files(&self) -> Vec<(PathBuf, Vec<Asked>)> {
        self.0.iter().flat_map(|(plan, asked)| files_of(plan, asked)).collect()
    }
}

fn files_of(plan: &Plan, asked: &[Asked]) -> Vec<(PathBuf, Vec<Asked>)> {
    let mut asked = asked.to_vec();
    asked.sort_by_key(|asked| (asked.step.target, asked.step.bytes.offset));
    let same = asked.chunk_by(|a, b| a.step.target == b.step.target);
    same.filter_map(|parts| match plan.targets.get(parts[0].step.target as usize)? {
        Target::File { node, .. } => Some((plan.paths.path(*node), parts.to_vec())),
        Target::Device(_) => None,
    })
    .collect()
}

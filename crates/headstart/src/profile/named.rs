//! The files of a pack by their names. Pure.

use crate::pack::Pack;
use crate::pack::paths::{NodeId, PathInterner};
use std::collections::HashMap;
use std::path::Path;

/// Finds files of a pack.
#[derive(Debug)]
pub(super) struct NamedFiles {
    paths: PathInterner,
    by_node: HashMap<NodeId, u32>,
}

impl NamedFiles {
    /// Of all files of a pack.
    pub(super) fn of(pack: &Pack) -> Self {
        let mut paths = PathInterner::default();
        let nodes = paths.adopt(&pack.paths);
        let node = |of: NodeId| nodes.get(of.0 as usize).copied().flatten();
        let by_node = (0..)
            .zip(&pack.files)
            .filter_map(|(index, file)| Some((node(file.node)?, index)))
            .collect();
        Self { paths, by_node }
    }

    /// The index of the file of this name.
    pub(super) fn index(&self, path: &Path) -> Option<u32> {
        self.by_node.get(&self.paths.find(path)?).copied()
    }
}

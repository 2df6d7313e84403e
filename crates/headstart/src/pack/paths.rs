//! The names of a pack's files, as a tree of path components: compact in the
//! file and in memory, however deep the directories are. Pure.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// A name in a [`PathTable`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The root directory, which every table has.
    pub const ROOT: Self = Self(0);
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Node {
    parent: u32,
    start: u32,
    length: u16,
}

/// Path components, each with its parent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PathTable {
    /// Node `i` of the tree is entry `i - 1`: the root has none.
    nodes: Vec<Node>,
    names: Vec<u8>,
}

impl PathTable {
    /// An empty table with room for `nodes` components of `bytes` in all.
    pub fn with_capacity(nodes: usize, bytes: usize) -> Self {
        Self { nodes: Vec::with_capacity(nodes), names: Vec::with_capacity(bytes) }
    }

    /// Number of components, without the root.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether only the root is there.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Whether `node` is in the table.
    pub fn contains(&self, node: NodeId) -> bool {
        node.0 as usize <= self.nodes.len()
    }

    /// Adds a component below `parent`; `None` when the parent is unknown or
    /// `name` can't be one.
    pub fn push(&mut self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        let valid = !name.is_empty() && name != b"." && name != b"..";
        if !valid || name.iter().any(|b| matches!(b, b'/' | 0)) || !self.contains(parent) {
            return None;
        }
        let node = Node {
            parent: parent.0,
            start: u32::try_from(self.names.len()).ok()?,
            length: u16::try_from(name.len()).ok()?,
        };
        let id = u32::try_from(self.nodes.len() + 1).ok()?;
        self.names.extend_from_slice(name);
        self.nodes.push(node);
        Some(NodeId(id))
    }

    /// The parent and the last component; `None` for the root.
    pub fn get(&self, node: NodeId) -> Option<(NodeId, &[u8])> {
        let node = self.nodes.get((node.0 as usize).checked_sub(1)?)?;
        let start = node.start as usize;
        Some((NodeId(node.parent), self.names.get(start..start + usize::from(node.length))?))
    }

    /// All components in the order they were added.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &[u8])> {
        (1..=self.nodes.len()).filter_map(|i| self.get(NodeId(u32::try_from(i).ok()?)))
    }

    /// The whole path.
    pub fn path(&self, node: NodeId) -> PathBuf {
        let mut parts = Vec::new();
        let mut at = node;
        // Parents come before their children, so this ends.
        while let Some((parent, name)) = self.get(at) {
            parts.push(name);
            at = parent;
        }
        let mut path = Vec::with_capacity(parts.iter().map(|p| p.len() + 1).sum::<usize>().max(1));
        for part in parts.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(part);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        PathBuf::from(OsStr::from_bytes(&path))
    }
}

/// Builds a table, each directory once.
#[derive(Debug, Default)]
pub struct PathInterner {
    table: PathTable,
    known: HashMap<(NodeId, Box<[u8]>), NodeId>,
}

impl PathInterner {
    /// The node of an absolute path; `None` when it is relative or has a
    /// component that can't be kept.
    pub fn intern(&mut self, path: &Path) -> Option<NodeId> {
        let mut components = path.components();
        if components.next() != Some(Component::RootDir) {
            return None;
        }
        let mut node = NodeId::ROOT;
        for component in components {
            let Component::Normal(name) = component else { return None };
            let key = (node, name.as_bytes().into());
            node = match self.known.get(&key) {
                Some(known) => *known,
                None => {
                    let new = self.table.push(node, name.as_bytes())?;
                    self.known.insert(key, new);
                    new
                }
            };
        }
        Some(node)
    }

    /// The table built.
    pub fn finish(self) -> PathTable {
        self.table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn directories_are_kept_once_and_paths_come_back_byte_for_byte() {
        let mut interner = PathInterner::default();
        let paths: [&[u8]; 4] = [b"/usr/lib/a b\n", b"/usr/lib/\xff\xfe", b"/usr", b"/"];
        let nodes: Vec<NodeId> = paths
            .iter()
            .map(|p| interner.intern(Path::new(OsStr::from_bytes(p))).unwrap())
            .collect();
        let table = interner.finish();
        assert_eq!(table.len(), 4);
        for (path, node) in paths.iter().zip(nodes) {
            assert_eq!(table.path(node).as_os_str().as_bytes(), *path);
        }
    }

    #[test]
    fn what_is_no_absolute_path_is_refused() {
        let mut interner = PathInterner::default();
        for path in ["", "relative", "/a/../b"] {
            assert_eq!(interner.intern(Path::new(path)), None, "{path}");
        }
        let mut table = PathTable::default();
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            assert_eq!(table.push(NodeId::ROOT, name), None, "{name:?}");
        }
        assert_eq!(table.push(NodeId(1), b"orphan"), None);
    }

    proptest! {
        #[test]
        fn any_set_of_paths_comes_back(
            paths in proptest::collection::vec(
                proptest::collection::vec("[^/\0.][^/\0]{0,8}", 1..6), 0..30)
        ) {
            let mut interner = PathInterner::default();
            let paths: Vec<PathBuf> =
                paths.iter().map(|p| PathBuf::from(format!("/{}", p.join("/")))).collect();
            let nodes: Vec<NodeId> = paths.iter().map(|p| interner.intern(p).unwrap()).collect();
            let table = interner.finish();
            for (path, node) in paths.iter().zip(nodes) {
                prop_assert_eq!(&table.path(node), path);
            }
        }
    }
}

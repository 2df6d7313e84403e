//! The names of a pack's files as a tree of path components: compact in the file and in memory,
//! even with deep directories. Pure.

use hashbrown::HashTable;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// The longest path that the kernel opens (`PATH_MAX` without the NUL).
pub const MAX_PATH_BYTES: u16 = 4095;

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
    /// Bytes of the whole path.
    path_length: u16,
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

    /// Adds a component below `parent`; `None` when the parent is unknown,
    /// `name` can't be one, or the path would be too long to open.
    pub fn push(&mut self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        let valid = !name.is_empty() && name != b"." && name != b"..";
        if !valid || name.iter().any(|b| matches!(b, b'/' | 0)) || !self.contains(parent) {
            return None;
        }
        let above = self.node(parent).map_or(0, |node| node.path_length);
        let length = u16::try_from(name.len()).ok()?;
        let path_length = above.checked_add(length)?.checked_add(1)?;
        if path_length > MAX_PATH_BYTES {
            return None;
        }
        let start = u32::try_from(self.names.len()).ok()?;
        let node = Node { parent: parent.0, start, length, path_length };
        let id = u32::try_from(self.nodes.len() + 1).ok()?;
        self.names.extend_from_slice(name);
        self.nodes.push(node);
        Some(NodeId(id))
    }

    fn node(&self, node: NodeId) -> Option<&Node> {
        self.nodes.get((node.0 as usize).checked_sub(1)?)
    }

    /// The parent and the last component; `None` for the root.
    pub fn get(&self, node: NodeId) -> Option<(NodeId, &[u8])> {
        let node = self.node(node)?;
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
        let length = self.node(node).map_or(1, |node| node.path_length);
        let mut path = Vec::with_capacity(usize::from(length));
        for part in parts.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(part);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        PathBuf::from(OsStr::from_bytes(&path))
    }

    /// Which nodes are one of these absolute paths or below one, by number.
    ///
    /// ```
    /// use headstart::pack::paths::{NodeId, PathTable};
    /// let mut paths = PathTable::default();
    /// let usr = paths.push(NodeId::ROOT, b"usr").expect("a name");
    /// let lib = paths.push(usr, b"lib").expect("a name");
    /// assert_eq!(paths.path(lib).to_str(), Some("/usr/lib"));
    /// assert_eq!(paths.below(&["/usr/lib".as_ref()]), [false, false, true]);
    /// ```
    pub fn below(&self, points: &[&Path]) -> Vec<bool> {
        // The points as a tree of their own, of which the root is 0.
        let (mut children, mut ends) = (HashMap::new(), vec![false]);
        for point in points {
            let mut at = 0;
            for part in point.components() {
                let Component::Normal(name) = part else { continue };
                let new = ends.len();
                at = *children.entry((at, name.as_bytes())).or_insert(new);
                if at == new {
                    ends.push(false);
                }
            }
            ends[at] = true;
        }
        // Of each node where it is in that tree, and whether it is below an end.
        let mut found = vec![(Some(0), ends[0])];
        for (parent, name) in self.iter() {
            let (at, is_below) = found[parent.0 as usize];
            let at = at.and_then(|at| children.get(&(at, name)).copied());
            found.push((at, is_below || at.is_some_and(|at| ends[at])));
        }
        found.into_iter().map(|(_, is_below)| is_below).collect()
    }

    /// A table of only `wanted` and what is above them, and their nodes in it;
    /// `None` for those that are not in this one.
    pub fn pick(&self, wanted: impl IntoIterator<Item = NodeId>) -> (Self, Vec<Option<NodeId>>) {
        let mut picked = Self::default();
        let mut known = vec![None; self.nodes.len() + 1];
        known[0] = Some(NodeId::ROOT);
        let number = |node: NodeId| {
            let mut missing = Vec::new();
            let mut at = node;
            let mut new = loop {
                match known.get(at.0 as usize)? {
                    Some(known) => break *known,
                    None => missing.push(at),
                }
                at = self.get(at)?.0;
            };
            for node in missing.into_iter().rev() {
                new = picked.push(new, self.get(node)?.1)?;
                known[node.0 as usize] = Some(new);
            }
            Some(new)
        };
        let numbers = wanted.into_iter().map(number).collect();
        (picked, numbers)
    }
}

/// Builds a table, each directory once.
#[derive(Debug, Default)]
pub struct PathInterner {
    table: PathTable,
    /// All nodes, by parent and name. They are compared in the table, so that no name is kept twice.
    known: HashTable<NodeId>,
    hasher: RandomState,
}

impl PathInterner {
    /// The node of an absolute path; `None` when it is relative or has a
    /// component that can't be kept.
    pub fn intern(&mut self, path: &Path) -> Option<NodeId> {
        let names = names(path)?;
        names.into_iter().try_fold(NodeId::ROOT, |node, name| self.child(node, name))
    }

    /// The node of an absolute path, if it was interned.
    pub fn find(&self, path: &Path) -> Option<NodeId> {
        names(path)?.into_iter().try_fold(NodeId::ROOT, |node, name| self.known(node, name))
    }

    /// Interns all of a table and returns the node of each of its nodes, the
    /// root's first; `None` when there are too many names.
    pub fn adopt(&mut self, table: &PathTable) -> Vec<Option<NodeId>> {
        let mut nodes = Vec::with_capacity(table.len() + 1);
        nodes.push(Some(NodeId::ROOT));
        for (parent, name) in table.iter() {
            let parent = nodes.get(parent.0 as usize).copied().flatten();
            nodes.push(parent.and_then(|parent| self.child(parent, name)));
        }
        nodes
    }

    fn child(&mut self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        if let Some(known) = self.known(parent, name) {
            return Some(known);
        }
        let Self { table, known, hasher } = self;
        let new = table.push(parent, name)?;
        let hash = |node: &NodeId| hasher.hash_one(table.get(*node));
        known.insert_unique(hash(&new), new, hash);
        Some(new)
    }

    fn known(&self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        let wanted = Some((parent, name));
        let is_it = |node: &NodeId| self.table.get(*node) == wanted;
        self.known.find(self.hasher.hash_one(wanted), is_it).copied()
    }

    /// The table so far.
    pub fn table(&self) -> &PathTable {
        &self.table
    }

    /// The table built.
    pub fn finish(self) -> PathTable {
        self.table
    }
}

/// The components of an absolute path, without the root.
fn names(path: &Path) -> Option<Vec<&[u8]>> {
    let mut components = path.components();
    if components.next() != Some(Component::RootDir) {
        return None;
    }
    let name = |component| match component {
        Component::Normal(name) => Some(name.as_bytes()),
        _ => None,
    };
    components.map(name).collect()
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
    fn a_path_that_no_call_could_open_is_refused() {
        let mut table = PathTable::default();
        let mut node = NodeId::ROOT;
        for _ in 0..15 {
            node = table.push(node, &[b'x'; 255]).unwrap();
        }
        assert_eq!(table.push(node, &[b'x'; 255]), None);
        let last = table.push(node, &[b'x'; 254]).unwrap();
        assert_eq!(table.path(last).as_os_str().len(), usize::from(MAX_PATH_BYTES));
        assert_eq!(table.push(last, b"x"), None);
        assert_eq!(table.push(NodeId::ROOT, &[b'x'; 70_000]), None);
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
            for (path, node) in paths.iter().zip(&nodes) {
                prop_assert_eq!(&table.path(*node), path);
            }
            let (picked, of_picked) = table.pick(nodes.iter().copied().step_by(2));
            let mut other = PathInterner::default();
            other.intern(Path::new("/a/b")).unwrap();
            let of_other = other.adopt(&table);
            for (i, (path, node)) in paths.iter().zip(&nodes).enumerate() {
                if i % 2 == 0 {
                    prop_assert_eq!(&picked.path(of_picked[i / 2].unwrap()), path);
                }
                let node = of_other[node.0 as usize];
                prop_assert_eq!(&other.table().path(node.unwrap()), path);
                prop_assert_eq!(other.find(path), node);
            }
            let names: usize = picked.iter().map(|(_, name)| name.len()).sum();
            prop_assert!(names <= paths.iter().step_by(2).map(|p| p.as_os_str().len()).sum());
        }
    }
}

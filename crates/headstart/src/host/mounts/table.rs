//! Which mount a path leads to, and which paths lead into a mount. Pure: it knows only what
//! mountinfo says.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::mountinfo::Mount;
use crate::host::id::Dev;

/// The mounts of one process.
#[derive(Clone, Debug, Default)]
pub struct MountTable {
    mounts: Vec<Mount>,
    root: Option<usize>,
    by_id: HashMap<u32, usize>,
    /// By mount point, the topmost mount on each mount, except the root and
    /// detached ones.
    at_point: HashMap<Vec<u8>, HashMap<usize, usize>>,
    visible: Vec<bool>,
}

impl MountTable {
    /// A table of `mounts`. `root_id` is the mount that `/` is on; without it,
    /// the mount at `/` that is mounted on none of the others.
    pub fn new(mounts: Vec<Mount>, root_id: Option<u32>) -> Self {
        let by_id: HashMap<u32, usize> =
            mounts.iter().enumerate().map(|(index, mount)| (mount.id, index)).collect();
        let at_root = |index: &usize| mounts[*index].mount_point == Path::new("/");
        let root = root_id.and_then(|id| by_id.get(&id)).copied().filter(at_root).or_else(|| {
            let lowest = |index: &usize| {
                let mount = &mounts[*index];
                mount.parent == mount.id || !by_id.contains_key(&mount.parent)
            };
            let mut candidates = (0..mounts.len()).filter(at_root);
            candidates.clone().find(lowest).or_else(|| candidates.next())
        });
        let mut at_point: HashMap<Vec<u8>, HashMap<usize, usize>> = HashMap::new();
        for (index, mount) in mounts.iter().enumerate() {
            if Some(index) == root || mount.is_detached() {
                continue;
            }
            // A mount whose parent is not listed hangs below the root: so it is
            // in a chroot, where the mount around the root directory goes
            // unlisted.
            if let Some(parent) = by_id.get(&mount.parent).copied().or(root)
                && parent != index
            {
                let point = mount.mount_point.as_os_str().as_bytes().to_vec();
                at_point.entry(point).or_default().insert(parent, index);
            }
        }
        let mut table = Self { mounts, root, by_id, at_point, visible: Vec::new() };
        let mut visible = vec![false; table.mounts.len()];
        // Asked once for each place: thousands of mounts may lie on one.
        for point in table.at_point.keys().map(|point| OsStr::from_bytes(point)) {
            if let Some(index) = table.index_at(Path::new(point))
                && table.mounts[index].mount_point.as_os_str() == point
            {
                visible[index] = true;
            }
        }
        if let Some(root) = root {
            visible[root] = true;
        }
        table.visible = visible;
        table
    }

    /// All mounts, in the kernel's order.
    pub fn mounts(&self) -> &[Mount] {
        &self.mounts
    }

    /// The mount with this id.
    pub fn by_id(&self, id: u64) -> Option<&Mount> {
        let index = self.by_id.get(&u32::try_from(id).ok()?)?;
        Some(&self.mounts[*index])
    }

    /// The mounts of a file system whose mount point leads to them, so not
    /// those shadowed by a later mount on the same place or over a parent.
    /// Mounts of the whole file system come first, then wider parts of it.
    pub fn visible_of(&self, dev: Dev) -> Vec<&Mount> {
        let mut found: Vec<&Mount> = self.visible().filter(|mount| mount.dev == dev).collect();
        found.sort_by_key(|mount| (!mount.is_whole(), mount.root.as_os_str().len()));
        found
    }

    /// The mounts whose mount point leads to them.
    pub(super) fn visible(&self) -> impl Iterator<Item = &Mount> {
        let all = self.mounts.iter().zip(&self.visible);
        all.filter(|(_, visible)| **visible).map(|(mount, _)| mount)
    }

    /// The mount that an absolute path without `..` and symbolic links is on.
    pub fn at(&self, path: &Path) -> Option<&Mount> {
        self.index_at(path).map(|index| &self.mounts[index])
    }

    fn index_at(&self, path: &Path) -> Option<usize> {
        let path = path.as_os_str().as_bytes();
        let mut current = self.root?;
        // The root directory is where it is, even if something is mounted over it.
        if path == b"/" {
            return Some(current);
        }
        for (end, _) in path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/') {
            current = self.topmost(current, &path[..end]);
        }
        Some(self.topmost(current, path))
    }

    /// The mount that covers `point` of mount `below`, or `below` itself.
    fn topmost(&self, below: usize, point: &[u8]) -> usize {
        let Some(here) = self.at_point.get(point) else { return below };
        let mut current = below;
        // A mount may cover another one; each can do so once.
        for _ in 0..here.len() {
            let Some(&next) = here.get(&current) else { break };
            current = next;
        }
        current
    }

    /// Where an absolute path lies: the file system and the path inside it.
    pub fn inside(&self, path: &Path) -> Option<(Dev, PathBuf)> {
        let mount = self.at(path)?;
        let rest = path.strip_prefix(&mount.mount_point).ok()?;
        Some((mount.dev, mount.inner(rest)?))
    }

    /// The paths that lead to `inner`, a path inside file system `dev`. Those
    /// hidden by another mount are skipped.
    pub fn paths_to(&self, dev: Dev, inner: &Path) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for mount in
            self.visible_of(dev).into_iter().filter(|mount| !mount.root.as_os_str().is_empty())
        {
            let Ok(rest) = inner.strip_prefix(&mount.root) else { continue };
            let path = join(&mount.mount_point, rest);
            if self.at(&path).is_some_and(|at| at.id == mount.id) {
                paths.push(path);
            }
        }
        paths
    }
}

impl Mount {
    /// The path inside the file system of `rest`, relative to the mount point.
    pub(crate) fn inner(&self, rest: &Path) -> Option<PathBuf> {
        (self.root.as_os_str() != OsStr::new("")).then(|| join(&self.root, rest))
    }
}

/// Like [`Path::join`], without a slash behind `base` when `rest` is empty.
pub(crate) fn join(base: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() { base.to_owned() } else { base.join(rest) }
}

#[cfg(test)]
mod tests {
    use super::super::mountinfo::tests::mount;
    use super::*;
    use proptest::prelude::*;

    fn table() -> MountTable {
        MountTable::new(
            vec![
                mount(1, 0, 1, "/", "/"),
                mount(2, 1, 2, "/", "/data"),
                mount(3, 2, 3, "/sub", "/data/in"),
                // On the same place as 2, so 2 and 3 are shadowed.
                mount(4, 2, 4, "/", "/data"),
                // Bind mounts of 1: a directory, a file, and one over it.
                mount(5, 1, 1, "/usr/lib", "/lib"),
                mount(6, 1, 1, "/etc/hosts", "/box/hosts"),
                mount(7, 1, 2, "/", "/usr"),
                mount(8, 1, 9, "/", "/gone//deleted"),
                // It is mounted over the root directory, so no path leads there.
                mount(9, 1, 9, "/", "/"),
            ],
            Some(1),
        )
    }

    #[test]
    fn a_path_leads_to_the_mount_on_top() {
        let table = table();
        for (path, id) in [
            ("/", 1),
            ("/data", 4),
            ("/data/in/x", 4),
            ("/database", 1),
            ("/lib/a", 5),
            ("/box/hosts", 6),
            ("/usr/lib/a", 7),
            ("/gone", 1),
        ] {
            assert_eq!(table.at(Path::new(path)).unwrap().id, id, "{path}");
        }
    }

    #[test]
    fn shadowed_and_detached_mounts_are_not_visible() {
        let table = table();
        let visible: Vec<u32> = (1..10)
            .flat_map(|minor| table.visible_of(Dev::new(8, minor)))
            .map(|mount| mount.id)
            .collect();
        assert_eq!(visible, [1, 5, 6, 7, 4]);
    }

    #[test]
    fn a_path_inside_a_file_system_is_found_through_every_mount_that_shows_it() {
        let table = table();
        let to = |minor, inner: &str| table.paths_to(Dev::new(8, minor), Path::new(inner));
        assert_eq!(to(1, "/etc/hosts"), [Path::new("/etc/hosts"), Path::new("/box/hosts")]);
        // Hidden below /usr, shown at /lib.
        assert_eq!(to(1, "/usr/lib/a"), [Path::new("/lib/a")]);
        assert!(to(1, "/usr/bin/a").is_empty());
        assert!(to(3, "/sub/a").is_empty());
    }

    #[test]
    fn inside_is_the_inverse_of_paths_to() {
        let table = table();
        let inside = |path: &str| table.inside(Path::new(path));
        assert_eq!(inside("/lib/a"), Some((Dev::new(8, 1), "/usr/lib/a".into())));
        assert_eq!(inside("/box/hosts"), Some((Dev::new(8, 1), "/etc/hosts".into())));
        assert_eq!(inside("/data/in/x"), Some((Dev::new(8, 4), "/in/x".into())));
    }

    #[test]
    fn of_thousands_of_mounts_on_one_place_the_last_is_seen() {
        let stack = (2..5000).map(|id| mount(id, id - 1, id, "/", "/mnt"));
        let begun = std::time::Instant::now();
        let table =
            MountTable::new([mount(1, 0, 1, "/", "/")].into_iter().chain(stack).collect(), None);
        assert_eq!(table.at(Path::new("/mnt/x")).unwrap().id, 4999);
        assert_eq!(table.visible.iter().filter(|visible| **visible).count(), 2);
        // Each asked after all others took minutes.
        assert!(begun.elapsed().as_secs() < 5);
    }

    #[test]
    fn in_a_chroot_mounts_hang_below_the_root_of_unknown_place() {
        let mut root = mount(40, 40, 1, "", "/");
        root.root = PathBuf::new();
        let table = MountTable::new(vec![mount(50, 39, 2, "/", "/proc"), root], Some(40));
        assert_eq!(table.at(Path::new("/proc/1")).unwrap().id, 50);
        assert_eq!(table.at(Path::new("/bin")).unwrap().id, 40);
        assert_eq!(table.inside(Path::new("/bin")), None);
        assert!(table.paths_to(Dev::new(8, 1), Path::new("/bin")).is_empty());
    }

    proptest! {
        #[test]
        fn any_tree_of_mounts_ends_and_translates_back(
            list in proptest::collection::vec((0u32..8, 0u32..8, 0u32..3, "(/[ab]){0,2}", "(/[ab]){0,3}"), 0..10),
            path in "(/[ab]){1,4}",
        ) {
            let or_root = |path: &str| if path.is_empty() { "/".to_owned() } else { path.to_owned() };
            let mounts = list.iter().map(|(id, parent, minor, root, at)| {
                mount(*id, *parent, *minor, &or_root(root), &or_root(at))
            });
            let table = MountTable::new(mounts.collect(), None);
            if let Some((dev, inner)) = table.inside(Path::new(&path)) {
                let back = table.paths_to(dev, &inner);
                prop_assert!(back.contains(&PathBuf::from(&path)), "{inner:?} {back:?}");
            }
        }
    }
}

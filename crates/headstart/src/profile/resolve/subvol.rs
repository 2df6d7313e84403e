//! Subvolumes in the items of a btrfs root tree; parsing only.
//!
//! Layouts from `include/uapi/linux/btrfs_tree.h`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::host::mounts::join;
use crate::host::tree_items::Key;

/// `BTRFS_FS_TREE_OBJECTID`: the top subvolume.
pub const TOP: u64 = 5;
/// `BTRFS_ROOT_TREE_OBJECTID`: the tree that lists all others.
pub const ROOT_TREE: u64 = 1;
/// `BTRFS_FIRST_FREE_OBJECTID`: the first subvolume below the top one, and the
/// inode number of every subvolume's root directory.
pub const FIRST: u64 = 256;
/// `BTRFS_LAST_FREE_OBJECTID`.
pub const LAST: u64 = u64::MAX - 255;
/// `BTRFS_ROOT_BACKREF_KEY`: the name and place of a subvolume.
pub const ROOT_BACKREF: u32 = 144;

/// The position of a subvolume in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subvolume {
    /// Its tree.
    pub id: u64,
    /// The subvolume that contains it.
    pub parent: u64,
    /// The directory of `parent` that contains it.
    pub dir: u64,
    /// Its name there.
    pub name: Vec<u8>,
}

/// The subvolume that an item of this key tells of, if it does.
pub fn parse_item((id, kind, parent): Key, item: &[u8]) -> Option<Subvolume> {
    let (dir, name) = (kind == ROOT_BACKREF).then(|| parse_root_ref(item))??;
    Some(Subvolume { id, parent, dir, name: name.to_vec() })
}

/// `struct btrfs_root_ref`, on disk and so little-endian: directory, sequence,
/// length of the name, name.
fn parse_root_ref(item: &[u8]) -> Option<(u64, &[u8])> {
    let (dir, rest) = item.split_first_chunk::<8>()?;
    let (_sequence, rest) = rest.split_first_chunk::<8>()?;
    let (len, rest) = rest.split_first_chunk::<2>()?;
    Some((u64::from_le_bytes(*dir), rest.get(..u16::from_le_bytes(*len).into())?))
}

/// The path of each subvolume inside the file system, by id. `dir_path` gives
/// the path of a directory inside its subvolume, empty for the root directory.
/// Subvolumes without a known parent, or that contain each other, are skipped.
pub fn paths(
    subvolumes: &[Subvolume],
    mut dir_path: impl FnMut(u64, u64) -> Option<Vec<u8>>,
) -> HashMap<u64, PathBuf> {
    let mut paths = HashMap::from([(TOP, PathBuf::from("/"))]);
    let mut left: Vec<&Subvolume> = subvolumes.iter().collect();
    loop {
        let before = left.len();
        left.retain(|sub| {
            let Some(parent) = paths.get(&sub.parent) else { return true };
            if let Some(dir) = dir_path(sub.parent, sub.dir) {
                let path = join(parent, Path::new(OsStr::from_bytes(&dir)));
                paths.insert(sub.id, path.join(OsStr::from_bytes(&sub.name)));
            }
            false
        });
        if left.len() == before {
            return paths;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn root_ref(dir: u64, name: &[u8]) -> Vec<u8> {
        let mut out = dir.to_le_bytes().to_vec();
        out.extend([0; 8]);
        out.extend((name.len() as u16).to_le_bytes());
        out.extend(name);
        out
    }

    #[test]
    fn only_whole_back_references_count() {
        let reference = root_ref(256, b"a\xff");
        let wanted = Subvolume { id: 256, parent: 5, dir: 256, name: b"a\xff".to_vec() };
        assert_eq!(parse_item((256, ROOT_BACKREF, 5), &reference), Some(wanted));
        assert_eq!(parse_item((256, 132, 5), &reference), None);
        assert_eq!(parse_item((256, ROOT_BACKREF, 5), &reference[..19]), None);
    }

    #[test]
    fn paths_are_put_together_whatever_the_order_and_circles_are_skipped() {
        let sub = |id, parent, dir, name: &str| Subvolume { id, parent, dir, name: name.into() };
        let list = [
            sub(300, 256, 9, "inner"),
            sub(256, 5, 256, "@"),
            sub(7, 8, 1, "x"),
            sub(8, 7, 1, "y"),
        ];
        let dir = |_, dir| Some(if dir == 9 { b"deep/er".to_vec() } else { Vec::new() });
        let paths = paths(&list, dir);
        assert_eq!(paths.len(), 3);
        assert_eq!(paths[&256], Path::new("/@"));
        assert_eq!(paths[&300], Path::new("/@/deep/er/inner"));
    }

    proptest! {
        #[test]
        fn every_subvolume_comes_back(
            id: u64, parent: u64, dir: u64, name in proptest::collection::vec(any::<u8>(), 0..255),
        ) {
            let back = parse_item((id, ROOT_BACKREF, parent), &root_ref(dir, &name));
            prop_assert_eq!(back, Some(Subvolume { id, parent, dir, name }));
        }
    }
}

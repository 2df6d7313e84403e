//! Subvolumes in the items of a btrfs root tree; parsing only.
//!
//! Layouts from `include/uapi/linux/btrfs_tree.h`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::host::mounts::join;

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

/// The subvolumes among `count` items of a search result, and the last key
/// (object, type, offset), from which the next search goes on.
///
/// Items that do not fit into the buffer end the list.
pub fn parse_search(count: u32, buffer: &[u8]) -> (Vec<Subvolume>, Option<(u64, u32, u64)>) {
    let mut found = Vec::new();
    let mut last = None;
    let mut rest = buffer;
    for _ in 0..count {
        // struct btrfs_ioctl_search_header: transid, objectid, offset, type, len.
        let Some((header, body)) = rest.split_at_checked(32) else { break };
        let (id, offset) = (native_u64(&header[8..]), native_u64(&header[16..]));
        let (kind, len) = (native_u32(&header[24..]), native_u32(&header[28..]));
        let Some((item, after)) = body.split_at_checked(len as usize) else { break };
        if kind == ROOT_BACKREF
            && let Some((dir, name)) = parse_root_ref(item)
        {
            found.push(Subvolume { id, parent: offset, dir, name: name.to_vec() });
        }
        last = Some((id, kind, offset));
        rest = after;
    }
    (found, last)
}

/// `struct btrfs_root_ref`, on disk and so little-endian: directory, sequence,
/// length of the name, name.
fn parse_root_ref(item: &[u8]) -> Option<(u64, &[u8])> {
    let (dir, rest) = item.split_first_chunk::<8>()?;
    let (_sequence, rest) = rest.split_first_chunk::<8>()?;
    let (len, rest) = rest.split_first_chunk::<2>()?;
    Some((u64::from_le_bytes(*dir), rest.get(..u16::from_le_bytes(*len).into())?))
}

fn native_u64(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

fn native_u32(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
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

    fn item(id: u64, kind: u32, offset: u64, body: &[u8]) -> Vec<u8> {
        let mut out = 9u64.to_ne_bytes().to_vec();
        out.extend(id.to_ne_bytes());
        out.extend(offset.to_ne_bytes());
        out.extend(kind.to_ne_bytes());
        out.extend((body.len() as u32).to_ne_bytes());
        out.extend(body);
        out
    }

    fn root_ref(dir: u64, name: &[u8]) -> Vec<u8> {
        let mut out = dir.to_le_bytes().to_vec();
        out.extend([0; 8]);
        out.extend((name.len() as u16).to_le_bytes());
        out.extend(name);
        out
    }

    #[test]
    fn only_back_references_count_and_a_cut_item_ends_the_list() {
        let mut buffer = item(256, 132, 0, &[7; 439]);
        buffer.extend(item(256, ROOT_BACKREF, 5, &root_ref(256, b"a\xff")));
        buffer.extend(item(257, ROOT_BACKREF, 256, &root_ref(300, b"b")));
        let (found, last) = parse_search(3, &buffer);
        let wanted = Subvolume { id: 256, parent: 5, dir: 256, name: b"a\xff".to_vec() };
        assert_eq!((found.len(), &found[0]), (2, &wanted));
        assert_eq!(last, Some((257, ROOT_BACKREF, 256)));
        buffer.pop();
        assert_eq!(parse_search(3, &buffer).1, Some((256, ROOT_BACKREF, 5)));
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
        fn no_buffer_makes_the_parser_panic(count: u32, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let (found, _) = parse_search(count, &bytes);
            prop_assert!(found.len() <= bytes.len() / 32);
        }

        #[test]
        fn every_subvolume_comes_back(
            list in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), proptest::collection::vec(any::<u8>(), 0..255)), 0..6),
        ) {
            let buffer: Vec<u8> = list
                .iter()
                .flat_map(|(id, parent, dir, name)| item(*id, ROOT_BACKREF, *parent, &root_ref(*dir, name)))
                .collect();
            let (found, _) = parse_search(list.len() as u32, &buffer);
            let back: Vec<_> = found.into_iter().map(|sub| (sub.id, sub.parent, sub.dir, sub.name)).collect();
            prop_assert_eq!(back, list);
        }
    }
}

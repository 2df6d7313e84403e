//! Block groups of data on btrfs: which there are, how full, and moving what lies in one to others. A driver with its
//! parsers.
//!
//! Layouts from `include/uapi/linux/btrfs_tree.h`.

use super::error::LayoutError;
use super::volume::{Store, Volume};
use headstart::host::tree_items::{Key, search};
use headstart_sys::balance;
use headstart_sys::btrfs::SearchRange;
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;

/// `BTRFS_CHUNK_TREE_OBJECTID`.
const CHUNK_TREE: u64 = 3;
/// `BTRFS_FIRST_CHUNK_TREE_OBJECTID`: the object of all chunk items.
const CHUNKS: u64 = 256;
/// `BTRFS_CHUNK_ITEM_KEY`.
const CHUNK: u32 = 228;
/// Where items of block groups are: `BTRFS_BLOCK_GROUP_TREE_OBJECTID` (Linux 6.1), else `BTRFS_EXTENT_TREE_OBJECTID`.
const GROUP_TREES: [u64; 2] = [11, 2];
/// `BTRFS_BLOCK_GROUP_ITEM_KEY`.
const GROUP: u32 = 192;
/// `BTRFS_BLOCK_GROUP_DATA` and the bits of other kinds, system and metadata.
const DATA: u64 = 1;
const KINDS: u64 = 7;

/// A block group of data. Places are addresses of the file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockGroup {
    /// Where it begins.
    pub start: u64,
    /// Its bytes.
    pub length: u64,
    /// Those in use.
    pub used: u64,
}

/// The block groups of data of a file system that have both used and free bytes, the emptiest first: moving what is
/// in these frees the most for the bytes that are moved.
///
/// # Errors
/// The kernel does not answer.
pub fn block_groups(store: &Store, volume: &Volume) -> Result<Vec<BlockGroup>, LayoutError> {
    let groups = || {
        let (from, to) = ((CHUNKS, CHUNK, 0), (CHUNKS, CHUNK, u64::MAX));
        let mut places = Vec::new();
        search(&store.dir, SearchRange { tree: CHUNK_TREE, from, to }, |key, item| {
            places.extend(data_chunk(key, item));
        })?;
        places.into_iter().map(|place| group(&store.dir, place)).collect::<io::Result<Vec<_>>>()
    };
    groups()
        .map(|groups| emptiest_first(groups.into_iter().flatten().collect()))
        .map_err(LayoutError::io("Can't read the block groups of", &volume.mount_point))
}

/// Moves what lies in a block group to others and frees it; returns whether that was done. `false` too if there is no
/// room for it.
///
/// # Errors
/// The kernel refuses.
pub fn relocate(store: &Store, volume: &Volume, group: BlockGroup) -> Result<bool, LayoutError> {
    let path = &volume.mount_point;
    match balance::relocate(&store.dir, group.start, group.length) {
        Ok(is_done) => Ok(is_done),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOSPC) => Ok(false),
            Some(Errno::BUSY | Errno::INPROGRESS) => {
                Err(LayoutError::Balancing { path: path.clone() })
            }
            _ => Err(LayoutError::io("Can't move block groups of", path)(error)),
        },
    }
}

/// A block group at this place; `None` if it is gone.
fn group(fs: impl AsFd, (start, length): (u64, u64)) -> io::Result<Option<BlockGroup>> {
    let key = (start, GROUP, length);
    let mut used = None;
    for tree in GROUP_TREES {
        let range = SearchRange { tree, from: key, to: key };
        match search(&fs, range, |_, item| used = first_u64(item)) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => {}
            result => result?,
        }
        if used.is_some() {
            break;
        }
    }
    Ok(used.map(|used| BlockGroup { start, length, used }))
}

/// Begin and length of the chunk of this item, if it has data and nothing else (`struct btrfs_chunk`: length, owner,
/// stripe length, type).
fn data_chunk((_, kind, start): Key, item: &[u8]) -> Option<(u64, u64)> {
    let flags = item.get(24..).and_then(first_u64)?;
    (kind == CHUNK && flags & KINDS == DATA).then_some((start, first_u64(item)?))
}

/// Items are little-endian.
fn first_u64(item: &[u8]) -> Option<u64> {
    item.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

fn emptiest_first(mut groups: Vec<BlockGroup>) -> Vec<BlockGroup> {
    groups.retain(|group| 0 < group.used && group.used < group.length);
    // Shares as products, without division.
    groups.sort_by(|a, b| {
        let share = |a: &BlockGroup, b: &BlockGroup| u128::from(a.used) * u128::from(b.length);
        share(a, b).cmp(&share(b, a)).then(a.start.cmp(&b.start))
    });
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(start: u64, length: u64, used: u64) -> BlockGroup {
        BlockGroup { start, length, used }
    }

    #[test]
    fn the_emptiest_come_first_and_those_that_free_nothing_are_skipped() {
        let all = vec![
            of(5, 100, 90),
            of(4, 10, 9),
            of(3, 1 << 60, 1 << 59),
            of(2, 100, 100),
            of(1, 100, 0),
            of(6, 1 << 60, 1),
        ];
        let starts: Vec<_> = emptiest_first(all).iter().map(|group| group.start).collect();
        assert_eq!(starts, [6, 3, 4, 5]);
    }

    #[test]
    fn chunks_of_data_alone_count() {
        let chunk = |flags: u64| [4096, 2, 65536, flags].map(u64::to_le_bytes).concat();
        let cases = [(1, true), (4, false), (5, false), (2, false), (1 | 8, true), (1 | 16, true)];
        for (flags, is_data) in cases {
            let found = data_chunk((CHUNKS, CHUNK, 77), &chunk(flags));
            assert_eq!(found, is_data.then_some((77, 4096)), "{flags}");
        }
        assert_eq!(data_chunk((CHUNKS, 216, 77), &chunk(1)), None);
        assert_eq!(data_chunk((CHUNKS, CHUNK, 77), &chunk(1)[..31]), None);
    }
}

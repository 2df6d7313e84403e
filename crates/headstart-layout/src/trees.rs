//! Where ext4 keeps the extents of files that do not fit into their inodes. A layout makes such blocks.
//! Pure: the caller reads the device.
//!
//! Format: `struct ext4_super_block`, `ext4_group_desc`, `ext4_inode` and `ext4_extent_header` of fs/ext4.

use super::unfit;
use std::collections::{HashMap, HashSet};
use std::io;

/// `EXT4_EXTENTS_FL`.
const EXTENTS: u32 = 0x8_0000;
/// `EXT4_EXT_MAGIC`.
const MAGIC: u16 = 0xf30a;
/// `EXT4_MAX_EXTENT_DEPTH`.
const DEEPEST: u16 = 5;
/// Blocks of one tree, at most: with 64 KiB each that of a file in 20 million extents.
const MOST: usize = 4096;
/// `INCOMPAT_META_BG` and `INCOMPAT_64BIT`.
const META_BG: u32 = 0x10;
const WIDE: u32 = 0x80;

/// Where inodes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Geometry {
    block: u64,
    inodes: u64,
    inodes_per_group: u64,
    inode: u64,
    /// Where the group descriptors begin, in bytes, and the length of one.
    descriptors: u64,
    descriptor: u64,
    is_wide: bool,
}

impl Geometry {
    /// From the superblock; `None` if descriptors are elsewhere, or it is none.
    fn of(superblock: &[u8; unfit::LENGTH]) -> Option<Self> {
        let long = |at| long(superblock, at);
        let short = |at| short(superblock, at);
        let block = 1024u64 << long(0x18).filter(|shift| *shift <= 6)?;
        let features = long(0x60)?;
        let is_wide = features & WIDE != 0;
        let found = Self {
            block,
            inodes: long(0)?.into(),
            inodes_per_group: long(0x28)?.into(),
            inode: short(0x58)?.into(),
            descriptors: (u64::from(long(0x14)?) + 1) * block,
            descriptor: if is_wide { short(0xfe)?.into() } else { 32 },
            is_wide,
        };
        let is_sound = features & META_BG == 0
            && found.inodes_per_group > 0
            && found.inode >= 128
            && found.descriptor >= if is_wide { 64 } else { 32 };
        is_sound.then_some(found)
    }

    /// Where the descriptor of the group of an inode is, and which one of the group it is.
    fn group(&self, ino: u64) -> Option<(u64, u64)> {
        let number = ino.checked_sub(1).filter(|number| *number < self.inodes)?;
        let (group, index) = (number / self.inodes_per_group, number % self.inodes_per_group);
        Some((self.descriptors + group * self.descriptor, index))
    }
}

/// Blocks that hold extents: their length, and those of each inode, in bytes from the start of the device.
pub type Trees = (u64, HashMap<u64, Vec<u64>>);

/// The blocks which hold the extents of each of
/// these inodes. `read` reads the device. Inodes that have none of their own are skipped, as are those
/// that can't be understood.
///
/// # Errors
/// Those of `read`.
pub fn of_inodes(
    inodes: &HashSet<u64>,
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
) -> io::Result<Trees> {
    let mut superblock = [0; unfit::LENGTH];
    read(unfit::OFFSET, &mut superblock)?;
    let mut out = HashMap::new();
    let Some(geometry) = Geometry::of(&superblock) else { return Ok((0, out)) };
    for &ino in inodes {
        let Some((at, index)) = geometry.group(ino) else { continue };
        let mut descriptor = [0; 64];
        let length = if geometry.is_wide { 64 } else { 32 };
        read(at, &mut descriptor[..length])?;
        let table = u64::from(long(&descriptor, 0x08).unwrap_or(0))
            | u64::from(long(&descriptor, 0x28).unwrap_or(0)) << 32;
        let place = table.checked_mul(geometry.block);
        let place = place.and_then(|table| table.checked_add(index * geometry.inode));
        let mut inode = [0; 128];
        match place {
            Some(place) => read(place, &mut inode)?,
            None => continue,
        }
        if long(&inode, 0x20).is_none_or(|flags| flags & EXTENTS == 0) {
            continue;
        }
        let blocks = blocks_of(&inode[0x28..0x64], geometry.block, &mut read)?;
        if !blocks.is_empty() {
            out.insert(ino, blocks);
        }
    }
    Ok((geometry.block, out))
}

/// The blocks of a tree with this root.
fn blocks_of(
    root: &[u8],
    block: u64,
    read: &mut impl FnMut(u64, &mut [u8]) -> io::Result<()>,
) -> io::Result<Vec<u64>> {
    let Some((depth, mut level)) = children(root) else { return Ok(Vec::new()) };
    let mut out = Vec::new();
    for depth in (0..depth.min(DEEPEST)).rev() {
        level.truncate(MOST - out.len());
        let places: Vec<u64> = level.iter().filter_map(|at| at.checked_mul(block)).collect();
        let mut below = Vec::new();
        if depth > 0 {
            for &place in &places {
                // A damaged tree may name the same node many times.
                if below.len() >= MOST {
                    break;
                }
                let mut node = vec![0; block as usize];
                read(place, &mut node)?;
                let found = children(&node).filter(|found| found.0 == depth);
                below.extend(found.map(|found| found.1).unwrap_or_default());
            }
        }
        out.extend(places);
        level = below;
    }
    Ok(out)
}

/// How many levels are below a node, and the blocks of the next one; `None` if it has none.
fn children(node: &[u8]) -> Option<(u16, Vec<u64>)> {
    let [magic, entries, depth] = [short(node, 0)?, short(node, 2)?, short(node, 6)?];
    if magic != MAGIC || depth == 0 {
        return None;
    }
    let entry = |number: u16| {
        let at = 12 + 12 * usize::from(number);
        Some(u64::from(long(node, at + 4)?) | u64::from(short(node, at + 8)?) << 32)
    };
    Some((depth, (0..entries).map_while(entry).collect()))
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BLOCK: usize = 4096;

    /// A device of 20 blocks with 32 inodes in groups of 16, whose tables are in the blocks 4 and 5.
    struct Device(Vec<u8>);

    impl Device {
        fn new() -> Self {
            let mut device = Self(vec![0; 20 * BLOCK]);
            for (at, value) in [(0x00, 32), (0x18, 2), (0x28, 16), (0x58, 256), (0x60, 0x2c0)] {
                device.put(1024 + at, value);
            }
            device.put(1024 + 0xfc, 64 << 16);
            device.put(BLOCK + 0x08, 4);
            device.put(BLOCK + 64 + 0x08, 5);
            device
        }

        fn put(&mut self, at: usize, value: u32) {
            self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }

        /// A node of this depth with these blocks below it.
        fn node(&mut self, at: usize, depth: u16, below: &[u32]) {
            self.put(at, u32::from(MAGIC) | (below.len() as u32) << 16);
            self.put(at + 4, 340 | u32::from(depth) << 16);
            for (n, &block) in below.iter().enumerate() {
                self.put(at + 12 + 12 * n + 4, block);
            }
        }

        /// An inode with this root of its tree.
        fn inode(&mut self, ino: usize, depth: u16, below: &[u32]) {
            let at = (4 + (ino - 1) / 16) * BLOCK + (ino - 1) % 16 * 256;
            self.put(at + 0x20, EXTENTS);
            self.node(at + 0x28, depth, below);
        }

        fn trees(&self, inodes: &[u64]) -> io::Result<Trees> {
            of_inodes(&inodes.iter().copied().collect(), |at, bytes| {
                let at = usize::try_from(at).unwrap_or(usize::MAX);
                let found = self.0.get(at..at.saturating_add(bytes.len()));
                bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            })
        }
    }

    fn blocks(list: &[u64]) -> Vec<u64> {
        list.iter().map(|block| block * BLOCK as u64).collect()
    }

    #[test]
    fn the_blocks_of_trees_are_found_level_by_level() {
        let mut device = Device::new();
        device.inode(12, 0, &[1, 2]);
        device.inode(13, 1, &[9, 7]);
        device.inode(17, 2, &[10, 11]);
        device.node(10 * BLOCK, 1, &[12]);
        // One that is no node of that depth.
        device.node(11 * BLOCK, 3, &[13]);
        let (block, found) = device.trees(&[12, 13, 14, 17, 33, 0]).unwrap();
        let expected = [(13, blocks(&[9, 7])), (17, blocks(&[10, 11, 12]))];
        assert_eq!((block, found), (BLOCK as u64, HashMap::from(expected)));
        // Descriptors elsewhere, and no superblock.
        device.put(1024 + 0x60, 0x2c0 | META_BG);
        assert_eq!(device.trees(&[13]).unwrap(), (0, HashMap::new()));
        assert_eq!(Device(vec![0; 4096]).trees(&[13]).unwrap().1, HashMap::new());
        // Blocks of 2^64 bytes.
        device.put(1024 + 0x60, 0x2c0);
        device.put(1024 + 0x18, 54);
        assert_eq!(device.trees(&[13]).unwrap(), (0, HashMap::new()));
        assert!(Device(vec![0; 100]).trees(&[13]).is_err());
    }

    #[test]
    fn of_a_tree_that_names_a_node_many_times_few_nodes_are_read() {
        let mut device = Device::new();
        device.inode(13, 3, &[10; 4]);
        device.node(10 * BLOCK, 2, &[11; 340]);
        device.node(11 * BLOCK, 1, &[12; 340]);
        let mut reads = 0;
        let found = of_inodes(&HashSet::from([13]), |at, bytes| {
            reads += 1;
            bytes.copy_from_slice(&device.0[at as usize..][..bytes.len()]);
            Ok(())
        });
        assert_eq!(found.unwrap().1[&13].len(), MOST);
        assert!(reads < 30, "{reads}");
    }

    proptest! {
        #[test]
        fn no_device_breaks_it(
            changes in prop::collection::vec((0usize..20 * BLOCK, any::<u8>()), 0..40),
            near in prop::collection::vec((1024usize..1400, any::<u8>()), 0..4),
        ) {
            let mut device = Device::new();
            device.inode(13, 1, &[9, 7]);
            device.inode(17, 2, &[10]);
            device.node(10 * BLOCK, 1, &[12]);
            for (at, value) in changes.into_iter().chain(near) {
                device.0[at] = value;
            }
            if let Ok((_, found)) = device.trees(&[12, 13, 17, 40]) {
                prop_assert!(found.values().all(|blocks| blocks.len() <= MOST));
            }
        }
    }
}

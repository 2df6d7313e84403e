//! From the file systems of a plan to the block devices that their metadata
//! is read from. The driver: it asks the mounts.

use super::plan::Plan;
use super::step::Target;
use crate::host::fsid;
use crate::host::mounts::{Mount, Mounts};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// So many files of a plan are asked for the mount that they are on.
const SAMPLES: usize = 32;

/// The block devices that a plan reads metadata from, by UUID. Those of file
/// systems that are not mounted are left out, and so are all when the mounts
/// can't be read: then the program meets its metadata itself.
///
/// A copy of a file system has the same UUID: the device that files of the plan are on
/// goes before others.
pub fn devices(plan: &Plan, mounts: &Mounts) -> HashMap<[u8; 16], PathBuf> {
    let uuid = |target: &Target| match target {
        Target::Device(fs) => fs.uuid,
        Target::File { .. } => None,
    };
    let wanted: HashSet<[u8; 16]> = plan.targets.iter().filter_map(uuid).collect();
    let mut found = HashMap::new();
    if wanted.is_empty() {
        return found;
    }
    let Some(mounts) = mounts.table() else { return found };
    let mut seen = HashSet::new();
    // Only these keep their metadata in the block device's page cache.
    let is_ext = |m: &&Mount| ["ext2", "ext3", "ext4"].iter().any(|kind| m.fstype == *kind);
    let mut candidates: Vec<_> = mounts.mounts().iter().filter(is_ext).collect();
    let files: Vec<_> = plan.targets.iter().filter_map(Target::node).collect();
    let samples = files.iter().step_by(files.len().div_ceil(SAMPLES).max(1));
    let own: HashSet<_> =
        samples.filter_map(|node| Some(mounts.at(&plan.paths.path(*node))?.dev)).collect();
    candidates.sort_by_key(|mount| !own.contains(&mount.dev));
    for mount in candidates {
        if found.len() == wanted.len() {
            break;
        }
        if !seen.insert(mount.dev) {
            continue;
        }
        let Ok(Some(device)) = fsid::block_device(mount) else { continue };
        if let Some(uuid) = superblock_uuid(&device.path).filter(|uuid| wanted.contains(uuid)) {
            found.insert(uuid, device.path);
        }
    }
    found
}

/// Where the superblock of an ext file system begins, and the magic number and
/// the UUID in it (`fs/ext4/ext4.h`, `struct ext4_super_block`).
const SUPERBLOCK: u64 = 1024;
const MAGIC: std::ops::Range<usize> = 0x38..0x3a;
const UUID: std::ops::Range<usize> = 0x68..0x78;

/// The UUID in the superblock. Asked of the device and not of the mount point:
/// even a short look at that would make somebody's umount fail.
fn superblock_uuid(device: &Path) -> Option<[u8; 16]> {
    let mut block = [0; UUID.end];
    File::open(device).ok()?.read_exact_at(&mut block, SUPERBLOCK).ok()?;
    (block[MAGIC] == [0x53, 0xef]).then(|| block[UUID].try_into().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uuid_is_read_from_a_superblock_and_from_nothing_else() {
        let mut image = vec![0; 4096];
        image[1024 + 0x68..1024 + 0x78].copy_from_slice(&[7; 16]);
        let file = tempfile::NamedTempFile::new().unwrap();
        for (magic, expected) in [([0x53, 0xef], Some([7; 16])), ([0, 0], None)] {
            image[1024 + 0x38..1024 + 0x3a].copy_from_slice(&magic);
            std::fs::write(file.path(), &image).unwrap();
            assert_eq!(superblock_uuid(file.path()), expected);
        }
        std::fs::write(file.path(), "short").unwrap();
        assert_eq!(superblock_uuid(file.path()), None);
    }
}

//! From the file systems of a plan to the block devices that their metadata
//! is read from. The driver: it asks the mounts.

use super::plan::{Plan, Target};
use crate::profile::fsid;
use crate::profile::mounts::MountTable;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// The block devices that a plan reads metadata from, by UUID. Those of file
/// systems that are not mounted are left out, and so are all when the mounts
/// can't be read: then the program meets its metadata itself.
pub fn devices(plan: &Plan) -> HashMap<[u8; 16], PathBuf> {
    let uuid = |target: &Target| match target {
        Target::Device(fs) => fs.uuid,
        Target::File { .. } => None,
    };
    let wanted: HashSet<[u8; 16]> = plan.targets.iter().filter_map(uuid).collect();
    let mut found = HashMap::new();
    if wanted.is_empty() {
        return found;
    }
    let Ok(mounts) = MountTable::read() else { return found };
    let mut seen = HashSet::new();
    for mount in mounts.mounts().iter().filter(|m| m.dev.major() != 0) {
        if found.len() == wanted.len() {
            break;
        }
        if !seen.insert(mount.dev) {
            continue;
        }
        let Ok(Some(uuid)) = fsid::uuid(mount) else { continue };
        if wanted.contains(&uuid.0)
            && let Ok(Some(device)) = fsid::block_device(mount)
        {
            found.insert(uuid.0, device.path);
        }
    }
    found
}

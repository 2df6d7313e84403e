//! Finds the block devices from which the metadata of a plan's file systems is read. The driver: it
//! reads the mounts.

use super::plan::Plan;
use super::step::Target;
use crate::host::fsid;
use crate::host::mounts::{Mount, Mounts};
use crate::host::superblock;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The number of files of a plan whose mounts are looked up.
const SAMPLES: usize = 32;

/// The block devices that a plan reads metadata from.
#[derive(Debug, Default)]
pub struct Devices {
    by_uuid: HashMap<[u8; 16], PathBuf>,
    /// Types of mounted file systems whose device has no node or can't be read, so that their
    /// UUIDs are unknown.
    closed: HashSet<OsString>,
}

impl Devices {
    /// The device of the file system with this UUID.
    pub fn get(&self, uuid: &[u8; 16]) -> Option<&Path> {
        self.by_uuid.get(uuid).map(PathBuf::as_path)
    }

    /// Whether a file system of this type that was not found may be mounted on a device that can't
    /// be read.
    pub fn may_be_closed(&self, kind: &str) -> bool {
        self.closed.contains(OsStr::new(kind))
    }
}

/// Finds the devices of mounted file systems; none if the mounts can't be read, and the program
/// reads its metadata itself.
///
/// A copy of a file system has the same UUID, so a device with files of the plan is preferred.
pub fn devices(plan: &Plan, mounts: &Mounts) -> Devices {
    let uuid = |target: &Target| match target {
        Target::Device(fs) => fs.uuid,
        Target::File { .. } => None,
    };
    let wanted: HashSet<[u8; 16]> = plan.targets.iter().filter_map(uuid).collect();
    let mut found = Devices::default();
    if wanted.is_empty() {
        return found;
    }
    let Some(mounts) = mounts.table() else { return found };
    let mut seen = HashSet::new();
    // An EROFS may be mounted from a file.
    let is_one = |m: &&Mount| superblock::is_in_device_cache(&m.fstype) && m.dev.major() != 0;
    let mut candidates: Vec<_> = mounts.mounts().iter().filter(is_one).collect();
    let files: Vec<_> = plan.targets.iter().filter_map(Target::node).collect();
    let samples = files.iter().step_by(files.len().div_ceil(SAMPLES).max(1));
    let own: HashSet<_> =
        samples.filter_map(|node| Some(mounts.at(&plan.paths.path(*node))?.dev)).collect();
    candidates.sort_by_key(|mount| !own.contains(&mount.dev));
    for mount in candidates {
        if found.by_uuid.len() == wanted.len() {
            break;
        }
        if !seen.insert(mount.dev) {
            continue;
        }
        let device = fsid::block_device(mount).ok().flatten();
        let block = device.and_then(|device| Some((superblock(&device.path).ok()?, device.path)));
        let Some((block, path)) = block else {
            found.closed.insert(mount.fstype.clone());
            continue;
        };
        let uuid = superblock::uuid(&mount.fstype, &block);
        if let Some(uuid) = uuid.filter(|uuid| wanted.contains(uuid)) {
            found.by_uuid.entry(uuid).or_insert(path);
        }
    }
    found
}

/// The superblock, or why it can't be read. It is read from the device, since an open mount point
/// would make an umount fail.
fn superblock(device: &Path) -> io::Result<[u8; superblock::LENGTH]> {
    let mut block = [0; superblock::LENGTH];
    File::open(device)?.read_exact_at(&mut block, superblock::OFFSET)?;
    Ok(block)
}

//! The mounts of one file system, opened for calls that take any file of it.

use std::collections::HashSet;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};

use super::resolution::{FileKind, Problem};
use super::verify::{kind_of, mount_id, stat_path};
use crate::host::id::Dev;
use crate::host::mounts::{Mount, MountTable};

/// A mount and its root directory (or file), opened for reading.
pub(super) struct Opened<'a> {
    pub mount: &'a Mount,
    pub fd: OwnedFd,
    /// The inode of the mount's root.
    pub root_ino: u64,
}

/// Opens what is needed to reach the names of file system `dev`: one mount of
/// all of it where there is one, else one of each part.
pub(super) fn open_mounts<'a>(
    table: &'a MountTable,
    dev: Dev,
    problems: &mut Vec<Problem>,
) -> Vec<Opened<'a>> {
    let mut opened = Vec::new();
    let mut roots = HashSet::new();
    for mount in table.visible_of(dev) {
        if !roots.insert(&mount.root) {
            continue;
        }
        match open_mount(mount) {
            Ok(Some(open)) => opened.push(open),
            // Not what the table says: mounted over since it was read.
            Ok(None) => {}
            Err(errno) => problems.push(Problem::MountPoint {
                path: mount.mount_point.clone(),
                source: errno.into(),
            }),
        }
        if mount.is_whole() && !opened.is_empty() && mount.fstype != "btrfs" {
            break;
        }
    }
    opened
}

/// A device or FIFO can be a mount point; opening one may have effects, so
/// these are skipped.
fn open_mount(mount: &Mount) -> rustix::io::Result<Option<Opened<'_>>> {
    let stat = stat_path(&mount.mount_point)?;
    let is_it = mount_id(&stat).is_none_or(|id| id == u64::from(mount.id));
    if !is_it || !matches!(kind_of(&stat), FileKind::Regular | FileKind::Directory) {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open(&mount.mount_point, flags, Mode::empty())?;
    Ok(Some(Opened { mount, fd, root_ino: stat.stx_ino }))
}

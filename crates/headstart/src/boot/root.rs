//! Goes into the root directory that a machine is about to switch to, and stays there
//! when it does: how the initramfs reads ahead. The driver.
//!
//! In mounts of our own, /proc, /sys, /dev and /run are shown there, where nothing else
//! is, and it becomes our root directory. Moving or unmounting what the initramfs has is
//! nothing to us then, and our mounts end with the process, so nothing stays busy.

use crate::profile::mounts::MountTable;
use rustix::mount::{MountPropagationFlags, mount_bind_recursive, mount_change};
use std::io;
use std::path::Path;

/// What reading ahead looks at beside files.
const NEEDED: [&str; 4] = ["proc", "sys", "dev", "run"];

/// Makes `root` the root directory of this process, which has a single thread yet.
///
/// # Errors
/// What the kernel refused; it takes root.
pub fn enter(root: &Path) -> io::Result<()> {
    let root = std::fs::canonicalize(root)?;
    headstart_sys::namespace::private_mounts()?;
    let alone = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", alone)?;
    let mounts = MountTable::read().map_err(io::Error::other)?;
    for name in NEEDED {
        let inside = root.join(name);
        let is_there = mounts.mounts().iter().any(|mount| mount.mount_point == inside);
        if !is_there && inside.is_dir() {
            mount_bind_recursive(Path::new("/").join(name), &inside)?;
        }
    }
    rustix::process::chroot(&root)?;
    rustix::process::chdir("/")?;
    Ok(())
}

//! Enters the root directory that the initramfs is about to switch to, and stays there after the
//! switch: how the initramfs prefetches. The driver.
//!
//! It binds /proc, /sys, /dev and /run there in a mount namespace of its own, and makes it the root
//! directory of this process. So the initramfs can move or unmount its own mounts, and nothing
//! stays busy: ours end with the process.

use crate::host::mounts::MountTable;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change};
use std::io;
use std::path::Path;

/// What prefetching looks at beside files.
const NEEDED: [&str; 4] = ["proc", "sys", "dev", RUN];
const RUN: &str = "run";

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
    let is_mounted = |place: &Path| mounts.mounts().iter().any(|m| m.mount_point == place);
    for name in NEEDED {
        let (outside, inside) = (Path::new("/").join(name), root.join(name));
        if is_mounted(&inside) || !inside.is_dir() {
            continue;
        }
        if is_mounted(&outside) {
            mount_bind_recursive(outside, &inside)?;
        } else if name == RUN {
            // Otherwise files for this boot would stay on the disk.
            mount("none", &inside, "tmpfs", MountFlags::NODEV | MountFlags::NOSUID, None)?;
        }
    }
    rustix::process::chroot(&root)?;
    rustix::process::chdir("/")?;
    Ok(())
}

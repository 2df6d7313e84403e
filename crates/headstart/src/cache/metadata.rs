//! Drops names, inodes and file-system metadata from memory.
//!
//! A cold start reads these too. The kernel can't drop them for one file: it drops unused names and
//! inodes of the whole machine, and the block device's pages, through which ext2, ext3 and ext4
//! read metadata, only for the whole file system. xfs has its metadata in buffers that go with the
//! inodes; btrfs and f2fs have it in pages that neither call reaches.

use crate::host::contents;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::error::Error;
use super::residency::file_system_magic;
use crate::host::id::Dev;

/// `BTRFS_SUPER_MAGIC` and `F2FS_SUPER_MAGIC`, `include/uapi/linux/magic.h`.
const OUT_OF_REACH: [u64; 2] = [0x9123_683e, 0xf2f5_2010];

/// Where the file system of a file keeps its metadata in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetadataHome {
    /// The block device whose cached pages may hold it: evict it like a file.
    pub block_device: Option<PathBuf>,
    /// Nothing but unmounting, or dropping the whole page cache, drops it.
    pub out_of_reach: bool,
}

/// Finds out where the metadata of the file system of `path` is.
///
/// # Errors
///
/// When `path` cannot be looked at.
pub fn home(path: &Path) -> Result<MetadataHome, Error> {
    let stat = path.metadata().map_err(Error::io("look at", path))?;
    let magic = rustix::fs::open(
        path,
        rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .map_err(std::io::Error::from)
    .and_then(|file| file_system_magic(file.as_fd()))
    .map_err(Error::io("find the file system of", path))?;
    Ok(MetadataHome {
        block_device: device_node(Dev::from_stat(stat.dev())),
        out_of_reach: OUT_OF_REACH.contains(&magic),
    })
}

/// Writes the file system of `path` to its device: what its journal has not
/// committed yet cannot be dropped. (Measured on ext4: of 215 metadata pages 192
/// stayed until then, and 3, those of the super block, in any case.)
///
/// # Errors
///
/// When `path` cannot be opened or the file system cannot be written.
pub fn write_out(path: &Path) -> Result<(), Error> {
    let file = File::open(path).map_err(Error::io("open", path))?;
    rustix::fs::syncfs(file).map_err(Error::io("write the file system of", path))
}

/// Drops all unused names (dentries) and inodes of this machine, but no pages of
/// files that are still cached. Everybody's next lookups are slower for it.
///
/// # Errors
///
/// Only root may.
///
/// # References
///
/// `drop_caches` in [`Documentation/admin-guide/sysctl/vm.rst`][vm].
///
/// [vm]: https://docs.kernel.org/admin-guide/sysctl/vm.html#drop-caches
pub fn drop_names_and_inodes() -> Result<(), Error> {
    let path = Path::new("/proc/sys/vm/drop_caches");
    std::fs::write(path, "2").map_err(Error::io("drop names and inodes through", path))
}

/// The node of a block device; `None` for file systems without one of their own.
fn device_node(dev: Dev) -> Option<PathBuf> {
    let is_it = |node: &PathBuf| {
        node.metadata().is_ok_and(|meta| {
            meta.file_type().is_block_device() && Dev::from_stat(meta.rdev()) == dev
        })
    };
    // udev's link, or, where there is no udev, the kernel's own name.
    let link = PathBuf::from(format!("/dev/block/{dev}"));
    if is_it(&link) {
        return link.canonicalize().ok();
    }
    let uevent = contents::text(format!("/sys/dev/block/{dev}/uevent")).ok()?;
    let node = Path::new("/dev").join(device_name(&uevent)?);
    is_it(&node).then_some(node)
}

/// The name below `/dev` in a block device's `uevent` file.
fn device_name(uevent: &str) -> Option<&str> {
    uevent.lines().find_map(|line| line.strip_prefix("DEVNAME="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_name_of_a_device_is_found_in_its_uevent_file() {
        let text = "MAJOR=254\nMINOR=0\nDEVNAME=mapper/a=b\nDEVTYPE=disk\n";
        assert_eq!(device_name(text), Some("mapper/a=b"));
        assert_eq!(device_name("MAJOR=254\n"), None);
    }

    #[test]
    fn a_file_system_without_a_device_has_no_node() {
        let home = home(Path::new("/proc/self/status")).unwrap();
        assert_eq!(home, MetadataHome { block_device: None, out_of_reach: false });
    }
}

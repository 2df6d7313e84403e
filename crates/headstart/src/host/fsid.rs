//! The lasting identity of a mounted file system, its UUID, and its block device.
//!
//! tmpfs and overlayfs have neither: `None`.

use crate::host::contents;
use crate::host::names;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use headstart_sys::{btrfs, fsuuid, xfs};
use rustix::fs::{Mode, OFlags};

use super::mounts::{Mount, is_local};
use crate::host::id::Dev;

const BY_UUID: &str = "/dev/disk/by-uuid";

/// The UUID of a file system.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FsUuid(pub [u8; 16]);

impl FsUuid {
    /// From 32 hexadecimal digits with hyphens in any place. Shorter ids, like
    /// the serial number of a FAT, are none.
    ///
    /// ```
    /// use headstart::host::fsid::FsUuid;
    /// assert!(FsUuid::parse("0123abcd-4567-89ef-0123-456789abcdef").is_some());
    /// assert!(FsUuid::parse("1234-ABCD").is_none(), "the serial number of a FAT");
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let mut digits = text.chars().filter(|c| *c != '-').map(|c| c.to_digit(16));
        let mut uuid = [0; 16];
        for byte in &mut uuid {
            *byte = (digits.next()?? << 4 | digits.next()??) as u8;
        }
        digits.next().is_none().then_some(Self(uuid))
    }
}

impl fmt::Display for FsUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for FsUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FsUuid({self})")
    }
}

/// A block device and its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDevice {
    /// A node of it, in `/dev`.
    pub path: PathBuf,
    /// Its number.
    pub rdev: Dev,
}

/// Why the identity of a file system is unknown.
#[derive(Debug, thiserror::Error)]
#[error("Can't look at the file system on {path}: {source}. Run as a user who may read it", path = names::path(.path))]
pub struct FsIdError {
    /// The mount point, or the file that failed.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

impl FsIdError {
    fn new(path: &Path, source: impl Into<io::Error>) -> Self {
        Self { path: path.to_owned(), source: source.into() }
    }
}

/// The UUID of the file system of `mount`: from the file system itself where it
/// tells and answers for certain ([`is_local`]), else from udev's `/dev/disk/by-uuid`.
///
/// `None` for a file system without a lasting one: tmpfs makes a new one with
/// every mount, overlayfs is known by what lies below it.
///
/// # Errors
/// The mount point cannot be opened.
pub fn uuid(mount: &Mount) -> Result<Option<FsUuid>, FsIdError> {
    if ["tmpfs", "overlay", "devtmpfs", "ramfs"].iter().any(|fstype| mount.fstype == *fstype) {
        return Ok(None);
    }
    if is_local(&mount.fstype)
        && let Some(uuid) = uuid_from_kernel(&mount.mount_point)?
    {
        return Ok(Some(uuid));
    }
    let Some(device) = block_device(mount)? else { return Ok(None) };
    by_uuid(Path::new(BY_UUID), device.rdev)
}

/// The UUID of the file system of a directory, if the kernel knows it.
fn uuid_from_kernel(dir: &Path) -> Result<Option<FsUuid>, FsIdError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd =
        rustix::fs::open(dir, flags, Mode::empty()).map_err(|errno| FsIdError::new(dir, errno))?;
    // Each call refuses the file systems it is not for with ENOTTY; whatever
    // else a file system answers, the next way may still work.
    let uuid = fsuuid::fs_uuid(&fd)
        .or_else(|_| btrfs::uuid(&fd))
        .or_else(|_| xfs::uuid(&fd))
        .or_else(|_| fsuuid::ext4_uuid(&fd));
    Ok(uuid.ok().map(FsUuid))
}

/// Looks for the link to block device `rdev` in a directory of links that are
/// named by UUID.
fn by_uuid(links: &Path, rdev: Dev) -> Result<Option<FsUuid>, FsIdError> {
    let entries = match fs::read_dir(links) {
        Ok(entries) => entries,
        // No udev.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(FsIdError::new(links, error)),
    };
    for entry in entries {
        let entry = entry.map_err(|error| FsIdError::new(links, error))?;
        // A link to a device that went away is not what is looked for.
        if device_number(&entry.path()) == Some(rdev) {
            return Ok(entry.file_name().to_str().and_then(FsUuid::parse));
        }
    }
    Ok(None)
}

fn device_number(path: &Path) -> Option<Dev> {
    let meta = fs::metadata(path).ok()?;
    meta.file_type().is_block_device().then(|| Dev::from_stat(meta.rdev()))
}

/// The block device under a file system that has exactly one: the super block
/// then has the device's number. `None` for all others: btrfs, which spreads
/// over several, overlayfs, tmpfs, network file systems.
///
/// # Errors
/// The kernel's own file about the device cannot be read.
pub fn block_device(mount: &Mount) -> Result<Option<BlockDevice>, FsIdError> {
    let rdev = mount.dev;
    if rdev.major() == 0 {
        return Ok(None);
    }
    let source = PathBuf::from(&mount.source);
    if source.is_absolute() && device_number(&source) == Some(rdev) {
        return Ok(Some(BlockDevice { path: source, rdev }));
    }
    // The source may be an alias like /dev/root that has no node.
    let uevent = PathBuf::from(format!("/sys/dev/block/{rdev}/uevent"));
    let text = match contents::text(&uevent) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(FsIdError::new(&uevent, error)),
    };
    let name = text.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    let path = name.map(|name| Path::new("/dev").join(name));
    Ok(path.filter(|path| device_number(path) == Some(rdev)).map(|path| BlockDevice { path, rdev }))
}

/// A block device that tells how fast the file system is: the one under it, or for
/// btrfs, which may spread over several alike, the one that it was mounted by.
///
/// # Errors
/// As [`block_device`].
pub fn speed_device(mount: &Mount) -> Result<Option<BlockDevice>, FsIdError> {
    if mount.fstype != "btrfs" {
        return block_device(mount);
    }
    let path = PathBuf::from(&mount.source);
    Ok(device_number(&path).map(|rdev| BlockDevice { path, rdev }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_reads_back_as_it_prints_and_short_ids_are_none() {
        let text = "0123ABCD-4567-89ef-0123-456789abcdef";
        let uuid = FsUuid::parse(text).unwrap();
        assert_eq!(uuid.to_string(), text.to_lowercase());
        for bad in ["", "1234-ABCD", "0123abcd456789ef0123456789abcdef0", "é", "g123"] {
            assert_eq!(FsUuid::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn without_links_there_is_no_uuid() {
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(by_uuid(&empty.path().join("none"), Dev::new(1, 2)).unwrap(), None);
        std::os::unix::fs::symlink("/nowhere", empty.path().join("1234-ABCD")).unwrap();
        assert_eq!(by_uuid(empty.path(), Dev::new(1, 2)).unwrap(), None);
    }
}

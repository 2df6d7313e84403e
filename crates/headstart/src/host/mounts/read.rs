//! Reads the mounts of a process; the driver of the parser.

use crate::host::contents;
use crate::host::names;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::{AtFlags, CWD, StatxFlags};

use super::mountinfo::{Mount, parse};
use super::table::MountTable;
use crate::host::id::Dev;

/// Why the mounts could not be read.
#[derive(Debug, thiserror::Error)]
pub enum MountsError {
    /// A file could not be read.
    #[error("Can't read {path}: {source}. Check that proc is mounted on /proc", path = names::path(.path))]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line has not the form that the kernel documents.
    #[error("Line {line} of {path} is not a mount. Please report this with the file's content", path = names::path(.path))]
    Parse {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
}

impl MountTable {
    /// The mounts that this process sees.
    ///
    /// In a chroot, the mount around the root directory is not listed. It is
    /// added, with an empty [`Mount::root`], for what it shows is not known.
    ///
    /// # Errors
    /// `/proc/self/mountinfo` cannot be read or parsed, or `/` not be looked at.
    pub fn read() -> Result<Self, MountsError> {
        let mut mounts = parse_file("/proc/self/mountinfo".into())?;
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let root = rustix::fs::statx(CWD, "/", flags, StatxFlags::MNT_ID)
            .map_err(|errno| MountsError::Read { path: "/".into(), source: errno.into() })?;
        let dev = Dev::new(root.stx_dev_major, root.stx_dev_minor);
        let known = root.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        let id = known.then_some(root.stx_mnt_id).and_then(|id| u32::try_from(id).ok());
        let is_root = |mount: &Mount| {
            mount.mount_point == Path::new("/") && id.is_none_or(|id| mount.id == id)
        };
        if mounts.iter().any(is_root) {
            return Ok(Self::new(mounts, id));
        }
        // Any id that is not taken serves before Linux 5.8, which tells none.
        let id = id.unwrap_or(u32::MAX);
        mounts.push(root_of_chroot(id, dev)?);
        Ok(Self::new(mounts, Some(id)))
    }

    /// The mounts that process `pid` sees, from its root directory.
    ///
    /// # Errors
    /// Its mountinfo cannot be read (`EACCES`, or it is gone) or parsed.
    pub fn of_process(pid: i32) -> Result<Self, MountsError> {
        parse_file(format!("/proc/{pid}/mountinfo").into()).map(|mounts| Self::new(mounts, None))
    }
}

/// The mounts as they were when they were first requested.
#[derive(Clone, Debug, Default)]
pub struct Mounts(Arc<OnceLock<Option<MountTable>>>);

impl Mounts {
    /// The table; `None` when it can't be read.
    pub fn table(&self) -> Option<&MountTable> {
        self.0.get_or_init(|| MountTable::read().ok()).as_ref()
    }
}

fn parse_file(path: PathBuf) -> Result<Vec<Mount>, MountsError> {
    match contents::bytes(&path).map(|bytes| parse(&bytes)) {
        Ok(Ok(mounts)) => Ok(mounts),
        Ok(Err(line)) => Err(MountsError::Parse { path, line }),
        Err(source) => Err(MountsError::Read { path, source }),
    }
}

/// The first process may see the mount; only it tells `s_dev` of a btrfs.
fn root_of_chroot(id: u32, dev: Dev) -> Result<Mount, MountsError> {
    let listed = MountTable::of_process(1).ok().and_then(|table| table.by_id(id.into()).cloned());
    let mount_point = PathBuf::from("/");
    if let Some(mount) = listed {
        return Ok(Mount { root: PathBuf::new(), mount_point, ..mount });
    }
    let statfs = rustix::fs::statfs("/")
        .map_err(|errno| MountsError::Read { path: "/".into(), source: errno.into() })?;
    // include/uapi/linux/magic.h; only types that need a method of their own.
    let fstype = match statfs.f_type as u32 {
        0xEF53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683E => "btrfs",
        0xF2F5_2010 => "f2fs",
        0x794C_7630 => "overlay",
        0xE0F5_E1E2 => "erofs",
        _ => "",
    };
    Ok(Mount {
        id,
        parent: id,
        dev,
        root: PathBuf::new(),
        mount_point,
        fstype: fstype.into(),
        source: "".into(),
        options: "".into(),
        super_options: "".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_has_a_root_and_its_device_is_the_one_stat_tells() {
        let table = MountTable::read().unwrap();
        let root = table.at(Path::new("/")).unwrap();
        let stat = rustix::fs::stat("/").unwrap();
        if root.fstype != "btrfs" {
            assert_eq!(root.dev, Dev::from_stat(stat.st_dev));
        }
        assert!(table.visible_of(root.dev).iter().any(|mount| mount.id == root.id));
    }

    #[test]
    fn a_process_that_is_none_is_an_error_that_names_the_file() {
        let error = MountTable::of_process(i32::MAX).unwrap_err();
        assert!(error.to_string().contains("/proc/2147483647/mountinfo"), "{error}");
    }
}

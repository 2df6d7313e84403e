//! Whether and where file systems are mounted, and when that changes. The driver.

use crate::host::contents;
use crate::host::fsid;
use crate::host::mounts::{Mount, MountTable, MountsError, is_local};
use crate::pack::FileSystem;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// The file systems that are mounted.
#[derive(Debug, Default)]
pub struct Mounted {
    mounts: Vec<Mount>,
    /// By device and mount, so that each that tells is asked once.
    uuids: HashMap<(u32, u32), [u8; 16]>,
}

impl Mounted {
    /// Looks again.
    ///
    /// # Errors
    /// The mounts can't be read.
    pub fn look(&mut self) -> Result<(), MountsError> {
        self.mounts = MountTable::read()?.mounts().to_vec();
        Ok(())
    }

    /// Whether something is mounted at this place.
    pub fn at(&self, place: &Path) -> bool {
        self.mounts.iter().any(|mount| mount.mount_point == place)
    }

    /// Whether this file system is mounted: by its UUID, or by type and source if it has
    /// none.
    pub fn has(&mut self, wanted: &FileSystem) -> bool {
        self.place_of(wanted).is_some()
    }

    /// Where it is mounted, the first of these places.
    pub fn place_of(&mut self, wanted: &FileSystem) -> Option<&Path> {
        let Self { mounts, uuids } = self;
        let mut uuid_of = |mount: &Mount| {
            let key = (mount.dev.0, mount.id);
            let known = uuids.get(&key).copied();
            let uuid = known.or_else(|| Some(fsid::uuid(mount).ok()??.0))?;
            Some(*uuids.entry(key).or_insert(uuid))
        };
        let mut is = |mount: &Mount| match wanted.uuid {
            Some(uuid) => is_local(&mount.fstype) && uuid_of(mount) == Some(uuid),
            None => mount.source.as_bytes() == wanted.source,
        };
        let found = mounts.iter().find(|mount| mount.fstype == *wanted.kind && is(mount))?;
        Some(&found.mount_point)
    }
}

/// Tells when something is mounted or unmounted (proc_pid_mountinfo(5)).
#[derive(Debug)]
pub struct Changes(File);

impl Changes {
    /// Begins to watch.
    ///
    /// # Errors
    /// /proc is not there.
    pub fn watch() -> io::Result<Self> {
        File::open("/proc/self/mountinfo").map(Self)
    }

    /// Waits until there was a change, at most for `limit`; whether there was one.
    ///
    /// # Errors
    /// What poll(2) says.
    pub fn wait(&mut self, limit: Duration) -> io::Result<bool> {
        let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
        let mut fds = [PollFd::new(&self.0, PollFlags::PRI | PollFlags::ERR)];
        match poll(&mut fds, Some(&limit)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(false),
            Ok(_) => {
                // Reading it makes the change known; until then each poll tells it.
                self.0.rewind()?;
                contents::rest_of(&self.0)?;
                Ok(true)
            }
            Err(e) => Err(e.into()),
        }
    }
}

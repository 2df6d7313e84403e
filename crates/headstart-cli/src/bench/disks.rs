//! The disks with a program's files: what they read, and when they are idle.
//!
//! They are looked up again each time: a remount may change their numbers.

use headstart::host::contents;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use headstart::host::diskstats::{self, DiskReads};
use headstart::host::id::Dev;
use headstart::host::mounts::{Mount, MountTable};
use headstart::launch::learn::locate;
use headstart::pack::Pack;

/// How long to wait at most for a disk that others keep busy.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The disks, by the places where their file systems are mounted.
#[derive(Clone, Debug, Default)]
pub struct Disks {
    mount_points: BTreeSet<PathBuf>,
}

impl Disks {
    /// Those that hold the files of a pack.
    pub fn of_pack(pack: &Pack) -> anyhow::Result<Self> {
        Self::under(pack.files.iter().map(|file| pack.paths.path(file.node)))
    }

    /// Without a pack: those that hold the program and what its command names.
    pub fn of_command(words: &[OsString]) -> anyhow::Result<Self> {
        let program = words.first().and_then(|program| locate(program));
        let named = words.iter().skip(1).filter_map(|word| Path::new(word).canonicalize().ok());
        Self::under(program.into_iter().chain(named))
    }

    fn under(paths: impl Iterator<Item = PathBuf>) -> anyhow::Result<Self> {
        let mounts = MountTable::read()?;
        let mount_point = |path: PathBuf| Some(mounts.at(&path)?.mount_point.clone());
        Ok(Self { mount_points: paths.filter_map(mount_point).collect() })
    }

    /// Their names, as /proc/diskstats has them. Without those that have none:
    /// network file systems, overlays.
    pub fn names(&self) -> anyhow::Result<Vec<String>> {
        let mounts = MountTable::read()?;
        let mut names: Vec<String> =
            self.mount_points.iter().filter_map(|point| device_name(mounts.at(point)?)).collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Waits until nothing is under way on them, so that what an earlier start
    /// requested is neither counted here nor still in flight.
    pub fn settle(&self) -> anyhow::Result<()> {
        let names = self.names()?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let under_way = diskstats::in_flight(&stats()?);
            let busy = |name: &String| under_way.get(name).is_some_and(|n| *n > 0);
            if !names.iter().any(busy) || Instant::now() >= deadline {
                return Ok(());
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Begins to count.
    pub fn count(&self) -> anyhow::Result<Counting> {
        Ok(Counting { names: self.names()?, before: diskstats::parse(&stats()?) })
    }
}

/// Counts what disks read from here on.
#[derive(Debug)]
pub struct Counting {
    names: Vec<String>,
    before: diskstats::DiskStats,
}

impl Counting {
    /// What was read since; `None` without a disk.
    pub fn read(&self) -> anyhow::Result<Option<DiskReads>> {
        if self.names.is_empty() {
            return Ok(None);
        }
        let change = diskstats::between(&self.before, &diskstats::parse(&stats()?));
        let ours = self.names.iter().filter_map(|name| change.get(name));
        Ok(Some(ours.fold(DiskReads::default(), |sum, disk| DiskReads {
            requests: sum.requests + disk.requests,
            merged: sum.merged + disk.merged,
            bytes: sum.bytes + disk.bytes,
            busy_ms: sum.busy_ms + disk.busy_ms,
        })))
    }
}

fn stats() -> anyhow::Result<String> {
    contents::text("/proc/diskstats").context("Can't read /proc/diskstats")
}

/// The kernel's name of the disk under a mount.
fn device_name(mount: &Mount) -> Option<String> {
    let dev = match mount.dev.major() {
        // btrfs has a number of its own.
        0 => {
            let meta = Path::new(&mount.source).metadata().ok()?;
            meta.file_type().is_block_device().then(|| Dev::from_stat(meta.rdev()))?
        }
        _ => mount.dev,
    };
    let link = std::fs::read_link(format!("/sys/dev/block/{dev}")).ok()?;
    Some(link.file_name()?.to_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_on_the_disks_of_its_program_and_of_what_it_names() {
        let words = ["sh", "/proc/self", "no such file"].map(OsString::from);
        let disks = Disks::of_command(&words).unwrap();
        let points = &disks.mount_points;
        assert!(points.contains(Path::new("/proc")), "{points:?}");
        assert_eq!(points.len(), 2, "{points:?}");
        // Whatever the root is on here, /proc has no disk.
        assert!(disks.names().unwrap().len() <= 1);
        disks.settle().unwrap();
    }

    #[test]
    fn without_a_disk_nothing_is_counted() {
        let disks = Disks::default();
        assert!(disks.count().unwrap().read().unwrap().is_none());
    }
}

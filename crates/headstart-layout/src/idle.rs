//! Waits while others use the disk. What it decides is pure; the driver reads /proc/diskstats.

use super::error::LayoutError;
use headstart::host::contents;
use headstart::host::diskstats::{completed, in_flight};
use headstart::host::id::Dev;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

const STATS: &str = "/proc/diskstats";
/// Levels of devices that are followed.
const DEEPEST: usize = 8;

/// Disks that others may use.
#[derive(Clone, Debug)]
pub struct Idle {
    /// Their names in /proc/diskstats.
    names: BTreeSet<String>,
    /// They are idle if no request came for so long.
    window: Duration,
}

impl Idle {
    /// The disks that a device lies on; `None` if the kernel has no statistics of them.
    pub fn of(dev: Dev, window: Duration) -> Option<Self> {
        let mut names = BTreeSet::new();
        disks(&PathBuf::from(format!("/sys/dev/block/{dev}")), DEEPEST, &mut names);
        (!names.is_empty()).then_some(Self { names, window })
    }

    /// Waits until there was no request for the window. Requests of this process count too, so what
    /// it wrote must be on the disk. `pause` waits for a time, or returns `true` to give up; then
    /// this returns `false`.
    ///
    /// # Errors
    /// The statistics can't be read.
    pub fn wait(&self, mut pause: impl FnMut(Duration) -> bool) -> Result<bool, LayoutError> {
        let path = Path::new(STATS);
        let read = || contents::text(path).map_err(LayoutError::io("Can't read", path));
        let mut before = read()?;
        loop {
            if pause(self.window) {
                return Ok(false);
            }
            let after = read()?;
            if self.names.iter().all(|name| is_idle(&before, &after, name)) {
                return Ok(true);
            }
            before = after;
        }
    }
}

/// The whole disks that a device is on, by its directory in sysfs: of a partition its disk, whose heads
/// the other partitions move too; of a logical volume, a mirror or an encrypted device all below it.
fn disks(device: &Path, depth: usize, names: &mut BTreeSet<String>) {
    let Ok(device) = device.canonicalize() else { return };
    let whole = match device.join("partition").exists() {
        true => device.parent().unwrap_or(&device),
        false => &device,
    };
    let below = std::fs::read_dir(whole.join("slaves")).into_iter().flatten().flatten();
    let below: Vec<PathBuf> = below.map(|entry| entry.path()).collect();
    if below.is_empty() || depth == 0 {
        names.extend(whole.file_name().and_then(|name| Some(name.to_str()?.to_owned())));
    } else {
        below.iter().for_each(|device| disks(device, depth - 1, names));
    }
}

/// Whether a disk served no request between two readings, and has none now. One that is gone is.
fn is_idle(before: &str, after: &str, name: &str) -> bool {
    let served = |text: &str| completed(text).get(name).copied();
    served(before) == served(after) && in_flight(after).get(name).is_none_or(|n| *n == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_idle_if_no_request_came_and_none_is_in_flight() {
        let text = |reads, writes, flying| {
            format!("7 0 loop0 {reads} 0 8 1 {writes} 0 8 1 {flying} 1 1\n 7 1 loop1 9 0 1 1 1\n")
        };
        for (before, after, expected) in [
            ((1, 1, 0), (1, 1, 0), true),
            ((1, 1, 3), (1, 1, 0), true),
            ((1, 1, 0), (2, 1, 0), false),
            ((1, 1, 0), (1, 2, 0), false),
            ((1, 1, 0), (1, 1, 1), false),
        ] {
            let [before, after] = [before, after].map(|(a, b, c)| text(a, b, c));
            assert_eq!(is_idle(&before, &after, "loop0"), expected, "{after}");
        }
    }

    #[test]
    fn a_device_is_on_the_whole_disks_below_it() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["sda/sda1", "sdb/sdb2", "dm-0/slaves", "dm-1/slaves", "nvme0n1"] {
            std::fs::create_dir_all(path(name)).unwrap();
        }
        for name in ["sda/sda1/partition", "sdb/sdb2/partition"] {
            std::fs::write(path(name), "1").unwrap();
        }
        // An encrypted device on a logical volume on two disks; and a hostile circle.
        symlink(path("dm-1"), path("dm-0/slaves/dm-1")).unwrap();
        symlink(path("sda/sda1"), path("dm-1/slaves/sda1")).unwrap();
        symlink(path("sdb/sdb2"), path("dm-1/slaves/sdb2")).unwrap();
        symlink(path("sdb/sdb2"), path("8:18")).unwrap();
        for (name, expected) in [
            ("dm-0", &["sda", "sdb"][..]),
            ("8:18", &["sdb"]),
            ("nvme0n1", &["nvme0n1"]),
            ("none", &[]),
        ] {
            let mut found = BTreeSet::new();
            disks(&path(name), DEEPEST, &mut found);
            assert!(found.iter().eq(expected), "{name}: {found:?}");
        }
        symlink(path("dm-0"), path("dm-1/slaves/dm-0")).unwrap();
        disks(&path("dm-0"), DEEPEST, &mut BTreeSet::new());
    }

    #[test]
    fn who_gives_up_is_not_kept_waiting() {
        let names = BTreeSet::from(["no such disk".into()]);
        let idle = Idle { names, window: Duration::from_secs(9) };
        assert!(!idle.wait(|_| true).unwrap());
        assert!(idle.wait(|_| false).unwrap());
    }
}

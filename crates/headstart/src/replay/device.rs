//! What one readahead request may ask of a device.
//!
//! The kernel silently cuts a `readahead` call to the larger of the device's
//! readahead size and its largest request (`mm/readahead.c`,
//! `force_page_cache_ra`), so longer ones are sent in portions of that size.

use crate::cache::residency::{is_overlay, page_size};
use crate::host::contents;
use crate::host::fsid::FsUuid;
use crate::host::id::Dev;
use crate::host::mounts::{Mount, Mounts, is_local};
use headstart_sys::btrfs;
use std::os::fd::AsFd;

/// The portion where no setting is known: the kernel's default.
pub const DEFAULT_PORTION: u64 = 128 << 10;
const UNKNOWN: Portion = Portion { bytes: DEFAULT_PORTION, by_reading: false };

/// Segments of a request, each a page or more (`BLK_MAX_SEGMENTS`).
const USUAL_SEGMENTS: u64 = 128;

/// How files on a device are brought in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Portion {
    /// Bytes that one call can request.
    pub bytes: u64,
    /// Whether `readahead` does nothing there (a readahead size of 0), so
    /// that plain reads must do it.
    pub by_reading: bool,
}

/// How `file` is brought in, which is on the file system or device `dev`, by the settings in sysfs.
/// Overlayfs does not tell where its layers are: then it is what each file system here takes.
pub fn portion(file: impl AsFd, dev: Dev, mounts: &Mounts) -> Portion {
    let of = |(_, kb), dev| of_settings(kb, of_queue(dev, "max_sectors_kb"));
    if let Some(setting) = readahead_setting(&file, dev) {
        return of(setting, dev);
    }
    // Others have a readahead size that can't be found; some, such as tmpfs, have none.
    let mounted = mounts.table().filter(|_| is_overlay(&file).unwrap_or(false));
    let may_have_one = |mount: &&Mount| mount.dev.major() != 0 || !is_local(&mount.fstype);
    let of_mount =
        |mount: &Mount| Some(of(setting_below("/sys", &mount.dev.to_string())?, mount.dev));
    mounted
        .and_then(|table| smallest(table.mounts().iter().filter(may_have_one).filter_map(of_mount)))
        .unwrap_or(UNKNOWN)
}

/// The smallest. Pure.
fn smallest(portions: impl Iterator<Item = Portion>) -> Option<Portion> {
    let bytes = portions.map(|portion| portion.bytes).min()?;
    Some(Portion { bytes, ..UNKNOWN })
}

/// The largest request that a device takes, in bytes: by its settings, and by the number of pages that
/// lie apart in memory. Where it has no settings, the most that is usual.
pub fn largest_request(dev: Dev) -> u64 {
    let [kb, pages] = ["max_sectors_kb", "max_segments"].map(|name| of_queue(dev, name));
    let of_pages = pages.unwrap_or(USUAL_SEGMENTS).saturating_mul(page_size());
    kb.map_or(of_pages, |kb| of_pages.min(kb << 10))
}

/// The file that sets the kernel's readahead size of `file`, which is on the file system or device
/// `dev`, and the size in KiB. A partition has that of its disk; btrfs and some network file systems
/// have one of their own.
pub fn readahead_setting(file: impl AsFd, dev: Dev) -> Option<(String, u64)> {
    setting_below("/sys", &dev.to_string()).or_else(|| {
        let uuid = FsUuid(btrfs::uuid(file).ok()?);
        setting_in(format!("/sys/fs/btrfs/{uuid}/bdi"))
    })
}

fn setting_below(sysfs: &str, dev: &str) -> Option<(String, u64)> {
    let of = |dev: &str| setting_in(format!("{sysfs}/class/bdi/{dev}"));
    let disk = || contents::text(format!("{sysfs}/dev/block/{dev}/../dev")).ok();
    of(dev).or_else(|| of(disk()?.trim()))
}

fn setting_in(dir: String) -> Option<(String, u64)> {
    let path = dir + "/read_ahead_kb";
    number(&path).map(|kb| (path, kb))
}

/// Whether the kernel takes a device for rotational; `None` where it has no queue. Virtual disks
/// often say so and are not.
pub fn is_rotational(dev: Dev) -> Option<bool> {
    of_queue(dev, "rotational").map(|flag| flag != 0)
}

/// A setting of a device's queue. A partition has none of its own.
fn of_queue(dev: Dev, name: &str) -> Option<u64> {
    number(&format!("/sys/dev/block/{dev}/queue/{name}"))
        .or_else(|| number(&format!("/sys/dev/block/{dev}/../queue/{name}")))
}

fn number(path: &str) -> Option<u64> {
    contents::text(path).ok()?.trim().parse().ok()
}

/// From the settings in KiB. Pure.
fn of_settings(readahead_kb: u64, request_kb: Option<u64>) -> Portion {
    match readahead_kb {
        0 => Portion { bytes: DEFAULT_PORTION, by_reading: true },
        // The kernel looks at the largest request only on the device itself;
        // a network file system has none.
        kb => Portion { bytes: kb.max(request_kb.unwrap_or(0)) << 10, by_reading: false },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_has_the_readahead_size_of_its_disk() {
        let sys = tempfile::tempdir().unwrap();
        let make = |dir: &str| std::fs::create_dir_all(sys.path().join(dir)).unwrap();
        let write = |name: &str, text| std::fs::write(sys.path().join(name), text).unwrap();
        for dir in ["class/bdi/8:0", "dev/block", "devices/sda/sda1"] {
            make(dir);
        }
        write("class/bdi/8:0/read_ahead_kb", "512\n");
        write("devices/sda/dev", "8:0\n");
        let link = |to, name| std::os::unix::fs::symlink(to, sys.path().join(name)).unwrap();
        link("../../devices/sda/sda1", "dev/block/8:1");
        link("../../devices/sda", "dev/block/8:0");
        let root = sys.path().to_str().unwrap();
        let expected = Some((format!("{root}/class/bdi/8:0/read_ahead_kb"), 512));
        assert_eq!(setting_below(root, "8:0"), expected);
        assert_eq!(setting_below(root, "8:1"), expected);
        assert_eq!(setting_below(root, "0:40"), None);
    }

    #[test]
    fn of_several_portions_the_smallest_is_one_that_all_take() {
        let of = |kb: &[u64]| smallest(kb.iter().map(|&kb| of_settings(kb, Some(256))));
        assert_eq!(of(&[]), None);
        for (readahead, bytes) in
            [(&[512, 1024][..], 512 << 10), (&[512, 128], 256 << 10), (&[512, 0], DEFAULT_PORTION)]
        {
            assert_eq!(of(readahead), Some(Portion { bytes, by_reading: false }), "{readahead:?}");
        }
    }

    #[test]
    fn a_request_is_as_large_as_the_kernel_will_not_cut() {
        for (readahead, request, bytes, by_reading) in [
            (128, Some(1280), 1280 << 10, false),
            (8192, Some(512), 8192 << 10, false),
            (128, None, 128 << 10, false),
            (0, Some(512), DEFAULT_PORTION, true),
        ] {
            assert_eq!(of_settings(readahead, request), Portion { bytes, by_reading });
        }
    }
}

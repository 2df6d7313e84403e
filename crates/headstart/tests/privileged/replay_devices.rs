//! Which devices a replay finds under mounts, and how much it may request of them at once.

use headstart::cache::residency::{page_size, resident_count};
use headstart::host::fsid::{block_device, speed_device, uuid};
use headstart::host::mounts::{Mount, MountTable, Mounts};
use headstart::host::range::ByteRange;
use headstart::pack::paths::PathInterner;
use headstart::pack::{File, FileSystem, Pack};
use headstart::replay::device::{DEFAULT_PORTION, Portion, portion};
use headstart::replay::frequency::Frequency;
use headstart::replay::metadata;
use headstart::replay::plan::{Limits, Plan};
use headstart::replay::strategy::ReadStrategy;
use headstart_testing::{LoopFs, run, skip};
use rustix::fs::{Advice, fadvise};
use std::fs;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

/// A mount that ends with the test.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        // What stays is in a temporary directory, and is seen there.
        let _ = run("umount", &[&self.0.to_string_lossy()]);
    }
}

fn plan_of(path: &Path, id: [u8; 16]) -> Plan {
    let mut names = PathInterner::default();
    let node = names.intern(path).unwrap_or_default();
    let pack = Pack {
        file_systems: vec![FileSystem { uuid: Some(id), ..FileSystem::default() }],
        paths: names.finish(),
        files: vec![File { node, ..File::default() }],
        ..Pack::default()
    };
    let limits = Limits { budget: u64::MAX, metadata: true };
    Plan::of_packs(&[pack], Frequency::EVER, limits, ReadStrategy::default())
}

#[test]
fn of_two_copies_of_a_file_system_metadata_is_read_from_the_one_with_the_files() {
    let Some(fs) = LoopFs::sized("ext4", 8 << 20) else { return };
    fs::write(fs.path().join("file"), "x").unwrap();
    fs.unmount();
    let (copy, second) = (fs.beside("copy"), fs.beside("second"));
    fs::copy(fs.beside("image"), &copy).unwrap();
    fs::create_dir(&second).unwrap();
    fs.mount();
    let words = ["-o", "loop", copy.to_str().unwrap(), second.to_str().unwrap()];
    if let Err(why) = run("mount", &words) {
        return skip(&why);
    }
    let second = Mounted(second);
    let table = MountTable::read().unwrap();
    for at in [fs.path(), &second.0] {
        let mount = table.at(at).unwrap();
        let device = block_device(mount).unwrap().unwrap();
        let plan = plan_of(&at.join("file"), uuid(mount).unwrap().unwrap().0);
        let found = metadata::devices(&plan, &Mounts::default());
        assert_eq!(found.get(&uuid(mount).unwrap().unwrap().0), Some(device.path.as_path()));
    }
}

#[test]
fn one_call_brings_in_a_portion_and_no_more() {
    for kind in ["ext4", "xfs", "btrfs"] {
        let Some(fs) = LoopFs::new(kind) else { return };
        let path = fs.path().join("file");
        fs::write(&path, vec![1; 8 << 20]).unwrap();
        fs.remount();
        let mounts = Mounts::default();
        let file = fs::File::open(&path).unwrap();
        let Portion { bytes, by_reading } = portion(&file, fs.dev(), &mounts);
        assert!((DEFAULT_PORTION + 1..8 << 20).contains(&bytes), "{kind}: {bytes}");
        assert!(!by_reading, "{kind}");
        let length = NonZeroU64::new(bytes + DEFAULT_PORTION);
        fadvise(&file, 0, length, Advice::WillNeed).unwrap();
        let cached = resident_count(&file, ByteRange::of(0, 8 << 20).pages(page_size())).unwrap();
        assert_eq!(cached * page_size(), bytes, "{kind}");
    }
}

#[test]
fn a_portion_of_an_overlay_is_one_that_each_mounted_file_system_takes() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let [above, below, over] =
        [fs.path().join("above"), fs.path().join("below"), fs.beside("over")];
    for dir in [&above, &below, &over] {
        fs::create_dir(dir).unwrap();
    }
    fs::write(below.join("file"), "x").unwrap();
    let layers = format!("lowerdir={}:{}", above.display(), below.display());
    let words = ["-t", "overlay", "overlay", "-o", &layers, over.to_str().unwrap()];
    if let Err(why) = run("mount", &words) {
        return skip(&why);
    }
    let over = Mounted(over);
    let mounts = Mounts::default();
    let table = mounts.table().unwrap();
    let of = |path: &Path, mount: &Mount| {
        Some(portion(fs::File::open(path).ok()?, mount.dev, &mounts).bytes)
    };
    let path = over.0.join("file");
    let found = of(&path, table.at(&path).unwrap()).unwrap();
    let has_setting = |mount: &&Mount| {
        let Mount { dev, .. } = mount;
        dev.major() != 0 || Path::new(&format!("/sys/class/bdi/{dev}")).exists()
    };
    let settings = table.mounts().iter().filter(has_setting);
    assert_eq!(Some(found), settings.filter_map(|mount| of(&mount.mount_point, mount)).min());

    // What is not known of others is not taken from these.
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let at = memory.path().join("file");
    fs::write(&at, "x").unwrap();
    assert_eq!(of(&at, table.at(&at).unwrap()), Some(DEFAULT_PORTION));
}

#[test]
fn how_fast_btrfs_is_tells_the_device_that_it_was_mounted_by() {
    let Some(fs) = LoopFs::sized("btrfs", 128 << 20) else { return };
    let table = MountTable::read().unwrap();
    let mount = table.at(fs.path()).unwrap();
    assert_eq!(block_device(mount).unwrap(), None);
    let device = speed_device(mount).unwrap().unwrap();
    assert_eq!(device.path, Path::new(&mount.source));
    assert_eq!(device.rdev.major(), 7, "a loop device");
}

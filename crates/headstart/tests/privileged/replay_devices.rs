//! Which devices a replay finds under mounts.

use headstart::host::fsid::{block_device, speed_device, uuid};
use headstart::host::mounts::{MountTable, Mounts};
use headstart::pack::paths::PathInterner;
use headstart::pack::{File, FileSystem, Pack};
use headstart::replay::frequency::Frequency;
use headstart::replay::metadata;
use headstart::replay::plan::{Limits, Plan};
use headstart::replay::strategy::ReadStrategy;
use headstart_testing::{LoopFs, run, skip};
use std::fs;
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
fn how_fast_btrfs_is_tells_the_device_that_it_was_mounted_by() {
    let Some(fs) = LoopFs::sized("btrfs", 128 << 20) else { return };
    let table = MountTable::read().unwrap();
    let mount = table.at(fs.path()).unwrap();
    assert_eq!(block_device(mount).unwrap(), None);
    let device = speed_device(mount).unwrap().unwrap();
    assert_eq!(device.path, Path::new(&mount.source));
    assert_eq!(device.rdev.major(), 7, "a loop device");
}

//! The identity of real file systems.

use std::os::unix::fs::MetadataExt;

use headstart::host::fsid::{FsUuid, block_device, uuid};
use headstart::host::id::Dev;
use headstart::host::mounts::MountTable;
use headstart_testing::{LoopFs, root_or_skip, run};

const UUID: &str = "12345678-9abc-4def-8123-456789abcdef";

#[test]
fn each_file_system_tells_the_uuid_it_was_made_with_and_its_device() {
    let xfs = format!("uuid={UUID}");
    let kinds: [(&str, u64, [&str; 2]); 4] = [
        ("ext4", 16 << 20, ["-U", UUID]),
        ("ext2", 16 << 20, ["-U", UUID]),
        ("xfs", 512 << 20, ["-m", &xfs]),
        ("btrfs", 256 << 20, ["-U", UUID]),
    ];
    // One after the other: equal UUIDs do not get on.
    for (kind, size, arguments) in kinds {
        let Some(fs) = LoopFs::with(kind, size, &arguments) else { continue };
        let table = MountTable::read().unwrap();
        let mount = table.at(fs.path()).unwrap();
        assert_eq!(uuid(mount).unwrap(), FsUuid::parse(UUID), "{kind}");
        let device = block_device(mount).unwrap();
        if kind == "btrfs" {
            assert_eq!(device, None);
        } else {
            let device = device.unwrap();
            assert_eq!(device.rdev, mount.dev);
            let node = std::fs::metadata(&device.path).unwrap();
            assert_eq!(Dev::from_stat(node.rdev()), fs.dev());
            // An alias without a node, as an initramfs may leave it.
            let mut alias = mount.clone();
            alias.source = "/dev/root".into();
            assert_eq!(block_device(&alias).unwrap().unwrap().rdev, device.rdev);
        }
    }
}

#[test]
fn memory_and_overlay_have_no_identity() {
    if !root_or_skip() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for name in ["tmpfs", "overlay", "low", "up", "work"] {
        std::fs::create_dir(path(name)).unwrap();
    }
    let layers =
        format!("lowerdir={},upperdir={},workdir={}", path("low"), path("up"), path("work"));
    run("mount", &["-t", "tmpfs", "none", &path("tmpfs")]).unwrap();
    let overlay = run("mount", &["-t", "overlay", "none", "-o", &layers, &path("overlay")]);
    let table = MountTable::read().unwrap();
    for name in ["tmpfs", "overlay"] {
        if name == "overlay" && overlay.is_err() {
            headstart_testing::skip(&format!("{overlay:?}"));
            continue;
        }
        let mount = table.at(path(name).as_ref()).unwrap();
        assert_eq!(mount.fstype, name);
        assert_eq!((uuid(mount).unwrap(), block_device(mount).unwrap()), (None, None));
        run("umount", &[&path(name)]).unwrap();
    }
}

//! What the tests of names share: a file on each kind of file system, and its resolution.

use headstart::host::id::InodeId;
use headstart::host::mounts::MountTable;
use headstart::profile::resolve::{Resolution, ResolveOptions, resolve};
use headstart_testing::LoopFs;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const KINDS: [(&str, u64); 3] = [("ext4", 64 << 20), ("xfs", 512 << 20), ("btrfs", 256 << 20)];

/// Tests on each kind of file system that this machine has.
pub fn each_fs(test: impl Fn(&LoopFs)) {
    KINDS.iter().filter_map(|(kind, size)| LoopFs::sized(kind, *size)).for_each(|fs| test(&fs));
}

/// Makes a file of one page, and the directories that it is in.
pub fn file(fs: &LoopFs, path: &Path) -> InodeId {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, [7; 4096]).unwrap();
    InodeId { dev: fs.dev(), ino: fs::metadata(path).unwrap().ino() }
}

/// Resolves these inodes by the mounts of this moment.
pub fn resolved<'a>(ids: &[InodeId], change: impl FnOnce(&mut ResolveOptions<'a>)) -> Resolution {
    // As long as the test, which closures that borrow from it need.
    let table = Box::leak(Box::new(MountTable::read().unwrap()));
    let mut options = ResolveOptions::new(table);
    change(&mut options);
    resolve(ids, &options)
}

//! btrfs: subvolumes and snapshots with the same inode numbers.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use headstart::host::id::InodeId;
use headstart::profile::resolve::{Method, Resolution, ResolveOptions, Unnamed};
use headstart_testing::{LoopFs, run, wait_until};

fn btrfs(fs: &LoopFs, verb: &[&str], paths: &[&Path]) {
    let paths: Vec<&str> = paths.iter().map(|path| path.to_str().unwrap()).collect();
    run("btrfs", &[&["subvolume"], verb, &paths[..]].concat()).unwrap();
    assert!(fs.kind() == "btrfs");
}

/// `sub/dir/f` of 40 KiB, a snapshot of `sub` next to it, and one inside.
fn three_copies() -> Option<(LoopFs, InodeId, [PathBuf; 3])> {
    let fs = LoopFs::sized("btrfs", 256 << 20)?;
    let sub = fs.path().join("sub");
    btrfs(&fs, &["create"], &[&sub]);
    fs::create_dir(sub.join("dir")).unwrap();
    fs::write(sub.join("dir/f"), [7; 40 << 10]).unwrap();
    btrfs(&fs, &["snapshot"], &[&sub, &fs.path().join("snap")]);
    btrfs(&fs, &["snapshot"], &[&sub, &sub.join("dir/nested")]);
    let paths =
        ["sub/dir/f", "snap/dir/f", "sub/dir/nested/dir/f"].map(|path| fs.path().join(path));
    let numbers = paths.each_ref().map(|path| fs::metadata(path).unwrap().ino());
    assert!(numbers.iter().all(|ino| *ino == numbers[0]));
    let id = InodeId { dev: fs.dev(), ino: numbers[0] };
    Some((fs, id, paths))
}

fn resolved<'a>(id: InodeId, change: impl FnOnce(&mut ResolveOptions<'a>)) -> Resolution {
    let resolution = crate::resolved::resolved(&[id], change);
    assert!(resolution.problems.is_empty(), "{:?}", resolution.problems);
    resolution
}

/// Mounts again and reads one of the three, so that only it has pages.
fn read_only(fs: &LoopFs, id: InodeId, path: &Path) -> InodeId {
    fs.remount();
    assert_eq!(fs::read(path).unwrap().len(), 40 << 10);
    InodeId { dev: fs.dev(), ..id }
}

#[test]
fn of_several_subvolumes_the_one_with_resident_pages_is_taken() {
    let Some((fs, id, paths)) = three_copies() else { return };
    for path in &paths {
        let id = read_only(&fs, id, path);
        for calls in [true, false] {
            let resolution = resolved(id, |options| options.calls = calls);
            assert_eq!(&resolution.files[0].1.path, path, "calls: {calls}");
            assert_eq!(resolution.ambiguous, 0);
        }
    }
}

#[test]
fn after_drop_caches_2_resident_pages_still_tell_and_the_index_names_the_file() {
    let Some((fs, id, paths)) = three_copies() else { return };
    for path in &paths {
        let id = read_only(&fs, id, path);
        // Dentries go, pages and their inodes stay. A dentry that was just used stays the
        // first time.
        wait_until("index that names the file", || {
            fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
            let resolution = resolved(id, |options| options.walk = false);
            assert_eq!(&resolution.files[0].1.path, path);
            assert_eq!(resolution.ambiguous, 0);
            resolution.how.contains_key(&Method::InodeLookup).then_some(())
        });
    }
}

#[test]
fn two_resident_copies_or_none_are_counted_as_ambiguous() {
    let Some((fs, id, paths)) = three_copies() else { return };
    let id = read_only(&fs, id, &paths[0]);
    fs::read(&paths[1]).unwrap();
    let resolution = resolved(id, |_| {});
    assert_eq!((resolution.files.len(), resolution.ambiguous), (1, 1));
    fs.remount();
    let id = InodeId { dev: fs.dev(), ..id };
    for calls in [true, false] {
        let resolution = resolved(id, |options| options.calls = calls);
        assert_eq!((resolution.files.len(), resolution.ambiguous), (1, 1), "calls: {calls}");
        assert!(paths.contains(&resolution.files[0].1.path));
    }
}

#[test]
fn a_subvolume_mounted_alone_hides_the_others() {
    let Some((fs, id, paths)) = three_copies() else { return };
    let id = read_only(&fs, id, &paths[0]);
    let mount = |name: &str| {
        fs::create_dir_all(fs.beside(name)).unwrap();
        let source = fs.path().join(name);
        rustix::mount::mount_bind(&source, fs.beside(name)).unwrap();
    };
    mount("snap");
    fs.unmount();
    // The file used lies in `sub`, which is nowhere to be seen now; the one in
    // `snap` with its number must not be taken for it.
    let resolution = resolved(id, |_| {});
    assert_eq!(resolution.unnamed, [(id, Unnamed::Unreachable)]);
}

#[test]
fn files_hidden_below_another_subvolume_are_not_mixed_up() {
    let Some(fs) = LoopFs::sized("btrfs", 256 << 20) else { return };
    let (top, sub) = (fs.path().join("d/f"), fs.path().join("sub/f"));
    fs::create_dir(fs.path().join("d")).unwrap();
    fs::write(&top, [1; 40 << 10]).unwrap();
    btrfs(&fs, &["create"], &[&fs.path().join("sub")]);
    // The same number in both, at the same place below d.
    fs::create_dir(fs.path().join("sub/pad")).unwrap();
    fs::write(&sub, [2; 40 << 10]).unwrap();
    let ino = fs::metadata(&top).unwrap().ino();
    assert_eq!(fs::metadata(&sub).unwrap().ino(), ino);
    let id = read_only(&fs, InodeId { dev: fs.dev(), ino }, &top);
    rustix::mount::mount_bind(fs.path().join("sub"), fs.path().join("d")).unwrap();
    let resolution = resolved(id, |options| options.walk = false);
    assert_eq!(resolution.unnamed, [(id, Unnamed::Unreachable)]);
}

#[test]
fn more_subvolumes_than_one_search_returns_are_all_known() {
    let Some(fs) = LoopFs::sized("btrfs", 256 << 20) else { return };
    let deep = fs.path().join("a").join("b");
    fs::create_dir_all(&deep).unwrap();
    let paths: Vec<PathBuf> = (0..40).map(|n| deep.join(format!("{n:0>200}"))).collect();
    paths.iter().for_each(|path| btrfs(&fs, &["create"], &[path]));
    let last = paths.last().unwrap().join("f");
    (0..300).for_each(|n| fs::write(last.with_file_name(format!("pad{n}")), "").unwrap());
    fs::write(&last, [7; 40 << 10]).unwrap();
    let ino = fs::metadata(&last).unwrap().ino();
    fs.remount();
    let resolution = resolved(InodeId { dev: fs.dev(), ino }, |options| options.walk = false);
    assert_eq!(resolution.files[0].1.path, last);
    assert_eq!((resolution.ambiguous, resolution.how), (0, [(Method::InodeLookup, 1)].into()));
}

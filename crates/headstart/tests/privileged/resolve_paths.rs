//! Every kind of path comes back from its inode, on each file system, by its
//! own calls with hot names and cold ones, and by a walk alone.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::resolved::resolved;
use headstart::host::id::InodeId;
use headstart::host::mounts::MountTable;
use headstart::profile::resolve::{FileKind, Method, Resolution, ResolveOptions, Unnamed, resolve};
use headstart_testing::{LoopFs, bind, run};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::UnmountFlags;

/// Those that the kernel lacks are passed over, as f2fs often is: it takes the
/// same path through the code as ext4.
const KINDS: [(&str, u64); 5] = [
    ("ext2", 16 << 20),
    ("ext4", 64 << 20),
    ("xfs", 512 << 20),
    ("btrfs", 256 << 20),
    ("f2fs", 256 << 20),
];

fn each_fs(test: impl Fn(&LoopFs)) {
    KINDS.iter().filter_map(|(kind, size)| LoopFs::sized(kind, *size)).for_each(|fs| test(&fs));
}

fn id(fs: &LoopFs, path: &Path) -> InodeId {
    InodeId { dev: fs.dev(), ino: fs::symlink_metadata(path).unwrap().ino() }
}

/// Makes a file of one page and returns its inode.
fn file(fs: &LoopFs, path: &Path) -> InodeId {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, [7; 4096]).unwrap();
    id(fs, path)
}

fn paths(resolution: &Resolution) -> HashMap<InodeId, PathBuf> {
    assert!(resolution.problems.is_empty(), "{:?}", resolution.problems);
    resolution.files.iter().map(|(id, file)| (*id, file.path.clone())).collect()
}

/// The three states in which a file system's names are resolved. The cold one unmounts
/// and mounts again, so it comes last.
fn by_each_method(fs: &LoopFs, ids: &[InodeId], test: impl Fn(&str, Resolution)) {
    test("hot", resolved(ids, |_| {}));
    test("walk alone", resolved(ids, |options| options.calls = false));
    fs.remount();
    // The device number may have changed; the tests compare with the old one.
    let (old, new) = (ids[0].dev, fs.dev());
    let now: Vec<InodeId> = ids.iter().map(|id| InodeId { dev: new, ..*id }).collect();
    let mut resolution = resolved(&now, |_| {});
    resolution.files.iter_mut().for_each(|(id, _)| id.dev = old);
    test("cold", resolution);
}

#[test]
fn names_with_any_bytes_come_back_by_every_way() {
    each_fs(|fs| {
        let long = OsStr::from_bytes(&[b'n'; 255]);
        let names: [&[u8]; 8] = [
            b"plain",
            b"with space",
            b"two\nlines\n",
            b"tab\tback\\slash\\012",
            b"not utf-8 \xff\xfe",
            b"gone (deleted)",
            b"-n",
            long.as_bytes(),
        ];
        let files: HashMap<InodeId, PathBuf> = names
            .iter()
            .map(|name| fs.path().join("a directory\n").join(OsStr::from_bytes(name)))
            .map(|path| (file(fs, &path), path))
            .collect();
        let ids: Vec<InodeId> = files.keys().copied().collect();
        by_each_method(fs, &ids, |method, resolution| {
            assert_eq!(paths(&resolution), files, "{} {method:?}", fs.kind());
            assert!(resolution.unnamed.is_empty());
        });
    });
}

#[test]
fn hot_names_need_no_walk_and_cold_ones_do_except_on_btrfs() {
    each_fs(|fs| {
        let path = fs.path().join("a/b/c");
        let ids = [file(fs, &path)];
        by_each_method(fs, &ids, |method, resolution| {
            let method = match (method, fs.kind()) {
                ("hot", _) => Method::Handle,
                ("cold", "btrfs") => Method::InodeLookup,
                _ => Method::Walk,
            };
            assert_eq!(resolution.how.get(&method), Some(&1), "{} {method:?}", fs.kind());
            assert_eq!(resolution.walked_entries > 0, method == Method::Walk);
            assert_eq!(paths(&resolution)[&ids[0]], path);
        });
    });
}

#[test]
fn a_name_of_an_earlier_start_is_checked_and_needs_no_walk() {
    each_fs(|fs| {
        let path = fs.path().join("a/b/c");
        let id = file(fs, &path);
        let table = MountTable::read().unwrap();
        let by_earlier = |names: Vec<PathBuf>| {
            let earlier = HashMap::from([(id.ino, names)]);
            let options = ResolveOptions::new(&table);
            let options = ResolveOptions { calls: false, walk: false, ..options };
            resolve(&[id], &ResolveOptions { earlier: Some(&earlier), ..options })
        };
        let other = fs.path().join("a");
        let known = by_earlier(vec![other.clone(), path.clone()]);
        assert_eq!(known.how, [(Method::EarlierName, 1)].into(), "{}", fs.kind());
        assert_eq!(paths(&known)[&id], path);
        assert_eq!(by_earlier(vec![other]).files, [], "{}", fs.kind());
    });
}

#[test]
fn a_path_of_four_thousand_characters_comes_back() {
    each_fs(|fs| {
        // Made step by step: the whole is close to what a call takes.
        let mut dir =
            rustix::fs::open(fs.path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let mut path = fs.path().to_owned();
        let name = "d".repeat(197);
        while path.as_os_str().len() < 3800 {
            rustix::fs::mkdirat(&dir, &name, Mode::RWXU).unwrap();
            dir = rustix::fs::openat(&dir, &name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
                .unwrap();
            path.push(&name);
        }
        drop(dir);
        path.push("f".repeat(4000 - 1 - path.as_os_str().len()));
        assert_eq!(path.as_os_str().len(), 4000);
        let ids = [file(fs, &path)];
        by_each_method(fs, &ids, |method, resolution| {
            assert_eq!(paths(&resolution)[&ids[0]], path, "{} {method:?}", fs.kind());
        });
    });
}

#[test]
fn a_path_too_long_for_any_call_is_unreachable_and_no_error() {
    each_fs(|fs| {
        let mut dir =
            rustix::fs::open(fs.path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let name = "d".repeat(250);
        for _ in 0..17 {
            rustix::fs::mkdirat(&dir, &name, Mode::RWXU).unwrap();
            dir = rustix::fs::openat(&dir, &name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
                .unwrap();
        }
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&dir, "f", flags, Mode::RUSR).unwrap();
        let ino = rustix::fs::fstat(&file).unwrap().st_ino;
        let resolution = resolved(&[InodeId { dev: fs.dev(), ino }], |_| {});
        assert_eq!(resolution.unnamed_by_reason(), [(Unnamed::Unreachable, 1)].into());
        assert!(paths(&resolution).is_empty());
    });
}

#[test]
fn a_hard_link_gives_one_of_its_names_also_after_the_other_is_removed() {
    each_fs(|fs| {
        let (first, second) = (fs.path().join("one/a"), fs.path().join("two/b"));
        let ids = [file(fs, &first)];
        fs::create_dir(fs.path().join("two")).unwrap();
        fs::hard_link(&first, &second).unwrap();
        by_each_method(fs, &ids, |method, resolution| {
            let path = &paths(&resolution)[&ids[0]];
            assert!(*path == first || *path == second, "{} {method} {path:?}", fs.kind());
        });
        // Kept open, so that the removed name is still cached.
        let open = fs::File::open(&first).unwrap();
        let ids = [id(fs, &first)];
        fs::remove_file(&first).unwrap();
        assert_eq!(paths(&resolved(&ids, |_| {}))[&ids[0]], second, "{}", fs.kind());
        drop(open);
    });
}

#[test]
fn size_times_kind_and_mode_are_those_of_lstat() {
    each_fs(|fs| {
        let path = fs.path().join("f");
        let mut ids = vec![file(fs, &path)];
        let link = fs.path().join("link");
        std::os::unix::fs::symlink("/nowhere", &link).unwrap();
        run("mkfifo", &[fs.path().join("fifo").to_str().unwrap()]).unwrap();
        ids.extend(["link", "fifo", ""].map(|name| id(fs, &fs.path().join(name))));
        by_each_method(fs, &ids, |method, resolution| {
            assert_eq!(resolution.files.len(), 4, "{} {method} {resolution:?}", fs.kind());
            for (_, file) in &resolution.files {
                let stat = fs::symlink_metadata(&file.path).unwrap();
                let time = |seconds, rest| seconds * 1_000_000_000 + rest;
                assert_eq!((file.size, file.mode), (stat.len(), stat.mode()));
                assert_eq!(file.mtime_ns, time(stat.mtime(), stat.mtime_nsec()));
                assert_eq!(file.ctime_ns, time(stat.ctime(), stat.ctime_nsec()));
                let kind = match stat.file_type() {
                    kind if kind.is_file() => FileKind::Regular,
                    kind if kind.is_dir() => FileKind::Directory,
                    kind if kind.is_symlink() => FileKind::Symlink,
                    _ => FileKind::Other,
                };
                assert_eq!(file.kind, kind);
            }
        });
    });
}

#[test]
fn with_only_a_directory_or_a_file_bind_mounted_the_rest_is_not_found() {
    each_fs(|fs| {
        let inside = file(fs, &fs.path().join("shown/deep/x"));
        let single = file(fs, &fs.path().join("hidden/single"));
        let outside = file(fs, &fs.path().join("hidden/y"));
        let (dir_at, file_at) = (fs.beside("dir"), fs.beside("file"));
        bind(&fs.path().join("shown"), &dir_at);
        bind(&fs.path().join("hidden/single"), &file_at);
        fs.unmount();
        for calls in [true, false] {
            let resolution = resolved(&[inside, single, outside], |options| options.calls = calls);
            let wanted = [(inside, dir_at.join("deep/x")), (single, file_at.clone())];
            assert_eq!(paths(&resolution), wanted.into(), "{} {calls}", fs.kind());
            let reason = resolution.unnamed[0].1;
            let reasons = [Unnamed::NotFound, Unnamed::Unreachable];
            assert!(reasons.contains(&reason), "{} {calls} {reason}", fs.kind());
        }
    });
}

#[test]
fn a_file_below_another_mount_is_found_through_a_bind_mount_or_is_unreachable() {
    each_fs(|fs| {
        let path = fs.path().join("covered/x");
        let ids = [file(fs, &path)];
        let other = fs.beside("other");
        bind(&fs.path().join("covered"), &other);
        let cover = fs.beside("cover");
        fs::create_dir(&cover).unwrap();
        rustix::mount::mount_bind(&cover, fs.path().join("covered")).unwrap();
        // The same name on top, to be distinguished.
        fs::write(&path, "not it").unwrap();
        let shown_at = |path: &Path| {
            for calls in [true, false] {
                let resolution = resolved(&ids, |options| options.calls = calls);
                let wanted = [(ids[0], path.to_owned())];
                assert_eq!(paths(&resolution), wanted.into(), "{} {calls}", fs.kind());
            }
            rustix::mount::unmount(&other, UnmountFlags::empty()).unwrap();
        };
        shown_at(&other.join("x"));
        // All of it a second time, without what is mounted on it.
        bind(fs.path(), &other);
        shown_at(&other.join("covered/x"));
        let resolution = resolved(&ids, |_| {});
        assert_eq!(resolution.unnamed, [(ids[0], Unnamed::Unreachable)], "{}", fs.kind());
    });
}

#[test]
fn a_shadowed_mount_point_is_not_taken_for_the_file_system() {
    each_fs(|fs| {
        let ids = [file(fs, &fs.path().join("x"))];
        let dev = fs.dev();
        rustix::mount::mount("none", fs.path(), "tmpfs", rustix::mount::MountFlags::empty(), None)
            .unwrap();
        fs::write(fs.path().join("x"), "not it").unwrap();
        let resolution = resolved(&ids, |_| {});
        assert_eq!(resolution.unnamed, [(ids[0], Unnamed::Unreachable)], "{}", fs.kind());
        run("umount", &[fs.path().to_str().unwrap()]).unwrap();
        assert_eq!(fs.dev(), dev);
        assert_eq!(resolved(&ids, |_| {}).files.len(), 1);
    });
}

#[test]
fn a_file_system_that_tells_no_types_with_its_names_is_walked_as_well() {
    let Some(fs) = LoopFs::with("ext4", 16 << 20, &["-O", "^filetype"]) else { return };
    let path = fs.path().join("a/b/c");
    let ids = [file(&fs, &path)];
    let types = rustix::fs::Dir::read_from(
        rustix::fs::openat(CWD, fs.path(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .unwrap(),
    )
    .unwrap()
    .map(|entry| entry.unwrap().file_type());
    assert!(types.into_iter().any(|kind| kind == rustix::fs::FileType::Unknown));
    let resolution = resolved(&ids, |options| options.calls = false);
    assert_eq!(paths(&resolution)[&ids[0]], path);
}

//! Every inode without a path is counted with the right reason, and a walk
//! keeps to its limits.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::resolved::{each_fs, file, resolved};
use headstart::host::id::{Dev, InodeId};
use headstart::host::mounts::MountTable;
use headstart::profile::resolve::{LiveNames, Method, ResolveOptions, Unnamed, resolve};
use headstart_testing::{LoopFs, bind, run_inner, variable};

#[test]
fn a_removed_file_is_deleted_whether_it_is_still_open_or_not() {
    each_fs(|fs| {
        let (kept, gone) = (fs.path().join("kept"), fs.path().join("gone"));
        let ids = [file(fs, &kept), file(fs, &gone)];
        let open = fs::File::open(&kept).unwrap();
        fs::remove_file(&kept).unwrap();
        fs::remove_file(&gone).unwrap();
        rustix::fs::syncfs(&open).unwrap();
        let resolution = resolved(&ids, |_| {});
        let wanted = [(Unnamed::Deleted, 2)].into();
        assert_eq!(resolution.unnamed_by_reason(), wanted, "{}", fs.kind());
        assert_eq!(resolution.walked_entries, 0);
    });
}

#[test]
fn without_calls_a_removed_file_is_not_found_unless_a_process_told() {
    each_fs(|fs| {
        let path = fs.path().join("kept");
        let ids = [file(fs, &path)];
        let open = fs::File::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let reason = |live| {
            resolved(&ids, |options| {
                options.calls = false;
                options.live = live;
            })
            .unnamed[0]
                .1
        };
        assert_eq!(reason(None), Unnamed::NotFound, "{}", fs.kind());
        let mut live = LiveNames::new();
        live.observe(&[std::process::id() as i32]);
        assert_eq!(reason(Some(&live)), Unnamed::Deleted, "{}", fs.kind());
        drop(open);
    });
}

#[test]
fn a_file_system_that_was_walked_without_result_is_not_walked_again() {
    each_fs(|fs| {
        let there = file(fs, &fs.path().join("there"));
        let id = InodeId { ino: u64::from(u32::MAX), ..there };
        let of = |ids: &[InodeId], without_result: &[Dev]| {
            let found = resolved(ids, |options| {
                options.calls = false;
                options.walked_without_result = without_result;
            });
            (
                found.walked_entries > 0,
                found.unnamed.first().map(|(_, why)| *why),
                found.walked_without_result,
            )
        };
        let first = of(&[id], &[]);
        assert_eq!(first, (true, Some(Unnamed::NotFound), vec![id.dev]), "{}", fs.kind());
        let second = of(&[id], &first.2);
        assert_eq!(second, (false, Some(Unnamed::WalkSkipped), vec![id.dev]), "{}", fs.kind());
        // One that found something was not without result.
        assert_eq!(of(&[there, id], &[]).2, [], "{}", fs.kind());
    });
}

#[test]
fn a_device_that_is_not_mounted_is_unreachable() {
    let id = InodeId { dev: Dev::new(4000, 7), ino: 12 };
    let resolution = resolved(&[id, id], |_| {});
    assert_eq!(resolution.unnamed, [(id, Unnamed::Unreachable)]);
}

#[test]
fn inode_numbers_that_no_file_system_has_do_no_harm() {
    each_fs(|fs| {
        let numbers = [0, 1, u64::from(u32::MAX), u64::from(u32::MAX) + 1, 1 << 48, u64::MAX];
        let ids = numbers.map(|ino| InodeId { dev: fs.dev(), ino });
        let resolution = resolved(&ids, |_| {});
        assert!(resolution.files.is_empty(), "{} {:?}", fs.kind(), resolution.files);
        assert_eq!(resolution.unnamed.len(), ids.len());
        let internal = resolution.unnamed_by_reason().get(&Unnamed::Internal).copied();
        assert_eq!(internal, (fs.kind() == "btrfs").then_some(1));
    });
}

#[test]
fn with_no_walk_allowed_what_needs_one_says_so() {
    each_fs(|fs| {
        let path = fs.path().join("a/b");
        file(fs, &path);
        fs.remount();
        let id = InodeId { dev: fs.dev(), ino: ino_without_lookup(fs, &path) };
        let resolution = resolved(&[id], |options| options.walk = false);
        if fs.kind() == "btrfs" {
            assert_eq!(resolution.how, [(Method::InodeLookup, 1)].into());
        } else {
            assert_eq!(resolution.unnamed, [(id, Unnamed::WalkSkipped)], "{}", fs.kind());
        }
        assert_eq!(resolution.walked_entries, 0);
    });
}

/// From the directory's entries, which leaves the file's own name uncached.
fn ino_without_lookup(fs: &LoopFs, path: &Path) -> u64 {
    use std::os::unix::fs::DirEntryExt;
    let entries = fs::read_dir(path.parent().unwrap()).unwrap();
    let entry = entries.map(Result::unwrap).find(|entry| entry.path() == path);
    assert!(path.starts_with(fs.path()));
    entry.unwrap().ino()
}

#[test]
fn a_deadline_ends_every_method() {
    each_fs(|fs| {
        let path = fs.path().join("a/b");
        let id = file(fs, &path);
        let mut live = LiveNames::new();
        live.observe(&[std::process::id() as i32]);
        let earlier = [(id.ino, vec![path])].into();
        let resolution = resolved(&[id], |options| {
            options.live = Some(&live);
            options.earlier = Some(&earlier);
            options.deadline = Some(Instant::now());
        });
        assert_eq!(resolution.unnamed, [(id, Unnamed::OutOfTime)], "{}", fs.kind());
    });
}

#[test]
fn a_walk_stops_when_all_is_found_and_does_not_enter_other_mounts() {
    each_fs(|fs| {
        let id = file(fs, &fs.path().join("x"));
        let inner = fs.beside("inner");
        fs::create_dir(&inner).unwrap();
        (0..500).for_each(|n| fs::write(inner.join(n.to_string()), "").unwrap());
        bind(&inner, &fs.path().join("mounted"));
        let walk = |ids: &[InodeId]| resolved(ids, |options| options.calls = false);
        assert!(walk(&[id]).walked_entries < 10, "{}", fs.kind());
        let none = InodeId { ino: 999_999, ..id };
        let resolution = walk(&[none]);
        assert!(resolution.walked_entries < 10, "{}", fs.kind());
        assert_eq!(resolution.unnamed, [(none, Unnamed::NotFound)]);
    });
}

#[test]
fn bind_mounts_of_one_file_system_are_walked_once() {
    each_fs(|fs| {
        file(fs, &fs.path().join("d/x"));
        (0..100).for_each(|n| fs::write(fs.path().join("d").join(n.to_string()), "").unwrap());
        for name in ["one", "two", "three"] {
            bind(&fs.path().join("d"), &fs.beside(name));
        }
        let none = InodeId { dev: fs.dev(), ino: 999_999 };
        let resolution = resolved(&[none], |options| options.calls = false);
        assert!((101..110).contains(&resolution.walked_entries), "{resolution:?}");
    });
}

#[test]
fn without_privileges_a_walk_finds_what_it_may_and_says_what_it_may_not() {
    each_fs(|fs| {
        let secret = file(fs, &fs.path().join("private/secret"));
        file(fs, &fs.path().join("public/open"));
        // Root without capabilities is a user like any other.
        std::os::unix::fs::chown(fs.path().join("private"), Some(65534), None).unwrap();
        fs::set_permissions(fs.path().join("private"), Permissions::from_mode(0o700)).unwrap();
        let variables = [
            ("INNER_MOUNT", fs.path().to_str().unwrap().to_owned()),
            ("INNER_SECRET", secret.ino.to_string()),
        ];
        let wrapper = ["setpriv", "--bounding-set=-all", "--"];
        run_inner(
            concat!(module_path!(), "::without_privileges"),
            &wrapper,
            &std::env::current_exe().unwrap(),
            &variables,
        );
    });
}

#[test]
#[ignore = "started by another test"]
fn without_privileges() {
    let Some(mount) = variable("INNER_MOUNT").map(PathBuf::from) else { return };
    let table = MountTable::read().unwrap();
    let dev = table.at(&mount).unwrap().dev;
    let open = mount.join("public/open");
    let ids =
        [fs::metadata(&open).unwrap().ino(), variable("INNER_SECRET").unwrap().parse().unwrap()]
            .map(|ino| InodeId { dev, ino });
    let resolution = resolve(&ids, &ResolveOptions::new(&table));
    assert_eq!(resolution.how, [(Method::Walk, 1)].into(), "{resolution:?}");
    assert_eq!(resolution.files[0].1.path, open);
    assert_eq!(resolution.unnamed, [(ids[1], Unnamed::NoPermission)]);
    // The calls, and the directories: the private one, and lost+found of ext4.
    let said: Vec<String> = resolution.problems.iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains(mount.to_str().unwrap()) && said[0].contains("inode"), "{said:?}");
    assert!(said[1].contains("Can't read") && said[1].contains("private"), "{said:?}");

    let options = ResolveOptions { walk: false, ..ResolveOptions::new(&table) };
    assert_eq!(resolve(&ids, &options).unnamed_by_reason(), [(Unnamed::WalkSkipped, 2)].into());
}

#[test]
fn a_live_name_is_used_first_and_a_stale_one_is_not_believed() {
    each_fs(|fs| {
        let (first, second) = (fs.path().join("used"), fs.path().join("stale\\012\nname"));
        let ids = [file(fs, &first), file(fs, &second)];
        let mut child = Command::new("tail")
            .args(["-f", "--"])
            .args([&first, &second])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // It has both open as soon as it writes their names.
        let mut out = child.stdout.take().unwrap();
        let mut text = Vec::new();
        while text.windows(4).filter(|part| part == b"==> ").count() < 2 {
            let mut byte = [0];
            std::io::Read::read_exact(&mut out, &mut byte).unwrap();
            text.extend(byte);
        }
        let mut live = LiveNames::new();
        live.observe(&[child.id() as i32]);
        child.kill().unwrap();
        child.wait().unwrap();
        let resolution = resolved(&ids, |options| options.live = Some(&live));
        assert_eq!(resolution.how, [(Method::LiveName, 2)].into(), "{}", fs.kind());

        let moved = fs.path().join("moved");
        fs::rename(&second, &moved).unwrap();
        file(fs, &second);
        let resolution = resolved(&ids, |options| options.live = Some(&live));
        let how = [(Method::LiveName, 1), (Method::Handle, 1)].into();
        assert_eq!(resolution.how, how, "{}", fs.kind());
        assert!(resolution.files.iter().any(|(id, file)| *id == ids[1] && file.path == moved));
    });
}

//! `headstart layout` on loop-mounted ext4: files are moved and back, and skipped where they must be.

use crate::common::laid_out::{
    CHUNK, check, command, dir, done, fails, fragmented, json, pack, places, state, states,
};
use headstart::pack::store;
use headstart_sys::fiemap::Extent;
use headstart_testing::{LoopFs, must, noise, wait_until};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[test]
fn fragmented_files_become_one_extent_each_in_touch_order_and_come_back_to_the_same_blocks() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let paths = fragmented(&fs, 40, 10);
    let pack = pack(&fs, &paths);
    let (before, old) = (states(&paths), places(&paths));
    assert!(old.iter().all(|extents| extents.len() > 2), "{old:?}");
    let plan = json(&[&"plan", &"--json", &pack]);
    assert_eq!((&plan["files"], &plan["ranges"]), (&40.into(), &40.into()), "{plan}");
    let count = old.iter().map(Vec::len).sum::<usize>();
    assert_eq!(plan["gain"]["before"]["extents"], count);
    assert_eq!(plan["gain"]["after"]["extents"], 40);
    assert_eq!(places(&paths), old, "a plan moves nothing");

    done(&[&"apply", &"--force", &pack]);
    let new = places(&paths);
    let length = (10 * CHUNK as u64 + 100).next_multiple_of(4096);
    for (n, file) in new.iter().enumerate() {
        let physical = new[0][0].physical + n as u64 * length;
        assert_eq!(*file, [Extent { logical: 0, physical, length }], "{n}");
    }
    assert_eq!(states(&paths), before);
    must(env!("CARGO_BIN_EXE_headstart"), &["pack", "verify", pack.to_str().unwrap()]);
    let status = json(&[&"status", &"--json", &fs.path()]);
    assert_eq!(status["new_bytes"], 40 * length, "{status}");
    assert_eq!((&status["old_bytes"], &status["same_files"]), (&0.into(), &40.into()));
    assert!(fails(&[&"apply", &"--force", &pack], 1).contains("There is a layout"));
    check(&fs);
    assert_eq!((states(&paths), places(&paths)), (before.clone(), new));
    done(&[&"verify", &fs.path()]);

    done(&[&"undo", &fs.path()]);
    assert_eq!((states(&paths), places(&paths)), (before.clone(), old));
    assert!(!dir(&fs).exists());
    assert!(fails(&[&"undo", &fs.path()], 3).contains("no layout"));
    check(&fs);
    assert_eq!(states(&paths), before);
}

#[test]
fn a_pack_knows_the_blocks_with_the_extents_of_its_files_after_apply_resume_and_undo() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let paths = ["a", "b", "c"].map(|name| fs.path().join(name));
    let (pack, list) = (fs.beside("files.pack"), fs.beside("list"));
    // Each in more parts than its inode has room for.
    let parts: Vec<String> = (0..4u64).map(|n| format!("{}:4096", n << 20)).collect();
    let line = |path: &PathBuf| format!("{} {}\n", path.display(), parts.join(","));
    fs::write(&list, paths.iter().map(line).collect::<String>()).unwrap();
    for path in &paths {
        fs::write(path, noise(4 << 20)).unwrap();
    }
    must("sync", &["-f", fs.path().to_str().unwrap()]);
    let [to, from] = [&pack, &list].map(|path| path.to_str().unwrap());
    must(env!("CARGO_BIN_EXE_headstart"), &["pack", "import", "--output", to, from]);
    let known = || {
        let pages = store::read(&pack, 0).unwrap().metadata;
        let mut pages: Vec<u64> = pages.iter().map(|range| range.first).collect();
        pages.sort_unstable();
        pages
    };
    let inodes: Vec<i64> = states(&paths).into_iter().map(|(_, [.., inode])| inode).collect();
    // A line of all its extents begins with that of the block that holds them.
    let trees = || {
        check(&fs);
        let image = fs.beside("image");
        let blocks = inodes.iter().flat_map(|inode| {
            let request = format!("stat <{inode}>");
            let said = must("debugfs", &["-R", &request, image.to_str().unwrap()]);
            let rest = said.split("(ETB0):").skip(1);
            let found = rest.filter_map(|rest| rest.split([',', '\n']).next());
            found.map(|block| block.trim().parse().unwrap()).collect::<Vec<u64>>()
        });
        let mut blocks: Vec<u64> = blocks.collect();
        blocks.sort_unstable();
        blocks
    };
    assert_eq!((known(), trees()), (vec![], vec![]));
    let before = fs::read(&pack).unwrap();
    done(&[&"apply", &"--force", &pack]);
    let new = trees();
    assert_eq!((new.len(), known()), (3, new.clone()));
    must(env!("CARGO_BIN_EXE_headstart"), &["pack", "verify", pack.to_str().unwrap()]);
    // As after a crash before the pack was told.
    fs::write(&pack, before).unwrap();
    done(&[&"resume", &fs.path()]);
    assert_eq!(known(), new);
    done(&[&"undo", &fs.path()]);
    assert_eq!((known(), trees()), (vec![], vec![]));
    must(env!("CARGO_BIN_EXE_headstart"), &["pack", "verify", pack.to_str().unwrap()]);
    // One that is gone keeps nothing from being undone.
    done(&[&"apply", &"--force", &pack]);
    fs::remove_file(&pack).unwrap();
    let said = done(&[&"undo", &fs.path()]);
    assert!(said.contains("not renewed"), "{said}");
    assert!(!dir(&fs).exists());
}

#[test]
fn ranges_that_others_cached_are_moved_and_moved_back_with_few_commits() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let paths = ["a", "b", "c", "d"].map(|name| fs.path().join(name));
    let (pack, list) = (fs.beside("files.pack"), fs.beside("list"));
    let line = |path: &PathBuf| format!("{} 20480:339968\n", path.display());
    fs::write(&list, paths.iter().map(line).collect::<String>()).unwrap();
    for path in &paths {
        fs::write(path, noise(2 << 20)).unwrap();
    }
    must("sync", &["-f", fs.path().to_str().unwrap()]);
    let [to, from] = [&pack, &list].map(|path| path.to_str().unwrap());
    must(env!("CARGO_BIN_EXE_headstart"), &["pack", "import", "--output", to, from]);
    let device = fs.device();
    let name = Path::new(&device).file_name().unwrap().to_str().unwrap();
    let info = PathBuf::from(format!("/proc/fs/jbd2/{name}-8/info"));
    let commits = || -> u64 {
        let text = fs::read_to_string(&info).unwrap();
        text.split_whitespace().next().unwrap().parse().unwrap()
    };
    let few = |words: &[&dyn AsRef<OsStr>]| {
        // Readahead makes large folios, which cross the ends of ranges.
        paths.iter().for_each(|path| drop(fs::read(path).unwrap()));
        let before = commits();
        done(words);
        let made = commits() - before;
        assert!(made < 40, "{made} commits");
    };
    few(&[&"apply", &"--force", &pack]);
    few(&[&"undo", &fs.path()]);
}

#[test]
fn files_that_must_not_be_moved_are_skipped_each_with_its_reason() {
    let Some(fs) = LoopFs::with("ext4", 256 << 20, &["-O", "inline_data"]) else { return };
    let path = |name: &str| fs.path().join(name);
    let make = |name: &str| {
        let path = path(name);
        fs::write(&path, noise(30_000)).unwrap();
        path
    };
    let chattr = |flags: &str, path: &Path| must("chattr", &[flags, path.to_str().unwrap()]);
    let moved = make("moved");
    let linked = path("linked");
    fs::hard_link(&moved, &linked).unwrap();
    let sparse = make("sparse");
    OpenOptions::new().write(true).open(&sparse).unwrap().write_all_at(b"x", 90_000).unwrap();
    let preallocated = path("preallocated");
    must("fallocate", &["-l", "50000", preallocated.to_str().unwrap()]);
    let inline = path("inline");
    fs::write(&inline, "a few bytes").unwrap();
    let running = path("running");
    fs::copy("/bin/sleep", &running).unwrap();
    let all = [
        moved.clone(),
        linked,
        sparse,
        preallocated,
        inline,
        running.clone(),
        make("immutable"),
        make("append"),
        make("written"),
        make("changed"),
        make("gone"),
        make("link"),
    ];
    chattr("+i", &path("immutable"));
    chattr("+a", &path("append"));
    must("sync", &["-f", fs.path().to_str().unwrap()]);
    let pack = pack(&fs, &all);
    fs::write(path("changed"), noise(30_001)).unwrap();
    fs::remove_file(path("gone")).unwrap();
    fs::remove_file(path("link")).unwrap();
    symlink(&moved, path("link")).unwrap();
    must("sync", &["-f", fs.path().to_str().unwrap()]);
    let writer = OpenOptions::new().append(true).open(path("written")).unwrap();
    let mut process = Command::new(&running).arg("1000").spawn().unwrap();
    let before = state(&moved);
    let done = json(&[&"apply", &"--force", &"--json", &pack]);
    process.kill().unwrap();
    process.wait().unwrap();
    drop(writer);
    let expected = serde_json::json!({
        "hard-link": 1, "sparse": 1, "preallocated": 1, "inline": 1, "running": 1, "immutable": 1,
        "append-only": 1, "written-to": 1, "changed": 2, "missing": 1,
    });
    assert_eq!(done["skipped"], expected);
    assert_eq!((&done["moved_bytes"], state(&moved)), (&32_768.into(), before));
    chattr("-i", &path("immutable"));
    check(&fs);
}

#[test]
fn a_damaged_journal_and_another_donor_are_refused_and_cost_no_content() {
    let Some(fs) = LoopFs::sized("ext4", 256 << 20) else { return };
    let paths = fragmented(&fs, 10, 10);
    let pack = pack(&fs, &paths);
    let victim = fs.path().join("victim");
    fs::write(&victim, noise(1 << 20)).unwrap();
    let before = (states(&paths), state(&victim).0);
    done(&[&"apply", &"--force", &pack]);
    let (journal, donor) = (dir(&fs).join("journal"), dir(&fs).join("donor"));
    let good = fs::read(&journal).unwrap();
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 4;
    for (bytes, why) in [
        (&bad[..], "damaged (its checksum)"),
        (&good[..good.len() / 2], "damaged"),
        (b"headstart-layout 9\n", "another version"),
        (b"", "damaged"),
    ] {
        fs::write(&journal, bytes).unwrap();
        for verb in ["undo", "resume", "status", "verify"] {
            let said = fails(&[&verb, &fs.path()], 1);
            assert!(said.contains(why) && said.contains("release"), "{verb}: {said}");
        }
    }
    fs::write(&journal, &good).unwrap();
    let aside = dir(&fs).join("aside");
    fs::rename(&donor, &aside).unwrap();
    let refused = |what: &str| {
        let said = fails(&[&"undo", &fs.path()], 1);
        assert!(said.contains("donor"), "{what}: {said}");
        assert_eq!((states(&paths), state(&victim).0), before, "{what}");
    };
    refused("nothing");
    symlink(&victim, &donor).unwrap();
    refused("a symbolic link");
    fs::remove_file(&donor).unwrap();
    fs::hard_link(&victim, &donor).unwrap();
    refused("another name of a file");
    fs::remove_file(&donor).unwrap();
    fs::hard_link(&aside, &donor).unwrap();
    refused("the donor, with another name");
    fs::remove_file(&aside).unwrap();
    chown(&donor, Some(65534), None).unwrap();
    assert!(fails(&[&"undo", &fs.path()], 1).contains("is not root's"));
    chown(&donor, Some(0), None).unwrap();
    fs::set_permissions(dir(&fs), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(fails(&[&"undo", &fs.path()], 1).contains("can be written by others"));
    fs::set_permissions(dir(&fs), fs::Permissions::from_mode(0o700)).unwrap();
    done(&[&"undo", &fs.path()]);
    assert_eq!((states(&paths), state(&victim).0), before);
    check(&fs);
}

#[test]
fn a_file_that_changed_since_is_counted_and_the_others_come_back() {
    let Some(fs) = LoopFs::sized("ext4", 256 << 20) else { return };
    let paths = fragmented(&fs, 10, 10);
    let pack = pack(&fs, &paths);
    let old = places(&paths);
    done(&[&"apply", &"--force", &pack]);
    let file = OpenOptions::new().write(true).open(&paths[0]).unwrap();
    file.write_all_at(b"new bytes in place", 5000).unwrap();
    fs::remove_file(&paths[1]).unwrap();
    fs::write(fs.path().join("new"), noise(100_000)).unwrap();
    fs::rename(fs.path().join("new"), &paths[2]).unwrap();
    must("truncate", &["-s", "5000", paths[3].to_str().unwrap()]);
    must("sync", &["-f", fs.path().to_str().unwrap()]);
    let rest = [&paths[..1], &paths[2..]].concat();
    let before = states(&rest);
    let status = json(&[&"status", &"--json", &fs.path()]);
    assert_eq!(status["other_files"], serde_json::json!({"changed": 3, "missing": 1}));
    // A file that is in use is waited for.
    let said = fails(&[&"undo", &fs.path()], 1);
    assert!(said.contains("1 open for writing") && said.contains("repeat"), "{said}");
    drop(file);
    let done = json(&[&"undo", &"--json", &fs.path()]);
    assert_eq!(done["skipped"], serde_json::json!({"changed": 2, "missing": 1}), "{done}");
    assert_eq!(states(&rest), before);
    assert_eq!(places(&paths[4..]), old[4..]);
    assert_eq!(places(&paths[..1]), old[..1], "it was written in place");
    check(&fs);
}

#[test]
fn a_layout_waits_while_others_use_the_disk_and_a_signal_stops_it_there() {
    let Some(fs) = LoopFs::sized("ext4", 256 << 20) else { return };
    let paths = fragmented(&fs, 10, 10);
    let pack = pack(&fs, &paths);
    let (before, old) = (states(&paths), places(&paths));
    let words = ["apply", "--force", "--idle", "200ms"].map(OsStr::new);
    let apply = || command(&[&words[..], &[pack.as_os_str()]].concat());
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = File::create(fs.path().join("busy")).unwrap();
            while !stop.load(Ordering::Relaxed) {
                file.write_all_at(&[1; 4096], 0).unwrap();
                file.sync_all().unwrap();
                written.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut child = apply().stderr(Stdio::piped()).spawn().unwrap();
        let writes = || written.load(Ordering::Relaxed);
        wait_until("donor", || dir(&fs).join("donor").exists().then_some(()));
        let begun = writes();
        wait_until("writes", || (writes() > begun + 50).then_some(()));
        assert!(!dir(&fs).join("journal").exists(), "it waits");
        must("kill", &[&child.id().to_string()]);
        assert_eq!(child.wait().unwrap().code(), Some(1));
        assert_eq!((states(&paths), places(&paths)), (before.clone(), old.clone()));
        assert!(!dir(&fs).exists());
        let mut child = apply().spawn().unwrap();
        stop.store(true, Ordering::Relaxed);
        assert!(child.wait().unwrap().success());
    });
    assert!(places(&paths).iter().all(|extents| extents.len() == 1));
    assert_eq!(states(&paths), before);
}

#[test]
fn other_file_systems_are_refused_in_one_sentence_and_users_in_another() {
    let Some(fs) = LoopFs::with("ext2", 64 << 20, &[]) else { return };
    let Some(other) = LoopFs::sized("ext4", 64 << 20) else { return };
    let path = fs.path().join("file");
    fs::write(&path, noise(9000)).unwrap();
    must("sync", &["-f", fs.path().to_str().unwrap()]);
    let of_ext2 = pack(&fs, &[path]);
    for verb in ["plan", "apply"] {
        let said = fails(&[&verb, &of_ext2], 1);
        assert!(said.contains("is on ext2, which can't be laid out: its files have no"), "{said}");
    }
    assert!(fails(&[&"undo", &fs.path()], 1).contains("is on ext2"));
    let said = fails(&[&"apply", &"--force", &"--on", &other.path(), &of_ext2], 3);
    assert!(said.contains("none of these files can be moved"), "{said}");
    let Some(fs) = LoopFs::sized("ext4", 64 << 20) else { return };
    assert!(fails(&[&"status", &fs.path()], 3).contains("no layout"));
}

//! `headstart layout` on loop-mounted xfs and btrfs, which share blocks with copies in another place.

use crate::common::laid_out::{
    self, CHUNK, check, command, dir, done, fails, fragmented, json, layout, of_kind, pack, states,
    written_meanwhile,
};
use headstart_sys::fiemap::Extent;
use headstart_testing::{LoopFs, has, must, noise, skip};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const KINDS: [&str; 2] = ["xfs", "btrfs"];
/// More than xfs wants at least.
const BYTES: u64 = 512 << 20;

fn each(mut test: impl FnMut(&LoopFs)) {
    for kind in KINDS {
        if let Some(fs) = of_kind(kind, BYTES) {
            eprintln!("{kind}");
            test(&fs);
        }
    }
}

/// Where files lie, without what xfs allocates behind their end for a while.
fn places(paths: &[PathBuf]) -> Vec<Vec<Extent>> {
    let mut all = laid_out::places(paths);
    for (extents, path) in all.iter_mut().zip(paths) {
        let end = path.metadata().unwrap().len().next_multiple_of(4096);
        extents.retain(|extent| extent.logical < end);
    }
    all
}

/// In how many places files lie.
fn areas(paths: &[PathBuf]) -> usize {
    let mut all: Vec<_> = places(paths).into_iter().flatten().collect();
    all.sort_unstable_by_key(|extent| extent.physical);
    all.chunk_by(|a, b| a.physical + a.length == b.physical).count()
}

/// Whether they lie side by side; btrfs goes to the largest free part each time, and so to
/// several in turn where these have the same size.
fn are_together(paths: &[PathBuf]) -> bool {
    areas(paths) <= 4
}

#[test]
fn files_lie_side_by_side_in_touch_order_and_come_back_to_the_same_blocks() {
    each(|fs| {
        let paths = fragmented(fs, 40, 10);
        let pack = pack(fs, &paths);
        let (before, old) = (states(&paths), places(&paths));
        assert!(old.iter().map(Vec::len).sum::<usize>() > 100, "{old:?}");
        done(&[&"apply", &"--force", &pack]);
        assert!(are_together(&paths), "{:?}", places(&paths));
        if fs.kind() == "xfs" {
            let first: Vec<_> = places(&paths).iter().map(|extents| extents[0].physical).collect();
            assert!(areas(&paths) == 1 && first.is_sorted(), "{first:?}");
        }
        assert_eq!(states(&paths), before);
        must(env!("CARGO_BIN_EXE_headstart"), &["pack", "verify", pack.to_str().unwrap()]);
        let status = json(&[&"status", &"--json", &fs.path()]);
        let length = (10 * CHUNK as u64 + 100).next_multiple_of(4096);
        assert_eq!(status["new_bytes"], 40 * length, "{status}");
        check(fs);
        assert_eq!(states(&paths), before);
        done(&[&"verify", &fs.path()]);
        done(&[&"undo", &fs.path()]);
        assert_eq!((states(&paths), places(&paths)), (before.clone(), old));
        assert!(!dir(fs).exists());
        check(fs);
        assert_eq!(states(&paths), before);
        // A layout that is kept can be made again: no copy shares its blocks any more.
        done(&[&"apply", &"--force", &pack]);
        done(&[&"release", &fs.path()]);
        assert!(!dir(fs).exists() && are_together(&paths));
        done(&[&"apply", &"--force", &pack]);
        done(&[&"release", &fs.path()]);
        assert_eq!(states(&paths), before);
        check(fs);
    });
}

#[test]
fn a_program_that_runs_and_a_part_of_a_large_file_are_moved_and_others_skipped_with_their_reason() {
    each(|fs| {
        let path = |name: &str| fs.path().join(name);
        let make = |name: &str, bytes: usize| {
            fs::write(path(name), noise(bytes)).unwrap();
            path(name)
        };
        fs::copy("/bin/sleep", path("running")).unwrap();
        let mut all = vec![path("running"), make("odd", 30_001), make("immutable", 9000)];
        all.extend([make("copied", 30_000), make("written", 30_000), make("sparse", 30_000)]);
        let file = OpenOptions::new().write(true).open(path("sparse")).unwrap();
        file.write_all_at(b"x", 90_000).unwrap();
        drop(file);
        must(
            "cp",
            &["--reflink=always", path("copied").to_str().unwrap(), path("copy").to_str().unwrap()],
        );
        must("chattr", &["+i", path("immutable").to_str().unwrap()]);
        let mut expected = serde_json::json!({
            "shared": 1, "immutable": 1, "written-to": 1, "sparse": 1,
        });
        if fs.kind() == "btrfs" {
            fs::write(path("nodatacow"), []).unwrap();
            must("chattr", &["+C", path("nodatacow").to_str().unwrap()]);
            all.extend([make("nodatacow", 9000), make("inline", 100)]);
            all.push(path("compressed"));
            fs::write(path("compressed"), []).unwrap();
            must("chattr", &["+c", path("compressed").to_str().unwrap()]);
            fs::write(path("compressed"), vec![b'a'; 300_000]).unwrap();
            expected["no-checksums"] = 1.into();
            expected["inline"] = 1.into();
            expected["compressed"] = 1.into();
        }
        must("sync", &["-f", fs.path().to_str().unwrap()]);
        let pack = pack(fs, &all);
        let writer = OpenOptions::new().append(true).open(path("written")).unwrap();
        let mut process = Command::new(path("running")).arg("1000").spawn().unwrap();
        let moved = [path("running"), path("odd")];
        let (before, old) = (states(&moved), places(&moved));
        let plan = json(&[&"plan", &"--json", &pack]);
        assert_eq!(plan["shared_bytes"], 32_768, "{plan}");
        let applied = json(&[&"apply", &"--force", &"--json", &pack]);
        assert_eq!(applied["skipped"], expected);
        let now = places(&moved);
        assert!(now.iter().zip(&old).all(|(now, old)| now != old), "{now:?} {old:?}");
        assert_eq!(states(&moved), before);
        done(&[&"undo", &fs.path()]);
        assert_eq!((states(&moved), places(&moved)), (before, old));
        process.kill().unwrap();
        process.wait().unwrap();
        drop(writer);
        must("chattr", &["-i", path("immutable").to_str().unwrap()]);
        check(fs);
    });
}

#[test]
fn a_subvolume_is_laid_out_on_its_own_and_a_snapshot_keeps_its_files_where_they_are() {
    let Some(fs) = of_kind("btrfs", BYTES) else { return };
    let (inner, snapshot) = (fs.path().join("inner"), fs.path().join("snapshot"));
    must("btrfs", &["subvolume", "create", inner.to_str().unwrap()]);
    let file = inner.join("file");
    fs::write(&file, noise(30_000)).unwrap();
    must("sync", &["-f", fs.path().to_str().unwrap()]);
    let pack = pack(&fs, std::slice::from_ref(&file));
    let said = fails(&[&"apply", &"--force", &pack], 3);
    assert!(said.contains("none of these files can be moved"), "{said}");
    let mount = fs.beside("subvolume");
    fs::create_dir(&mount).unwrap();
    let device = fs.device();
    must("mount", &["-o", "subvol=inner", &device, mount.to_str().unwrap()]);
    let pack = self::pack(&fs, &[mount.join("file")]);
    let before = states(&[mount.join("file")]);
    done(&[&"apply", &"--force", &pack]);
    assert_eq!(states(&[mount.join("file")]), before);
    assert!(mount.join(".headstart-layout").exists());
    done(&[&"undo", &mount]);
    must("btrfs", &["subvolume", "snapshot", inner.to_str().unwrap(), snapshot.to_str().unwrap()]);
    let plan = json(&[&"plan", &"--json", &pack]);
    assert_eq!((&plan["files"], &plan["shared_bytes"]), (&0.into(), &32_768.into()), "{plan}");
    must("umount", &[mount.to_str().unwrap()]);
}

#[test]
fn an_xfs_without_shared_blocks_is_refused() {
    let dir = Path::new("/dev/shm");
    let mkfs = &["-m", "reflink=0"];
    let Some(fs) = LoopFs::inside(tempfile::tempdir_in(dir).unwrap(), "xfs", BYTES, mkfs) else {
        return;
    };
    let paths = fragmented(&fs, 3, 10);
    let (pack, old) = (pack(&fs, &paths), places(&paths));
    let said = fails(&[&"apply", &"--force", &pack], 1);
    assert!(said.contains("shares no blocks") && said.contains("reflink=1"), "{said}");
    assert!(!self::dir(&fs).exists());
    assert_eq!(places(&paths), old);
}

/// How often a layout is killed, and how often a file system is cut off.
const KILLS: u32 = 10;
const CUTS: u32 = 4;

/// Starts to apply a pack, and does something at a moment. Returns how long it took.
fn apply_until(pack: &Path, moment: Duration, act: impl FnOnce(u32)) -> Duration {
    let mut command = command(&["apply".as_ref(), "--force".as_ref(), pack.as_os_str()]);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    while began.elapsed() < moment && child.try_wait().unwrap().is_none() {}
    act(child.id());
    child.wait().unwrap();
    began.elapsed()
}

#[test]
fn kill_9_at_any_moment_leaves_every_file_whole_and_the_rest_can_be_done_or_undone() {
    each(|fs| {
        let paths = fragmented(fs, 12, 20);
        let pack = pack(fs, &paths);
        let (before, old) = (states(&paths), places(&paths));
        let whole = apply_until(&pack, Duration::from_secs(60), |_| {});
        done(&[&"undo", &fs.path()]);
        for n in 0..KILLS {
            let moment = whole * (2 * (n * 7 % KILLS) + 1) / (2 * KILLS);
            apply_until(&pack, moment, |pid| {
                let _ended = Command::new("kill").args(["-9", &pid.to_string()]).output().unwrap();
            });
            assert_eq!(states(&paths), before, "after {moment:?}");
            if n % 2 == 0 && dir(fs).join("journal").exists() {
                done(&[&"resume", &fs.path()]);
                assert!(are_together(&paths), "after {moment:?}: {:?}", places(&paths));
                assert_eq!(states(&paths), before, "after {moment:?}");
            }
            assert!(matches!(layout(&[&"undo", &fs.path()]).status.code(), Some(0 | 3)));
            assert_eq!((states(&paths), places(&paths)), (before.clone(), old.clone()));
            assert!(!dir(fs).exists());
        }
        check(fs);
        assert_eq!(states(&paths), before);
    });
}

/// Cuts an xfs off its device, as a power cut does: FS_IOC_SHUTDOWN without a flush of the log.
const CUT: &str = "import fcntl, os, struct, sys; \
                   fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))";

#[test]
fn a_power_cut_at_any_moment_leaves_every_file_of_an_xfs_whole() {
    let Some(fs) = of_kind("xfs", BYTES) else { return };
    if !has("python3") {
        return skip("python3 is missing");
    }
    let paths = fragmented(&fs, 12, 20);
    let pack = pack(&fs, &paths);
    let (before, old) = (states(&paths), places(&paths));
    let whole = apply_until(&pack, Duration::from_secs(60), |_| {});
    done(&[&"undo", &fs.path()]);
    must("sync", &["-f", fs.path().to_str().unwrap()]);
    for n in 0..CUTS {
        let moment = whole * (2 * n + 1) / (2 * CUTS);
        apply_until(&pack, moment, |_| {
            must("python3", &["-c", CUT, fs.path().to_str().unwrap()]);
        });
        fs.remount();
        assert_eq!(states(&paths), before, "after {moment:?}");
        assert!(matches!(layout(&[&"undo", &fs.path()]).status.code(), Some(0 | 3)));
        assert_eq!((states(&paths), places(&paths)), (before.clone(), old.clone()));
        check(&fs);
    }
}

#[test]
fn a_full_disk_stops_a_layout_before_it_begins_and_does_not_keep_it_from_being_undone() {
    each(|fs| {
        let paths = fragmented(fs, 10, 10);
        let pack = pack(fs, &paths);
        let (before, old) = (states(&paths), places(&paths));
        let fill = || {
            let file = fs.path().join("fill");
            let file = fs::File::create(file).unwrap();
            for length in [1 << 20, 64 << 10] {
                let (bytes, mut at) = (vec![1; length], file.metadata().unwrap().len());
                while file.write_all_at(&bytes, at).is_ok() {
                    at += bytes.len() as u64;
                }
            }
            let _full = file.sync_all();
        };
        fill();
        fails(&[&"apply", &"--force", &pack], 1);
        assert_eq!((states(&paths), places(&paths)), (before.clone(), old.clone()));
        assert!(!dir(fs).exists());
        fs::remove_file(fs.path().join("fill")).unwrap();
        must("sync", &["-f", fs.path().to_str().unwrap()]);
        done(&[&"apply", &"--force", &pack]);
        fill();
        done(&[&"undo", &fs.path()]);
        assert_eq!((states(&paths), places(&paths)), (before, old));
        fs::remove_file(fs.path().join("fill")).unwrap();
        check(fs);
    });
}

#[test]
fn a_quota_that_leaves_no_room_is_told_and_files_stay_where_they_are() {
    let Some(fs) = of_kind("btrfs", BYTES) else { return };
    let paths = fragmented(&fs, 4, 40);
    let (pack, old) = (pack(&fs, &paths), places(&paths));
    let mount = fs.path().to_str().unwrap();
    must("btrfs", &["quota", "enable", mount]);
    must("btrfs", &["quota", "rescan", "-w", mount]);
    must("btrfs", &["qgroup", "limit", "3M", mount]);
    let said = fails(&[&"apply", &"--force", &pack], 1);
    assert!(said.contains("quota leaves less than 3 MiB"), "{said}");
    assert!(!dir(&fs).exists());
    assert_eq!(places(&paths), old);
    must("btrfs", &["qgroup", "limit", "none", mount]);
    done(&[&"apply", &"--force", &pack]);
    done(&[&"undo", &fs.path()]);
    check(&fs);
}

#[test]
fn a_writer_at_the_same_time_loses_nothing() {
    each(written_meanwhile);
}

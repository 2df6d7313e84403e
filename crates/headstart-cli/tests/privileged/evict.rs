//! `headstart evict` on real file systems: what goes, what stays, and the reason
//! given for it.

use std::fs::File;
use std::io::{BufRead, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::command::{headstart, json};
use crate::common::process::Process;
use headstart_testing::{
    LoopFs, as_nobody, disk_dir, is_root, libtest_name, must, noise, undisturbed, write_synced,
};
use headstart_testing::{has, public_dir, skip};
use serde_json::Value;

fn page() -> usize {
    rustix::param::page_size()
}

/// Evicts one file; its entry in the JSON document.
fn evict(path: &Path, options: &[&str]) -> Value {
    let args = [&["evict", "--json"], options, &[path.to_str().unwrap()]].concat();
    json(&args)["files"][0].clone()
}

/// The entry of a process among the reasons.
fn holder(evicted: &Value, process: &Process) -> Option<Value> {
    let reasons = evicted["reasons"].as_array().unwrap();
    reasons.iter().find(|reason| reason["pid"] == process.child.id()).cloned()
}

/// The name of the test below.
const LOCKER: &str = concat!(module_path!(), "::locker");

/// Not a test: what [`Process`] starts as a copy of this program, to lock its
/// memory before it answers.
#[test]
#[ignore = "started by other tests"]
fn locker() {
    if !std::env::current_exe().unwrap().ends_with("locker") {
        return;
    }
    rustix::mm::mlockall(rustix::mm::MlockAllFlags::CURRENT).unwrap();
    let lines = std::io::stdin().lock().lines();
    for line in lines {
        println!("{}", line.unwrap());
        std::io::stdout().flush().unwrap();
    }
}

#[test]
fn clean_and_unused_pages_go_on_every_file_system() {
    let check = |dir: &Path| {
        let path = dir.join("file");
        let evicted = undisturbed(&[dir], || {
            write_synced(&path, &noise(300 * page() + 1));
            evict(&path, &["--strict"])
        });
        assert_eq!(evicted["before"], 301, "{evicted}");
        assert_eq!(evicted["after"], 0, "{evicted}");
        assert_eq!(evicted["reasons"], serde_json::json!([]));
        assert_eq!(json(&["pages", "--json", path.to_str().unwrap()])["total"]["cached"], 0);
    };
    check(disk_dir().path());
    for kind in ["ext4", "xfs", "btrfs"] {
        if let Some(fs) = LoopFs::new(kind) {
            check(fs.path());
        }
    }
}

#[test]
fn pages_that_a_process_has_mapped_stay_and_the_process_is_named() {
    let check = |dir: &Path| {
        let path = dir.join("my cat");
        let process = Process::start("/bin/cat".as_ref(), &path, &[]);
        let evicted = evict(&path, &[]);
        assert!(evicted["after"].as_u64().unwrap() > 0, "{evicted}");
        let reason = holder(&evicted, &process).unwrap_or_else(|| panic!("{evicted}"));
        assert_eq!(reason["reason"], "mapped");
        assert_eq!(reason["command"], "my cat");
        assert_eq!(reason["locked"], false);
        assert!(reason["pages"].as_u64().unwrap() > 0);

        let text = String::from_utf8(headstart(&["evict", path.to_str().unwrap()]).stdout).unwrap();
        let named = format!("stayed: mapped by my cat ({})", process.child.id());
        assert!(text.contains(&named), "{text}");
        let output = headstart(&["evict", "--strict", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(3), "{output:?}");

        drop(process);
        assert_eq!(evict(&path, &["--strict"])["after"], 0);
    };
    check(disk_dir().path());
    for kind in ["ext4", "xfs", "btrfs"] {
        let Some(fs) = LoopFs::new(kind) else { continue };
        check(fs.path());
        if kind == "btrfs" {
            // Its stat(2) has another device number than /proc/PID/maps.
            let subvolume = fs.path().join("subvolume");
            must("btrfs", &["-q", "subvolume", "create", subvolume.to_str().unwrap()]);
            check(&subvolume);
        }
    }
}

#[test]
fn a_process_that_mapped_a_file_through_overlayfs_is_named() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let at = |name: &str| fs.path().join(name);
    let show = |name: &str| at(name).to_str().unwrap().to_owned();
    for dir in ["lower", "upper", "work", "merged"] {
        std::fs::create_dir(at(dir)).unwrap();
    }
    let options =
        format!("lowerdir={},upperdir={},workdir={}", show("lower"), show("upper"), show("work"));
    must("mount", &["-t", "overlay", "overlay", "-o", &options, &show("merged")]);
    let process = Process::start("/bin/cat".as_ref(), &at("merged/cat"), &[]);
    let evicted = evict(&at("merged/cat"), &[]);
    let named = holder(&evicted, &process);
    drop(process);
    must("umount", &[&show("merged")]);
    assert!(named.is_some_and(|reason| reason["reason"] == "mapped"), "{evicted}");
}

#[test]
fn locked_pages_stay_and_are_said_to_be_locked() {
    if !is_root() {
        return skip("locking the memory of a test program may need root");
    }
    let dir = disk_dir();
    let path = dir.path().join("locker");
    let this = std::env::current_exe().unwrap();
    let args = ["--exact", libtest_name(LOCKER), "--ignored", "--nocapture"];
    let process = Process::start(&this, &path, &args);
    let evicted = evict(&path, &[]);
    let reason = holder(&evicted, &process).unwrap_or_else(|| panic!("{evicted}"));
    assert_eq!(reason["locked"], true, "{evicted}");
    let text = String::from_utf8(headstart(&["evict", path.to_str().unwrap()]).stdout).unwrap();
    assert!(text.contains(&format!("({}, locked)", process.child.id())), "{text}");
}

/// A frozen file system: no write to it ends. Thawed when dropped.
struct Frozen<'a>(&'a Path);

impl<'a> Frozen<'a> {
    fn new(path: &'a Path) -> Self {
        must("fsfreeze", &["-f", path.to_str().unwrap()]);
        Self(path)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        must("fsfreeze", &["-u", self.0.to_str().unwrap()]);
    }
}

#[test]
fn pages_that_are_not_written_yet_stay_and_are_counted_and_sync_writes_them() {
    if !has("fsfreeze") {
        return skip("fsfreeze is missing");
    }
    // A file system in a file of another one: while that is frozen, nothing that
    // is written to the inner one arrives.
    let Some(outer) = LoopFs::new("ext4") else { return };
    let inside = tempfile::tempdir_in(outer.path()).unwrap();
    let Some(inner) = LoopFs::inside(inside, "ext4", 320 << 20, &["-E", "nodiscard"]) else {
        return;
    };
    let path = inner.path().join("file");
    write_synced(&path, &noise(8 * page()));
    // Blocks that exist: writing them back needs nothing but the device.
    File::options().write(true).open(&path).unwrap().write_all_at(&noise(8 * page()), 0).unwrap();
    let frozen = Frozen::new(outer.path());
    let evicted = evict(&path, &[]);
    drop(frozen);
    assert_eq!(evicted["after"], 8, "{evicted}");
    let reasons = evicted["reasons"].as_array().unwrap();
    let kinds = ["dirty", "writeback"];
    assert!(reasons.iter().all(|r| kinds.iter().any(|kind| r["reason"] == *kind)), "{evicted}");
    let pages: u64 = reasons.iter().map(|reason| reason["pages"].as_u64().unwrap()).sum();
    assert_eq!(pages, 8, "{evicted}");

    std::fs::write(&path, noise(8 * page())).unwrap();
    let evicted = evict(&path, &["--sync", "--strict"]);
    assert_eq!((evicted["before"].clone(), evicted["after"].clone()), (8.into(), 0.into()));
}

#[test]
fn files_of_a_file_system_in_memory_stay() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        return skip("/dev/shm is missing");
    };
    let path = dir.path().join("file");
    std::fs::write(&path, noise(3 * page())).unwrap();
    let evicted = evict(&path, &[]);
    assert_eq!(evicted["after"], 3);
    assert_eq!(evicted["reasons"], serde_json::json!([{"reason": "in_memory"}]));
}

#[test]
fn metadata_goes_with_names_inodes_and_the_pages_of_the_device() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let files = || (0..200).map(|i| fs.path().join(format!("file{i}")));
    let look_up = || assert!(files().all(|path| path.metadata().is_ok()));
    files().for_each(|path| std::fs::write(path, "x").unwrap());
    fs.remount();
    look_up();
    let kept = disk_dir();
    let kept = kept.path().join("kept");
    write_synced(&kept, &noise(3 * page()));

    let first = fs.path().join("file0");
    let first = first.to_str().unwrap();
    let plan = headstart(&["evict", "--metadata", "--dry-run", first]);
    assert!(!String::from_utf8_lossy(&plan.stderr).contains("drop_caches"), "{plan:?}");

    let output = headstart(&["evict", "--metadata", "--json", first]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("drop_caches=2"), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let device = &document["metadata"]["devices"][0];
    assert_eq!(device["path"], fs.device());
    let pages = |field: &str| device[field].as_u64().unwrap();
    // The inode table alone is 13 pages; what stays are the super block's and
    // what the journal is still busy with.
    assert!(pages("before") >= 13 && pages("after") * 3 <= pages("before"), "{document}");
    let cached = json(&["pages", "--json", kept.to_str().unwrap()])["total"]["cached"].clone();
    assert_eq!(cached, 3, "pages of files that were not named have to stay");

    let device = fs.device();
    let statistics = format!("/sys/block/{}/stat", device.trim_start_matches("/dev/"));
    let reads = || -> u64 {
        let text = std::fs::read_to_string(&statistics).unwrap();
        text.split_whitespace().next().unwrap().parse().unwrap()
    };
    let before = reads();
    look_up();
    assert!(reads() > before, "the inodes were still in memory");
}

#[test]
fn a_dry_run_evicts_nothing_and_a_missing_file_is_a_failure_beside_the_others() {
    let dir = disk_dir();
    let path = dir.path().join("file");
    let (text, pages) = undisturbed(&[dir.path()], || {
        write_synced(&path, &noise(4 * page()));
        let path = path.to_str().unwrap();
        let output = headstart(&["evict", "--dry-run", "--strict", path]);
        assert_eq!(output.status.code(), Some(0));
        (String::from_utf8(output.stdout).unwrap(), json(&["pages", "--json", path]))
    });
    let path = path.to_str().unwrap();
    assert_eq!(
        text,
        format!("{path}: 4 pages cached\nWould evict at most 4 pages (16.0 KiB) of 1 file\n")
    );
    assert_eq!(pages["total"]["cached"], 4);

    let output = headstart(&["evict", "--quiet", "/nowhere", path]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nowhere"));
    assert_eq!(json(&["pages", "--json", path])["total"]["cached"], 0);
}

#[test]
fn only_root_may_drop_metadata_and_others_are_reported() {
    if !is_root() || !has("setpriv") {
        return skip("needs root and setpriv");
    }
    let dir = public_dir();
    let copy = dir.path().join("headstart");
    std::fs::copy(env!("CARGO_BIN_EXE_headstart"), &copy).unwrap();
    let output =
        as_nobody(&copy).args(["evict", "--metadata", "--json"]).arg(&copy).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("/proc/sys/vm/drop_caches: Permission denied"), "{text}");
}

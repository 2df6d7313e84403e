//! `headstart pack renew`: a file that was learned is replaced, as package managers do it,
//! and prefetched all the same. That they do run it is for `package_hooks.rs`.

use crate::command::{headstart, json};
use crate::common::packs;
use headstart_testing::{LoopFs, disk_dir, has, noise, skip, undisturbed, write_synced};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PAGE: usize = 4096;

/// A pack of files on `fs`, with the first 100 pages of each.
fn pack_of(fs: &LoopFs, dir: &Path, files: &[&Path]) -> PathBuf {
    let pack = dir.join("a.pack");
    packs::write(fs, &pack, &files.iter().map(|&file| (file, file, 100)).collect::<Vec<_>>());
    pack
}

/// A file of 200 pages, and a pack that knows the first half of it.
fn learned_file(fs: &LoopFs, dir: &Path) -> (PathBuf, PathBuf) {
    let file = fs.path().join("file");
    write_synced(&file, &noise(200 * PAGE));
    let pack = pack_of(fs, dir, &[&file]);
    (file, pack)
}

fn replace(path: &Path, pages: usize) {
    let new = path.with_extension("new");
    write_synced(&new, &noise(pages * PAGE));
    fs::rename(new, path).unwrap();
}

#[test]
fn a_file_that_was_replaced_is_prefetched_before_it_is_learned() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let dir = disk_dir();
    let files = ["same", "replaced", "grown", "gone"].map(|name| fs.path().join(name));
    files.iter().for_each(|file| write_synced(file, &noise(200 * PAGE)));
    let [_, replaced, grown, gone] = &files;
    let pack = pack_of(&fs, dir.path(), &files.each_ref().map(PathBuf::as_path));
    replace(replaced, 210);
    replace(grown, 400);
    fs::remove_file(gone).unwrap();
    let pack = pack.to_str().unwrap();
    let read = || {
        let report = undisturbed(&[fs.path()], || {
            fs.remount();
            json(&["replay", "--wait", "--json", pack])["report"].clone()
        });
        (report["bytes"].as_u64().unwrap() / PAGE as u64, report["stale_files"].as_u64().unwrap())
    };
    assert_eq!(read(), (100, 2));
    let told = json(&["pack", "renew", "--json", pack]);
    let count = |what: &str| told[what].as_u64().unwrap();
    assert_eq!(told["schema"], "headstart/pack-renew/1");
    let counts = ["packs", "followed", "stale", "gone"].map(count);
    assert_eq!(counts, [1, 1, 1, 1], "{told:#}");
    assert_eq!(read(), (200, 1));
    let shown = json(&["show", "--json", pack]);
    assert_eq!(shown.to_string().matches("inferred").count(), 1, "{shown:#}");
    let again = headstart(&["pack", "renew", pack]);
    let said = String::from_utf8(again.stderr).unwrap();
    assert!(again.status.success() && said.contains("no pack had to be renewed"), "{said}");
}

#[test]
fn what_is_below_a_missing_mount_is_not_taken_for_gone_nor_looked_at() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let dir = disk_dir();
    let (_, pack) = learned_file(&fs, dir.path());
    let before = fs::read(&pack).unwrap();
    drop(fs);
    let told = json(&["pack", "renew", "--json", pack.to_str().unwrap()]);
    assert_eq!((&told["packs"], &told["gone"]), (&0.into(), &0.into()));
    assert_eq!(fs::read(&pack).unwrap(), before);
    // What is to be looked at would be missed.
    let told = json(&["pack", "renew", "--timeout", "0s", "--json", pack.to_str().unwrap()]);
    assert_eq!(told["not_looked_at"], 0, "{told:#}");
}

#[test]
fn files_for_which_there_is_no_time_stay_as_they_were() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let dir = disk_dir();
    let (file, pack) = learned_file(&fs, dir.path());
    replace(&file, 200);
    let told = json(&["pack", "renew", "--timeout", "0s", "--json", pack.to_str().unwrap()]);
    assert_eq!((&told["packs"], &told["not_looked_at"]), (&0.into(), &1.into()), "{told:#}");
}

#[test]
fn a_broken_pack_is_reported_and_the_others_are_renewed() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let dir = disk_dir();
    let (file, pack) = learned_file(&fs, dir.path());
    replace(&file, 200);
    let broken = dir.path().join("broken.pack");
    fs::write(&broken, "HEADSTRT").unwrap();
    let paths = [broken.to_str().unwrap(), pack.to_str().unwrap()];
    let output = headstart(&["pack", "renew", paths[0], paths[1]]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("renewed 1 pack") && said.contains("broken.pack is not used"), "{said}");
}

#[test]
fn a_directory_that_somebody_keeps_locked_is_not_waited_for_longer_than_allowed() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let dir = disk_dir();
    let (file, pack) = learned_file(&fs, dir.path());
    replace(&file, 200);
    let before = fs::read(&pack).unwrap();
    let locked = fs::File::open(dir.path().join(".lock")).unwrap();
    rustix::fs::flock(&locked, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let renew = ["pack", "renew", "--quiet", pack.to_str().unwrap()];
    let output = headstart(&[&renew[..], &["--timeout", "1s"]].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("another process keeps its directory locked"), "{said}");
    assert_eq!(fs::read(&pack).unwrap(), before);
    drop(locked);
    let output = headstart(&renew);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_ne!(fs::read(&pack).unwrap(), before);
}

#[test]
fn many_packs_are_renewed_with_few_flushes_of_the_disk() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    if !has("strace") {
        return skip("there is no strace");
    }
    let dir = disk_dir();
    let (file, pack) = learned_file(&fs, dir.path());
    let paths: Vec<PathBuf> = (0..100).map(|n| dir.path().join(format!("{n}.pack"))).collect();
    for path in &paths {
        fs::copy(&pack, path).unwrap();
    }
    replace(&file, 200);
    let traced = dir.path().join("calls");
    let output = Command::new("strace")
        .args(["-f", "-e", "trace=syncfs,fsync,fdatasync", "-o"])
        .arg(&traced)
        .args([env!("CARGO_BIN_EXE_headstart"), "pack", "renew", "--timeout", "1m", "--json"])
        .args(&paths)
        .output()
        .unwrap();
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["packs"], 100, "{told:#}");
    let calls = fs::read_to_string(&traced).unwrap();
    let flushes = calls.lines().filter(|line| line.contains("sync")).count();
    assert!((1..=10).contains(&flushes), "{flushes} for 100 packs");
}

//! `headstart pages` against the kernel and util-linux's fincore(1).

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::command::{headstart, json};
use crate::common::process::Process;
use headstart_testing::{
    LoopFs, as_nobody, disk_dir, has, is_root, must, noise, public_dir, skip, undisturbed,
    write_synced,
};
use rustix::fs::{Advice, fadvise};
use serde_json::Value;

fn page() -> u64 {
    rustix::param::page_size() as u64
}

/// Files of many shapes in a directory.
fn shapes(dir: &Path) -> Vec<PathBuf> {
    let at = |name: &str| dir.join(name);
    let drop = |file: &File| fadvise(file, 0, None, Advice::DontNeed).unwrap();
    let page = page() as usize;
    write_synced(&at("empty"), b"");
    write_synced(&at("byte"), b"x");
    write_synced(&at("page"), &noise(page));
    write_synced(&at("page and byte"), &noise(page + 1));
    write_synced(&at("big"), &noise(20 << 20));

    let cold = at("cold");
    write_synced(&cold, &noise(100 * page));
    drop(&File::open(&cold).unwrap());

    let part = at("partly read");
    write_synced(&part, &noise(3000 * page));
    let file = File::open(&part).unwrap();
    drop(&file);
    fadvise(&file, 0, None, Advice::Random).unwrap();
    for i in [0, 1, 7, 64, 65, 1000, 2999] {
        file.read_exact_at(&mut [0], i * page as u64).unwrap();
    }

    let holes = at("holes");
    let file = File::create(&holes).unwrap();
    file.set_len(1 << 30).unwrap();
    file.write_all_at(&noise(page), 12345 * page as u64).unwrap();
    file.write_all_at(&noise(3 * page), 99999 * page as u64 + 17).unwrap();
    file.sync_all().unwrap();
    // Reading a hole caches it too.
    let mut hole = vec![0; 2 * page];
    File::open(&holes).unwrap().read_exact_at(&mut hole, 500 * page as u64).unwrap();

    let mut files: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.is_file());
    files.sort();
    assert_eq!(files.len(), 8);
    files
}

/// What fincore(1) says of files, and what we do, of the same moment.
fn both_of(files: &[PathBuf]) -> (String, Value) {
    let dir = files[0].parent().unwrap();
    undisturbed(&[dir], || {
        let columns = [OsStr::new("-bnr"), OsStr::new("-o"), OsStr::new("PAGES,SIZE,RES")];
        let paths = files.iter().map(|path| path.as_os_str());
        let output = Command::new("fincore").args(columns).args(paths.clone()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let words = [OsStr::new("pages"), OsStr::new("--json")].into_iter().chain(paths);
        (String::from_utf8(output.stdout).unwrap(), json(&words.collect::<Vec<_>>()))
    })
}

/// Compares the counts of files with fincore's, and the map with the counts.
fn compare_with_fincore(files: &[PathBuf]) {
    let (text, document) = both_of(files);
    let numbers = |line: &str| line.split_whitespace().map(|n| n.parse::<u64>().unwrap()).collect();
    let theirs: Vec<Vec<u64>> = text.lines().map(numbers).collect();
    let ours = document["files"].as_array().unwrap();
    assert_eq!(ours.len(), files.len());
    // fincore says nothing about empty files in some versions.
    let ours: Vec<_> = if theirs.len() < ours.len() {
        ours.iter().filter(|file| file["size"] != 0).collect()
    } else {
        ours.iter().collect()
    };
    assert_eq!(ours.len(), theirs.len(), "{text}");
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let cached = ours["cached"].as_u64().unwrap();
        let size = ours["size"].as_u64().unwrap();
        assert_eq!([cached, size, cached * page()], theirs[..], "{}", ours["path"]);
        let ranges = ours["ranges"].as_array().unwrap();
        let mapped: u64 = ranges.iter().map(|range| range[1].as_u64().unwrap()).sum();
        assert_eq!(mapped, cached * page(), "{}", ours["path"]);
    }
}

#[test]
fn counts_agree_with_fincore_for_files_of_all_shapes() {
    if !has("fincore") {
        return skip("fincore is missing");
    }
    let dir = disk_dir();
    let files = shapes(dir.path());
    compare_with_fincore(&files);
    let mapped = dir.path().join("mapped");
    let _process = Process::start("/bin/cat".as_ref(), &mapped, &[]);
    fadvise(File::open(&mapped).unwrap(), 0, None, Advice::DontNeed).unwrap();
    compare_with_fincore(std::slice::from_ref(&mapped));
    for kind in ["ext4", "xfs", "btrfs"] {
        if let Some(fs) = LoopFs::new(kind) {
            let files = shapes(fs.path());
            compare_with_fincore(&files);
            fs.remount();
            compare_with_fincore(&files);
            let cached = json(&[OsStr::new("pages"), "--json".as_ref(), fs.path().as_ref()]);
            assert_eq!(cached["total"]["cached"], 0, "{kind}");
        }
    }
}

#[test]
fn the_map_shows_exactly_the_pages_that_were_read() {
    let dir = disk_dir();
    let path = dir.path().join("file");
    write_synced(&path, &noise(64 * page() as usize));
    let name = path.to_str().unwrap();
    let (document, list, table) = undisturbed(&[dir.path()], || {
        let file = File::open(&path).unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        fadvise(&file, 0, None, Advice::Random).unwrap();
        for i in [3, 4, 5, 40, 63] {
            file.read_exact_at(&mut [0], i * page()).unwrap();
        }
        let table = Command::new(env!("CARGO_BIN_EXE_headstart"))
            .args(["pages", name])
            .env("COLUMNS", "32")
            .output()
            .unwrap();
        let list = headstart(&["pages", "--list", name]);
        (json(&["pages", "--json", name]), list.stdout, table.stdout)
    });
    let p = page();
    let expected = serde_json::json!([[3 * p, 3 * p], [40 * p, p], [63 * p, p]]);
    assert_eq!(document["files"][0]["ranges"], expected);

    let ranges = format!("{}:{},{}:{p},{}:{p}", 3 * p, 3 * p, 40 * p, 63 * p);
    assert_eq!(String::from_utf8(list).unwrap(), format!("{name} {ranges}\n"));

    let table = String::from_utf8(table).unwrap();
    let map: Vec<_> = table.lines().skip(4).collect();
    let row = |cached: &[usize]| -> String {
        (0..32).map(|i| if cached.contains(&i) { '#' } else { '.' }).collect()
    };
    assert_eq!(map, [row(&[3, 4, 5]), row(&[8, 31])], "{table}");
}

#[test]
fn a_page_without_all_its_blocks_occupies_the_cache_but_is_not_shown_as_cached() {
    let Some(fs) = LoopFs::with("ext4", 320 << 20, &["-b", "1024"]) else { return };
    let path = fs.path().join("byte");
    write_synced(&path, b"x");
    let path = path.to_str().unwrap();
    assert_eq!(json(&["pages", "--json", path])["files"][0]["cached"], 0);
    assert_eq!(json(&["evict", "--dry-run", "--json", path])["files"][0]["before"], 1);
}

#[test]
fn pages_of_a_lower_file_are_seen_through_overlayfs() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let at = |name: &str| fs.path().join(name);
    for dir in ["lower", "upper", "work", "merged"] {
        std::fs::create_dir(at(dir)).unwrap();
    }
    write_synced(&at("lower/file"), &noise(10 * page() as usize));
    let show = |name: &str| at(name).to_str().unwrap().to_owned();
    let options =
        format!("lowerdir={},upperdir={},workdir={}", show("lower"), show("upper"), show("work"));
    must("mount", &["-t", "overlay", "overlay", "-o", &options, &show("merged")]);
    let file = show("merged/file");
    let cached = || json(&["pages", "--json", &file])["files"][0]["cached"].clone();
    let before = cached();
    let gone = json(&["evict", "--json", &file])["files"][0].clone();
    let after = cached();
    must("umount", &[&show("merged")]);
    assert_eq!((before, after), (10.into(), 0.into()));
    assert_eq!((gone["before"].clone(), gone["after"].clone()), (10.into(), 0.into()));
}

#[test]
fn a_user_who_may_not_know_is_reported_so_and_shown_no_map() {
    if !is_root() || !has("setpriv") {
        return skip("needs root and setpriv");
    }
    let dir = public_dir();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::copy(env!("CARGO_BIN_EXE_headstart"), at("headstart")).unwrap();
    write_synced(at("theirs").as_ref(), &noise(5 * page() as usize));
    write_synced(at("ours").as_ref(), &noise(3 * page() as usize));
    // Nothing of it is cached; the fake answer would be "all".
    must(env!("CARGO_BIN_EXE_headstart"), &["evict", "--strict", &at("theirs")]);
    must("chown", &["65534:65534", &at("ours")]);
    let nobody = |args: &[&str]| as_nobody(at("headstart")).args(args).output().unwrap();
    let output = nobody(&["pages", "--json", &at("theirs"), &at("ours")]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let null = serde_json::Value::Null;
    assert_eq!(document["files"][0]["cached"], null);
    assert_eq!(document["files"][0]["ranges"], null);
    assert_eq!(document["files"][1]["cached"], 3);
    assert_eq!(document["total"]["unknown"], 1);

    let text = String::from_utf8(nobody(&["pages", &at("theirs")]).stdout).unwrap();
    assert!(text.contains('?') && !text.contains('#'), "{text}");
    let output = nobody(&["pages", "--list", &at("theirs")]);
    assert!(output.stdout.is_empty(), "{output:?}");

    let output = nobody(&["evict", "--json", "--strict", &at("theirs")]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["files"][0]["after"], null);
}

#[test]
fn directories_are_descended_and_what_has_no_pages_is_counted() {
    let dir = disk_dir();
    let at = |name: &[u8]| dir.path().join(OsStr::from_bytes(name));
    std::fs::create_dir(at(b"sub")).unwrap();
    std::fs::write(at(b"sub/ a\\b\nc\xff "), "x").unwrap();
    std::os::unix::fs::symlink("sub", at(b"link")).unwrap();
    must("mkfifo", &[at(b"fifo").to_str().unwrap()]);

    let path = dir.path().to_str().unwrap();
    let output = headstart(&["pages", "--list", path]);
    let mut expected = path.as_bytes().to_vec();
    expected.extend(b"/sub/ a\\b\\012c\\377\\040 0:");
    expected.extend(format!("{}\n", page()).bytes());
    assert_eq!(OsStr::from_bytes(&output.stdout), OsStr::from_bytes(&expected));
    assert_eq!(output.status.code(), Some(0), "{output:?}");

    let document = json(&["pages", "--json", path]);
    assert_eq!(document["schema"], "headstart/pages/1");
    assert_eq!(document["skipped"], serde_json::json!({"links": 1, "special": 1, "mounts": 0}));
    let bytes = document["files"][0]["path_bytes"].as_array().unwrap();
    assert_eq!(bytes.last().unwrap(), 32);

    let output = headstart(&["pages", path, "/nowhere"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("Can't look at /nowhere: No such"));
}

#[test]
fn a_mount_below_a_directory_is_not_entered_unless_named() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    std::fs::write(fs.path().join("inside"), "x").unwrap();
    let parent = fs.path().parent().unwrap();
    let link = parent.join("link");
    std::os::unix::fs::symlink(fs.path(), &link).unwrap();
    let files = |path: &Path| {
        let document = json(&["pages", "--json", path.to_str().unwrap()]);
        (document["total"]["files"].clone(), document["skipped"]["mounts"].clone())
    };
    assert_eq!(files(parent), (1.into(), 1.into())); // The image.
    assert_eq!(files(fs.path()), (1.into(), 0.into()));
    assert_eq!(files(&link), (1.into(), 0.into()));
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let dir = disk_dir();
    // More than a pipe holds.
    for i in 0..3000 {
        std::fs::write(dir.path().join(format!("{i:0100}")), "").unwrap();
    }
    for format in ["--total", "--json"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_headstart"))
            .args(["pages", format, dir.path().to_str().unwrap()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
    }
}

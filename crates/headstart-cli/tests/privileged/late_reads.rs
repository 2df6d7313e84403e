//! What a start still reads after a complete replay goes into its pack: after two
//! learned starts nothing is left, however the program reads.

use crate::command::{headstart, json};
use crate::common::python;
use headstart_testing::{LoopFs, disk_dir, has, must, noise, skip, undisturbed};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Calls readahead itself, reads parts, maps, lists, follows links, requests
/// attributes and for names that are not there.
const PROGRAM: &str = r#"
import mmap, os, sys
os.chdir(sys.argv[1])
fd = os.open("willneed", os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_WILLNEED)
with open("parts", "rb", buffering=0) as file:
    for offset in (0, 700000, 1300000):
        file.seek(offset)
        file.read(5000)
with open("mapped", "rb") as file:
    pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    sum(pages[page * 4096] for page in (0, 3, 40, 41, 200, 255))
with open("scattered", "rb") as file:
    file.read()
for name in os.listdir("many")[::50]:
    os.stat("many/" + name)
for number in range(20):
    os.path.exists(f"many/none{number}")
    os.path.exists(f"nodir{number}/none")
open("link", "rb").read(1)
try:
    os.getxattr("parts", "user.note")
except OSError:
    pass
"#;

/// The files of the program, with so many names in one directory.
fn prepare(root: &Path, names: u32) {
    for (name, kib) in [("willneed", 512), ("parts", 2048), ("mapped", 1024)] {
        std::fs::write(root.join(name), noise(kib << 10)).unwrap();
    }
    // So many extents that they have a block of their own.
    let scattered = std::fs::File::create(root.join("scattered")).unwrap();
    for i in 0..40 {
        std::os::unix::fs::FileExt::write_all_at(&scattered, &noise(4096), i * 16384).unwrap();
    }
    let many = root.join("many");
    std::fs::create_dir(&many).unwrap();
    for i in 0..names {
        std::fs::write(many.join(format!("a name that takes some room {i}")), "x").unwrap();
    }
    // So long that it does not fit into the inode.
    let target = format!("{}mapped", "./".repeat(100));
    std::os::unix::fs::symlink(target, root.join("link")).unwrap();
    let note = "n".repeat(1000);
    let parts = root.join("parts");
    // Where attributes can't be had, there is none to read.
    let _ = Command::new("setfattr").args(["-n", "user.note", "-v", &note]).arg(parts).output();
    must("sync", &["-f", root.to_str().unwrap()]);
}

/// Learns `program` in so many cold starts, prefetches its pack with a cold cache,
/// and then has `measure` say something.
fn after<T>(starts: u32, fs: &LoopFs, program: &[&str], measure: impl Fn(&str) -> T) -> T {
    let packs = disk_dir();
    let pack = packs.path().join("a.pack");
    let pack = pack.to_str().unwrap();
    for _ in 0..starts {
        fs.remount();
        let run = ["run", "-v", "--pack", pack, "--"];
        let output = headstart(&[&run[..], program].concat());
        assert!(output.status.success(), "{output:?}");
    }
    undisturbed(&[fs.path()], || {
        fs.remount();
        must(env!("CARGO_BIN_EXE_headstart"), &["replay", "-q", "--wait", pack]);
        measure(pack)
    })
}

/// How many requests the program then makes.
fn requests_after(starts: u32, fs: &LoopFs, program: &[&str]) -> u64 {
    after(starts, fs, program, |_| {
        let before = fs.reads();
        must(program[0], &program[1..]);
        fs.reads() - before
    })
}

fn python_or_skip() -> Option<()> {
    if !has("python3") {
        skip("python3 is missing");
        return None;
    }
    Some(())
}

/// A file system with the program's files, if one can be had.
fn prepared(kind: &'static str) -> Option<LoopFs> {
    python_or_skip()?;
    let fs = LoopFs::new(kind)?;
    prepare(fs.path(), 2000);
    Some(fs)
}

#[test]
fn after_two_starts_a_program_reads_nothing_itself_on_ext4() {
    let Some(fs) = prepared("ext4") else { return };
    let program = ["python3", "-I", "-S", "-c", PROGRAM, fs.path().to_str().unwrap()];
    assert_eq!(requests_after(2, &fs, &program), 0, "the program read something");
}

#[test]
fn after_two_starts_a_program_reads_nothing_itself_on_erofs() {
    // A directory of more than a block has pages of its own, which are not learned.
    let made = || LoopFs::erofs(|root| prepare(root, 50));
    let Some(fs) = python_or_skip().and_then(|()| made()) else { return };
    let program = ["python3", "-I", "-S", "-c", PROGRAM, fs.path().to_str().unwrap()];
    assert_eq!(requests_after(2, &fs, &program), 0, "the program read something");
}

#[test]
fn metadata_that_only_the_replay_reads_is_not_forgotten() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    if !python::install(&fs) {
        return;
    }
    let import = format!("import {}", python::MODULES);
    // Else which pages are mapped depends on where files lie in memory.
    let program =
        ["setarch", "-R", "chroot", fs.path().to_str().unwrap(), "/usr/bin/python3", "-c", &import];
    // What four starts in a row do not report is dropped.
    assert_eq!(requests_after(5, &fs, &program), 0, "the program read something");
}

/// File systems that keep metadata elsewhere: of files nothing is left.
fn no_data_is_left_on(kind: &'static str) {
    let Some(fs) = prepared(kind) else { return };
    let root = fs.path().to_str().unwrap();
    let program = ["python3", "-I", "-S", "-c", PROGRAM, root];
    let seen = after(2, &fs, &program, |pack| {
        let third = format!("{pack}.third");
        let record = ["record", "-q", "--pack", &third, "--"];
        assert!(headstart(&[&record[..], &program].concat()).status.success());
        json(&["show", "--last-run", "--json", &third])
    });
    let is_ours = |file: &&Value| file["path"].as_str().unwrap().starts_with(root);
    let left: Vec<_> = seen["files"].as_array().unwrap().iter().filter(is_ours).collect();
    assert!(left.is_empty(), "{left:#?}");
    assert!(seen["totals"]["touched"].as_u64().unwrap() > 100, "{seen:#}");
}

#[test]
fn after_two_starts_a_program_reads_no_data_itself_on_xfs() {
    no_data_is_left_on("xfs");
}

#[test]
fn after_two_starts_a_program_reads_no_data_itself_on_btrfs() {
    no_data_is_left_on("btrfs");
}

//! A start in a control group that has hardly more memory than the program needs.

use crate::common::process::helpers;
use headstart_testing::{
    ControlGroup, LoopFs, disk_dir, has, noise, root_or_skip, skip, undisturbed, wait_until,
    write_synced,
};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const MIB: usize = 1 << 20;
/// What the group has, and what the program leaves of it for all else.
const MEMORY: usize = 96 * MIB;
const LEFT: usize = 26 * MIB;

/// Takes memory and reads on: some 14 MiB of trace.
const PROGRAM: &str = r#"
import os, sys
taken = b"x" * int(sys.argv[2])
file = os.open(sys.argv[1], os.O_RDONLY)
for _ in range(300_000):
    os.pread(file, 4096, 0)
print(len(taken))
"#;

#[test]
fn a_recording_is_given_up_before_it_takes_the_memory_that_the_program_needs() {
    if !root_or_skip() || !has("python3") {
        return skip("needs root and python3");
    }
    let Some(group) = ControlGroup::with_memory(MEMORY as u64) else {
        return skip("no control group with a limit of memory can be made");
    };
    let dir = disk_dir();
    let [file, figures, pack] = ["file", "figures", "a.pack"].map(|name| dir.path().join(name));
    fs::write(&file, vec![7; 4096]).unwrap();
    let taken = (MEMORY - LEFT).to_string();
    let output = group
        .command(env!("CARGO_BIN_EXE_headstart"))
        .args(["run", "--always", "--json", figures.to_str().unwrap()])
        .args(["--pack", pack.to_str().unwrap(), "--", "python3", "-I", "-S", "-c", PROGRAM])
        .args([file.to_str().unwrap(), &taken])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim_end(), taken);
    let figures: Value = serde_json::from_slice(&fs::read(&figures).unwrap()).unwrap();
    assert!(figures["learned"].is_null(), "{figures:#}");
    let notes = figures["notes"].to_string();
    assert!(notes.contains("The control group leaves too little memory"), "{notes}");
}

#[test]
fn in_a_group_with_hardly_any_memory_no_recording_begins() {
    if !root_or_skip() {
        return;
    }
    let Some(group) = ControlGroup::with_memory(20 * MIB as u64) else {
        return skip("no control group with a limit of memory can be made");
    };
    let dir = disk_dir();
    let [figures, pack] = ["figures", "a.pack"].map(|name| dir.path().join(name));
    let output = group
        .command(env!("CARGO_BIN_EXE_headstart"))
        .args(["run", "--always", "--json", figures.to_str().unwrap()])
        .args(["--pack", pack.to_str().unwrap(), "--", "true"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let figures: Value = serde_json::from_slice(&fs::read(&figures).unwrap()).unwrap();
    let notes = figures["notes"].to_string();
    assert!(notes.contains("The control group leaves too little memory"), "{notes}");
    assert!(figures["learned"].is_null() && !pack.exists(), "{figures:#}");
}

/// `cat`, which goes on until its input ends, through `headstart run`.
fn cat(pack: &Path, options: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_headstart"))
        .arg("run")
        .args(options)
        .args(["--pack", pack.to_str().unwrap(), "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn where_memory_runs_out_the_kernel_ends_the_helper_and_not_the_program() {
    if !root_or_skip() {
        return;
    }
    let dir = disk_dir();
    let pack = dir.path().join("a.pack");
    let mut child = cat(&pack, &[]);
    let place = |pid: u32| fs::read_to_string(format!("/proc/{pid}/oom_score_adj"));
    let own = place(std::process::id()).unwrap();
    let helper = wait_until("the helper", || {
        let helper = place(*helpers(pack.to_str().unwrap(), child.id()).first()?).ok()?;
        (helper != own).then_some(helper)
    });
    assert_eq!((helper.trim_end(), place(child.id()).unwrap()), ("1000", own));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_helper_that_has_nothing_to_learn_takes_no_memory_once_all_is_prefetched() {
    let dir = disk_dir();
    let pack = dir.path().join("a.pack");
    let mut child = cat(&pack, &["--no-learn"]);
    child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    let mut answer = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut answer).unwrap();
    wait_until("the helper's end", || {
        helpers(pack.to_str().unwrap(), child.id()).is_empty().then_some(())
    });
    assert!(child.try_wait().unwrap().is_none(), "the program goes on");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

/// KiB that were read from the disk of a file system.
fn kib_read(fs: &LoopFs) -> u64 {
    let text = fs::read_to_string(fs.sysfs().join("stat")).unwrap();
    text.split_ascii_whitespace().nth(2).unwrap().parse::<u64>().unwrap() / 2
}

#[test]
fn a_start_whose_files_do_not_fit_into_its_control_group_reads_no_more_and_is_not_traced() {
    let size = MEMORY as u64 * 5 / 4;
    let Some(fs) = LoopFs::sized("ext4", 2 * size) else { return };
    let Some(group) = ControlGroup::with_memory(MEMORY as u64) else {
        return skip("no control group with a limit of memory can be made");
    };
    let file = fs.path().join("file");
    write_synced(&file, &noise(size as usize));
    let dir = disk_dir();
    let [figures, pack] = ["figures", "a.pack"].map(|name| dir.path().join(name));
    let headstart = [
        env!("CARGO_BIN_EXE_headstart"),
        "run",
        // On a busy machine the threads that prefetch may be scheduled late.
        "--max-delay",
        "2s",
        "--json",
        figures.to_str().unwrap(),
        "--pack",
        pack.to_str().unwrap(),
        "--",
    ];
    let program = ["sh", "-c", "cat \"$1\" > /dev/null", "sh", file.to_str().unwrap()];
    fs.remount();
    assert!(
        Command::new(headstart[0]).args(&headstart[1..]).args(program).status().unwrap().success()
    );
    let read = |words: &[&str]| {
        fs.remount();
        let before = kib_read(&fs);
        assert!(group.command(words[0]).args(&words[1..]).status().unwrap().success());
        kib_read(&fs) - before
    };
    let (without, with) = undisturbed(&[fs.path()], || {
        (read(&program), read(&[&headstart[..], &program[..]].concat()))
    });
    assert!(with * 8 <= without * 9, "{with} KiB with, {without} KiB without");
    let figures: Value = serde_json::from_slice(&fs::read(&figures).unwrap()).unwrap();
    assert!(figures["learned"].is_null(), "{figures:#}");
    let notes = figures["notes"].to_string();
    assert!(notes.contains("more memory than the control group leaves"), "{notes}");
    let prefetched = figures["prefetch"]["bytes"].as_u64().unwrap();
    assert!((1..=MEMORY as u64 / 4 * 3).contains(&prefetched), "{figures:#}");
}

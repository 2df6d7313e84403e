//! `headstart elf repack --divert`: dpkg upgrades and removes packages whose files are diverted,
//! and its hook renews them, in a root directory of a test's own.

use crate::common::elf_files::library;
use crate::common::managers::{Manager::Dpkg, words};
use crate::common::small_root::{Headstart, SmallRoot};
use headstart_testing::{disk_dir, must};
use std::fs;
use std::process::Output;

const FILE: &str = "/usr/games/example/liba.so";
const ORIGINAL: &str = "/usr/games/example/.liba.so.headstart-orig";

fn run(root: &SmallRoot, command: &[&str]) -> Output {
    root.run(Headstart::Real, command)
}

fn elf(root: &SmallRoot, arguments: &[&str]) -> Output {
    run(root, &[&["headstart", "elf"], arguments].concat())
}

fn divert(root: &SmallRoot) -> Output {
    elf(root, &["repack", "--divert", "--in-place", FILE])
}

/// A package with this file; installs it.
fn install(root: &SmallRoot, version: u32, data: &[u8]) {
    let package = Dpkg.build(root, "example", version, &[(&FILE[1..], data)], &[]);
    let done = run(root, &words(&Dpkg.install(&package)));
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success() && !said.contains("headstart:"), "{done:?}");
}

/// A library and what repacking makes of it.
fn versions(relocations: usize) -> [Vec<u8>; 2] {
    let dir = disk_dir();
    let old = library(dir.path(), "liba.so", relocations);
    let new = dir.path().join("new");
    let paths = [&old, &new].map(|path| path.to_str().unwrap());
    let words = ["elf", "repack", "--any-loader", "--quiet", "-o", paths[1], paths[0]];
    must(env!("CARGO_BIN_EXE_headstart"), &words);
    [old, new].map(|path| fs::read(path).unwrap())
}

fn diversions(root: &SmallRoot) -> String {
    fs::read_to_string(root.place("/var/lib/dpkg/diversions")).unwrap_or_default()
}

/// Whether there is just the packaged file, and no diversion.
#[track_caller]
fn assert_packaged(root: &SmallRoot, data: &[u8]) {
    assert!(fs::read(root.place(FILE)).unwrap() == data);
    assert!(!root.place(ORIGINAL).exists());
    assert_eq!(diversions(root), "");
    let records = fs::read_dir(root.place("/var/lib/headstart/elf")).map(Iterator::count);
    assert_eq!(records.unwrap_or(0), 0);
}

/// Whether the repacked file is in the place of the packaged one.
#[track_caller]
fn assert_diverted(root: &SmallRoot, [old, new]: &[Vec<u8>; 2]) {
    assert!(fs::read(root.place(FILE)).unwrap() == *new);
    assert!(fs::read(root.place(ORIGINAL)).unwrap() == *old);
    assert_eq!(diversions(root), format!("{FILE}\n{ORIGINAL}\n:\n"));
    let verified = run(root, &["dpkg", "--verify", "example"]);
    assert!(verified.status.success() && verified.stdout.is_empty(), "{verified:?}");
}

#[test]
fn a_diverted_file_is_repacked_again_after_each_upgrade_and_goes_with_its_package() {
    let Some(root) = Dpkg.root() else { return };
    let all = [2_000, 3_000, 4_000].map(versions);
    install(&root, 1, &all[0][0]);
    let refused = elf(&root, &["repack", "--in-place", FILE]);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    let planned = elf(&root, &["repack", "--divert", FILE]);
    assert_eq!(planned.status.code(), Some(0), "{planned:?}");
    assert_packaged(&root, &all[0][0]);
    let done = divert(&root);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert_diverted(&root, &all[0]);
    // Again, and by a directory that has both names.
    assert_eq!(divert(&root).status.code(), Some(3));
    let whole = elf(&root, &["repack", "--divert", "--in-place", "/usr/games"]);
    assert_eq!(whole.status.code(), Some(0), "{whole:?}");
    assert_diverted(&root, &all[0]);
    for (version, one) in [(2, &all[1]), (3, &all[2])] {
        install(&root, version, &one[0]);
        assert_diverted(&root, one);
    }
    let undone = elf(&root, &["undo", FILE]);
    assert_eq!(undone.status.code(), Some(0), "{undone:?}");
    assert_packaged(&root, &all[2][0]);
    // A version that can't be repacked is in its place all the same.
    assert!(divert(&root).status.success());
    install(&root, 4, b"a text");
    assert_packaged(&root, b"a text");
    // It goes with its package.
    install(&root, 5, &all[0][0]);
    assert!(divert(&root).status.success());
    let removed = run(&root, &words(&Dpkg.remove("example")));
    assert!(removed.status.success(), "{removed:?}");
    assert!(!root.place(FILE).exists() && !root.place(ORIGINAL).exists());
    assert_eq!(diversions(&root), "");
}

#[test]
fn what_is_diverted_comes_back_when_headstart_is_removed() {
    let Some(root) = Dpkg.root() else { return };
    let [old, new] = versions(2_000);
    install(&root, 1, &old);
    let package = Dpkg.headstart(&root, 1);
    assert!(run(&root, &words(&Dpkg.install(&package))).status.success());
    assert!(divert(&root).status.success());
    assert_diverted(&root, &[old.clone(), new]);
    let removed = run(&root, &words(&Dpkg.remove("headstart")));
    assert!(removed.status.success(), "{removed:?}");
    assert_packaged(&root, &old);
}

#[test]
fn what_something_else_replaced_is_kept_and_the_packaged_file_can_come_back() {
    let Some(root) = Dpkg.root() else { return };
    let all = [2_000, 3_000].map(versions);
    install(&root, 1, &all[0][0]);
    assert!(divert(&root).status.success());
    fs::write(root.place("/usr/games/own"), "own").unwrap();
    fs::rename(root.place("/usr/games/own"), root.place(FILE)).unwrap();
    for arguments in [&["undo", FILE][..], &["repack", "--renew"]] {
        let refused = elf(&root, arguments);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success(), "{refused:?}");
        assert!(said.contains(&format!("ln -f {ORIGINAL} {FILE}")), "{said}");
        assert_eq!(fs::read(root.place(FILE)).unwrap(), b"own");
    }
    assert!(run(&root, &["ln", "-f", ORIGINAL, FILE]).status.success());
    assert!(elf(&root, &["undo", FILE]).status.success());
    assert_packaged(&root, &all[0][0]);
    // Somebody removes the diversion, and the upgrade writes over the repacked file.
    assert!(divert(&root).status.success());
    let release = ["dpkg-divert", "--local", "--no-rename", "--divert", ORIGINAL, "--remove", FILE];
    assert!(run(&root, &release).status.success());
    let package = Dpkg.build(&root, "example", 2, &[(&FILE[1..], all[1][0].as_slice())], &[]);
    assert!(run(&root, &words(&Dpkg.install(&package))).status.success());
    assert_packaged(&root, &all[1][0]);
    // Somebody removes the packaged file: the record has it.
    assert!(divert(&root).status.success());
    fs::remove_file(root.place(ORIGINAL)).unwrap();
    assert!(elf(&root, &["repack", "--renew", "--quiet"]).status.success());
    assert!(fs::read(root.place(FILE)).unwrap() == all[1][1]);
    assert!(elf(&root, &["undo", "--all"]).status.success());
    assert_packaged(&root, &all[1][0]);
    // Somebody removes the records: nothing would renew it.
    assert!(divert(&root).status.success());
    fs::remove_dir_all(root.place("/var/lib/headstart/elf")).unwrap();
    let renewed = elf(&root, &["repack", "--renew", "--quiet"]);
    assert!(String::from_utf8_lossy(&renewed.stderr).contains("its record is gone"), "{renewed:?}");
    assert_packaged(&root, &all[1][0]);
}

#[test]
fn without_its_hook_or_dpkg_or_for_what_upgrades_run_nothing_is_diverted() {
    let Some(root) = Dpkg.root() else { return };
    let [old, new] = versions(2_000);
    install(&root, 1, &old);
    #[track_caller]
    fn refused(root: &SmallRoot, command: &[&str], status: i32, why: &str, old: &[u8]) {
        let done = run(root, command);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(status), "{done:?}");
        assert!(said.contains(why), "{said}");
        assert_packaged(root, old);
    }
    let command = ["headstart", "elf", "repack", "--divert", "--in-place", FILE];
    let hook = root.place("/etc/dpkg/dpkg.cfg.d/headstart");
    let text = fs::read(&hook).unwrap();
    fs::remove_file(&hook).unwrap();
    refused(&root, &command, 1, "copy dist/dpkg/headstart", &old);
    fs::write(&hook, text).unwrap();
    let without = [&["env", "PATH=/sbin"], &command[..]].concat();
    refused(&root, &without, 1, "dpkg-divert is missing; install dpkg", &old);
    // Another diversion of the same file.
    let other = ["--divert", "/usr/games/other", "--package", "other"];
    let add = |action: &[&str]| {
        let words = [&["dpkg-divert", "--no-rename"], &other[..], action, &[FILE]].concat();
        assert!(run(&root, &words).status.success());
    };
    add(&["--add"]);
    let done = divert(&root);
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    assert!(String::from_utf8_lossy(&done.stderr).contains("clashes"), "{done:?}");
    add(&["--remove"]);
    assert_packaged(&root, &old);
    let locked = "import fcntl, subprocess, sys\n\
        file = open('/var/lib/dpkg/lock', 'w')\n\
        fcntl.lockf(file, fcntl.LOCK_EX)\n\
        sys.exit(subprocess.call(sys.argv[1:]))";
    let locked = [&["python3", "-c", locked], &command[..]].concat();
    refused(&root, &locked, 1, "dpkg is running", &old);
    let status = root.place("/var/lib/dpkg/status");
    let is = fs::read_to_string(&status).unwrap();
    let essential = is.replace("Package: example\n", "Package: example\nEssential: yes\n");
    fs::write(&status, essential).unwrap();
    refused(&root, &command, 3, "it belongs to example, which upgrades run", &old);
    fs::write(&status, is).unwrap();
    assert!(run(&root, &command).status.success());
    assert_diverted(&root, &[old, new]);
}

//! Where files or the store may not grow: the program starts as ever, and what is learned keeps to
//! the limit.

use crate::command::headstart;
use headstart_testing::{disk_dir, is_root, skip};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn with_packs(packs: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(words[0]);
    let output = command.args(&words[1..]).env("HEADSTART_PACKS", packs).output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    output
}

fn packs_in(dir: &Path) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|ending| ending == "pack")).collect()
}

const HEADSTART: &str = env!("CARGO_BIN_EXE_headstart");

#[test]
fn a_helper_whose_files_may_not_grow_says_so_instead_of_being_killed() {
    if !is_root() {
        return skip("recording needs root");
    }
    let packs = disk_dir();
    let script = "ulimit -f 0; exec \"$0\" record -- sh -c 'exit 7'";
    let output = with_packs(packs.path(), &["sh", "-c", script, HEADSTART]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("this start is not learned") && said.contains("too large"), "{said}");
    assert!(packs_in(packs.path()).is_empty(), "{said}");
    // Nor does what it can't write end the process whose status counts.
    let script = format!("exec 2>messages; {script}");
    let output = Command::new("sh")
        .args(["-c", &script, HEADSTART])
        .current_dir(packs.path())
        .env("HEADSTART_PACKS", packs.path().join("others"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
}

#[test]
fn a_store_that_has_grown_is_bounded_at_any_start_and_with_all_that_is_in_it() {
    if !is_root() {
        return skip("recording needs root");
    }
    let packs = disk_dir();
    let learn = |code| with_packs(packs.path(), &[HEADSTART, "record", "--", "sh", "-c", code]);
    learn("exit 7");
    let known = packs_in(packs.path());
    learn("true; exit 7");
    let other = packs_in(packs.path()).into_iter().find(|pack| !known.contains(pack)).unwrap();
    let record = File::options().write(true).open(other.with_extension("pack.last")).unwrap();
    record.set_len(256 << 20).unwrap();
    learn("exit 7");
    assert_eq!(packs_in(packs.path()), known, "the other one was forgotten");
    let shown = headstart(&["show", known[0].to_str().unwrap()]);
    assert!(String::from_utf8(shown.stdout).unwrap().contains("2 starts"), "it was no new one");
}

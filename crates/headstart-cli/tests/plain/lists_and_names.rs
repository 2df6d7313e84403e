//! Packs and files as users name them: by path, by program, in a list, in a variable.

use headstart::pack::{Origin, Pack, store};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// A headstart in a directory, with packs where this variable says.
fn headstart_in(dir: &Path, packs: &str, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headstart"))
        .args(args)
        .current_dir(dir)
        .env("HEADSTART_PACKS", packs)
        .output()
        .unwrap()
}

#[test]
fn what_a_list_names_and_is_gone_is_counted_and_shown_by_the_exit_status() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("here"), [0; 8192]).unwrap();
    fs::write(dir.path().join("empty"), "").unwrap();
    for (list, status, said) in [
        ("here\nempty\n", 0, ""),
        ("here\n/nowhere/whole\n", 1, "1 file gone"),
        ("gone\nnot here 0:4096\nhere 0:4096\n", 1, "2 files gone"),
    ] {
        fs::write(dir.path().join("list"), list).unwrap();
        let output = headstart_in(dir.path(), "", &["replay", "list"]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{list}: {told}");
        assert!(told.contains(said), "{list}: {told}");
    }
}

#[test]
fn a_list_of_pages_is_of_use_in_every_directory() {
    let dir = tempfile::tempdir().unwrap();
    let sub = dir.path().join("sub");
    fs::create_dir(&sub).unwrap();
    fs::write(sub.join("file"), [1; 8192]).unwrap();
    let listed = headstart_in(dir.path(), "", &["pages", "--list", "sub"]).stdout;
    let expected = format!("{} 0:8192\n", sub.join("file").display());
    assert_eq!(String::from_utf8(listed.clone()).unwrap(), expected);
    fs::write(dir.path().join("list"), &listed).unwrap();
    let output = headstart_in(&sub, "", &["replay", "../list"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn a_program_is_named_to_replay_as_to_show() {
    let dir = tempfile::tempdir().unwrap();
    let packs = dir.path().join("packs");
    fs::create_dir(&packs).unwrap();
    let pack = packs.join("app-0123456789abcdef.pack");
    let origin = Origin { page_shift: 12, starts: 1, ..Origin::default() };
    store::lock(&pack).unwrap().write(&Pack { origin, ..Pack::default() }).unwrap();
    for verb in ["show", "replay"] {
        let output = headstart_in(dir.path(), packs.to_str().unwrap(), &[verb, "app"]);
        assert_eq!(output.status.code(), Some(0), "{verb}: {output:?}");
    }
}

#[test]
fn a_directory_of_packs_that_is_not_absolute_is_refused_in_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    for (args, status) in [
        (&["show", "sh"][..], 1),
        (&["replay", "sh"], 1),
        (&["pack", "renew"], 1),
        (&["run", "--", "sh", "-c", "exit 7"], 7),
        (&["run", "-v", "--", "sh", "-c", "exit 7"], 7),
        (&["record", "--", "sh", "-c", "exit 7"], 7),
    ] {
        let output = headstart_in(dir.path(), "packs", args);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{args:?}: {told}");
        assert_eq!(told.lines().count(), 1, "{args:?}: {told}");
        assert!(told.contains("HEADSTART_PACKS is packs, which is not an absolute path"), "{told}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was learned");
    let doctor = headstart_in(dir.path(), "packs", &["doctor", "--json"]);
    assert!(String::from_utf8_lossy(&doctor.stdout).contains("HEADSTART_PACKS is packs"));
}

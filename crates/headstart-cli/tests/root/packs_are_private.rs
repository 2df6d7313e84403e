//! What is learned as root is no other user's to read, to change or to hold up. As hostile
//! users would try it.

use crate::command::headstart;
use headstart_testing::{as_nobody, disk_dir, is_root, must, skip};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The user that has nothing.
const NOBODY: u32 = 65534;

/// Learns a start of `command` with packs in this directory.
fn learn(packs: &Path, command: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headstart"))
        .args(["record", "--"])
        .args(command)
        .env("HEADSTART_PACKS", packs)
        .output()
        .expect("headstart starts")
}

fn packs_in(dir: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    names.filter(|path| path.extension().is_some_and(|ending| ending == "pack")).collect()
}

fn mode(path: &Path) -> u32 {
    path.metadata().expect("a file").permissions().mode() & 0o7777
}

#[test]
fn neither_packs_nor_their_names_tell_other_users_what_root_ran() {
    if !is_root() {
        return skip("recording needs root");
    }
    let dir = disk_dir();
    let packs = dir.path().join("headstart/packs");
    let output = learn(&packs, &["sh", "-c", "true --password=swordfish", "--token=xyzzy"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(mode(&packs), 0o700);
    let files: Vec<_> = fs::read_dir(&packs).unwrap().flatten().collect();
    assert!(files.len() >= 2, "{files:?}");
    for file in files {
        assert_eq!(mode(&file.path()), 0o600, "{file:?}");
        let name = file.file_name();
        assert!(!name.to_string_lossy().contains("password"), "{name:?}");
        let content = fs::read(file.path()).unwrap();
        for secret in ["swordfish", "xyzzy"] {
            assert!(!content.windows(secret.len()).any(|w| w == secret.as_bytes()), "{name:?}");
        }
    }
}

#[test]
fn packs_of_before_are_closed_for_others_at_the_next_start() {
    if !is_root() {
        return skip("recording needs root");
    }
    let dir = disk_dir();
    let packs = dir.path().join("headstart/packs");
    fs::create_dir_all(&packs).unwrap();
    fs::write(packs.join("old.pack"), "HEADSTRT").unwrap();
    assert!(learn(&packs, &["true"]).status.success());
    assert_eq!((mode(&packs), mode(&packs.join("old.pack"))), (0o700, 0o600));
}

#[test]
fn a_lock_that_another_user_takes_on_the_directory_holds_nobody_up() {
    if !is_root() {
        return skip("recording needs root");
    }
    let packs = disk_dir();
    must("chmod", &["755", packs.path().to_str().unwrap()]);
    let locked = fs::File::open(packs.path()).unwrap();
    rustix::fs::flock(&locked, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let output = learn(packs.path(), &["true"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(packs_in(packs.path()).len(), 1, "{output:?}");
    assert_eq!(mode(&packs.path().join(".lock")), 0o600);
}

#[test]
fn root_takes_no_pack_from_a_directory_that_another_user_owns_or_linked_to() {
    if !is_root() {
        return skip("only root can give a directory away");
    }
    let dir = disk_dir();
    let (theirs, own) = (dir.path().join("theirs"), dir.path().join("own"));
    for packs in [&theirs, &own] {
        assert!(learn(packs, &["true"]).status.success());
    }
    chown(&theirs, Some(NOBODY), None).unwrap();
    let link = dir.path().join("link");
    symlink(&own, &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(NOBODY), None).unwrap();
    for (packs, why) in [(&theirs, "it belongs to user 65534"), (&link, "a link on its path")] {
        let output = Command::new(env!("CARGO_BIN_EXE_headstart"))
            .args(["run", "-v", "--no-learn", "--", "true"])
            .env("HEADSTART_PACKS", packs)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && said.contains(why), "{packs:?}: {said}");
    }
}

#[test]
fn root_neither_learns_nor_looks_into_a_directory_that_another_user_can_change() {
    if !is_root() {
        return skip("only root can give a directory away");
    }
    let dir = disk_dir();
    let at = |name: &str| dir.path().join(name);
    for name in ["open", "theirs", "own"] {
        fs::create_dir(at(name)).unwrap();
    }
    must("chmod", &["777", at("open").to_str().unwrap()]);
    chown(at("theirs"), Some(NOBODY), None).unwrap();
    symlink(at("own"), at("link")).unwrap();
    std::os::unix::fs::lchown(at("link"), Some(NOBODY), None).unwrap();
    let is_empty = |name: &str| fs::read_dir(at(name)).unwrap().count() == 0;
    for packs in ["open", "theirs", "theirs/new", "link", "link/new"] {
        for arguments in [
            &["record", "--", "true"][..],
            &["record", "--share", "--", "true"],
            &["run", "-v", "--", "true"],
            &["doctor", "--reprobe"],
        ] {
            Command::new(env!("CARGO_BIN_EXE_headstart"))
                .args(arguments)
                .env("HEADSTART_PACKS", at(packs))
                .output()
                .unwrap();
            for dir in ["open", "theirs", "own"] {
                assert!(is_empty(dir), "{packs}, {arguments:?}: {dir}");
            }
        }
    }
    let pack = at("own/true-0123456789abcdef.pack");
    assert!(
        headstart(&["record", "--pack", pack.to_str().unwrap(), "--", "true"]).status.success()
    );
    for arguments in [&["list"][..], &["forget", "true"], &["replay", "true"], &["show", "true"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_headstart"))
            .args(arguments)
            .env("HEADSTART_PACKS", at("link"))
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        assert!(said.contains("a link on its path belongs to user 65534"), "{said}");
        assert!(pack.exists(), "{arguments:?}");
    }
}

#[test]
fn a_link_in_another_users_directory_leads_root_to_no_file_to_write_or_remove() {
    if !is_root() {
        return skip("only root can give a directory away");
    }
    let dir = disk_dir();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("theirs/shared")).unwrap();
    fs::create_dir(at("own")).unwrap();
    fs::write(at("own/e.pack"), "mine").unwrap();
    symlink(at("own/e.pack"), at("theirs/shared/e.pack")).unwrap();
    for given in ["theirs", "theirs/shared", "theirs/shared/e.pack"] {
        std::os::unix::fs::lchown(at(given), Some(NOBODY), None).unwrap();
    }
    let pack = at("theirs/e.pack").to_str().unwrap().to_owned();
    assert!(headstart(&["record", "--pack", &pack, "--", "true"]).status.success());
    assert_eq!(fs::read(at("own/e.pack")).unwrap(), b"mine");
    let refused = headstart(&["record", "--share", "--pack", &pack, "--", "true"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");

    fs::remove_dir_all(at("theirs/shared")).unwrap();
    fs::copy(&pack, at("own/e.pack")).unwrap();
    symlink(at("own"), at("theirs/shared")).unwrap();
    std::os::unix::fs::lchown(at("theirs/shared"), Some(NOBODY), None).unwrap();
    assert!(headstart(&["forget", &pack]).status.success());
    assert!(!Path::new(&pack).exists() && at("own/e.pack").exists());
}

#[test]
fn a_directory_that_another_user_linked_to_keeps_its_modes() {
    if !is_root() {
        return skip("only root can give a directory away");
    }
    let dir = disk_dir();
    let at = |name: &str| dir.path().join(name);
    for name in ["theirs/headstart", "system"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    fs::write(at("system/conf.json"), "{}").unwrap();
    for (path, mode) in [("system", "755"), ("system/conf.json", "644")] {
        must("chmod", &[mode, at(path).to_str().unwrap()]);
    }
    symlink(at("system"), at("theirs/headstart/packs")).unwrap();
    std::os::unix::fs::lchown(at("theirs/headstart/packs"), Some(NOBODY), None).unwrap();
    let pack = at("theirs/headstart/packs/x.pack");
    headstart(&["record", "--pack", pack.to_str().unwrap(), "--", "true"]);
    assert_eq!((mode(&at("system")), mode(&at("system/conf.json"))), (0o755, 0o644));
}

#[test]
fn a_pack_is_forgotten_by_its_own_path_and_by_no_link_of_another_user() {
    if !is_root() {
        return skip("only root can give a link away");
    }
    let dir = disk_dir();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("own")).unwrap();
    let pack = at("own/x.pack");
    headstart(&["record", "--pack", pack.to_str().unwrap(), "--", "true"]);
    for (link, owner) in [("theirs", NOBODY), ("mine", 0)] {
        symlink("own", at(link)).unwrap();
        std::os::unix::fs::lchown(at(link), Some(owner), None).unwrap();
    }
    let refused = headstart(&[Path::new("forget"), &at("theirs/x.pack")]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!((refused.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("a link on its path belongs to user 65534"), "{said}");
    assert!(pack.exists());
    assert!(headstart(&[Path::new("forget"), &at("mine/x.pack")]).status.success());
    assert!(!pack.exists());
}

#[test]
fn nothing_but_an_empty_file_or_a_pack_is_ever_replaced() {
    if !is_root() {
        return skip("recording needs root");
    }
    let dir = disk_dir();
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(file("app.py"), "print()\n").unwrap();
    fs::write(file("empty"), "").unwrap();
    symlink("app.py", file("link")).unwrap();
    let good = file("good.pack");
    assert!(headstart(&["record", "--pack", &good, "--", "true"]).status.success());
    for arguments in [
        &["run", "-v", "--pack", "FILE", "--", "true"][..],
        &["record", "--pack", "FILE", "--", "true"],
        &["pack", "merge", "-o", "FILE", &good, &good],
    ] {
        for name in ["app.py", "link"] {
            let path = file(name);
            let arguments: Vec<&str> =
                arguments.iter().map(|word| if *word == "FILE" { &path } else { *word }).collect();
            let output = headstart(&arguments);
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(said.contains(name), "{arguments:?}: {said}");
            assert_eq!(fs::read(file("app.py")).unwrap(), b"print()\n", "{arguments:?}");
            assert!(fs::symlink_metadata(file("link")).unwrap().is_symlink(), "{arguments:?}");
        }
    }
    for arguments in [
        &["run", "--json", "FILE", "--", "true"][..],
        &["record", "--json", "FILE", "--pack", &good, "--", "true"],
        &["record", "--trace-out", "FILE", "--pack", &good, "--", "true"],
        &["show", "--last-run", "--picture", "PICTURE", &good],
        &["bench", "--export-json", "FILE", "--", "true"],
        &["bench", "--export-markdown", "FILE", "--", "true"],
        &["bench", "--picture", "PICTURE", "--", "true"],
        &["boot", "bench", "--bootperf", "FILE", "--", "true"],
    ] {
        let (program, picture) = (file("app.py"), file("app.svg"));
        fs::write(&picture, "print()\n").unwrap();
        let path = if arguments.contains(&"PICTURE") { &picture } else { &program };
        let named = |word: &&str| ["FILE", "PICTURE"].contains(word);
        let arguments: Vec<&str> =
            arguments.iter().map(|word| if named(word) { path.as_str() } else { *word }).collect();
        let output = headstart(&arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("app.") && said.contains("--force"), "{arguments:?}: {said}");
        assert_eq!(fs::read(path).unwrap(), b"print()\n", "{arguments:?}");
        // What runs a program has its status.
        let runs = ["run", "record"].contains(&arguments[0]);
        assert_eq!(output.status.code(), Some(i32::from(!runs)), "{arguments:?}: {said}");
    }
    for arguments in [["record", "--trace-out"], ["record", "--json"], ["run", "--json"]] {
        let (path, forced) = (file("own"), file("app.py"));
        for (path, force) in [(&path, &[][..]), (&path, &[]), (&forced, &["--force"])] {
            let rest = [path.as_str(), "--pack", &good];
            let line = [&arguments[..], &rest, force, &["--", "true"]].concat();
            let output = headstart(&line);
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(!said.contains("--force"), "{line:?}: {said}");
        }
        assert!(
            fs::metadata(&path).unwrap().len() > 100 && fs::read(&forced).unwrap() != b"print()\n"
        );
        fs::remove_file(path).unwrap();
        fs::write(forced, "print()\n").unwrap();
    }
    assert!(headstart(&["record", "--pack", &file("empty"), "--", "true"]).status.success());
    assert!(headstart(&["show", &file("empty")]).status.success());
}

#[test]
fn users_replay_what_root_shares_and_see_neither_its_command_nor_closed_files() {
    if !is_root() {
        return skip("recording needs root");
    }
    let dir = disk_dir();
    must("chmod", &["755", dir.path().to_str().unwrap()]);
    let packs = dir.path().join("headstart/packs");
    let secret = dir.path().join("secret");
    fs::write(&secret, "x").unwrap();
    must("chmod", &["600", secret.to_str().unwrap()]);
    let script = dir.path().join("script.sh");
    fs::write(&script, format!("cat {}", secret.display())).unwrap();
    must("chmod", &["644", script.to_str().unwrap()]);
    let record = |arguments: &[&str], command: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_headstart"))
            .args(["record"])
            .args(arguments)
            .args(["--", "sh"])
            .args(command)
            .env("HEADSTART_PACKS", &packs)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let run = |arguments: &[&str]| record(arguments, &[script.to_str().unwrap()]);
    let shared = dir.path().join("headstart/shared");
    let starts = || {
        let pack = packs_in(&shared).pop().unwrap();
        let output = as_nobody(env!("CARGO_BIN_EXE_headstart"))
            .args(["show", "--json"])
            .arg(&pack)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.contains("secret") && text.contains("libc"), "{text} {:?}", output.stderr);
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        document["origin"]["starts"].as_u64()
    };
    run(&[]);
    assert!(!shared.exists());
    run(&["--share"]);
    assert_eq!(starts(), Some(2));
    run(&[]);
    assert_eq!(starts(), Some(3), "the copy follows the pack");

    // Names that tell what others can't see.
    let closed = dir.path().join("closed");
    fs::create_dir(&closed).unwrap();
    must("chmod", &["700", closed.to_str().unwrap()]);
    let tool = closed.join("tool.sh");
    fs::write(&tool, "true").unwrap();
    for command in [&["-c", "true swordfish"][..], &[tool.to_str().unwrap()]] {
        let said = record(&["--share"], command);
        assert!(said.contains("is not shared"), "{command:?}: {said}");
    }
    assert_eq!(packs_in(&shared).len(), 1);
}

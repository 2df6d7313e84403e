//! Which programs are learned, and how they are forgotten.

use headstart::pack::{Origin, Pack, store};
use std::fs::{self, File, FileTimes};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

const DAY: u64 = 24 * 60 * 60;

fn headstart(packs: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.args(args).env("HEADSTART_PACKS", packs).output().unwrap()
}

/// A pack that was used so many days ago.
fn write(packs: &Path, file_name: &str, name: &str, command: &str, days: u64) -> PathBuf {
    let path = packs.join(file_name);
    let command = command.replace(' ', "\0").into_bytes();
    let origin =
        Origin { page_shift: 12, starts: 2, command, name: name.into(), ..Origin::default() };
    store::lock(&path).unwrap().write(&Pack { origin, ..Pack::default() }).unwrap();
    let then = SystemTime::now() - Duration::from_secs(days * DAY);
    let times = FileTimes::new().set_accessed(then).set_modified(then);
    File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
    path
}

fn listed(packs: &Path) -> Vec<String> {
    let text = String::from_utf8(headstart(packs, &["list"]).stdout).unwrap();
    let program = |line: &str| line.split("  ").next().unwrap().to_owned();
    text.lines().skip(1).map(program).collect()
}

#[test]
fn programs_are_listed_by_their_commands_and_forgotten_by_name_or_disuse() {
    let dir = tempfile::tempdir().unwrap();
    let packs = dir.path();
    let git = write(packs, "git-0123456789abcdef.pack", "git", "git", 1);
    let status = "git-0123456789abcdef+0123456789abcdef.pack";
    let status = write(packs, status, "git status", "git status", 2);
    write(packs, "python3-code-0123456789abcdef.pack", "python3-code", "python3 -c #1", 40);
    write(packs, "web-0123456789abcdef.pack", "web", "", 50);
    write(packs, "app-0123456789abcdef.pack", "app", "/opt/one/app", 3);
    write(packs, "app-fedcba9876543210.pack", "app", "/opt/two/app", 4);
    let all = ["git", "git status", "/opt/one/app", "/opt/two/app", "python3 -c #1", "web"];
    assert_eq!(listed(packs), all);

    let several = headstart(packs, &["forget", "git", "app"]);
    let said = String::from_utf8(several.stderr).unwrap();
    assert!(!several.status.success(), "{said}");
    for command in ["/opt/one/app", "/opt/two/app"] {
        assert!(said.contains(&format!(".pack ({command})")), "{said}");
    }
    let absent = headstart(packs, &["show", "python3"]);
    let said = String::from_utf8(absent.stderr).unwrap();
    assert!(said.contains("There is no pack python3; `headstart list` shows"), "{said}");
    assert_eq!(listed(packs), all, "nothing is forgotten when a name is unclear");
    assert!(headstart(packs, &["forget", "git status"]).status.success());
    assert!(!status.exists() && git.exists());
    assert!(headstart(packs, &["forget", "--unused-for", "30d", "git"]).status.success());
    assert_eq!(listed(packs), ["/opt/one/app", "/opt/two/app"]);
    for wrong in [&["forget", "git"][..], &["forget"]] {
        assert!(!headstart(packs, wrong).status.success(), "{wrong:?}");
    }
    let nothing = headstart(packs, &["forget", "--unused-for", "30d"]);
    assert!(nothing.status.success(), "{nothing:?}");
}

#[test]
fn what_is_no_pack_is_not_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("notes");
    fs::write(&file, "mine").unwrap();
    let output = headstart(dir.path(), &["forget", file.to_str().unwrap()]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("is not a pack"), "{said}");
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    assert!(listed(dir.path()).is_empty());
}

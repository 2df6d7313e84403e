//! Files without an end: no verb reads them for ever, or runs out of memory.

use headstart_testing::{is_root, must, skip};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Output};

/// Twice what headstart reads of a file, and room for the program itself.
const ADDRESS_SPACE_KIB: u64 = 1 << 20;

/// `headstart` with these arguments, in as much memory as it may need.
fn limited<S: AsRef<OsStr>>(args: &[S]) -> Output {
    Command::new("sh")
        .args(["-c", &format!("ulimit -v {ADDRESS_SPACE_KIB}; exec \"$@\""), "sh"])
        .arg(env!("CARGO_BIN_EXE_headstart"))
        .args(args)
        .output()
        .unwrap()
}

/// Checks that it failed in one sentence that contains `why`.
fn refused<S: AsRef<OsStr> + std::fmt::Debug>(args: &[S], why: &str) {
    let output = limited(args);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{args:?}: {output:?}");
    assert!(text.contains(why), "{args:?}: {text}");
}

const TOO_LARGE: &str = "it is larger than 256 MiB";
const NO_FILE: &str = "it is no regular file";

#[test]
fn a_device_without_an_end_is_refused_by_every_verb_that_reads_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target").to_str().unwrap().to_owned();
    let zero = "/dev/zero";
    for (args, why) in [
        (&["replay", zero][..], TOO_LARGE),
        (&["replay", "--dry-run", "--json", zero], TOO_LARGE),
        (&["compare", zero, zero], TOO_LARGE),
        (&["show", zero], NO_FILE),
        (&["show", "--list", zero], NO_FILE),
        (&["show", "--last-run", zero], NO_FILE),
        (&["pack", "verify", zero], NO_FILE),
        (&["pack", "diff", zero, zero], NO_FILE),
        (&["pack", "merge", "-o", &target, zero, zero], NO_FILE),
        (&["pack", "renew", zero], NO_FILE),
    ] {
        refused(args, why);
    }
}

#[test]
fn a_file_of_a_terabyte_is_refused_as_a_list_a_result_and_a_pack() {
    let dir = tempfile::tempdir().unwrap();
    let large = dir.path().join("large");
    fs::File::create(&large).unwrap().set_len(1 << 40).unwrap();
    let large = large.to_str().unwrap();
    for args in [&["replay", large][..], &["compare", large, large], &["show", large]] {
        refused(args, TOO_LARGE);
    }
}

#[test]
fn what_a_machine_keeps_of_boots_may_be_a_file_of_a_terabyte_or_a_device() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    let kept = ["etc/headstart/boot.conf", "var/lib/headstart/boot/history/000001.json"];
    let kept = kept.map(|path| dir.path().join(path));
    for path in &kept {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::File::create(path).unwrap().set_len(1 << 40).unwrap();
    }
    let is_refused = || {
        refused(&["boot", "analyze", "--root", root], "");
        let status = limited(&["boot", "status", "--root", root]);
        assert!(status.status.code().is_some_and(|code| code <= 1), "{status:?}");
        String::from_utf8_lossy(&[status.stdout, status.stderr].concat()).into_owned()
    };
    let told = is_refused();
    assert!(told.contains(TOO_LARGE), "{told}");
    if !is_root() {
        return skip("devices of an image need root");
    }
    // A link leads to the device of the image, not to that of this machine.
    for path in &kept {
        fs::remove_file(path).unwrap();
        symlink("/dev/zero", path).unwrap();
    }
    fs::create_dir(dir.path().join("dev")).unwrap();
    must("mknod", &[dir.path().join("dev/zero").to_str().unwrap(), "c", "1", "5"]);
    let told = is_refused();
    assert!(told.contains("it is no regular file"), "{told}");
}

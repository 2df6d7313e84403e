//! What dracut and initramfs-tools run in the initramfs, in a root directory of files,
//! with a headstart that only tells how it was called.

use headstart_testing::{is_root, skip};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// An initramfs, with the machine's root directory in it.
struct Initramfs(tempfile::TempDir);

impl Initramfs {
    /// Its headstart does `then` after telling how it was called.
    fn new(packs: bool, then: &str) -> Self {
        let this = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(this.place("bin")).unwrap();
        fs::create_dir_all(this.place("root")).unwrap();
        if packs {
            fs::create_dir_all(this.place("root/var/lib/headstart/boot")).unwrap();
        }
        let program = this.place("bin/headstart");
        fs::write(&program, format!("#!/bin/sh\necho \"called $*\"\n{then}\n")).unwrap();
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
        this
    }

    fn place(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// Runs a script of the shell in it.
    fn sh(&self, script: &str) -> Output {
        let path = format!("{}:{}", self.place("bin").display(), std::env::var("PATH").unwrap());
        Command::new("sh")
            .args(["-c", script])
            .env("PATH", path)
            .env("rootmnt", self.place("root"))
            .env("NEWROOT", self.place("root"))
            .output()
            .unwrap()
    }
}

fn in_dist(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist").join(path);
    path.to_str().unwrap().to_owned()
}

fn initramfs_tools() -> String {
    in_dist("initramfs-tools/scripts/init-bottom/headstart")
}

/// The hook of dracut in a shell that has what dracut's has.
fn dracut(is_on: bool) -> String {
    let hook = in_dist("dracut/90headstart/headstart.sh");
    format!("set -e; getargbool() {{ {is_on}; }}; info() {{ :; }}; . {hook}; echo goes on")
}

#[test]
fn both_are_for_a_root_directory_with_packs_or_with_the_recorder() {
    for (packs, recorder) in [(true, false), (false, true), (false, false)] {
        let initramfs = Initramfs::new(packs, "exit 1");
        if recorder {
            // As a package's unit is enabled: it leads nowhere in the initramfs.
            let (name, wants) = ("headstart-boot-record.service", "sysinit.target.wants");
            let wants = initramfs.place("root/etc/systemd/system").join(wants);
            fs::create_dir_all(&wants).unwrap();
            let unit = Path::new("/usr/lib/systemd/system").join(name);
            std::os::unix::fs::symlink(unit, wants.join(name)).unwrap();
        }
        let call = format!("called boot replay --root {}\n", initramfs.place("root").display());
        let expected = if packs || recorder { call.as_str() } else { "" };
        let output = initramfs.sh(&initramfs_tools());
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
        let output = initramfs.sh(&dracut(true));
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{expected}goes on\n"));
    }
}

#[test]
fn a_headstart_that_hangs_holds_the_boot_up_for_a_second_only() {
    let initramfs = Initramfs::new(true, "exec sleep 1000");
    for script in [initramfs_tools(), dracut(true)] {
        let output = initramfs.sh(&script);
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn the_command_line_keeps_both_from_it() {
    let initramfs = Initramfs::new(true, "");
    let output = initramfs.sh(&dracut(false));
    assert_eq!(output.stdout, b"goes on\n", "{output:?}");
    if !is_root() {
        return skip("only root can show another /proc/cmdline");
    }
    let cmdline = initramfs.place("cmdline");
    for (words, called) in [("quiet headstart=off\n", false), ("headstart=offline\n", true)] {
        fs::write(&cmdline, words).unwrap();
        let script = format!(
            "exec unshare -m sh -c 'mount --bind {} /proc/cmdline && exec {}'",
            cmdline.display(),
            initramfs_tools()
        );
        let output = initramfs.sh(&script);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(!output.stdout.is_empty(), called, "{words}");
    }
}

#[test]
fn the_hook_of_initramfs_tools_names_what_comes_before_it() {
    let initramfs = Initramfs::new(true, "");
    for (script, before) in
        [(initramfs_tools(), "udev\n"), (in_dist("initramfs-tools/hooks/headstart"), "\n")]
    {
        let output = initramfs.sh(&format!("{script} prereqs"));
        assert_eq!(String::from_utf8(output.stdout).unwrap(), before);
    }
}

/// What a script installs, run by a shell in which the functions of its generator only tell.
fn installs(script: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("headstart");
    fs::write(&program, "").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let output = Command::new("sh").args(["-c", script]).env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().split_whitespace().map(String::from).collect()
}

#[test]
fn both_bring_along_what_ends_a_headstart_that_hangs() {
    let dracut = in_dist("dracut/90headstart/module-setup.sh");
    let dracut = installs(&format!(
        "inst_multiple() {{ echo \"$@\"; }}; inst_hook() {{ :; }}; moddir=; . {dracut}; install"
    ));
    assert_eq!(dracut, ["headstart", "timeout"]);
    // Its functions are read from a file that only its package has.
    let hook = fs::read_to_string(in_dist("initramfs-tools/hooks/headstart")).unwrap();
    let hook =
        hook.replace(". /usr/share/initramfs-tools/hook-functions", "copy_exec() { echo \"$2\"; }");
    assert_eq!(installs(&hook), ["/usr/bin/headstart", "/usr/bin/timeout"]);
}

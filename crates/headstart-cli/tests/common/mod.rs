//! What the kernel tests share: file systems of their own, and the command.
#![allow(dead_code)] // Each test program uses a part of it.
#![allow(clippy::unwrap_used)] // Clippy does not see that this is test code.

pub mod managers;
pub mod packs;
pub mod python;
pub mod scripted_boot;
pub mod small_root;
pub mod terminal;
pub mod ways;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use headstart::host::fsid;
use headstart::host::mounts::MountTable;
use headstart::pack::FileSystem;
use serde_json::Value;

/// Gives up a test for want of something: says so, or fails where all is
/// expected to be there.
pub fn skipped(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{why}");
    eprintln!("skipped: {why}");
}

/// Whether this is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs a command that has to succeed; its standard output.
pub fn must(command: &str, args: &[&str]) -> String {
    let output = Command::new(command).args(args).output().unwrap_or_else(|e| {
        panic!("{command}: {e}");
    });
    assert!(output.status.success(), "{command} {args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Whether a program is there.
pub fn has(command: &str) -> bool {
    Command::new(command).arg("--version").output().is_ok()
}

/// `headstart` with these arguments.
pub fn headstart<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headstart")).args(args).output().unwrap()
}

/// The JSON document that `headstart` prints, whatever its exit status.
pub fn json<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Value {
    let output = headstart(args);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

/// A check of what is in memory, which has to succeed at one of five attempts, each
/// from the begin: the kernel may drop pages at any moment, as DAMON does on some
/// machines.
pub fn undisturbed(check: impl Fn()) {
    let attempt = || std::panic::catch_unwind(std::panic::AssertUnwindSafe(&check));
    if !(1..5).any(|_| attempt().is_ok()) {
        check();
    }
}

/// The names of the trace instances that there are.
pub fn instances() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/kernel/tracing/instances").into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// A directory on disk: `/tmp` may be in memory.
pub fn disk_dir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A directory on disk that every user can look into: the one of the build may
/// be in somebody's home, as root's is when root cloned the project there.
pub fn public_dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), all).unwrap();
    dir
}

/// An image file with a file system, mounted through a loop device until
/// dropped.
pub struct LoopFs {
    /// Where it is mounted.
    pub path: PathBuf,
    _dir: tempfile::TempDir,
}

impl LoopFs {
    /// A new file system of a kind; `None`, with the reason said, where this
    /// machine cannot make or mount one.
    pub fn new(kind: &'static str) -> Option<Self> {
        // On a small image mkfs.ext4 would take 1 KiB blocks, and leave a part
        // of its work to the kernel, which would read and write meanwhile.
        let now = "lazy_itable_init=0,lazy_journal_init=0";
        let blocks = if kind == "ext4" { &["-b", "4096", "-E", now][..] } else { &[] };
        Self::with(kind, blocks, disk_dir())
    }

    /// The same with arguments for mkfs and the image in a given directory.
    pub fn with(kind: &str, mkfs: &[&str], dir: tempfile::TempDir) -> Option<Self> {
        if !is_root() {
            skipped("only root can mount file systems");
            return None;
        }
        if Command::new(format!("mkfs.{kind}")).arg("-V").output().is_err() {
            skipped(&format!("mkfs.{kind} is missing"));
            return None;
        }
        let (image, path) = (dir.path().join("image"), dir.path().join("mount"));
        // The least that mkfs.xfs makes is 300 MB; the file is sparse.
        std::fs::File::create(&image).unwrap().set_len(320 << 20).unwrap();
        std::fs::create_dir(&path).unwrap();
        let (image, mount) = (image.to_str().unwrap(), path.to_str().unwrap());
        must(&format!("mkfs.{kind}"), &[mkfs, &["-q", image]].concat());
        let mounted = Command::new("mount").args(["-o", "loop", image, mount]).output().unwrap();
        if !mounted.status.success() {
            skipped(&format!("{kind} cannot be mounted: {mounted:?}"));
            return None;
        }
        Some(Self { path, _dir: dir })
    }

    /// Unmounts and mounts again: nothing of it is cached.
    pub fn remount(&self) {
        self.unmount();
        self.mount();
    }

    /// Unmounts it, for a while.
    pub fn unmount(&self) {
        // A process that another test is just starting has our open files for
        // a moment.
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let output = Command::new("umount").arg(&self.path).output().unwrap();
            if output.status.success() {
                break;
            }
            assert!(Instant::now() < deadline, "{output:?}");
        }
    }

    /// Mounts it again.
    pub fn mount(&self) {
        let image = self.path.with_file_name("image");
        must("mount", &["-o", "loop", image.to_str().unwrap(), self.path.to_str().unwrap()]);
    }

    /// What packs know it by.
    pub fn identity(&self) -> FileSystem {
        let mounts = MountTable::read().unwrap();
        let mount = mounts.at(&self.path).unwrap();
        FileSystem {
            uuid: fsid::uuid(mount).unwrap().map(|uuid| uuid.0),
            kind: mount.fstype.to_string_lossy().into_owned(),
            source: mount.source.as_bytes().to_vec(),
        }
    }

    /// The node of its loop device.
    pub fn device(&self) -> String {
        must("findmnt", &["-n", "-o", "SOURCE", self.path.to_str().unwrap()]).trim().to_owned()
    }
}

impl Drop for LoopFs {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.path).status();
        if !unmounted.as_ref().is_ok_and(|status| status.success()) {
            eprintln!("cannot unmount {}: {unmounted:?}", self.path.display());
        }
    }
}

/// Bytes that no file system turns into a hole or compresses well.
pub fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

/// Writes a file and brings it to the device, so that its pages are clean.
pub fn write_synced(path: &Path, data: &[u8]) {
    std::fs::write(path, data).unwrap();
    std::fs::File::open(path).unwrap().sync_all().unwrap();
}

/// A process that has mapped and touched an executable file of ours; it lives
/// until dropped.
pub struct Process {
    /// The process.
    pub child: Child,
}

impl Process {
    /// Copies `program` to `path`, starts it there, and returns when it has
    /// answered the line that was written to it.
    pub fn start(program: &Path, path: &Path, args: &[&str]) -> Self {
        std::fs::copy(program, path).unwrap();
        std::fs::File::open(path).unwrap().sync_all().unwrap();
        let mut command = Command::new(path);
        let command = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(b"ready?\n").unwrap();
        let mut answers = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        // A test program says other things before.
        assert!(answers.any(|line| line.unwrap().ends_with("ready?")));
        Self { child }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

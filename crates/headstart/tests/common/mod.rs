//! Fresh file systems for tests: an image, loop-mounted on a directory of its
//! own, unmounted and detached when dropped.
#![allow(clippy::unwrap_used)] // All of it is test code.
#![allow(dead_code)] // Each test file uses its share.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use headstart::host::id::Dev;
use headstart::host::mounts::MountTable;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use tempfile::TempDir;

/// Says why a test did not run; in CI, where everything must run, it fails.
pub fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "cannot run in CI: {why}");
    eprintln!("skipped: {why}");
}

/// True for root, else says that the test is skipped.
pub fn root_or_skip() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("needs root");
    }
    root
}

/// Whether the kernel knows a file system, as a part of it or as a module.
/// One that it lacks is no reason to fail, not even in CI.
pub fn kernel_has(kind: &str) -> bool {
    let known = || {
        let text = fs::read_to_string("/proc/filesystems").unwrap();
        text.lines().any(|line| line.split_whitespace().next_back() == Some(kind))
    };
    let known = known() || run("modprobe", &[kind]).is_ok() && known();
    if !known {
        eprintln!("skipped: this kernel has no {kind}");
    }
    known
}

/// Runs a command to its end; what it printed, if it failed, is the error.
pub fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    let text = |bytes| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("{program} {arguments:?}: {} {}", output.status, text(&output.stderr)))
    }
}

/// Asks again and again, for a minute at most.
pub fn wait_until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::yield_now();
    }
}

/// A mounted file system in an image.
#[derive(Debug)]
pub struct LoopFs {
    directory: TempDir,
    mount: PathBuf,
    kind: String,
}

/// A new file system of `kind` (ext4, xfs, btrfs, …) in a sparse image of
/// `size` bytes. `None`, with the reason printed, where that cannot be done.
pub fn loop_fs(kind: &str, size: u64) -> Option<LoopFs> {
    loop_fs_with(kind, size, &[])
}

/// Like [`loop_fs`] with more arguments to mkfs.
pub fn loop_fs_with(kind: &str, size: u64, mkfs: &[&str]) -> Option<LoopFs> {
    if !root_or_skip() || !kernel_has(kind) {
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let mount = directory.path().join("mount");
    fs::create_dir(&mount).unwrap();
    let fs = LoopFs { directory, mount, kind: kind.to_owned() };
    File::create(fs.image()).unwrap().set_len(size).unwrap();
    let image = fs.image();
    let force = if kind.starts_with("ext") { "-F" } else { "-f" };
    let arguments = [&[force, "-q"], mkfs, &[image.to_str().unwrap()]].concat();
    let made = run(&format!("mkfs.{kind}"), &arguments).and_then(|_| fs.mount());
    if let Err(error) = made {
        skip(&error);
        return None;
    }
    Some(fs)
}

impl LoopFs {
    fn image(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    /// The directory that it is mounted on.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// A path in the directory around it, which is not on it.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What it is: ext4, xfs, btrfs, …
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The super block's device, as trace events tell it.
    pub fn dev(&self) -> Dev {
        let table = MountTable::read().unwrap();
        let mount = table.at(self.path()).unwrap();
        assert_eq!(mount.mount_point, self.path(), "not mounted");
        mount.dev
    }

    /// Mounts it again after [`LoopFs::unmount`].
    pub fn mount(&self) -> Result<(), String> {
        let (image, mount) = (self.image(), self.path());
        let paths = [image.to_str().unwrap(), mount.to_str().unwrap()];
        run("mount", &["-o", "loop", "-t", &self.kind, paths[0], paths[1]]).map(|_| ())
    }

    /// Unmounts it; the loop device goes with it. A program that another test
    /// starts holds our open files until its exec, so this waits while busy.
    pub fn unmount(&self) -> rustix::io::Result<()> {
        wait_until("the file system to be unused", || {
            match rustix::mount::unmount(self.path(), UnmountFlags::empty()) {
                Err(Errno::BUSY) => None,
                done => Some(done),
            }
        })
    }

    /// Forgets all that the kernel has cached of it. The device number may be
    /// another one afterwards.
    ///
    /// A mount namespace that another test has just made holds a copy of every
    /// mount and so keeps the super block; this waits until it has ended.
    pub fn make_cold(&self) {
        self.unmount().unwrap();
        let image = self.image();
        wait_until("all mounts of the image to end", || {
            let attached = run("losetup", &["--associated", image.to_str().unwrap()]).unwrap();
            attached.is_empty().then_some(())
        });
        self.mount().unwrap();
    }
}

impl Drop for LoopFs {
    /// Also unmounts whatever a test mounted in the directory around it.
    fn drop(&mut self) {
        let Ok(table) = MountTable::read() else { return };
        let mut inside: Vec<&Path> = table
            .mounts()
            .iter()
            .map(|mount| mount.mount_point.as_path())
            .filter(|path| path.starts_with(self.directory.path()))
            .collect();
        // Later mounts may lie on earlier ones.
        inside.reverse();
        for path in inside {
            if let Err(error) = rustix::mount::unmount(path, UnmountFlags::DETACH) {
                eprintln!("cannot unmount {}: {error}", path.display());
            }
        }
    }
}

/// Mounts `source`, a directory or file, also at `target`, which is made.
pub fn bind(source: &Path, target: &Path) {
    if source.is_dir() {
        fs::create_dir_all(target).unwrap();
    } else {
        File::create(target).unwrap();
    }
    rustix::mount::mount_bind(source, target).unwrap();
}

/// Runs `inner`, an ignored test of the calling file, by way of `wrapper`, the
/// command line before it. `exe` is this program's name there.
pub fn run_inner(inner: &str, wrapper: &[&str], exe: &Path, variables: &[(&str, String)]) {
    let output = Command::new(wrapper[0])
        .args(&wrapper[1..])
        .arg(exe)
        .args(["--exact", inner, "--ignored", "--nocapture"])
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{wrapper:?}: {text}");
}

/// A variable that [`run_inner`] has set; without it the test was started alone.
pub fn variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok();
    if value.is_none() {
        eprintln!("started only by another test");
    }
    value
}

//! What a process runs that has called exec: executable, arguments, user, control group; and the
//! key of its pack.
//!
//! ```text
//! /proc/PID ──▶ Started ──▶ command ──▶ key     as `headstart run` makes it
//!                           a script, not its     words lead to files from the
//!                           interpreter           directory of the process
//! ```
//!
//! [`command`] and [`image`] are pure; [`files`] looks names up where that needs no server; [`mounts`] knows
//! where that is; `container` reads of which image a process is. No word of a process is trusted: what is read is bounded, and nothing but files of /proc
//! is opened.

pub mod command;
mod container;
pub mod files;
pub mod image;
pub mod mounts;

use files::{Files, real_path};
use headstart::host::mounts::{Mount, MountTable};
use headstart::host::proc;
use headstart::pack::key::Key;
use image::Image;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, makedev};
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The most bytes that are read of arguments; what is behind them is ignored. A word of inline code
/// may be longer: then its program has no key.
pub const MOST_ARGUMENTS: usize = 64 << 10;
/// The same of other files in /proc.
const MOST_TEXT: usize = 4 << 10;
/// Arguments that are looked up as names of files.
const FEW_WORDS: usize = 4;

/// A file as the kernel identifies it while it is there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FileId {
    /// The device number of stat(2).
    pub dev: u64,
    /// The inode number.
    pub ino: u64,
}

/// A process that has called exec.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Started {
    /// Its number.
    pub pid: u32,
    /// When the process began, in clock ticks since boot: with the number it names the process for
    /// good.
    pub start_time: u64,
    /// Its parent.
    pub parent: u32,
    /// The executable; of a script the interpreter.
    pub executable: FileId,
    /// Its path, in the mount namespace of the process.
    pub path: PathBuf,
    /// The first 15 bytes of the name of the file that exec was called with, as long as the process
    /// has not taken another name: of a script that of the script.
    pub comm: Vec<u8>,
    /// The arguments, the program's name first; at most [`MOST_ARGUMENTS`] bytes.
    pub argv: Vec<OsString>,
    /// Whether there are more.
    pub is_cut: bool,
    /// The working directory.
    pub cwd: PathBuf,
    /// The root directory.
    pub root: PathBuf,
    /// The effective user; root where the program has more rights than its user.
    pub uid: u32,
    /// The path of the control group (version 2); empty without.
    pub cgroup: PathBuf,
    /// The inode number of its mount namespace.
    pub mount_namespace: u64,
    /// Whether it was found to be in a container of a known image.
    pub is_in_image: bool,
    /// Whether it is a child that is taken for a program of its own without an exec.
    pub is_job: bool,
}

impl Started {
    /// What this process runs; none if it has ended, is within exec, or may not be looked at. It may
    /// have called exec again meanwhile: then another event says so, and this one does not count.
    pub fn read(pid: u32) -> Option<Self> {
        // As long as this is open, what is read below it is of this process or fails.
        let dir = rustix::fs::open(format!("/proc/{pid}"), DIRECTORY, Mode::empty()).ok()?;
        let stat = text(&dir, "stat", MOST_TEXT)?;
        let mut arguments = text(&dir, "cmdline", MOST_ARGUMENTS + 1)?;
        if arguments.is_empty() {
            return None;
        }
        let is_cut = arguments.len() > MOST_ARGUMENTS;
        arguments.truncate(MOST_ARGUMENTS);
        let groups = text(&dir, "cgroup", MOST_TEXT)?;
        let group = groups.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"0::"));
        Some(Self {
            pid,
            start_time: proc::parse_start_time(&stat)?,
            parent: proc::parse_parent(&stat).and_then(|parent| parent.try_into().ok())?,
            executable: FileId::at(&dir, "exe", AtFlags::empty())?,
            path: link(&dir, "exe")?,
            comm: command::comm(&stat)?.to_vec(),
            argv: command::words(&arguments, is_cut),
            is_cut,
            cwd: link(&dir, "cwd")?,
            root: link(&dir, "root")?,
            uid: owner(&dir)?,
            cgroup: PathBuf::from(OsString::from_vec(group.unwrap_or_default().to_vec())),
            mount_namespace: namespace(&link(&dir, "ns/mnt")?)?,
            is_in_image: false,
            is_job: false,
        })
    }

    /// Whether its process has become another program: then another event says so, perhaps later. An
    /// interpreter that executes another script is the same program here.
    pub fn is_replaced(&self) -> bool {
        let now = FileId::at(CWD, format!("/proc/{}/exe", self.pid), AtFlags::empty());
        now.is_some_and(|executable| executable != self.executable)
    }

    /// Whether it is a child that still is the program of its parent.
    pub fn is_as_forked(&self, parent: &Self) -> bool {
        (self.executable, &self.argv) == (parent.executable, &parent.argv)
    }

    /// Whether its paths lead to other files than ours, as in a container or a chroot. A mount
    /// namespace alone does not mean that: systemd makes one for many services.
    pub fn is_elsewhere(&self, mounts: &MountTable) -> bool {
        let shares_ours = || own_namespace() == Some(self.mount_namespace);
        let is_same = || {
            let own = FileId::at(CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW);
            mounts.path_answers(&self.path) && own == Some(self.executable)
        };
        self.root.as_os_str() != "/" || !(shares_ours() || is_same())
    }

    /// The key of its pack, as `headstart run` makes it for this command. None for env(1), which
    /// becomes another program at once, and where the words that count are not all known. Looking
    /// up what the words name may wait for a disk, and never for a server.
    pub fn key(&self, mounts: &MountTable) -> Option<Key> {
        let script = self.script();
        let counts_whole = self.is_cut && self.argv.len() < command::FEW;
        if counts_whole || (script.is_none() && self.is_env()) {
            return None;
        }
        let command = command::of(&self.argv, script, &self.path);
        let program = script.is_none().then_some(self.path.as_path());
        let mounts = Some(mounts).filter(|mounts| !self.is_elsewhere(mounts));
        Some(Key::of_command(&command, Files { program, cwd: &self.cwd, mounts }))
    }

    /// The devices that it probably reads from: of its executable, of its working directory, and of the
    /// files that its first arguments name, such as the script of an interpreter that lies elsewhere. By
    /// their numbers of stat(2); only the first one in a container.
    pub fn devices(&self, mounts: &MountTable) -> Vec<u64> {
        let mut devices = vec![self.executable.dev];
        if self.is_elsewhere(mounts) {
            return devices;
        }
        let words = self.argv.iter().skip(1).take(FEW_WORDS).map(|word| self.cwd.join(word));
        let paths = words.chain([self.cwd.clone()]).filter_map(|path| real_path(&path, mounts));
        // Not /proc, and nothing in memory.
        let is_disk = |path: &PathBuf| mounts.at(path).is_some_and(Mount::is_of_device);
        let files =
            paths.filter(is_disk).filter_map(|path| FileId::at(CWD, &path, AtFlags::empty()));
        devices.extend(files.map(|file| file.dev));
        devices
    }

    /// The image of its container, and the device that this is on, as far as they are known.
    pub fn image(&self, mounts: &MountTable) -> Option<(Image, Option<u64>)> {
        container::image(self.pid, mounts)
    }

    /// Whether this is the interpreter that env(1) found for a script (`#!/usr/bin/env python3`),
    /// which the same process had executed: the start goes on, and keeps the key of the script.
    pub fn continues(&self, earlier: &Self) -> bool {
        let script = earlier.script().and_then(|at| earlier.argv.get(at..));
        (self.pid, self.start_time) == (earlier.pid, earlier.start_time)
            && earlier.is_env()
            && script.is_some_and(|words| self.argv.ends_with(words))
    }

    fn script(&self) -> Option<usize> {
        command::script(&self.argv, &self.comm, &self.path)
    }

    fn is_env(&self) -> bool {
        self.path.file_name().is_some_and(|name| name == "env")
    }
}

impl FileId {
    /// The file of a name, by what is known of it without a server.
    fn at(dir: impl AsFd, name: impl rustix::path::Arg, follow: AtFlags) -> Option<Self> {
        let flags = follow | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let found = rustix::fs::statx(dir, name, flags, StatxFlags::INO).ok()?;
        Some(Self { dev: makedev(found.stx_dev_major, found.stx_dev_minor), ino: found.stx_ino })
    }
}

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A file of /proc/PID, up to so many bytes.
fn text(dir: &OwnedFd, name: &str, most: usize) -> Option<Vec<u8>> {
    let file =
        rustix::fs::openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = vec![0; most];
    let mut length = 0;
    loop {
        match rustix::io::read(&file, &mut bytes[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    bytes.truncate(length);
    Some(bytes)
}

/// Where a link of /proc/PID leads.
fn link(dir: &OwnedFd, name: &str) -> Option<PathBuf> {
    let target = rustix::fs::readlinkat(dir, name, Vec::new()).ok()?;
    Some(OsString::from_vec(target.into_bytes()).into())
}

fn owner(dir: &OwnedFd) -> Option<u32> {
    rustix::fs::fstat(dir).ok().map(|stat| stat.st_uid)
}

/// The number in `mnt:[4026531841]`.
fn namespace(link: &std::path::Path) -> Option<u64> {
    link.to_str()?.strip_prefix("mnt:[")?.strip_suffix(']')?.parse().ok()
}

fn own_namespace() -> Option<u64> {
    use std::sync::OnceLock;
    static OWN: OnceLock<Option<u64>> = OnceLock::new();
    // The service never changes it.
    *OWN.get_or_init(|| namespace(&std::fs::read_link("/proc/self/ns/mnt").ok()?))
}

#[cfg(test)]
mod tests;

//! What a process runs that has called exec: executable, arguments, user, control group. Read from
//! /proc at once, since the process may end; nothing is opened but files of /proc.

use headstart::host::contents;
use headstart::host::proc;
use headstart::pack::key::Key;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

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
    /// The executable.
    pub executable: FileId,
    /// Its path, in the mount namespace of the process.
    pub path: PathBuf,
    /// The arguments, the program's name first.
    pub argv: Vec<OsString>,
    /// The working directory.
    pub cwd: PathBuf,
    /// The effective user.
    pub uid: u32,
    /// The path of the control group (version 2).
    pub cgroup: PathBuf,
    /// The inode number of its mount namespace.
    pub mount_namespace: u64,
}

impl Started {
    /// What this process runs; none if it has ended or become another program meanwhile.
    pub fn read(pid: u32) -> Option<Self> {
        let dir = PathBuf::from(format!("/proc/{pid}"));
        let start_time = proc::start_time(i32::try_from(pid).ok()?)?;
        let path = fs::read_link(dir.join("exe")).ok()?;
        let words = contents::bytes(dir.join("cmdline")).ok()?;
        let words = words.strip_suffix(b"\0").unwrap_or(&words);
        let argv = words.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec()));
        let executable = fs::metadata(dir.join("exe")).ok()?;
        let uid = fs::metadata(&dir).ok()?.uid();
        let groups = contents::bytes(dir.join("cgroup")).ok()?;
        let group = groups.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"0::"));
        Some(Self {
            pid,
            start_time,
            executable: FileId { dev: executable.dev(), ino: executable.ino() },
            path,
            argv: argv.collect(),
            cwd: fs::read_link(dir.join("cwd")).unwrap_or_default(),
            uid,
            cgroup: PathBuf::from(OsString::from_vec(group.unwrap_or_default().to_vec())),
            mount_namespace: fs::metadata(dir.join("ns/mnt")).ok()?.ino(),
        })
    }

    /// The key of its pack, as `headstart run` makes it.
    pub fn key(&self) -> Key {
        let path = self.path.clone();
        let mut words = self.argv.clone();
        if words.is_empty() {
            words.push(path.clone().into());
        }
        Key::of_command(&words, |_| Some(path.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_read_and_one_that_is_not_there_is_not() {
        let own = std::process::id();
        let started = Started::read(own).unwrap();
        assert_eq!(started.pid, own);
        assert_eq!(started.path, std::env::current_exe().unwrap());
        assert_eq!(started.argv, std::env::args_os().collect::<Vec<_>>());
        assert_eq!(started.cwd, std::env::current_dir().unwrap());
        assert_eq!(started.uid, rustix::process::geteuid().as_raw());
        assert_eq!(Started::read(u32::MAX), None);
    }
}

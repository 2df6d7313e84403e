//! Files that are being written appear under their final name atomically. Their temporary name says
//! whether the writer still lives, so the next writer removes what a killed one left.

use super::directory::Directory;
use crate::host::proc::{has_ended, start_time};
use rustix::fs::{AtFlags, Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};

const SUFFIX: &str = ".headstart-tmp";

/// Replaces a file of a directory in one step by what `fill` writes, or leaves it as it is.
/// Only its owner may read it, unless `fill` says otherwise. If it is to be `durable`, the
/// disk has it afterwards; else it may be empty after a power cut.
pub(super) fn replace(
    dir: impl AsFd,
    name: &OsStr,
    durable: bool,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let dir = dir.as_fd();
    let mut written = Written::new(dir, name, fill)?;
    if durable {
        written.file.sync_all()?;
    }
    written.publish()?;
    if durable { Ok(rustix::fs::fsync(dir)?) } else { Ok(()) }
}

/// Replaces files of a directory by these bytes, each in one step, when the disk has them all:
/// that is one commit of the file system's journal instead of one for each.
pub(super) fn replace_all(dir: &Directory, files: &[(&OsStr, Vec<u8>)]) -> io::Result<()> {
    let mut written = Vec::new();
    for (name, bytes) in files {
        written.push(Written::new(dir.as_fd(), name, |file| file.write_all(bytes))?);
    }
    rustix::fs::syncfs(dir)?;
    written.iter_mut().try_for_each(Written::publish)?;
    Ok(rustix::fs::fsync(dir)?)
}

/// A file that has been written, and goes unless it is published.
struct Written<'a> {
    dir: BorrowedFd<'a>,
    file: File,
    temporary: Option<OsString>,
    name: &'a OsStr,
}

impl<'a> Written<'a> {
    fn new(
        dir: BorrowedFd<'a>,
        name: &'a OsStr,
        fill: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<Self> {
        let temporary = name_for(name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = File::from(rustix::fs::openat(dir, &temporary, flags, mode)?);
        let mut written = Self { dir, file, temporary: Some(temporary), name };
        fill(&mut written.file)?;
        Ok(written)
    }

    /// Gives the file its name.
    fn publish(&mut self) -> io::Result<()> {
        if let Some(temporary) = &self.temporary {
            rustix::fs::renameat(self.dir, temporary, self.dir, self.name)?;
        }
        self.temporary = None;
        Ok(())
    }
}

impl Drop for Written<'_> {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // This error says more than one of the removal.
            let _ = rustix::fs::unlinkat(self.dir, temporary, AtFlags::empty());
        }
    }
}

/// `.NAME.PID-STARTTIME.headstart-tmp`
pub(super) fn name_for(name: &OsStr) -> OsString {
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    let mut out = OsString::from(".");
    out.push(name);
    out.push(format!(".{pid}-{}{SUFFIX}", start_time(pid).unwrap_or(0)));
    out
}

fn writer(name: &str) -> Option<(i32, u64)> {
    let (_, id) = name.strip_suffix(SUFFIX)?.rsplit_once('.')?;
    let (pid, start) = id.split_once('-')?;
    Some((pid.parse().ok()?, start.parse().ok()?))
}

/// Removes files whose writers are gone. Called under the lock of the directory.
pub(super) fn remove_orphans(dir: &Directory, names: &[OsString]) {
    for name in names {
        let owner = writer(&name.to_string_lossy());
        if owner.is_some_and(|(pid, start)| has_ended(pid, start)) {
            // The next writer tries again.
            let _ = rustix::fs::unlinkat(dir, name.as_os_str(), AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn leftovers_of_dead_writers_go_and_those_of_live_ones_stay() {
        let top = tempfile::tempdir().unwrap();
        let live = top.path().join(name_for(OsStr::new("a.pack")));
        let dead = top.path().join(format!(".a.pack.1-999999999{SUFFIX}"));
        let other = top.path().join("notes.txt");
        for file in [&live, &dead, &other] {
            fs::write(file, "x").unwrap();
        }
        let uid = rustix::process::geteuid().as_raw();
        let dir = Directory::open(top.path(), uid).unwrap();
        remove_orphans(&dir, &dir.names().unwrap());
        assert!(live.exists() && other.exists());
        assert!(!dead.exists());
    }
}

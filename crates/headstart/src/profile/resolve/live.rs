//! Names of files that running programs have mapped or open.
//!
//! It has to be called while the program lives. Names are checked again when they are used, so a
//! stale one does no harm.

use crate::host::contents;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags};

use super::resolution::FileKind;
use super::verify::{kind_of, mount_id, stat_dev};
use crate::host::id::{Dev, InodeId};
use crate::host::maps::{mapped_files, with_newlines};
use crate::host::mounts::MountTable;

/// The counts of the observations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveCounts {
    /// Processes looked at.
    pub processes: u64,
    /// Processes that had ended.
    pub ended: u64,
    /// Processes that we may not look at.
    pub denied: u64,
}

/// Where a file was seen.
#[derive(Clone, Debug)]
enum SeenAt {
    /// At a path from our root directory.
    Path(PathBuf),
    /// At a path inside its file system: a process in another mount namespace.
    Inside(PathBuf),
}

/// Names of inodes, from `/proc/PID/maps` and `/proc/PID/fd`.
#[derive(Debug, Default)]
pub struct LiveNames {
    names: HashMap<InodeId, SeenAt>,
    counts: LiveCounts,
    /// Mounts by mount namespace; `None` where they cannot be read.
    tables: HashMap<PathBuf, Option<MountTable>>,
}

impl LiveNames {
    /// Without names.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes what these processes or threads have mapped or open now. Those
    /// that ended or that we may not look at are counted.
    pub fn observe(&mut self, pids: &[i32]) {
        let own_namespace = namespace("self");
        let mut seen = HashSet::new();
        for pid in pids {
            let process = thread_group(*pid).unwrap_or(*pid);
            if !seen.insert(process) {
                continue;
            }
            let namespace = namespace(&process.to_string());
            let abroad = namespace.filter(|name| own_namespace.as_ref() != Some(name));
            match self.observe_one(process, abroad) {
                Ok(()) => self.counts.processes += 1,
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    self.counts.denied += 1;
                }
                Err(_) => self.counts.ended += 1,
            }
        }
    }

    /// How the observations went so far.
    pub fn counts(&self) -> LiveCounts {
        self.counts
    }

    /// How many inodes have a name.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// True when no inode has a name.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    fn observe_one(&mut self, pid: i32, abroad: Option<PathBuf>) -> io::Result<()> {
        let maps = contents::bytes(format!("/proc/{pid}/maps"))?;
        let mut last = None;
        for file in mapped_files(&maps) {
            // A library has several mappings in a row.
            if last.replace(file) != Some(file) {
                self.note(pid, file.id, Path::new(OsStr::from_bytes(file.path)), abroad.as_deref());
            }
        }
        for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
            let link = entry?.path();
            // Closed since, or nothing with a path.
            let Some(path) = fs::read_link(&link).ok().filter(|path| path.is_absolute()) else {
                continue;
            };
            let mask = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
            let Ok(stat) = rustix::fs::statx(CWD, &link, AtFlags::STATX_DONT_SYNC, mask) else {
                continue;
            };
            if matches!(kind_of(&stat), FileKind::Regular | FileKind::Directory) {
                let dev = self.super_block(pid, &stat, abroad.as_deref());
                self.note(pid, InodeId { dev, ino: stat.stx_ino }, &path, abroad.as_deref());
            }
        }
        Ok(())
    }

    /// `s_dev`: the mount knows it where the file's device is a subvolume's.
    fn super_block(&mut self, pid: i32, stat: &rustix::fs::Statx, abroad: Option<&Path>) -> Dev {
        let dev = stat_dev(stat);
        let Some(id) = mount_id(stat).filter(|_| dev.major() == 0) else { return dev };
        let table = self.table(pid, abroad);
        table.and_then(|table| table.by_id(id)).map_or(dev, |mount| mount.dev)
    }

    fn note(&mut self, pid: i32, id: InodeId, path: &Path, abroad: Option<&Path>) {
        let place = if abroad.is_none() {
            SeenAt::Path(path.to_owned())
        } else {
            let inside = self.table(pid, abroad).and_then(|table| table.inside(path));
            match inside {
                Some((dev, inner)) if dev == id.dev => SeenAt::Inside(inner),
                _ => return,
            }
        };
        self.names.insert(id, place);
    }

    /// The mounts of a process, read once per namespace.
    fn table(&mut self, pid: i32, abroad: Option<&Path>) -> Option<&MountTable> {
        let key = abroad.unwrap_or(Path::new(""));
        if !self.tables.contains_key(key) {
            let table =
                if abroad.is_some() { MountTable::of_process(pid) } else { MountTable::read() };
            // Without it some files go without a live name; other methods remain.
            self.tables.insert(key.to_owned(), table.ok());
        }
        self.tables.get(key)?.as_ref()
    }

    /// The paths at which an inode may be, unchecked.
    pub(super) fn paths(&self, table: &MountTable, id: InodeId) -> Vec<PathBuf> {
        match self.names.get(&id) {
            None => Vec::new(),
            Some(SeenAt::Inside(inner)) => table.paths_to(id.dev, inner),
            Some(SeenAt::Path(path)) => {
                let unescaped = with_newlines(path.as_os_str().as_bytes());
                let unescaped = unescaped.map(|path| PathBuf::from(OsStr::from_bytes(&path)));
                [path.clone()].into_iter().chain(unescaped).collect()
            }
        }
    }

    /// The part for these inodes.
    pub(super) fn of(&self, ids: &[InodeId]) -> Self {
        let of = |id: &InodeId| Some((*id, self.names.get(id)?.clone()));
        Self { names: ids.iter().filter_map(of).collect(), ..Self::default() }
    }

    /// The inodes of a file system that have a name.
    pub(super) fn inodes_of(&self, dev: Dev) -> impl Iterator<Item = InodeId> {
        self.names.keys().copied().filter(move |id| id.dev == dev)
    }

    /// True when the file had no name left when it was seen last.
    pub(super) fn saw_deleted(&self, id: InodeId) -> bool {
        let Some(SeenAt::Path(path) | SeenAt::Inside(path)) = self.names.get(&id) else {
            return false;
        };
        path.as_os_str().as_bytes().ends_with(b" (deleted)")
    }
}

/// The link that tells a process's mount namespace; `None` when it is refused,
/// which is then taken for our own.
fn namespace(process: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/mnt")).ok()
}

/// The process that a thread belongs to.
fn thread_group(pid: i32) -> Option<i32> {
    let status = contents::text(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_program_and_an_open_file_are_seen_and_a_missing_process_is_counted() {
        let open = tempfile::NamedTempFile::new().unwrap();
        let own = std::process::id() as i32;
        let mut names = LiveNames::new();
        names.observe(&[own, own, i32::MAX]);
        assert_eq!(names.counts(), LiveCounts { processes: 1, ended: 1, denied: 0 });
        let paths: Vec<&Path> = names
            .names
            .values()
            .map(|place| match place {
                SeenAt::Path(path) | SeenAt::Inside(path) => path.as_path(),
            })
            .collect();
        assert!(paths.contains(&open.path()));
        assert!(paths.contains(&std::env::current_exe().unwrap().as_path()));
        assert_eq!(names.len(), paths.len());
    }
}

//! The last resort: reads all directories of one file system with getdents64 and compares inode
//! numbers.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, StatxFlags};
use rustix::io::Errno;

use super::options::ResolveOptions;
use super::resolution::{FileKind, Problem};
use super::verify::{device_of, kind_of, mount_id, stat_dev, stat_fd, stat_path};
use crate::host::id::Dev;
use crate::host::mounts::{Mount, join};

/// Entries and directories between two checks of the time.
const TICK: u64 = 64;

/// What servers on libfuse give in directories, unless they have inode numbers of their own, as
/// sshfs (`FUSE_UNKNOWN_INO`, lib/fuse.c of libfuse).
const UNKNOWN_INO: u64 = 0xffff_ffff;

/// The inodes that a walk looks for.
pub(super) trait WalkTarget {
    /// How many inodes are left; at 0 the walk ends.
    fn left(&self) -> u64;
    /// Whether this inode number is wanted.
    fn wants(&self, ino: u64) -> bool;
    /// Takes a name of an inode number that was wanted.
    fn offer(&mut self, ino: u64, path: PathBuf);
}

/// Walks file systems and remembers where it has been.
pub(super) struct Walker<'a> {
    options: &'a ResolveOptions<'a>,
    /// Directory entries seen.
    pub entries: u64,
    steps: u64,
    /// The deadline has passed.
    pub out_of_time: bool,
    /// Directories that could not be read: how many, and the first.
    unreadable: Option<(u64, PathBuf, Errno)>,
    /// Directories seen, so that bind mounts are not walked twice.
    seen: HashSet<(Dev, u64)>,
    buffer: Vec<MaybeUninit<u8>>,
}

impl<'a> Walker<'a> {
    pub(super) fn new(options: &'a ResolveOptions<'a>) -> Self {
        let buffer = vec![MaybeUninit::uninit(); 64 << 10];
        let seen = HashSet::new();
        Self { options, entries: 0, steps: 0, out_of_time: false, unreadable: None, seen, buffer }
    }

    /// Ends the walk of one file system and returns its problem.
    pub(super) fn forget(&mut self) -> Option<Problem> {
        self.seen.clear();
        let (count, path, errno) = self.unreadable.take()?;
        Some(Problem::Directories { count, path, source: errno.into() })
    }

    /// Offers the names of wanted inodes in one mount. Does not enter other
    /// mounts, but looks below them where another place shows what is there;
    /// does enter subvolumes of btrfs.
    pub(super) fn mount(&mut self, mount: &Mount, wanted: &mut dyn WalkTarget) {
        let mut starts = vec![(mount.mount_point.clone(), mount.inner(Path::new("")))];
        while let Some((point, inner)) = starts.pop() {
            let covered = self.walk(mount, &point, wanted).unwrap_or_else(|errno| {
                self.note(&point, errno);
                Vec::new()
            });
            for inner in covered.iter().filter_map(|path| Some(join(inner.as_ref()?, path))) {
                let shown = self.options.mounts.paths_to(mount.dev, &inner);
                starts.extend(shown.into_iter().map(|path| (path, Some(inner.clone()))));
            }
        }
    }

    /// Returns the directories below `point` that are covered by other mounts,
    /// relative to it.
    fn walk(
        &mut self,
        mount: &Mount,
        point: &Path,
        wanted: &mut dyn WalkTarget,
    ) -> rustix::io::Result<Vec<PathBuf>> {
        let mut covered = Vec::new();
        let stat = stat_path(point)?;
        // Mounted over since the table was read.
        if device_of(self.options.mounts, point, &stat) != Some(mount.dev) {
            return Ok(covered);
        }
        if wanted.wants(stat.stx_ino) {
            wanted.offer(stat.stx_ino, point.to_owned());
        }
        if kind_of(&stat) != FileKind::Directory {
            return Ok(covered);
        }
        let root = open_dir(CWD, point)?;
        // Relative to the root; a queue of paths, so that depth needs no files.
        let mut queue = vec![PathBuf::new()];
        while let Some(relative) = queue.pop() {
            if wanted.left() == 0 || self.is_late() {
                break;
            }
            let path = join(point, &relative);
            let dir = match open_dir(&root, if_empty(&relative, ".")) {
                Ok(dir) => dir,
                // Removed or replaced since its parent was read; or so deep
                // that nothing in it has a path that a call takes.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG) => continue,
                Err(errno) => {
                    self.note(&path, errno);
                    continue;
                }
            };
            let here = stat_fd(&dir)?;
            let same_mount = match (mount_id(&here), mount_id(&stat)) {
                (Some(here), Some(root)) => here == root,
                _ => stat_dev(&here) == stat_dev(&stat),
            };
            if !same_mount {
                covered.push(relative);
            } else if self.seen.insert((stat_dev(&here), here.stx_ino))
                && let Err(errno) = self.directory(&dir, &relative, &path, wanted, &mut queue)
            {
                self.note(&path, errno);
            }
        }
        Ok(covered)
    }

    /// Offers what is in one directory and queues its directories.
    fn directory(
        &mut self,
        dir: &OwnedFd,
        relative: &Path,
        path: &Path,
        wanted: &mut dyn WalkTarget,
        queue: &mut Vec<PathBuf>,
    ) -> rustix::io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut entries = RawDir::new(dir, &mut buffer);
        let result = loop {
            match entries.next() {
                None => break Ok(()),
                Some(Err(errno)) => break Err(errno),
                Some(Ok(entry)) => {
                    let name = OsStr::from_bytes(entry.file_name().to_bytes());
                    if name == "." || name == ".." {
                        continue;
                    }
                    self.entries += 1;
                    let (ino, kind) = match (entry.ino(), entry.file_type()) {
                        (UNKNOWN_INO, _) | (_, FileType::Unknown) => look(dir, name),
                        known => known,
                    };
                    if wanted.wants(ino) {
                        wanted.offer(ino, path.join(name));
                    }
                    if kind == FileType::Directory {
                        queue.push(relative.join(name));
                    }
                    if wanted.left() == 0 || self.is_late() {
                        break Ok(());
                    }
                }
            }
        };
        self.buffer = buffer;
        result
    }

    /// Checks the time now and then.
    fn is_late(&mut self) -> bool {
        self.steps += 1;
        if self.steps % TICK != 1 {
            return self.out_of_time;
        }
        self.out_of_time |= self.options.deadline.is_some_and(|end| Instant::now() >= end);
        self.out_of_time
    }

    fn note(&mut self, path: &Path, errno: Errno) {
        match &mut self.unreadable {
            Some((count, ..)) => *count += 1,
            none => *none = Some((1, path.to_owned(), errno)),
        }
    }
}

fn if_empty<'a>(path: &'a Path, other: &'a str) -> &'a Path {
    if path.as_os_str().is_empty() { Path::new(other) } else { path }
}

fn open_dir(at: impl AsFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, path, flags, Mode::empty())
}

/// The inode number and the type of an entry, for file systems that do not give both with the
/// name; what can't be looked at is nothing that anybody wants.
fn look(dir: impl AsFd, name: &OsStr) -> (u64, FileType) {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let found = rustix::fs::statx(dir, name, flags, StatxFlags::TYPE | StatxFlags::INO);
    found.map_or((UNKNOWN_INO, FileType::Unknown), |stat| {
        (stat.stx_ino, FileType::from_raw_mode(stat.stx_mode.into()))
    })
}

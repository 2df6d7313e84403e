//! The result of resolving inodes: their paths, or why there is none.

use crate::host::id::{Dev, InodeId};
use crate::host::names;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// What kind of file an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, socket or FIFO.
    Other,
}

/// A file as it was when its path was checked, symbolic links not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedFile {
    /// An absolute path from our root directory; any bytes. With hard links,
    /// one of its names.
    pub path: PathBuf,
    /// Size in bytes.
    pub size: u64,
    /// Modification time, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Time of the inode's last change, in nanoseconds since 1970.
    pub ctime_ns: i64,
    /// When it was made, where the file system tells.
    pub born_ns: Option<i64>,
    /// Its kind.
    pub kind: FileKind,
    /// Type and permission bits, as in `st_mode`.
    pub mode: u32,
}

/// An inode that is gone, and the file that is now where an earlier start knew it: a
/// program that saves its state puts a new file in the place of the old one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// What was there.
    pub was: InodeId,
    /// What is there.
    pub is: InodeId,
    /// The same as a file.
    pub file: ResolvedFile,
}

/// How a path was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// A process had it mapped or open under this name ([`super::LiveNames`]).
    LiveName,
    /// A file handle and the kernel's cached name.
    Handle,
    /// The file system's own index from inodes to names (btrfs).
    InodeLookup,
    /// A name that it had at an earlier start, and still has.
    EarlierName,
    /// It is in the directory of a file that was found, or in a subdirectory.
    Beside,
    /// A walk over the directories of the file system.
    Walk,
    /// A match among the files of an overlay whose layers are not visible.
    Overlay,
}

/// Why an inode got no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unnamed {
    /// It has no links left.
    Deleted,
    /// Its file system is not mounted where we see it, or its name is hidden
    /// below another mount, outside a bind mount, or too long for a call.
    Unreachable,
    /// It exists or existed, and the walk met no name of it.
    NotFound,
    /// Only a walk could have found it, and none was allowed.
    WalkSkipped,
    /// The deadline came first.
    OutOfTime,
    /// Its file system has not answered by the deadline.
    NoAnswer,
    /// Directories or calls that could have told were refused.
    NoPermission,
    /// It had a name, which led elsewhere when it was checked.
    Changed,
    /// The file system keeps it for itself: it never has a name.
    Internal,
}

impl Unnamed {
    /// Whether the file seems to exist, and only its name is unknown.
    pub fn is_unknown(self) -> bool {
        match self {
            Self::NotFound
            | Self::WalkSkipped
            | Self::OutOfTime
            | Self::NoAnswer
            | Self::NoPermission => true,
            Self::Deleted | Self::Unreachable | Self::Changed | Self::Internal => false,
        }
    }
}

impl fmt::Display for Unnamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deleted => "deleted",
            Self::Unreachable => "not reachable from here",
            Self::NotFound => "no name found",
            Self::WalkSkipped => "not looked for, without a walk",
            Self::OutOfTime => "not found in time",
            Self::NoAnswer => "on a file system that does not answer",
            Self::NoPermission => "no permission",
            Self::Changed => "changed meanwhile",
            Self::Internal => "internal to the file system",
        })
    }
}

/// Why a method failed; the others were still tried.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// A mount point could not be opened.
    #[error("Can't open the mount point {path}: {source}. Run as root to find its files", path = names::path(.path))]
    MountPoint {
        /// The mount point.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The calls that name inodes at once were refused.
    #[error("Can't open files of {path} by inode: {source}. Run as root to avoid a slow walk", path = names::path(.path))]
    Calls {
        /// The mount point.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Directories that the walk could not read.
    #[error("Can't read {count} directories, among them {path}: {source}. Run as root", path = names::path(.path))]
    Directories {
        /// How many.
        count: u64,
        /// The first.
        path: PathBuf,
        /// Why, for the first.
        source: io::Error,
    },
}

/// The paths found, and an account of all that was not.
#[derive(Debug, Default)]
pub struct Resolution {
    /// Files by ascending device and inode number; each inode once.
    pub files: Vec<(InodeId, ResolvedFile)>,
    /// Inodes without a path, in the same order.
    pub unnamed: Vec<(InodeId, Unnamed)>,
    /// Inodes that are gone, with what took their places.
    pub replaced: Vec<Replaced>,
    /// Inodes that another file has now, with what is where an earlier start knew them: the file that took the place
    /// of the one before freed its inode.
    pub reused: Vec<Replaced>,
    /// Number of files by method.
    pub how: BTreeMap<Method, u64>,
    /// Files of btrfs where several subvolumes have the inode number and the
    /// page cache did not tell which one was used.
    pub ambiguous: u64,
    /// Directory entries that walks looked at.
    pub walked_entries: u64,
    /// File systems of which a walk found nothing, now or before.
    pub walked_without_result: Vec<Dev>,
    /// What did not work.
    pub problems: Vec<Problem>,
    /// How long it took.
    pub elapsed: Duration,
}

impl Resolution {
    /// Adds the results of another resolution; the caller sorts.
    pub(super) fn add(&mut self, other: Self) {
        self.files.extend(other.files);
        self.unnamed.extend(other.unnamed);
        self.replaced.extend(other.replaced);
        self.reused.extend(other.reused);
        self.problems.extend(other.problems);
        self.ambiguous += other.ambiguous;
        self.walked_entries += other.walked_entries;
        self.walked_without_result.extend(other.walked_without_result);
        for (method, count) in other.how {
            *self.how.entry(method).or_default() += count;
        }
    }

    /// How many inodes have no path, by reason.
    pub fn unnamed_by_reason(&self) -> BTreeMap<Unnamed, u64> {
        let mut counts = BTreeMap::new();
        for (_, reason) in &self.unnamed {
            *counts.entry(*reason).or_default() += 1;
        }
        counts
    }
}

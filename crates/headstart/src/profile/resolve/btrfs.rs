//! btrfs: each subvolume has its own inode numbers, so one number may be several files. Residency
//! in the page cache tells which one was used.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use headstart_sys::btrfs::{SearchRange, inode_path};
use headstart_sys::handle::{FileHandle, open_by_handle};
use rustix::fs::{OFlags, Statx};

use super::handle::{ByInode, Name, NameLookup, Namer, failed_open};
use super::open::Opened;
use super::resolution::{FileKind, Method, Unnamed};
use super::subvol::{FIRST, LAST, ROOT_BACKREF, ROOT_TREE, Subvolume, parse_item, paths};
use super::verify::{Check, check_by, kind_of, resident_pages, stat_dev, stat_fd};
use crate::host::id::InodeId;
use crate::host::mounts::{MountTable, join};
use crate::host::tree_items::search;

/// `FILEID_BTRFS_WITHOUT_PARENT` of `include/linux/exportfs.h`: inode, tree,
/// and a generation of which 0 means any (`btrfs_get_dentry`).
const FILEID_BTRFS: i32 = 0x4d;

/// `BTRFS_BTREE_INODE_OBJECTID`: the pages of the metadata.
const BTREE_INODE: u64 = 1;

/// At most this many subvolumes with the same inode number are compared. Each takes an inode in
/// memory, and a system may have hundreds of snapshots.
const COMPARED: usize = 16;

/// Names inodes of a btrfs.
pub(super) struct Btrfs<'a> {
    table: &'a MountTable,
    namer: Namer,
    /// Mounted subvolumes first, then by id.
    readable: Vec<ReadableSubvolume<'a>>,
}

/// A subvolume and a mount through which its names can be read.
struct ReadableSubvolume<'a> {
    tree: u64,
    path: PathBuf,
    through: &'a Opened<'a>,
}

/// An inode of a subvolume.
struct Candidate {
    subvolume: usize,
    fd: OwnedFd,
    stat: Statx,
    resident: Option<u64>,
}

impl<'a> Btrfs<'a> {
    pub(super) fn new(table: &'a MountTable, opened: &'a [Opened<'a>]) -> io::Result<Self> {
        let [first, ..] = opened else { return Err(io::ErrorKind::NotFound.into()) };
        let list = subvolumes(first.fd.as_fd())?;
        // A directory that has gone has no path; what is in it is skipped.
        let dir_path = |tree, dir| inode_path(&first.fd, tree, dir).ok();
        let mut readable: Vec<ReadableSubvolume<'a>> = paths(&list, dir_path)
            .into_iter()
            .map(|(tree, path)| {
                let contains = |open: &&Opened<'_>| path.starts_with(&open.mount.root);
                let through = opened.iter().rev().find(contains).unwrap_or(first);
                ReadableSubvolume { tree, path, through }
            })
            .collect();
        readable.sort_by_key(|subvolume| {
            (subvolume.through.mount.root != subvolume.path, subvolume.tree)
        });
        Ok(Self { table, namer: Namer::new()?, readable })
    }

    /// The inodes with this number.
    fn candidates(&self, ino: u64) -> io::Result<Vec<Candidate>> {
        let mut found: Vec<Candidate> = Vec::new();
        for (index, subvolume) in self.readable.iter().enumerate() {
            if found.len() >= COMPARED && found.iter().any(|one| one.resident > Some(0)) {
                break;
            }
            let mut bytes = [0; 20];
            bytes[..8].copy_from_slice(&ino.to_ne_bytes());
            bytes[8..16].copy_from_slice(&subvolume.tree.to_ne_bytes());
            let Some(handle) = FileHandle::new(FILEID_BTRFS, &bytes) else { continue };
            let fd = match open_by_handle(&subvolume.through.fd, &handle, OFlags::PATH) {
                Ok(fd) => fd,
                // Not in this subvolume, or refused for all.
                Err(error) => {
                    failed_open(error, NameLookup::Lost)?;
                    continue;
                }
            };
            let stat = stat_fd(&fd)?;
            if stat.stx_nlink == 0 {
                continue;
            }
            let mut candidate = Candidate { subvolume: index, fd, stat, resident: None };
            if self.readable.len() > 1 && kind_of(&stat) == FileKind::Regular {
                candidate.resident = candidate.resident();
            }
            found.push(candidate);
        }
        Ok(found)
    }

    fn name_candidate(&mut self, candidate: &Candidate) -> NameLookup {
        let subvolume = &self.readable[candidate.subvolume];
        let is_it = |stat: &Statx| {
            stat.stx_ino == candidate.stat.stx_ino && stat_dev(stat) == stat_dev(&candidate.stat)
        };
        // Equal st_dev and st_ino are the same subvolume and inode.
        let is_root = candidate.stat.stx_ino == FIRST;
        match self.namer.name(candidate.fd.as_fd(), is_root) {
            Name::Is(path) => match check_by(path, is_it) {
                Check::Same(file) => return NameLookup::by_handle(file),
                Check::Denied => return NameLookup::Never(Unnamed::NoPermission),
                Check::Other => {}
            },
            Name::TooLong => return NameLookup::Never(Unnamed::Unreachable),
            Name::Lost => {}
        }
        let inner = match inode_path(&subvolume.through.fd, subvolume.tree, candidate.stat.stx_ino)
        {
            Ok(inner) => join(&subvolume.path, Path::new(OsStr::from_bytes(&inner))),
            Err(_) => return NameLookup::Lost,
        };
        let dev = subvolume.through.mount.dev;
        let found = self.table.paths_to(dev, &inner).into_iter().find_map(|path| {
            match check_by(&path, is_it) {
                Check::Same(file) => Some(file),
                Check::Other | Check::Denied => None,
            }
        });
        match found {
            Some(file) => NameLookup::Found { file, method: Method::InodeLookup, ambiguous: false },
            None => NameLookup::Never(Unnamed::Unreachable),
        }
    }
}

impl Candidate {
    /// Its pages in the page cache, asked through a second, readable file.
    fn resident(&self) -> Option<u64> {
        let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        resident_pages(Path::new(&path), self.stat.stx_size)
    }
}

impl ByInode for Btrfs<'_> {
    fn name(&mut self, id: InodeId) -> io::Result<NameLookup> {
        if id.ino == BTREE_INODE {
            return Ok(NameLookup::Never(Unnamed::Internal));
        }
        let mut candidates = self.candidates(id.ino)?;
        let hot = candidates.iter().filter(|one| one.resident > Some(0)).count();
        let ambiguous = candidates.len() > 1 && hot != 1;
        candidates.sort_by_key(|one| std::cmp::Reverse(one.resident));
        let mut last = NameLookup::Never(Unnamed::Deleted);
        for candidate in &candidates {
            match self.name_candidate(candidate) {
                NameLookup::Found { file, method, .. } => {
                    return Ok(NameLookup::Found { file, method, ambiguous });
                }
                other => last = other,
            }
            // The inode that was used has no path here; another one would be wrong.
            if !ambiguous {
                break;
            }
        }
        Ok(last)
    }
}

/// All subvolumes below the top one.
fn subvolumes(fs: BorrowedFd<'_>) -> io::Result<Vec<Subvolume>> {
    let (from, to) = ((FIRST, ROOT_BACKREF, 0), (LAST, ROOT_BACKREF, u64::MAX));
    let mut all = Vec::new();
    search(fs, SearchRange { tree: ROOT_TREE, from, to }, |key, item| {
        all.extend(parse_item(key, item));
    })?;
    Ok(all)
}

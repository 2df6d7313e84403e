//! btrfs: every subvolume counts its inodes anew, so one number may be several
//! files. The page cache tells which of them was used.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use headstart_sys::btrfs::{SearchRange, inode_path, tree_search};
use headstart_sys::handle::{FileHandle, open_by_handle};
use rustix::fs::{OFlags, Statx};

use super::handle::{ByInode, Name, Namer, Outcome, failed_open};
use super::open::Opened;
use super::resolution::{FileKind, Method, Unnamed};
use super::subvol::{FIRST, LAST, ROOT_BACKREF, ROOT_TREE, Subvolume, parse_search, paths};
use super::verify::{Check, check_by, kind_of, resident_pages, stat_dev, stat_fd};
use crate::host::id::InodeId;
use crate::host::mounts::{MountTable, join};

/// `FILEID_BTRFS_WITHOUT_PARENT` of `include/linux/exportfs.h`: inode, tree,
/// and a generation of which 0 means any (`btrfs_get_dentry`).
const FILEID_BTRFS: i32 = 0x4d;

/// `BTRFS_BTREE_INODE_OBJECTID`: the pages of the metadata.
const BTREE_INODE: u64 = 1;

/// So many subvolumes with the same inode number are compared. Each costs an
/// inode in memory, and a system may keep hundreds of snapshots.
const COMPARED: usize = 16;

/// Names inodes of a btrfs.
pub(super) struct Btrfs<'a> {
    table: &'a MountTable,
    namer: Namer,
    /// Mounted subvolumes first, then by id.
    places: Vec<Place<'a>>,
}

/// A subvolume and a mount through which its names can be read.
struct Place<'a> {
    tree: u64,
    path: PathBuf,
    through: &'a Opened<'a>,
}

/// An inode of a subvolume.
struct Candidate {
    place: usize,
    fd: OwnedFd,
    stat: Statx,
    resident: Option<u64>,
}

impl<'a> Btrfs<'a> {
    pub(super) fn new(table: &'a MountTable, opened: &'a [Opened<'a>]) -> io::Result<Self> {
        let [first, ..] = opened else { return Err(io::ErrorKind::NotFound.into()) };
        let list = subvolumes(first.fd.as_fd())?;
        // A directory that has gone has no path; what is in it is left out.
        let dir_path = |tree, dir| inode_path(&first.fd, tree, dir).ok();
        let mut places: Vec<Place<'a>> = paths(&list, dir_path)
            .into_iter()
            .map(|(tree, path)| {
                let contains = |open: &&Opened<'_>| path.starts_with(&open.mount.root);
                let through = opened.iter().rev().find(contains).unwrap_or(first);
                Place { tree, path, through }
            })
            .collect();
        places.sort_by_key(|place| (place.through.mount.root != place.path, place.tree));
        Ok(Self { table, namer: Namer::new()?, places })
    }

    /// The inodes with this number.
    fn candidates(&self, ino: u64) -> io::Result<Vec<Candidate>> {
        let mut found: Vec<Candidate> = Vec::new();
        for (index, place) in self.places.iter().enumerate() {
            if found.len() >= COMPARED && found.iter().any(|one| one.resident > Some(0)) {
                break;
            }
            let mut bytes = [0; 20];
            bytes[..8].copy_from_slice(&ino.to_ne_bytes());
            bytes[8..16].copy_from_slice(&place.tree.to_ne_bytes());
            let Some(handle) = FileHandle::new(FILEID_BTRFS, &bytes) else { continue };
            let fd = match open_by_handle(&place.through.fd, &handle, OFlags::PATH) {
                Ok(fd) => fd,
                // Not in this subvolume, or refused for all.
                Err(error) => {
                    failed_open(error, Outcome::Lost)?;
                    continue;
                }
            };
            let stat = stat_fd(&fd)?;
            if stat.stx_nlink == 0 {
                continue;
            }
            let mut candidate = Candidate { place: index, fd, stat, resident: None };
            if self.places.len() > 1 && kind_of(&stat) == FileKind::Regular {
                candidate.resident = candidate.resident();
            }
            found.push(candidate);
        }
        Ok(found)
    }

    fn name_candidate(&mut self, candidate: &Candidate) -> Outcome {
        let place = &self.places[candidate.place];
        let is_it = |stat: &Statx| {
            stat.stx_ino == candidate.stat.stx_ino && stat_dev(stat) == stat_dev(&candidate.stat)
        };
        // Equal st_dev and st_ino are the same subvolume and inode.
        let is_root = candidate.stat.stx_ino == FIRST;
        match self.namer.name(candidate.fd.as_fd(), is_root) {
            Name::Is(path) => match check_by(path, is_it) {
                Check::Same(file) => return Outcome::by_handle(file),
                Check::Denied => return Outcome::Never(Unnamed::NoPermission),
                Check::Other => {}
            },
            Name::TooLong => return Outcome::Never(Unnamed::Unreachable),
            Name::Lost => {}
        }
        let inner = match inode_path(&place.through.fd, place.tree, candidate.stat.stx_ino) {
            Ok(inner) => join(&place.path, Path::new(OsStr::from_bytes(&inner))),
            Err(_) => return Outcome::Lost,
        };
        let dev = place.through.mount.dev;
        let found = self.table.paths_to(dev, &inner).into_iter().find_map(|path| {
            match check_by(&path, is_it) {
                Check::Same(file) => Some(file),
                Check::Other | Check::Denied => None,
            }
        });
        match found {
            Some(file) => Outcome::Found { file, method: Method::InodeLookup, ambiguous: false },
            None => Outcome::Never(Unnamed::Unreachable),
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
    fn name(&mut self, id: InodeId) -> io::Result<Outcome> {
        if id.ino == BTREE_INODE {
            return Ok(Outcome::Never(Unnamed::Internal));
        }
        let mut candidates = self.candidates(id.ino)?;
        let hot = candidates.iter().filter(|one| one.resident > Some(0)).count();
        let unsure = candidates.len() > 1 && hot != 1;
        candidates.sort_by_key(|one| std::cmp::Reverse(one.resident));
        let mut last = Outcome::Never(Unnamed::Deleted);
        for candidate in &candidates {
            match self.name_candidate(candidate) {
                Outcome::Found { file, method, .. } => {
                    return Ok(Outcome::Found { file, method, ambiguous: unsure });
                }
                other => last = other,
            }
            // The one that was used has no path here; another would be wrong.
            if !unsure {
                break;
            }
        }
        Ok(last)
    }
}

/// All subvolumes below the top one.
fn subvolumes(fs: BorrowedFd<'_>) -> io::Result<Vec<Subvolume>> {
    let to = (LAST, ROOT_BACKREF, u64::MAX);
    let mut from = (FIRST, ROOT_BACKREF, 0);
    let mut all = Vec::new();
    loop {
        let (count, buffer) = tree_search(fs, &SearchRange { tree: ROOT_TREE, from, to })?;
        let (found, last) = parse_search(count, &buffer);
        all.extend(found);
        match last {
            // The key after the last one seen.
            Some((object, kind, offset)) if (object, kind, offset) >= from => {
                from = match offset.checked_add(1) {
                    Some(offset) => (object, kind, offset),
                    None => (object, kind + 1, 0),
                };
            }
            _ => return Ok(all),
        }
    }
}

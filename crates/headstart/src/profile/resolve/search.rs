//! Which inodes are searched in the directories of one file system, and which were found.

use super::resolution::ResolvedFile;
use super::verify::{Check, check, resident_pages};
use super::walk::WalkTarget;
use crate::host::id::{Dev, InodeId};
use crate::host::mounts::MountTable;
use std::collections::HashMap;
use std::path::PathBuf;

/// Inodes of a device that are looked for by their numbers.
pub(super) struct Search<'a> {
    mounts: &'a MountTable,
    dev: Dev,
    /// An inode number may be several files.
    several: bool,
    /// With a file that would do if no better one comes.
    pub(super) wanted: HashMap<u64, Option<ResolvedFile>>,
    pub(super) found: Vec<(InodeId, ResolvedFile)>,
}

impl<'a> Search<'a> {
    /// Of inodes of one device; `several` if an inode number may be several files.
    pub(super) fn of(mounts: &'a MountTable, dev: Dev, ids: &[InodeId], several: bool) -> Self {
        let wanted = ids.iter().map(|id| (id.ino, None)).collect();
        Self { mounts, dev, several, wanted, found: Vec::new() }
    }
}

impl WalkTarget for Search<'_> {
    fn left(&self) -> u64 {
        self.wanted.len() as u64
    }

    fn wants(&self, ino: u64) -> bool {
        self.wanted.contains_key(&ino)
    }

    fn offer(&mut self, ino: u64, path: PathBuf) {
        let id = InodeId { dev: self.dev, ino };
        // Below another mount the number is another file's.
        let Check::Same(file) = check(self.mounts, id, &path) else { return };
        if self.several && resident_pages(&file.path, file.size).unwrap_or(0) == 0 {
            self.wanted.entry(ino).and_modify(|spare| *spare = spare.take().or(Some(file)));
        } else {
            self.wanted.remove(&ino);
            self.found.push((id, file));
        }
    }
}

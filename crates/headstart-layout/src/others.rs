//! Files that may be moved aside, and where they lie, and what is free. A driver; [`super::room`] chooses.

use super::apply::Go;
use super::error::LayoutError;
use super::examine::{Looked, Swaps};
use super::journal::LaidFile;
use super::plan::{IN_BLOCK, IN_INODE, Piece};
use super::room::Other;
use super::volume::{Store, Volume};
use headstart::cache::walk::walk_while;
use headstart::host::mounts::{Mount, MountTable};
use headstart::host::range::ByteRange;
use headstart_sys::fsmap;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Other files of a file system.
#[derive(Clone, Debug, Default)]
pub struct Others {
    /// The files, by their paths below the root of the file system.
    pub files: Vec<LaidFile>,
    /// Their extents.
    pub extents: Vec<Other>,
}

/// Boot loaders may know the blocks of what is below it.
const BOOT: &str = "/boot";

/// A stop is looked for each time when so many files were looked at.
const TURN: usize = 100;

impl Others {
    /// Blocks that extents may need while these pieces are moved, at most: a swap splits extents for a moment. Those of
    /// the files, and those of the donor.
    pub fn tree_blocks(&self, pieces: &[Piece]) -> u64 {
        let mut extents: HashMap<usize, usize> = HashMap::new();
        for other in &self.extents {
            *extents.entry(other.file).or_default() += 1;
        }
        let files: HashSet<usize> = pieces.iter().map(|piece| piece.file).collect();
        let full = files.iter().filter(|file| extents.get(file).is_some_and(|n| *n >= IN_INODE));
        full.count() as u64 + (pieces.len() as u64).div_ceil(IN_BLOCK)
    }
}

/// What is free, where the file system tells: where each part begins on the device, and its length, in bytes.
pub fn free_space(store: &Store) -> Vec<(u64, u64)> {
    fsmap::free_space(&store.dir).unwrap_or_default()
}

/// Finds all files of a file system that may be moved; those with these inode numbers stay, and so do those of boot
/// loaders. Files that are hidden below other mounts are not seen. `None` after a stop.
///
/// # Errors
/// The file system does not answer, or `go` failed.
pub fn others(
    store: &Store,
    (volume, mounts): (&Volume, &MountTable),
    mut kept: HashSet<u64>,
    mut go: impl FnMut(u64) -> Result<Go, LayoutError>,
) -> Result<Option<Others>, LayoutError> {
    let (block, swaps) = (volume.block()?, Swaps::read());
    let whole = ByteRange { offset: 0, end: u64::MAX };
    let mut state = Ok(Go::On);
    let found = walk_while(std::slice::from_ref(&volume.mount_point), || {
        state = go(0);
        matches!(state, Ok(Go::On))
    });
    if state? == Go::Stop {
        return Ok(None);
    }
    let is_boot = |mount: &&Mount| mount.dev == volume.dev && mount.mount_point.starts_with(BOOT);
    let mounted = mounts.mounts().iter().filter(is_boot).map(|mount| mount.root.as_path());
    let boot: Vec<&Path> = mounted.chain([Path::new(BOOT)]).collect();
    let (own, mut out) = (volume.dir(), Others::default());
    let files = found.files.iter().filter(|path| !path.starts_with(&own));
    for (number, path) in files.enumerate() {
        if number % TURN == 0 && go(0)? == Go::Stop {
            return Ok(None);
        }
        let Ok(inner) = path.strip_prefix(&volume.mount_point) else { continue };
        let from_root = Path::new("/").join(inner);
        if boot.iter().any(|root| from_root.starts_with(root)) {
            continue;
        }
        let Ok(looked) = Looked::inside(store, inner, whole, &swaps) else { continue };
        // The paths of one inode are one file.
        if !kept.insert(looked.identity.ino) {
            continue;
        }
        let file = out.files.len();
        let end = looked.identity.size.next_multiple_of(block);
        let extents = looked.facts.all_movable(end);
        if !extents.is_empty() {
            out.extents.extend(extents.into_iter().map(|extent| Other { file, extent }));
            out.files.push(LaidFile { path: inner.to_owned(), identity: looked.identity });
        }
    }
    Ok(Some(out))
}

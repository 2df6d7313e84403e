//! Files that may be moved aside, and where they lie. A driver; [`super::room`] chooses.

use super::apply::Go;
use super::error::LayoutError;
use super::examine::{Looked, Swaps};
use super::journal::LaidFile;
use super::room::Other;
use super::volume::{Store, Volume};
use headstart::cache::walk::walk;
use headstart::host::range::ByteRange;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

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

/// Finds all files of a file system that may be moved; those at the paths `kept`, below its root, stay, and so do those
/// of boot loaders. Files that are hidden below other mounts are not seen. `None` after a stop.
///
/// # Errors
/// The file system does not answer, or `go` failed.
pub fn others(
    store: &Store,
    volume: &Volume,
    kept: &HashSet<PathBuf>,
    mut go: impl FnMut(u64) -> Result<Go, LayoutError>,
) -> Result<Option<Others>, LayoutError> {
    let (block, swaps) = (volume.block()?, Swaps::read());
    let whole = ByteRange { offset: 0, end: u64::MAX };
    let (own, mut seen, mut out) = (volume.dir(), HashSet::new(), Others::default());
    let found = walk(std::slice::from_ref(&volume.mount_point)).files;
    for path in found.iter().filter(|path| !path.starts_with(&own)) {
        if go(0)? == Go::Stop {
            return Ok(None);
        }
        let Ok(inner) = path.strip_prefix(&volume.mount_point) else { continue };
        let is_boot = path.starts_with(BOOT) || Path::new("/").join(inner).starts_with(BOOT);
        if is_boot || kept.contains(inner) {
            continue;
        }
        let Ok(looked) = Looked::inside(store, inner, whole, &swaps) else { continue };
        if !seen.insert(looked.identity.ino) {
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

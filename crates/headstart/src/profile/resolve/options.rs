//! What resolving may use, and how it tells its progress.

use super::live::LiveNames;
use crate::host::mounts::MountTable;
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

/// How far a walk has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkProgress {
    /// Directory entries seen, over all walks of this call.
    pub entries: u64,
    /// Inodes that the present walk still looks for.
    pub wanted: u64,
}

/// What [`super::resolve`] may use.
#[derive(Clone, Copy)]
pub struct ResolveOptions<'a> {
    /// The mounts that we see.
    pub mounts: &'a MountTable,
    /// Names noted while the program lived.
    pub live: Option<&'a LiveNames>,
    /// Names of earlier starts, by inode number: the kernel forgets names, and walks
    /// read a whole file system.
    pub earlier: Option<&'a HashMap<u64, Vec<PathBuf>>>,
    /// Use file handles and the file systems' own calls (default yes).
    pub calls: bool,
    /// Walk a file system for what is left over (default yes).
    pub walk: bool,
    /// When walks end.
    pub deadline: Option<Instant>,
    /// Called now and then during a walk.
    pub progress: Option<&'a dyn Fn(WalkProgress)>,
}

impl<'a> ResolveOptions<'a> {
    /// Every method, without a deadline.
    pub fn new(mounts: &'a MountTable) -> Self {
        Self {
            mounts,
            live: None,
            earlier: None,
            calls: true,
            walk: true,
            deadline: None,
            progress: None,
        }
    }
}

impl fmt::Debug for ResolveOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResolveOptions")
            .field("live", &self.live.is_some())
            .field("earlier", &self.earlier.map(HashMap::len))
            .field("calls", &self.calls)
            .field("walk", &self.walk)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

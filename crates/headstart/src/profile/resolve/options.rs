//! The options of resolving.

use super::live::LiveNames;
use crate::host::id::Dev;
use crate::host::mounts::MountTable;
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

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
    /// File systems of which a walk found nothing before: it is not tried again.
    pub walked_without_result: &'a [Dev],
    /// When resolving ends.
    pub deadline: Option<Instant>,
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
            walked_without_result: &[],
            deadline: None,
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

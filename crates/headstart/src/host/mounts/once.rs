//! The mounts, read when they are first asked for, and then no more: for one replay.

use super::table::MountTable;
use std::sync::{Arc, OnceLock};

/// The mounts as they were when they were first asked for.
#[derive(Clone, Debug, Default)]
pub struct Mounts(Arc<OnceLock<Option<MountTable>>>);

impl Mounts {
    /// The table; `None` when it can't be read.
    pub fn table(&self) -> Option<&MountTable> {
        self.0.get_or_init(|| MountTable::read().ok()).as_ref()
    }
}

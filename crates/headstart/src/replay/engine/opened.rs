//! What is open of a plan.

use crate::host::open::Kind;
use crate::replay::device::Portion;
use std::fs::File;
use std::sync::Arc;

/// A target as the threads know it.
#[derive(Debug, Default)]
pub(super) enum Slot {
    /// No step came to it yet.
    #[default]
    New,
    /// It is what was learned.
    Open(Arc<Opened>),
    /// It was closed for want of descriptors; it is opened again on demand.
    Closed,
    /// Nothing is read from it.
    Dropped,
}

/// A file or device that is what was learned.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) file: File,
    /// The device that it lies on, or is.
    pub(super) dev: u64,
    pub(super) portion: Portion,
    pub(super) kind: Kind,
    /// Shared by all that is open, and so counts it.
    pub(super) _open: Arc<()>,
}

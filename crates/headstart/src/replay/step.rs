//! What a plan consists of: what is read from, and the portions of that.

use crate::host::identity::Identity;
use crate::host::range::{ByteRange, PageRange};
use crate::pack::FileSystem;
use crate::pack::paths::NodeId;

/// What a start touches this early belongs to the head of its plan, in µs.
pub const HEAD_US: u32 = 5000;

/// What a step reads from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// A file, and what it must be; without an identity whatever it is.
    File {
        /// Its name in the plan's table.
        node: NodeId,
        /// What it was when it was learned.
        identity: Option<Identity>,
        /// Whether it changes at each start, and is read whatever it is.
        changing: bool,
    },
    /// The block device of a file system, for its metadata.
    Device(FileSystem),
}

impl Target {
    /// The name, if it is a file.
    pub fn node(&self) -> Option<NodeId> {
        match self {
            Self::File { node, .. } => Some(*node),
            Self::Device(_) => None,
        }
    }
}

/// One portion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Index of the target.
    pub target: u32,
    /// The bytes that are read.
    pub bytes: ByteRange,
    /// When something of it is first touched, since the start began, in µs. Of a list
    /// only the order counts.
    pub touched_us: u32,
}

impl Step {
    /// The pages that hold its bytes.
    pub fn pages(&self) -> PageRange {
        self.bytes.pages(rustix::param::page_size() as u64)
    }
}

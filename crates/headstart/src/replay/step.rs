//! The parts of a plan: targets and steps.

use crate::cache::residency::page_size;
use crate::host::identity::Identity;
use crate::host::range::{ByteRange, PageRange};
use crate::pack::FileSystem;
use crate::pack::paths::NodeId;

/// What a start touches before this belongs to the head of its plan, in µs.
pub const HEAD_US: u32 = 5000;

/// What a step reads from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// A file with its identity; without one any file at that path.
    File {
        /// Its name in the plan's table.
        node: NodeId,
        /// What it was when it was learned.
        identity: Option<Identity>,
        /// Whether it changes at each start, and is read nevertheless.
        changing: bool,
    },
    /// The block device of a file system, for its metadata; of few, so that it makes files no larger.
    Device(Box<FileSystem>),
}

impl Target {
    /// The name, if it is a file.
    pub fn node(&self) -> Option<NodeId> {
        match self {
            Self::File { node, .. } => Some(*node),
            Self::Device(_) => None,
        }
    }

    /// Whether it is a file that changes at each start.
    pub fn is_changing(&self) -> bool {
        matches!(self, Self::File { changing: true, .. })
    }

    /// The number of its inode when it was learned, if it is a file; 0 where that is not known.
    pub fn inode(&self) -> u64 {
        match self {
            Self::File { identity: Some(identity), .. } => identity.ino,
            _ => 0,
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
    /// Its first touch, from the beginning of the start, in µs. For a list only the order counts.
    pub touched_us: u32,
}

impl Step {
    /// The pages that hold its bytes.
    pub fn pages(&self) -> PageRange {
        self.bytes.pages(page_size())
    }
}

//! From inodes to paths, immediately after a trace.
//!
//! Each file system has its own cheapest method; for the rest, the directories of the files that
//! were found are searched, then the whole file system is walked. All of it ends at one deadline. A
//! file system that may not answer is queried in a thread that nobody waits for after the deadline
//! (`apart`). Each path is checked before it is returned, and each inode without a path is counted
//! with its reason. Which files go into a pack is decided elsewhere.

mod apart;
mod btrfs;
mod driver;
mod handle;
mod live;
mod near;
mod open;
mod options;
mod overlay;
mod resolution;
mod search;
pub mod subvol;
mod verify;
mod walk;
mod xfs;

pub use apart::resolve;
pub use live::{LiveCounts, LiveNames};
pub use options::ResolveOptions;
pub use resolution::{FileKind, Method, Problem, Replaced, Resolution, ResolvedFile, Unnamed};

//! From inodes to paths, at once after a trace.
//!
//! Each file system has its own cheapest method; only what they leave over is looked for
//! beside the files that were found, and then by walking that one file system. All of it ends
//! at one deadline. A file system that may not answer is asked in a thread that is left behind
//! at the deadline (`apart`). Every path is checked before it is given out, and every inode without one is counted with its reason.
//! Whether a file is worth a place in a pack is decided elsewhere.

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
pub mod subvol;
mod verify;
mod walk;
mod xfs;

pub use apart::resolve;
pub use live::{LiveCounts, LiveNames};
pub use options::ResolveOptions;
pub use resolution::{FileKind, Method, Problem, Replaced, Resolution, ResolvedFile, Unnamed};

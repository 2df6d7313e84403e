//! From inodes to paths, at once after a trace.
//!
//! Each file system has its own cheapest way; only what they leave over is
//! looked for by walking that one file system. Every path is checked before it
//! is given out, and every inode without one is counted with its reason.
//! Whether a file is worth a place in a pack is decided elsewhere.

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

pub use driver::resolve;
pub use live::{LiveCounts, LiveNames};
pub use options::{ResolveOptions, WalkProgress};
pub use resolution::{FileKind, Method, Problem, Replaced, Resolution, ResolvedFile, Unnamed};

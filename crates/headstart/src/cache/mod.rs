//! The page cache of this machine: what is in it, and getting it out again.
//!
//! ```text
//! paths ──▶ walk ──▶ open ──▶ residency ──▶ list     which ranges of a file are in memory
//!                        └──▶ evict ◀── holders      out with them, but for what is in use
//! file systems ─────▶ metadata                       the same for inodes and directories
//! ```
//!
//! [`list`] is pure; the others ask the kernel. Nothing here reads a file's content.

pub mod error;
pub mod evict;
pub mod holders;
pub mod list;
pub mod metadata;
pub mod open;
pub mod residency;
pub mod smaps;
pub mod walk;

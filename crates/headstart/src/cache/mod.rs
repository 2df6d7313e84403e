//! The page cache of this machine: what it holds, and eviction.
//!
//! ```text
//! paths ──▶ walk ──▶ open ──▶ residency ──▶ list     resident ranges of files
//!                        └──▶ evict ◀── holders      eviction, except of mapped pages
//! file systems ─────▶ metadata                       the same for inodes and directories
//! ```
//!
//! [`list`] is pure; the others query the kernel. Nothing here reads a file's content.

pub mod error;
pub mod evict;
pub mod holders;
pub mod list;
pub mod metadata;
pub mod open;
pub mod residency;
pub mod smaps;
pub mod walk;

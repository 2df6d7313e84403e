//! The mounts that a process sees.
//!
//! ```text
//! /proc/PID/mountinfo ──▶ mountinfo ──▶ table ──▶ the mount of a path
//!                         one value      who hides whom
//!                         for each line
//! ```
//!
//! `mountinfo` parses, `table` knows which mount a path leads to, `answers` which file systems
//! need no server; these are pure. `read` is the driver. Nothing here follows symbolic links: mount
//! points in mountinfo have none.

mod answers;
mod mountinfo;
mod read;
mod table;

pub use answers::is_local;
pub use mountinfo::{Mount, parse};
pub use read::{Mounts, MountsError};
pub use table::MountTable;
pub(crate) use table::join;

//! Checks of this machine: kernel, permissions, memory, packs and file systems, each problem with
//! the command that fixes it.
//!
//! ```text
//! examine ──▶ kernel, rights, memory, tracing, storage, packs ──▶ checks
//! reads       small pure functions
//! ```
//!
//! The functions in each file turn what [`examine()`] read into a [`Check`]. Nothing is changed,
//! but a trace instance is made and removed again.

mod check;
mod examine;
mod kernel;
mod memory;
mod packs;
pub mod rights;
mod storage;
mod tracing;

pub use crate::launch::learned_packs::LearnedPack;
pub use check::{Check, Lack, State, verdict};
pub use examine::{Examination, examine, reprobe};
pub use storage::{Device, FileSystem, MetadataAhead, PathResolution};

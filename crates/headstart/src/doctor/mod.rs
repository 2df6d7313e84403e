//! What this machine can do for headstart: kernel, rights, memory, packs and
//! file systems, each lack with the command that fixes it.
//!
//! ```text
//! examine ──▶ kernel, rights, memory, tracing, storage, packs ──▶ checks
//! looks       small functions from what was read to what it means
//! ```
//!
//! Each file has small functions that turn what was read into a [`Check`];
//! [`examine()`] does the reading. Nothing is changed, but for a trace instance
//! that is made and removed again.

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

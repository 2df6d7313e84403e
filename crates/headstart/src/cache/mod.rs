//! The page cache of this machine: what is in it, and getting it out again.

pub mod error;
pub mod evict;
pub mod holders;
pub mod list;
pub mod metadata;
pub mod open;
pub mod residency;
pub mod walk;

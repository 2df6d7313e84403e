//! The page cache of this machine: what is in it, and getting it out again.

pub mod list;
pub mod residency;

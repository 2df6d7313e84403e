//! Safe wrappers for the Linux calls that headstart needs and rustix lacks.
//!
//! This is the only crate of the project where `unsafe` is allowed: one file
//! per kernel interface, each block with its `SAFETY` reason. It decides
//! nothing; policy lives in the `headstart` crate.
#![allow(clippy::disallowed_methods)] // Its files end.
#![allow(unsafe_code)]

pub mod balance;
pub mod btrfs;
pub mod cachestat;
pub mod calls;
#[cfg(feature = "counting")]
pub mod counting;
pub mod descriptors;
pub mod exec;
pub mod ext4;
pub mod fiemap;
pub mod fsmap;
pub mod fsuuid;
pub mod handle;
pub mod helper;
pub mod huge;
pub mod interrupt;
pub mod ioprio;
pub mod large;
pub mod lease;
pub mod mapping;
pub mod mincore;
pub mod namespace;
pub mod perf;
pub mod process;
pub mod ptrace;
pub mod reflink;
pub mod reserve;
pub mod sched;
pub mod signals;
pub mod touch;
pub mod userfault;
pub mod willneed;
pub mod xfs;

//! An image file served as a block device with a modelled latency.
//!
//! A model ([`model`]) says what a disk is like; the scheduler ([`sched`])
//! turns requests into completion times; the rest carries that out through a
//! FUSE file under a loop device. Development only: it never touches the
//! image unless told to keep writes, and nothing of the project needs it to
//! run.
#![allow(clippy::disallowed_methods)] // Its files end.
#![forbid(unsafe_code)]

pub mod control;
pub mod counters;
pub mod engine;
pub mod error;
pub mod fs;
pub mod host;
pub mod lifecycle;
pub mod load;
pub mod log;
pub mod measure;
pub mod model;
pub mod sched;
pub mod server;
pub mod sim;
pub mod state;
pub mod store;

//! The automatic mode: a service that sees each exec of the machine, prefetches the pack of a
//! program that it knows, and learns programs that start slowly from a cold page cache.
//!
//! ```text
//! execs ──▶ started ──▶ policy
//! which     what it     prefetch,
//! process   runs        learn, skip
//! ```
//!
//! The command `headstart daemon` runs it and talks to it; nothing here prints.

#![forbid(unsafe_code)]

pub mod budget;
pub mod client;
pub mod config;
pub mod control;
pub mod counters;
pub mod dist;
pub mod early;
pub mod execs;
pub mod programs;
pub mod service;
pub mod started;
pub mod state;
pub mod watch;
pub mod week;

//! Services of systemd: a unit of ours next to the service prefetches and learns its starts. The
//! service stays as it is.
//!
//! ```text
//! install ──▶ a drop-in that pulls in our unit ──▶ it starts with the service
//! control groups ──▶ members ──▶ the processes of the service
//! ```
//!
//! [`install`] and [`members`] are drivers with small pure parts.

pub mod install;
pub mod members;
pub mod notify;

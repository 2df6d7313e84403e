//! Services of systemd as starts: prefetched and learned by a unit beside them, with the
//! service left as it is.
//!
//! ```text
//! install ──▶ a drop-in that pulls in our unit ──▶ it starts with the service
//! control groups ──▶ members ──▶ whose processes are the service's
//! ```
//!
//! [`install`] (what is written for a service) and [`members`] (which processes are the
//! service's) are drivers with small pure parts.

pub mod install;
pub mod members;

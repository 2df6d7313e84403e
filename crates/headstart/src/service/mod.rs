//! Services of systemd as starts: read ahead and learned by a unit beside them, with the
//! service left as it is.
//!
//! [`install`] (what is written for a service) and [`members`] (which processes are the
//! service's) are drivers with small pure parts.

pub mod install;
pub mod members;

//! Who touched what, and when.

pub mod fsid;
pub mod mounts;
pub mod resolve;

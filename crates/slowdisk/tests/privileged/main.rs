//! Tests on real devices that need root, or share what a kernel has once: the page cache, trace
//! buffers, mounts. They run one after another, as `check.sh privileged` has them.
#![allow(clippy::disallowed_methods)] // Its files end.
#![allow(clippy::unwrap_used)] // All of it is test code.

mod accuracy;
mod common;
mod devices;
mod rows;

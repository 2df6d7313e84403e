//! Tests of the library that need root, or share what a kernel has once: the page cache, trace
//! buffers, mounts. They run one after another, as `check.sh privileged` has them.
#![allow(clippy::disallowed_methods)] // Its files end.
#![allow(clippy::unwrap_used)] // All of it is test code.

mod boot_root_copies;
mod fsid;
mod kernel_tids;
mod replay_address_space;
mod replay_bad_disk;
mod replay_devices;
mod replay_elevator;
mod replay_gaps;
mod replay_memory;
mod replay_sample;
mod resolve_btrfs;
mod resolve_namespaces;
mod resolve_paths;
mod resolve_reasons;
mod resolve_speed;
mod resolved;

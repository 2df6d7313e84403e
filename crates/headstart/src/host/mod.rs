//! The ground floor: what this machine says of itself. No file here knows of traces, packs
//! or replays; every other folder may ask here.
//!
//! [`id`] names devices and inodes as the kernel does, [`identity`] tells whether a file is
//! still the same, `open` opens those that are, and [`usage`] says how pages were used.
//! [`mounts`] and [`fsid`] know the mounted file systems and what they are beyond one boot,
//! [`proc`] and [`maps`] the
//! processes, [`processors`] and [`memory`] (with [`cgroup`]) what there is to work with,
//! [`diskstats`] what the disks did, and [`error`] makes one line of an error and its causes.

pub mod cgroup;
pub mod diskstats;
pub mod error;
pub mod fsid;
pub mod id;
pub mod identity;
pub mod maps;
pub mod memory;
pub mod mounts;
pub(crate) mod open;
pub mod proc;
pub mod processors;
pub mod usage;

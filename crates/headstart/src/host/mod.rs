//! The ground floor: what this machine says of itself. No file here knows of traces, packs or
//! replays; every other folder may ask here.
//!
//! ```text
//! /proc, /sys, stat(2) ──▶ parsers (pure) ──▶ values that all other folders share
//! ```
//!
//! Files: [`id`] names devices and inodes as the kernel does, [`identity`] tells whether a file is
//! still the same, `open` opens those that are, and [`usage`] says how pages were used; [`range`]
//! is a part of a file, in pages or bytes. File systems: [`mounts`], [`fsid`], what they are beyond
//! one boot, [`superblock`], which of them have their metadata in the block device's page
//! cache, and [`tree_items`], what is in the trees of a btrfs. Processes and the machine: [`proc`] and [`maps`], [`cpus`], [`memory`] and `threads` with [`cgroup`],
//! [`reclaim`], [`diskstats`], and [`clock`]. [`user`] says for whom packs are found. [`error`] makes one line
//! of an error and its causes; [`names`] writes names for people, and [`json_path`] for programs.
//! [`contents`] reads files, none without end; [`outputs`] writes results, over nothing else.

pub mod cgroup;
pub mod clock;
pub mod contents;
pub mod cpus;
pub mod diskstats;
pub mod error;
pub mod fsid;
pub mod id;
pub mod identity;
pub mod json_path;
pub mod maps;
pub mod memory;
pub mod mounts;
pub mod names;
pub mod open;
pub mod outputs;
pub mod proc;
pub mod range;
pub mod reclaim;
pub mod superblock;
pub(crate) mod threads;
pub mod tree_items;
pub mod usage;
pub mod user;

//! Tests of the command that need root, and share nothing that a kernel has once: they run side by
//! side, after those of `tests/privileged`, as `check.sh privileged` has them.
#![allow(clippy::disallowed_methods)] // Its files end.
#![allow(clippy::unwrap_used)] // All of it is test code.

mod advice;
#[path = "../command/run.rs"]
mod command;
mod common;
mod elf;
mod elf_divert;
mod faults;
mod faults_waits;
mod initramfs_hooks;
mod layout;
mod layout_compress;
mod layout_crashes;
mod layout_groups;
mod layout_images;
mod layout_room;
mod layout_room_xfs;
mod layout_safety;
mod layout_shared;
mod limits;
mod package_hooks;
mod packs_are_private;
mod patience;
mod stuck;
mod transparent_signals;
mod transparent_state;
mod transparent_strace;
mod transparent_terminal;

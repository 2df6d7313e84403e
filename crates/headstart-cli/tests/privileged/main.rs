//! Tests of the command that need root, or share what a kernel has once: the page cache, trace
//! buffers, mounts. They run one after another, as `check.sh privileged` has them.
#![allow(clippy::disallowed_methods)] // Its files end.
#![allow(clippy::unwrap_used)] // All of it is test code.

mod bench;
mod boot_file_systems;
mod boot_learns;
mod boot_upgrade;
mod changing;
#[path = "../command/mod.rs"]
mod command;
mod common;
mod daemon;
mod daemon_activation;
mod daemon_containers;
mod daemon_forks;
mod daemon_loaded;
mod daemon_logins;
mod daemon_scripts;
mod daemon_starts;
mod doctor;
mod evict;
mod exact;
mod killed;
mod large_folios;
mod late_reads;
mod layout_starts;
mod little_memory;
mod new_metadata;
mod pack_renew;
mod pages;
mod record_events;
mod record_scopes;
mod replay_reads;
mod run_benefit;
mod run_learns;
mod subcommands;
mod tracefs_unmounted;
mod waits;
mod without_systemd;

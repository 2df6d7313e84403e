//! The command `headstart`: one file per verb; the only place that prints.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods))] // Files of tests end.

mod apart;
mod args;
mod bench;
mod boot;
mod cli;
mod compare;
mod daemon;
mod doctor;
#[cfg(test)]
mod documented;
mod elf;
mod evict;
mod exact;
mod exit;
mod faults;
mod forget;
#[cfg(test)]
mod generated;
mod helper;
mod in_place;
mod installed;
mod layout;
mod list;
mod map;
mod output;
mod pack;
mod packs;
mod pages;
mod parent;
mod picture;
mod priority;
mod record;
mod replay;
mod report;
mod results;
mod run;
mod scratch;
mod servers;
mod show;
mod start_options;
mod summary;
mod unit;
mod until;
mod waited;

use headstart_sys::large::Large;
use headstart_sys::reserve::Reserve;
use std::process::ExitCode;

/// musl's own allocator asks the kernel for memory far more often: a start makes 200 more system
/// calls and page faults with it.
#[cfg(target_env = "musl")]
use dlmalloc::GlobalDlmalloc as Usual;
#[cfg(not(target_env = "musl"))]
use std::alloc::System as Usual;

/// With a reserve, since the program has to start even if the kernel gives no more memory. Large blocks are
/// not kept when they are freed: of what the service holds while it learns, they are most.
#[global_allocator]
static ALLOCATOR: Reserve<Large<Usual>> = Reserve::new(Large::new(Usual));

fn main() -> ExitCode {
    let verb = || cli::parse().run();
    let result = if exact::is_helper() { exact::help() } else { verb() };
    exit::status_of(result).into()
}

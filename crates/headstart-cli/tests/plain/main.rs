//! Tests of the command that need nothing of the machine: they may run side by side.
#![allow(clippy::disallowed_methods)] // Its files end.
#![allow(clippy::unwrap_used)] // All of it is test code.

mod advice;
mod boot_analyze;
mod boot_bench;
mod boot_install;
#[path = "../command/mod.rs"]
mod command;
mod compare;
mod elf;
mod elf_order;
mod endless_files;
mod faults;
mod hostile_names;
mod import;
mod layout_units;
mod list_and_forget;
mod lists_and_names;
mod report;

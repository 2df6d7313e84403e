//! Pictures of what headstart recorded: a file for each view. All of it is pure.
//!
//! ```text
//! accesses (faults, reads) ──▶ layout ─┬─▶ by_file, all_files, by_mapping ─┬─▶ recording ─┐
//! requests of devices ─────────────────┼─▶ device ─────────────────────────┘              ├─▶ Picture
//! two recordings ──────────────────────┴─▶ before_after ──────────────────────────────────┤
//!   ▲ read_back ◀── pictures of each                                                      │
//! a boot, the last start, runs of a benchmark ──▶ boot, last_run, runs ───────────────────┘
//! ```

pub mod accesses;
mod all_files;
pub mod before_after;
pub mod boot;
mod by_file;
mod by_mapping;
pub mod device;
mod flow;
pub mod last_run;
mod layout;
pub mod read_back;
pub mod recording;
pub mod runs;

#[cfg(test)]
mod sound;
#[cfg(test)]
mod tests;

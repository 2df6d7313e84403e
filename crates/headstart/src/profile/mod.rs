//! From events to a profile: which pages of which files a start touched,
//! when first, and how; and from inodes to paths.
//!
//! ```text
//! events ──▶ fold ──▶ spans ────────────┐
//!            who      ranges, times     ├──▶ learn ──▶ a pack of one start
//! inodes ──▶ resolve ──▶ checked paths ─┘
//! ```
//!
//! [`seen`] is the driver that does all of it for one capture. Before [`learn`], pages are
//! added whose use the kernel does not report ([`unseen`]) and skipped that were only mapped
//! beside others ([`fault_around`]); [`code`] tells which are code, and [`pace`] how far the
//! start came without its waits. [`accesses`] lists all events with names, for people.

pub mod accesses;
pub mod code;
pub mod fault_around;
pub mod fold;
pub mod learn;
mod named;
pub mod pace;
pub mod resolve;
pub mod seen;
mod sorted;
pub mod spans;
pub mod unseen;

//! What ELF files cost at the start of a program, and what can be fixed without their source.
//!
//! ```text
//! bytes ──▶ image ──▶ relocations ──▶ report      what a start pays, and advice
//!                          │
//!                          └────────▶ repack      RELA becomes DT_RELR, with a proof
//!
//! program ──▶ order                               which functions a start calls, in order
//! ```
//!
//! Input is untrusted: nothing here panics on any of it. Folders are pure but for the drivers
//! that their `mod.rs` names.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods))] // Files of tests end.

/// Bytes of a page, on the machines that are looked at and in what they print.
pub(crate) const PAGE: u64 = 4096;

pub mod files;
pub mod image;
pub mod order;
pub mod relocations;
pub mod repack;
pub mod report;

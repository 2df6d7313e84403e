//! How results look: tables for terminals and Markdown, pictures as SVG and HTML.
//!
//! ```text
//! boots    (headstart::boot::analysis) ──▶ text_boot, svg_boot, html_boot
//! the last start (headstart::outcome)  ──▶ svg_last_run
//! runs of a benchmark (plain numbers)  ──▶ svg_runs
//! rows of cells                        ──▶ table
//! ```
//!
//! Everything here turns values into text, the same text for the same values.
//! Printing it, and finding out how wide the terminal is, is for the callers.
#![forbid(unsafe_code)]

mod axis;
pub mod html_boot;
mod svg;
pub mod svg_boot;
mod svg_boot_flow;
pub mod svg_last_run;
pub mod svg_runs;
pub mod table;
pub mod text_boot;
pub mod units;

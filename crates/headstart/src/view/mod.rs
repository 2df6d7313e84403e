//! How results look: tables for terminals and Markdown, pictures as SVG.
//!
//! Everything here turns values into text, the same text for the same values.
//! Printing it, and finding out how wide the terminal is, is for the callers.

mod axis;
pub mod html_boot;
mod svg;
pub mod svg_boot;
mod svg_boot_flow;
pub mod svg_last_run;
pub mod svg_runs;
pub mod table;
pub mod units;

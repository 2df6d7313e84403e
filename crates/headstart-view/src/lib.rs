//! How results look: tables for terminals and Markdown, and pictures.
//!
//! ```text
//! accesses, requests, a boot, the last start, runs ──▶ build ──▶ picture ──▶ render
//!                                                      a file    data        svg, html, json
//!                                                      for each
//!                                                      view
//! a picture of earlier, as JSON ──▶ read ──▶ picture
//! rows of cells ──▶ table        boots in a line ──▶ text_boot
//! ```
//!
//! Everything here turns values into text, the same text for the same values.
//! Printing it, and finding out how wide the terminal is, is for the callers.
#![forbid(unsafe_code)]

pub mod build;
mod column;
pub mod picture;
pub mod read;
pub mod render;
mod scale;
pub mod table;
pub mod text_boot;
pub mod units;

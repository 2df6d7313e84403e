//! From a pack into the page cache.
//!
//! ```text
//! probe ──▶ models ──▶ model ──▶ way ─┐
//! measured  kept                      ├──▶ plan ──▶ engine ──▶ report
//! pack ──▶ often, worth ──────────────┘    steps    threads    what became of it
//! ```
//!
//! [`plan`] decides what is read in which [`step`]s and which read [`strategy`] (pure), [`engine`] carries it
//! out beside the program and [`report`]s. [`model`] says how a device behaves
//! and which strategy suits it; [`probe`] measures that and [`models`] keeps it. [`benefit`]
//! says what is to be gained, [`frequency`] which ranges starts touch often enough. [`places`] knows
//! where files lie, [`elevator`] in which order a rotational disk reads them, [`device`] what one
//! request may ask for. [`metadata`] finds block devices, and [`sample`] tells a start from
//! memory. [`list`] parses lists of files, which may stand for a pack. [`folios`] makes large
//! folios of big mapped files.

pub mod benefit;
pub mod device;
pub mod elevator;
pub mod engine;
pub mod folios;
pub mod frequency;
mod interleave;
pub mod list;
pub mod metadata;
pub mod model;
pub mod models;
pub mod places;
pub mod plan;
mod portions;
pub mod probe;
pub mod report;
pub mod sample;
mod served;
pub mod step;
pub mod strategy;

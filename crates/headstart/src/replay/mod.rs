//! From a pack into the page cache.
//!
//! ```text
//! probe ──▶ models ──▶ model ──▶ way ─┐
//! measured  kept                      ├──▶ plan ──▶ engine ──▶ report
//! pack ──▶ often, worth ──────────────┘    steps    threads    what became of it
//! ```
//!
//! [`plan`] decides what is read in which [`step`]s and which [`way`] (pure), [`engine`] carries it
//! out beside the program and [`report`]s. [`model`] says how a device behaves
//! and which way suits it; [`probe`] measures that and [`models`] keeps it. [`worth`]
//! says what is to be gained, [`often`] which ranges are worth it. [`places`] knows
//! where files lie, [`sweep`] in which order a rotational disk reads them, [`device`] what one
//! request may ask for. [`metadata`] finds block devices, and [`sample`] tells a start from
//! memory. [`list`] parses lists of files, which may stand for a pack. [`folios`] makes large
//! folios of big mapped files.

pub mod device;
pub mod engine;
pub mod folios;
mod interleave;
pub mod list;
pub mod metadata;
pub mod model;
pub mod models;
pub mod often;
pub mod places;
pub mod plan;
mod portions;
pub mod probe;
pub mod report;
pub mod sample;
pub mod step;
pub mod sweep;
pub mod way;
pub mod worth;

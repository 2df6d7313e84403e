//! From a pack into the page cache.
//!
//! ```text
//! probe ──▶ models ──▶ model ──▶ strategy ─┐
//! measured  kept                           ├──▶ plan ──▶ engine ──▶ report
//! pack ──▶ frequency, benefit ─────────────┘    steps    threads    figures
//! ```
//!
//! [`plan`] decides which [`step`]s are read, and by which read [`strategy`] (pure); [`engine`]
//! executes it in parallel with the program and [`report`]s. [`model`] describes a device and
//! derives the strategy, [`pack_strategy`] that for the [`ranges`] of a pack, and `gap_size` says which gaps between
//! them are read; [`probe`] measures the model and [`models`] keeps it. [`benefit`] estimates the gain, [`frequency`]
//! says which ranges enough starts touch.
//! [`places`] finds the positions of files on a device, [`gaps`] divides steps by what lies elsewhere,
//! [`touches`] has the times of their parts, [`elevator`] orders them for a rotational disk, [`device`]
//! limits a request, [`requests`] tells them, and [`queue`] how long they take. [`metadata`] finds block devices, and [`sample`] detects a hot
//! start. [`list`] parses lists of files, which may stand for a pack. [`folios`] makes large folios of
//! big mapped files.

pub mod benefit;
mod detours;
pub mod device;
pub mod elevator;
pub mod engine;
pub mod folios;
pub mod frequency;
mod gap_size;
pub mod gaps;
mod interleave;
pub mod list;
pub mod metadata;
pub mod model;
pub mod models;
pub mod pack_strategy;
pub mod places;
pub mod plan;
mod portions;
pub mod probe;
pub mod queue;
pub mod ranges;
pub mod report;
pub mod requests;
pub mod sample;
mod served;
pub mod step;
pub mod strategy;
pub mod touches;

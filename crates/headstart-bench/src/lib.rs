//! Benchmarks of starts and of boots: what is compared, in which order it runs, and what the runs
//! say. Only the command depends on it; prefetching needs no statistics.
//!
//! ```text
//! arm ──▶ design ──▶ run ──▶ report ──▶ verdict
//! what     in which   one     all runs,    │
//! is       order, how measured by stats    ▼
//! compared often      start            document, hyperfine ──▶ compare
//! ```
//!
//! [`arm`] names what is compared, [`design`] orders it, [`run`] is one measurement, [`floor`]
//! finds the least time that the device needs, [`machine`] records what else affects the figures,
//! [`progress`] says when a start needs which part, and [`report`] sums up by [`stats`].
//! [`document`], [`mod@hyperfine`] and [`recorded`] read result files, [`side`] puts those of one
//! side together, and [`mod@compare`] finds counters that differ. [`boots`] does this for boots. Pure; the command starts the programs.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods))] // Files of tests end.

pub mod arm;
pub mod boots;
pub mod compare;
pub mod design;
pub mod document;
pub mod floor;
pub mod hyperfine;
pub mod machine;
pub mod progress;
pub mod recorded;
pub mod report;
pub mod run;
pub mod side;
pub mod stats;

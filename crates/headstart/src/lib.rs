//! Learns which file pages a start touches and prefetches them at the next start.
//!
//! ```text
//! trace ──▶ profile ──▶ pack ──▶ replay ──▶ outcome
//! events    who touched   versioned  into the     did it help?
//! from the  what, when,   file       page cache
//! kernel    how often
//! ```
//!
//! These folders are the data flow. [`launch`] is the pipeline that puts them together for
//! programs, services and benchmarks; [`boot`] uses it for the phases of a boot, [`service`] finds
//! the processes of a service. Below them are [`host`], what the machine reports of itself, and
//! [`cache`], what is in the page cache; above them is [`doctor`]. Which folder
//! may import which is a table of `doc/architecture.md`, checked by a test. Parsers and
//! planners take values and return values; the drivers that do I/O are named as such.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods))] // Files of tests end.

pub mod boot;
pub mod cache;
pub mod doctor;
pub mod host;
pub mod launch;
pub mod outcome;
pub mod pack;
pub mod profile;
pub mod replay;
pub mod service;
pub mod trace;

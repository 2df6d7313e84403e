//! Page faults of a program and all that it starts: how many, where, and how long each takes.
//!
//! ```text
//! capture ──▶ record ──▶ merge ──▶ recorder ──▶ recording ──▶ tables ──▶ document
//! rings of    decoded    by        paired, and                sums         JSON
//! each CPU               time      attributed to                └────▶ csv
//!                                  mappings            └────▶ export
//! ```
//!
//! The kernel reports the start of a fault (`PERF_COUNT_SW_PAGE_FAULTS`) and its end
//! (`PERF_COUNT_SW_PAGE_FAULTS_MIN` or `_MAJ`, once, after all retries) as software events; a
//! thread serves one fault at a time, so both are paired by thread. What threads wait for besides
//! ([`waits`]) is reported by tracepoints ([`points`]). [`capture`], [`cost`] and
//! [`attached`] are drivers, all else is pure. Input is untrusted: nothing here panics on any of
//! it.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods))] // Files of tests end.

pub mod attached;
pub mod capture;
pub mod cost;
pub mod csv;
pub mod document;
pub mod export;
pub mod merge;
pub mod pair;
pub mod points;
pub mod record;
pub mod recorder;
pub mod recording;
pub mod sections;
pub mod space;
pub mod tables;
pub mod waits;

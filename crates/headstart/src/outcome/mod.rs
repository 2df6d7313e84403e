//! The classification of the pages of a start.
//!
//! ```text
//! pages that it touched, brought in ──┐
//! what of a pack was planned ─────────┼─▶ classify ──▶ counts    ready, late, missing, wasted
//! when each was requested ────────────┘           └──▶ last_run  the same by file and over time
//! ```
//!
//! [`counts`], [`classify`] and [`waited`], the time that a start waited, are pure. [`last_run`] keeps the record of the last start
//! beside the pack; its `file` is the driver. What many starts say together is a matter of
//! benchmarks, which are a crate of their own.

pub mod classify;
pub mod counts;
pub mod last_run;
pub mod waited;

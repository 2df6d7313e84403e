//! Drivers: reading files, what forbids to change one, replacing one atomically, diverting those of
//! packages, and undoing it; finding debug files, and reading the sections or the relative relocations
//! of a file alone.
//!
//! ```text
//! path ──▶ read ──▶ obstacles ──▶ (repack) ──▶ journal ──▶ replace
//!                   loader, owned                 how to     divert, dpkg
//!                                                 undo it
//! ```

pub mod change;
pub mod debug;
pub mod divert;
pub mod dpkg;
pub mod journal;
pub mod loader;
pub mod obstacles;
pub mod owned;
pub mod read;
pub mod relative;
pub mod replace;
pub mod sections;

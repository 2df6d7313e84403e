//! A benchmark of starts: which arms there are, in which order they run, and
//! what their runs say. Pure; the driver that starts programs is the command's.
//!
//! [`arm`] names what is compared, [`design`] orders it, [`run`] is one
//! measurement, [`floor`] looks for the least time the device needs,
//! [`machine`] says what else shaped the figures, [`progress`] when a start needs
//! what, [`report`] sums up, and [`document`] reads result files back for comparison.

pub mod arm;
pub mod design;
pub mod document;
pub mod floor;
pub mod machine;
pub mod progress;
pub mod report;
pub mod run;

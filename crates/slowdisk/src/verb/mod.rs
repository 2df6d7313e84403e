//! The verbs of the command line.

pub mod check;
pub mod down;
pub mod models;
pub mod remount;
pub mod serve;
pub mod stats;
pub mod status;
pub mod up;

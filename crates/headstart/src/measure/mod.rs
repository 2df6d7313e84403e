//! Did it help? The figures of one start.

pub mod diskstats;
pub mod outcome;

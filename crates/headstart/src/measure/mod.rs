//! Did it help? The figures of one start, and the statistics of many.

pub mod bench;
pub mod boots;
pub mod compare;
pub mod diskstats;
pub mod fates;
pub mod hyperfine;
pub mod last_run;
pub mod outcome;

pub mod stats;

//! Did it help? What the measuring verbs need to turn runs into an answer.
//!
//! Everything here takes values and returns values. Starting programs,
//! emptying caches and reading clocks and files is the work of the callers.

pub mod compare;
pub mod hyperfine;
pub mod stats;

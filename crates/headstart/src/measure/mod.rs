//! Did it help? What the measuring verbs need to turn runs into an answer.
//!
//! Everything here takes numbers and returns numbers. Starting programs,
//! emptying caches and reading clocks is the work of the callers.

pub mod stats;

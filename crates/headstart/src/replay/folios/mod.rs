//! Large folios: reads parts of big mapped files again, a huge page at a time, so that later starts
//! map each part by one page table entry instead of hundreds.
//!
//! Prefetching fills the page cache page by page, and the kernel does not merge pages into folios
//! later. [`dense`] selects the parts (pure), [`refill`] drops and reads them. That is for a time
//! when nobody waits, not for a start.

pub mod dense;
pub mod refill;

//! Large folios: parts of big mapped files that are put into memory again, a huge page
//! at a time, so that later starts map each by one entry of a page table instead of
//! hundreds.
//!
//! Prefetching fills the page cache page by page, and nothing makes larger folios of
//! that later. [`dense`] says which parts are worth it (pure), [`refill`] does it. It
//! drops pages and reads them again, so it is for a time when nobody waits, not for a
//! start.

pub mod dense;
pub mod refill;

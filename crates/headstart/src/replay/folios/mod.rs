//! Large folios: parts of big mapped files that are put into memory again, a huge page
//! at a time, so that later starts map each by one entry of a page table instead of
//! hundreds.
//!
//! Reading ahead fills the page cache page by page, and nothing makes larger folios of
//! that later. [`dense`] says which parts are worth it (pure), [`refill`] does it. It
//! drops pages and reads them again, so it is for a time when nobody waits, not for a
//! start.

pub mod dense;
pub mod refill;

use std::io;

/// Where the kernel tells how large a huge page is, in bytes
/// (`Documentation/admin-guide/mm/transhuge.rst`).
const HUGE_PAGE_SIZE: &str = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size";

/// How large a huge page is, in bytes.
///
/// # Errors
/// The kernel has none.
pub fn huge_page_size() -> io::Result<usize> {
    std::fs::read_to_string(HUGE_PAGE_SIZE)?.trim().parse().map_err(io::Error::other)
}

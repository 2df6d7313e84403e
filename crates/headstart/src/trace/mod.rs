//! From the kernel's ring buffer to a stream of [`Event`]s.
//!
//! ```text
//! tracefs ──▶ capture ──▶ file ──▶ page, format ──▶ decode ──▶ events
//! a private   raw pages   the same   what is in        one        all CPUs,
//! instance    per CPU     on disk    a page            event      in order
//! ```
//!
//! [`raw`] keeps raw pages. [`mod@format`] and [`page`] are pure over bytes, so that a live capture, a trace file and a
//! fixture are decoded by the same code: [`decode`] and [`events`]. The drivers are [`tracefs`] and
//! [`instance`] for a private instance, [`capture`] for its buffers, [`standing`] for many process
//! trees ([`forks`]), [`kernel_tids`] for the numbers of our threads, and [`exact`] for recording
//! without fault-around.

mod activity;
mod buffer_size;
pub mod capture;
mod clock;
pub mod decode;
mod drain;
pub mod events;
pub mod exact;
pub mod file;
pub mod forks;
pub mod format;
pub mod instance;
pub mod kernel_tids;
pub mod page;
pub mod raw;
pub mod standing;
pub mod texts;
pub mod tracefs;

use crate::host::id::InodeId;
use crate::host::range::PageRange;

/// The kind of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// `mm_filemap_add_to_page_cache`: pages came into the cache. This is
    /// I/O, and includes what kernel readahead fetched beyond the need.
    Insert,
    /// `mm_filemap_get_pages`: pages were requested by a buffered read. The
    /// range follows the caller's buffer and may reach beyond the file's end.
    Read,
    /// `mm_filemap_map_pages`: a fault-around window was mapped (up to
    /// 64 KiB, so a slight over-count).
    Map,
    /// `mm_filemap_fault`: a page fault reached the file.
    Fault,
    /// `block_touch_buffer`: a file system looked at a metadata block. The
    /// inode is that of the block device: `dev` is the device itself.
    Metadata,
    /// `ext4_allocate_blocks`: ext4 allocated blocks, also for directories. `dev` is the file system, and
    /// `pages` are its blocks.
    Allocation,
}

/// An access to pages, an addition to the page cache, or an allocation of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Nanoseconds of the trace clock.
    pub time: u64,
    /// The thread that caused it, as the kernel numbers it.
    pub tid: i32,
    /// What happened.
    pub kind: EventKind,
    /// The file; for [`EventKind::Metadata`] and [`EventKind::Allocation`] the device with inode 0.
    pub id: InodeId,
    /// The pages, or blocks, at least one; they end within the largest file there is.
    pub pages: PageRange,
}

//! Disk layout: what a start reads is moved into one place of its disk, in touch order, and back.
//!
//! ```text
//! packs ──▶ wanted ──▶ volume, examine ──▶ plan ──▶ gain     what a layout would save
//!           which      which files may     old and
//!           ranges     be moved            new places
//!                                            │
//!                                            ▼
//!                                 journal ──▶ apply          swaps, and swaps back
//! ```
//!
//! On ext4 a *donor* is allocated in one place, and the file system swaps blocks between a file and the
//! donor (`EXT4_IOC_MOVE_EXT`), which then holds the old ones. On xfs and btrfs a file gets the blocks of a
//! copy that has the same bytes (`FIDEDUPERANGE`), and another copy keeps the old ones. So a layout can be
//! undone until it is released. The journal names all swaps before the first one is made, and where a
//! block of a file lies tells whether its swap was made: so nothing else has to be kept, whatever ends it.
//!
//! Pure: [`kind`], [`extents`], [`skip`], [`unfit`], [`wanted`], [`plan`], [`room`], [`journal`], [`gain`],
//! [`reads`], [`metadata`], [`trees`], [`renewed`], [`zstd`], `names`, [`image`] (lists for images that are built once).
//! Drivers: [`volume`] finds the file system and keeps donor and journal, `donor` allocates the donor, [`examine`] looks at files, [`others`] at those
//! that may be moved aside, [`block_groups`] moves what lies in one of btrfs, [`replays`] finds what starts read of them, [`content`] reads them, [`prepare`] makes the journal, [`apply`] swaps,
//! [`compress`] tells what compression would save,
//! [`idle`] waits while others use the disk.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods))] // Files of tests end.

pub mod apply;
pub mod block_groups;
pub mod compress;
pub mod content;
mod copies;
mod direction;
pub mod dist;
mod divide;
mod donor;
mod error;
pub mod examine;
pub mod extents;
pub mod gain;
pub mod idle;
pub mod image;
pub mod journal;
pub mod kind;
pub mod metadata;
mod mover;
mod names;
pub mod others;
mod parts;
pub mod plan;
pub mod prepare;
pub mod reads;
pub mod renewed;
pub mod replays;
pub mod room;
pub mod skip;
pub mod start;
pub mod trees;
pub mod unfit;
pub mod volume;
pub mod wanted;
pub mod zstd;

pub use error::LayoutError;

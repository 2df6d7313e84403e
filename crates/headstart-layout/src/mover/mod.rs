//! The step that differs between file systems: a range of a file gets its blocks in the other place.
//! All else, what is skipped, checked, written down and taken back, is the same for all.
//!
//! [`swap`] is that of ext4, [`share`] that of xfs and btrfs.

mod share;
mod step;
mod swap;

pub(crate) use step::{Mover, Stop};

use super::direction::Direction;
use super::error::LayoutError;
use super::journal::Journal;
use super::volume::Store;

/// That of a layout.
///
/// # Errors
/// What it needs in the directory of the layout is missing.
pub(crate) fn mover<'a>(
    store: &'a Store,
    journal: &'a Journal,
    direction: Direction,
) -> Result<Box<dyn Mover + 'a>, LayoutError> {
    Ok(match store.kind.shares() {
        true => Box::new(share::Share { store, direction }),
        false => Box::new(swap::Swapper::new(store, journal, direction)?),
    })
}

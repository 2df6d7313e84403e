//! Moves what a journal names, and looks whether it arrived.

use super::work::Work;
use crate::exit::ExitStatus;
use headstart_layout::LayoutError;
use headstart_layout::apply::{Direction, Done, standing, swap_all};
use headstart_layout::journal::Journal;
use headstart_layout::volume::{Store, Volume};

/// Makes the swaps of a journal, and reads all from the disk when they are made.
///
/// # Errors
/// The file system is full or does not answer, or a file has other content than before.
pub fn move_and_check(
    (store, volume, journal): (&Store, &Volume, &Journal),
    direction: Direction,
    is_just_read: bool,
    work: &Work,
) -> Result<(ExitStatus, Done), LayoutError> {
    let what = if direction == Direction::Apply { "moving" } else { "moving back" };
    let mut part = work.part(what, volume, journal.bytes());
    let done = swap_all(store, journal, direction, is_just_read, |done| part.go(done))?;
    drop(part);
    if done.stopped {
        return Ok((ExitStatus::Failed, done));
    }
    let mut part = work.part("checking", volume, journal.bytes());
    let standing = standing(store, journal, true, |done| part.go(done))?;
    drop(part);
    match standing.damaged.first() {
        Some(path) => Err(LayoutError::Content { path: path.clone() }),
        None => Ok((ExitStatus::Done, done)),
    }
}

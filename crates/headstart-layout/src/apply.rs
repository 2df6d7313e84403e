//! Makes the swaps of a journal, or takes them back, and says where its files are. The driver.
//!
//! The file system keeps the content of a file whatever is moved; so a wrong journal can cost places,
//! never content. All the same the content of each range is compared before and after.

use super::content::{crc, crc_on_disk, extents_of, read_in_single_pages};
pub use super::direction::Direction;
use super::error::LayoutError;
use super::examine::{Looked, Swaps, drop_cached};
use super::extents::{Compared, compare};
use super::journal::{Journal, LaidFile, Round, Swap};
use super::mover::{Mover, Stop, mover};
use super::skip::{Skip, Skipped};
use super::volume::Store;
use headstart::host::identity::identity_of;
use headstart::host::range::ByteRange;
use headstart_sys::fiemap::Extent;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Whether to go on, which the caller says between two swaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Go {
    /// Go on.
    On,
    /// Stop here; the rest can be done later.
    Stop,
}

/// What was done.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Done {
    /// Bytes of what is laid out that were swapped.
    pub bytes: u64,
    /// Bytes of other files that were moved aside, or back.
    pub aside: u64,
    /// Bytes that were where they should be already.
    pub already: u64,
    /// Files that were skipped, by reason.
    pub skipped: Skipped,
    /// Whether it stopped before the end.
    pub stopped: bool,
}

impl Done {
    /// Whether there is something left that can be done later.
    pub fn has_rest(&self) -> bool {
        self.stopped || self.skipped.keys().any(|skip| skip.is_temporary())
    }
}

/// Makes all swaps of a journal in one direction that were not made yet. `go` is called before each
/// with the bytes that are done, and may wait. `is_just_read` says that [`prepare`](super::prepare::prepare)
/// read the ranges right before. All is on the disk when this returns.
///
/// # Errors
/// The file system is full, a file has other content than before, or `go` failed; all files are whole.
pub fn swap_all(
    store: &Store,
    journal: &Journal,
    direction: Direction,
    is_just_read: bool,
    mut go: impl FnMut(u64) -> Result<Go, LayoutError>,
) -> Result<Done, LayoutError> {
    let mover = mover(store, journal, direction)?;
    if !is_just_read && !store.kind.shares() {
        let ranges = journal.all().map(|swap| &swap.piece);
        drop_cached(store, ranges.map(|piece| (journal.files.get(piece.file), piece.bytes)));
    }
    let worker = Worker { store, journal, direction, mover, swaps: Swaps::read() };
    let (mut done, mut skipped, mut passed) = (Done::default(), BTreeSet::new(), 0);
    for (round, swaps) in journal.rounds(direction) {
        if done.stopped || swaps.is_empty() {
            continue;
        }
        for swap in swaps {
            if go(passed)? == Go::Stop {
                done.stopped = true;
                break;
            }
            let length = swap.piece.bytes.length();
            match (worker.swap(swap)?, round) {
                (Ok(bytes), Round::Aside) => done.aside += bytes,
                (Ok(bytes), Round::LaidOut) => {
                    done.bytes += bytes;
                    done.already += length - bytes;
                }
                // A file is counted once for a reason.
                (Err(skip), _) => {
                    if skipped.insert((swap.piece.file, skip)) {
                        *done.skipped.entry(skip).or_default() += 1;
                    }
                }
            }
            passed += length;
        }
        // The next round needs this one on the disk, also what an earlier run swapped of it.
        rustix::fs::syncfs(&store.dir)
            .map_err(LayoutError::io("Can't write", Path::new("files")))?;
    }
    Ok(done)
}

struct Worker<'a> {
    store: &'a Store,
    journal: &'a Journal,
    direction: Direction,
    mover: Box<dyn Mover + 'a>,
    swaps: Swaps,
}

impl Worker<'_> {
    /// Swaps a range; returns the bytes that were, or why it is skipped.
    fn swap(&self, swap: &Swap) -> Result<Result<u64, Skip>, LayoutError> {
        let Some(file) = self.journal.files.get(swap.piece.file) else {
            return Ok(Err(Skip::Missing));
        };
        let looked = match Looked::again(self.store, file, swap.piece.bytes, &self.swaps) {
            Ok(looked) => looked,
            Err(skip) => return Ok(Err(skip)),
        };
        // To undo it needs to be the same inode only: its content stays whatever it is.
        if self.direction == Direction::Apply && looked.identity != file.identity {
            return Ok(Err(Skip::Changed));
        }
        let now = match looked.facts.still_movable(swap.piece.bytes) {
            Ok(now) => now,
            // What lies elsewhere now was written since.
            Err(Skip::Sparse | Skip::Preallocated | Skip::Inline) => return Ok(Err(Skip::Changed)),
            Err(skip) => return Ok(Err(skip)),
        };
        let todo = self.direction.todo(compared(&now, swap));
        if todo.is_empty() {
            let is_there = compared(&now, swap).elsewhere == 0;
            return Ok(if is_there { Ok(0) } else { Err(Skip::Changed) });
        }
        if !self.store.kind.shares() {
            read_in_single_pages(&looked.file);
        }
        let before = crc(&looked.file, swap.piece.bytes)
            .map_err(LayoutError::io("Can't read", &file.path))?;
        if self.direction == Direction::Apply && before != swap.crc {
            return Ok(Err(Skip::Changed));
        }
        match self.mover.move_ranges(&looked.file, swap, &todo) {
            Ok(()) => {}
            Err(Stop::Full) => return Err(LayoutError::Full { path: file.path.clone() }),
            Err(Stop::Skip(skip)) => return Ok(Err(skip)),
        }
        let bytes = todo.iter().map(|range| range.length()).sum();
        self.check(swap, file, &looked, before, bytes)
    }

    /// Whether a range is where it should be and has its content.
    fn check(
        &self,
        swap: &Swap,
        file: &LaidFile,
        looked: &Looked,
        before: u64,
        bytes: u64,
    ) -> Result<Result<u64, Skip>, LayoutError> {
        let failed = || LayoutError::io("Can't read", &file.path);
        let after = crc(&looked.file, swap.piece.bytes).map_err(failed())?;
        let now = extents_of(&looked.file, swap.piece.bytes).map_err(failed())?;
        let stat = rustix::fs::fstat(&looked.file)
            .map_err(LayoutError::io("Can't look at", &file.path))?;
        // Somebody may have begun to write to it meanwhile.
        let written = || headstart_sys::lease::is_written_to(&looked.file).unwrap_or(true);
        if identity_of(&stat) != looked.identity || after != before && written() {
            return Ok(Err(Skip::Changed));
        }
        if after != before {
            return Err(LayoutError::Content { path: file.path.clone() });
        }
        let is_done = self.direction.todo(compared(&now, swap)).is_empty();
        Ok(if is_done { Ok(bytes) } else { Err(Skip::Refused) })
    }
}

fn compared(now: &[Extent], swap: &Swap) -> Compared {
    compare(now, &swap.piece.old, &swap.new, swap.piece.bytes)
}

/// Where ranges of files are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Places {
    /// Bytes at their new places.
    pub new: u64,
    /// Bytes at their old places.
    pub old: u64,
    /// Bytes elsewhere, since their files were written, replaced or removed.
    pub elsewhere: u64,
}

/// Where the files of a layout are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// Ranges that are laid out.
    pub laid_out: Places,
    /// Ranges that are moved aside.
    pub aside: Places,
    /// Files that are laid out and are what they were.
    pub same: u64,
    /// Those that are not, or can't be looked at, by reason.
    pub others: Skipped,
    /// Files that are the same by their times and have other content: damage of the disk or the kernel.
    pub damaged: Vec<PathBuf>,
}

/// Looks where the files of a journal are; with `read`, also reads their ranges from the disk and
/// compares them with what they held. `go` is called before each range.
///
/// # Errors
/// `go` failed.
pub fn standing(
    store: &Store,
    journal: &Journal,
    read: bool,
    mut go: impl FnMut(u64) -> Result<Go, LayoutError>,
) -> Result<Standing, LayoutError> {
    let swaps = Swaps::read();
    let mut out = Standing::default();
    let mut seen: BTreeMap<usize, Option<Skip>> = BTreeMap::new();
    let mut damaged = BTreeSet::new();
    let mut passed = 0;
    let numbered = journal.all().enumerate();
    for (is_aside, swap) in numbered.map(|(n, swap)| (n < journal.aside.len(), swap)) {
        let length = swap.piece.bytes.length();
        let Some(file) = journal.files.get(swap.piece.file) else { continue };
        if go(passed)? == Go::Stop {
            break;
        }
        passed += length;
        let places = if is_aside { &mut out.aside } else { &mut out.laid_out };
        let state = seen.entry(swap.piece.file).or_default();
        let looked = match Looked::again(store, file, swap.piece.bytes, &swaps) {
            Ok(looked) => looked,
            Err(skip) => {
                places.elsewhere += length;
                *state = Some(skip);
                continue;
            }
        };
        let now = extents_of(&looked.file, swap.piece.bytes)
            .map_err(LayoutError::io("Can't look at", &file.path))?;
        let Compared { old, new, elsewhere } = compared(&now, swap);
        let sum = |ranges: Vec<ByteRange>| ranges.iter().map(|range| range.length()).sum::<u64>();
        places.old += sum(old);
        places.new += sum(new);
        places.elsewhere += elsewhere;
        if looked.identity != file.identity {
            *state = Some(Skip::Changed);
        } else if read {
            let found = crc_on_disk(&looked.file, swap.piece.bytes);
            if found.map_err(LayoutError::io("Can't read", &file.path))? != swap.crc {
                damaged.insert(&file.path);
            }
        }
    }
    out.damaged = damaged.into_iter().cloned().collect();
    let laid_out: BTreeSet<usize> = journal.swaps.iter().map(|swap| swap.piece.file).collect();
    for (_, skip) in seen.iter().filter(|(file, _)| laid_out.contains(file)) {
        match skip {
            Some(skip) => *out.others.entry(*skip).or_default() += 1,
            None => out.same += 1,
        }
    }
    Ok(out)
}

//! From a plan to its journal: all ranges are read for their checksums, and copied where the file system
//! needs copies. A driver.

use super::apply::Go;
use super::content::{crc, read_in_single_pages};
use super::copies::Copies;
use super::error::LayoutError;
use super::examine::{Found, Looked, Swaps, drop_cached};
use super::extents::{compare, end, shifted};
use super::journal::{Donor, Journal, LaidFile, Swap};
use super::plan::{Piece, Plan};
use super::skip::{Skip, Skipped};
use super::volume::{Store, Volume};
use super::zstd::Zstd;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

/// The most that is swapped at once, in bytes: a stop waits for no more, and for no longer can a
/// program not be started.
const PART: u64 = 8 << 20;

/// Makes the journal of a plan with this donor; nothing is swapped or written yet. New copies are
/// compressed by `zstd`. `go` is called before each range is read, with the bytes that were. Returns also the files that are skipped after
/// all; `None` after a stop. The journal names no packs yet.
///
/// # Errors
/// The file system does not answer, or `go` failed.
pub fn prepare(
    store: &Store,
    volume: &Volume,
    found: &Found,
    plan: &Plan,
    mut donor: Donor,
    zstd: Option<Zstd>,
    mut go: impl FnMut(u64) -> Result<Go, LayoutError>,
) -> Result<Option<(Journal, Skipped)>, LayoutError> {
    let (swaps, block) = (Swaps::read(), volume.block()?);
    let copies = Copies::of(store)?;
    if copies.is_none() {
        let ranges = plan.pieces.iter().map(|piece| (found.files.get(piece.file), piece.bytes));
        drop_cached(store, ranges);
    }
    let (mut skipped, mut read) = (BTreeSet::new(), 0);
    let mut files: Vec<LaidFile> = Vec::new();
    let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
    let mut made = Vec::with_capacity(plan.pieces.len());
    let parts = plan.pieces.iter().filter_map(|piece| piece.parts(PART)).flatten();
    for piece in parts {
        if go(read)? == Go::Stop {
            return Ok(None);
        }
        read += piece.bytes.length();
        let (Some(file), Some(new)) =
            (found.files.get(piece.file), piece.new_place(&donor.extents))
        else {
            continue;
        };
        let same = || {
            let looked = Looked::again(store, file, piece.bytes, &swaps)?;
            let now = looked.facts.still_movable(piece.bytes)?;
            let is_same = looked.identity == file.identity
                && compare(&now, &piece.old, &[], piece.bytes).elsewhere == 0;
            if !is_same {
                return Err(Skip::Changed);
            }
            Ok(looked)
        };
        match same() {
            Ok(looked) => {
                let number = *numbers.entry(piece.file).or_insert_with(|| {
                    files.push(file.clone());
                    files.len() - 1
                });
                let made_of = match &copies {
                    Some(copies) => copies.make(&looked.file, file.identity.size, &piece, number),
                    None => {
                        read_in_single_pages(&looked.file);
                        crc(&looked.file, piece.bytes)
                    }
                };
                let crc = match made_of {
                    Ok(crc) => crc,
                    Err(error) => match Errno::from_io_error(&error) {
                        Some(Errno::NOSPC) => {
                            return Err(LayoutError::Full { path: file.path.clone() });
                        }
                        Some(Errno::OPNOTSUPP | Errno::NOTTY) => {
                            return Err(LayoutError::NoSharing {
                                path: volume.mount_point.clone(),
                            });
                        }
                        Some(Errno::DQUOT) => {
                            skipped.insert((file.identity.ino, Skip::Quota));
                            continue;
                        }
                        _ => {
                            skipped.insert((file.identity.ino, Skip::Unreadable));
                            continue;
                        }
                    },
                };
                made.push(Swap { piece: Piece { file: number, ..piece }, new, crc });
            }
            Err(skip) => {
                skipped.insert((file.identity.ino, skip));
            }
        }
    }
    if let Some(copies) = copies {
        if zstd.is_some() {
            // What is not on the disk yet is passed over.
            copies.sync()?;
        }
        for swap in made.iter().filter(|_| zstd.is_some()) {
            if go(read)? == Go::Stop {
                return Ok(None);
            }
            copies.compress(swap, zstd)?;
        }
        copies.finish()?;
        // Where they lie is known now. The journal has it as a donor with all of them in turn.
        donor.extents.clear();
        made.retain_mut(|swap: &mut Swap| {
            let at = donor.extents.last().map_or(0, end);
            let Some(new) = copies.place(swap) else {
                skipped.insert((files[swap.piece.file].identity.ino, Skip::NoCopy));
                return false;
            };
            donor.extents.extend(shifted(&new, swap.piece.bytes.offset, at));
            (swap.new, swap.piece.donor) = (new, at);
            true
        });
    }
    let mut counts = Skipped::new();
    for (_, skip) in skipped {
        *counts.entry(skip).or_default() += 1;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (uuid, made_at) = (volume.uuid, now.as_secs());
    let packs = Vec::new();
    Ok(Some((Journal { uuid, made_at, block, donor, files, swaps: made, packs }, counts)))
}

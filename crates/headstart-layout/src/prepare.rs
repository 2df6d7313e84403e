//! From a plan to its journal: all ranges are read for their checksums, and copied where the file system
//! needs copies. A driver.

use super::apply::Go;
use super::content::{crc, read_in_single_pages};
use super::copies::Copies;
use super::error::LayoutError;
use super::examine::{Found, Looked, Swaps, drop_cached, writable};
use super::extents::{compare, end, shifted};
use super::journal::{Donor, Journal, LaidFile, Round, Swap};
use super::plan::{Piece, Plan, exchanged};
use super::skip::{Skip, Skipped};
use super::volume::{Store, Volume};
use super::zstd::Zstd;
use headstart::cache::residency::page_size;
use headstart_sys::fiemap::Extent;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
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
        let ranges = plan.aside.iter().chain(&plan.pieces);
        drop_cached(store, ranges.map(|piece| (found.files.get(piece.file), piece.bytes)));
    }
    let mut reader = Reader {
        store,
        volume,
        found,
        swaps,
        copies: copies.as_ref(),
        skipped: BTreeSet::new(),
        files: Vec::new(),
        numbers: BTreeMap::new(),
        read: 0,
    };
    // Copies are cut off a donor from its beginning on.
    let in_order = |pieces: &[Piece]| {
        let mut sorted = pieces.to_vec();
        if copies.is_some() {
            sorted.sort_by_key(|piece| piece.donor);
        }
        sorted
    };
    let (first, second) = (in_order(&plan.aside), in_order(&plan.pieces));
    let Some(mut aside) = reader.swaps(&first, &donor.extents, Round::Aside, &mut go)? else {
        return Ok(None);
    };
    // Where one of them stays, what is laid out gets the donor's own place.
    let pieces: Vec<&Piece> = aside.iter().map(|swap| &swap.piece).collect();
    let other = || LayoutError::OtherDonor { path: volume.dir() };
    let then = exchanged(&donor.extents, &pieces).ok_or_else(other)?;
    let Some(mut made) = reader.swaps(&second, &then, Round::LaidOut, &mut go)? else {
        return Ok(None);
    };
    let Reader { mut skipped, files, read, .. } = reader;
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
        let mut find_place = |swap: &mut Swap| {
            let at = donor.extents.last().map_or(0, end);
            let Some(new) = copies.place(swap) else {
                skipped.insert((files[swap.piece.file].identity.ino, Skip::NoCopy));
                return false;
            };
            donor.extents.extend(shifted(&new, swap.piece.bytes.offset, at));
            (swap.new, swap.piece.donor) = (new, at);
            true
        };
        aside.retain_mut(&mut find_place);
        made.retain_mut(&mut find_place);
    }
    let mut counts = Skipped::new();
    for (_, skip) in skipped {
        *counts.entry(skip).or_default() += 1;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (uuid, made_at) = (volume.uuid, now.as_secs());
    let packs = Vec::new();
    Ok(Some((Journal { uuid, made_at, block, donor, files, aside, swaps: made, packs }, counts)))
}

/// Reads ranges for their checksums, or copies them.
struct Reader<'a> {
    store: &'a Store,
    volume: &'a Volume,
    found: &'a Found,
    swaps: Swaps,
    copies: Option<&'a Copies<'a>>,
    /// Inodes of files that are skipped.
    skipped: BTreeSet<(u64, Skip)>,
    /// Files of the journal, and their numbers by those in the plan.
    files: Vec<LaidFile>,
    numbers: BTreeMap<usize, usize>,
    /// Bytes that were read.
    read: u64,
}

impl Reader<'_> {
    /// The swaps of these ranges with a donor that lies here; `None` after a stop.
    fn swaps(
        &mut self,
        pieces: &[Piece],
        donor: &[Extent],
        round: Round,
        go: &mut impl FnMut(u64) -> Result<Go, LayoutError>,
    ) -> Result<Option<Vec<Swap>>, LayoutError> {
        let mut made = Vec::with_capacity(pieces.len());
        for piece in pieces.iter().filter_map(|piece| piece.parts(PART)).flatten() {
            if go(self.read)? == Go::Stop {
                return Ok(None);
            }
            self.read += piece.bytes.length();
            let (Some(file), Some(new)) =
                (self.found.files.get(piece.file), piece.new_place(donor))
            else {
                continue;
            };
            let looked = match self.looked(file, &piece, round) {
                Ok(looked) => looked,
                Err(skip) => {
                    self.skipped.insert((file.identity.ino, skip));
                    continue;
                }
            };
            let number = *self.numbers.entry(piece.file).or_insert_with(|| {
                self.files.push(file.clone());
                self.files.len() - 1
            });
            let made_of = match &self.copies {
                Some(copies) => copies.make(&looked.file, file.identity.size, &piece, number),
                None => {
                    read_in_single_pages(&looked.file);
                    crc(&looked.file, piece.bytes)
                }
            };
            match made_of {
                Ok(crc) => made.push(Swap { piece: Piece { file: number, ..piece }, new, crc }),
                Err(error) => {
                    let skip = self.skip(&error, file)?;
                    self.skipped.insert((file.identity.ino, skip));
                }
            }
        }
        Ok(Some(made))
    }

    /// Opens a file, if it is as it was found.
    fn looked(&self, file: &LaidFile, piece: &Piece, round: Round) -> Result<Looked, Skip> {
        let looked = Looked::again(self.store, file, piece.bytes, &self.swaps)?;
        let now = looked.facts.still_movable(piece.bytes)?;
        let is_same = looked.identity == file.identity
            && compare(&now, &piece.old, &[], piece.bytes).elsewhere == 0;
        if !is_same {
            return Err(Skip::Changed);
        }
        if round == Round::Aside {
            if self.copies.is_none() {
                // What is laid out counts on its place: better to know now that a process executes it.
                writable(&looked.file)?;
            }
            if is_swap_space(&looked.file) {
                return Err(Skip::Swap);
            }
        }
        Ok(looked)
    }

    /// Why a range can't be read or copied, if that is no reason to give up.
    fn skip(&self, error: &io::Error, file: &LaidFile) -> Result<Skip, LayoutError> {
        match Errno::from_io_error(error) {
            Some(Errno::NOSPC) => Err(LayoutError::Full { path: file.path.clone() }),
            Some(Errno::OPNOTSUPP | Errno::NOTTY) => {
                Err(LayoutError::NoSharing { path: self.volume.mount_point.clone() })
            }
            Some(Errno::DQUOT) => Ok(Skip::Quota),
            _ => Ok(Skip::Unreadable),
        }
    }
}

/// Whether a file is swap space, also if nobody uses it now: a machine that hibernates finds it by its blocks. The
/// signature is at the end of its first page (`union swap_header` of `include/linux/swap.h`).
fn is_swap_space(file: &File) -> bool {
    const SIGNATURES: [&[u8]; 3] = [b"SWAPSPACE2", b"SWAP-SPACE", b"S1SUSPEND\0"];
    let mut found = [0; 10];
    let at = page_size() - found.len() as u64;
    file.read_exact_at(&mut found, at).is_ok() && SIGNATURES.contains(&&found[..])
}

//! Copies of what is moved, on file systems that share blocks: a new one, in the place where it
//! goes, and an old one, which keeps the blocks where it was. A driver.
//!
//! Both are files with ranges at the same offsets as in the file that they are of. The old one shares the
//! file's blocks. The new one is written: on xfs to a donor in one place, of which it gets its part, on
//! btrfs to blocks of its own, since btrfs writes nothing in place once it is shared.

use super::content::extents_of;
use super::error::LayoutError;
use super::extents::{shifted, within};
use super::journal::{CRC, Donor, Swap};
use super::kind::Kind;
use super::names::{self, Copy, DONOR};
use super::plan::{Piece, Plan};
use super::volume::{Store, Volume};
use super::zstd::Zstd;
use headstart::cache::residency::page_size;
use headstart::host::range::ByteRange;
use headstart::replay::places::joined;
use headstart_sys::btrfs;
use headstart_sys::fiemap::{self, Extent};
use headstart_sys::reflink::clone_range;
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Copied at once, in bytes.
const CHUNK: usize = 1 << 20;

/// Allocates new copies on btrfs, each with extents of its own, so that one that is freed later
/// frees its space. An allocation without a hint goes to the largest free part, so they follow
/// each other where there is room (`fs/btrfs/free-space-cache.c`).
pub(crate) fn allocate(store: &Store, volume: &Volume, plan: &Plan) -> Result<Donor, LayoutError> {
    let page = page_size();
    let range = |piece: &Piece| {
        let length = piece.bytes.length().next_multiple_of(page);
        ByteRange::of(piece.bytes.offset, length)
    };
    let open = |piece: &Piece| make(store, &names::allocated(piece.file));
    let allocate = || {
        for piece in &plan.pieces {
            let ByteRange { offset, .. } = range(piece);
            let length = range(piece).length();
            rustix::fs::fallocate(open(piece)?, FallocateFlags::KEEP_SIZE, offset, length)?;
        }
        rustix::fs::syncfs(&store.dir)?;
        let mut extents = Vec::new();
        for piece in &plan.pieces {
            let pieces = fiemap::pieces(open(piece)?)?;
            let all: Vec<_> = pieces.into_iter().map(|(extent, _)| extent).collect();
            let found = within(&all, range(piece)).ok_or(io::Error::from(Errno::IO))?;
            extents.extend(shifted(&found, piece.bytes.offset, piece.donor));
        }
        Ok(extents)
    };
    let extents = allocate().map_err(|error: io::Error| match Errno::from_io_error(&error) {
        Some(Errno::DQUOT) => {
            let needed = plan.donor_bytes.div_ceil(1 << 20);
            LayoutError::Quota { path: volume.mount_point.clone(), needed }
        }
        _ => LayoutError::io("Can't allocate", DONOR.as_ref())(error),
    })?;
    Ok(Donor { ino: 0, extents: joined(extents) })
}

fn make(store: &Store, name: &str) -> rustix::io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(&store.dir, name, flags, Mode::RUSR | Mode::WUSR).map(File::from)
}

/// Makes the copies of a layout, in the order of their places.
pub(crate) struct Copies<'a> {
    store: &'a Store,
    /// The donor, on xfs.
    donor: Option<File>,
}

impl<'a> Copies<'a> {
    /// None on a file system whose blocks are swapped.
    ///
    /// # Errors
    /// The donor can't be opened.
    pub(crate) fn of(store: &'a Store) -> Result<Option<Self>, LayoutError> {
        if !store.kind.shares() {
            return Ok(None);
        }
        let donor = match store.kind {
            Kind::Xfs => store.file(DONOR, OFlags::RDWR)?.map(|(file, _)| file),
            _ => None,
        };
        Ok(Some(Self { store, donor }))
    }

    /// Makes both copies of a part of a file of this size, which has this number in the journal. Returns
    /// the CRC-64 of its bytes.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: the file system shares no blocks. Those of reading and writing.
    pub(crate) fn make(
        &self,
        file: &File,
        size: u64,
        piece: &Piece,
        number: usize,
    ) -> io::Result<u64> {
        let ByteRange { offset, end } = piece.bytes;
        let length = end.min(size).saturating_sub(offset);
        let old = make(self.store, &Copy::Old.name(number))?;
        clone_range(file, offset, length, &old, offset)?;
        let name = Copy::New.name(number);
        let Some(donor) = &self.donor else {
            let allocated = names::allocated(piece.file);
            match rustix::fs::renameat(&self.store.dir, &allocated, &self.store.dir, &name) {
                // It has its name since an earlier part of the file.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
            return copied(&old, (offset, length), &make(self.store, &name)?, offset);
        };
        let crc = copied(&old, (offset, length), donor, piece.donor)?;
        clone_range(donor, piece.donor, length, make(self.store, &name)?, offset)?;
        // Else the next piece would zero the end of this one in a block that is shared, and xfs
        // would write that, and what comes behind it, elsewhere (the hint cowextsize).
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(donor, flags, piece.donor, piece.bytes.length())?;
        Ok(crc)
    }

    /// Writes the new copy of a range once more, compressed. It gets the place behind what was compressed
    /// before, or the next that is free: btrfs looks from where the range lies.
    ///
    /// # Errors
    /// The kernel takes no level, or there is no room.
    pub(crate) fn compress(&self, swap: &Swap, zstd: Option<Zstd>) -> Result<(), LayoutError> {
        let name = Copy::New.name(swap.piece.file);
        let (bytes, level) = (swap.piece.bytes, zstd.and_then(|zstd| zstd.level));
        let done = make(self.store, &name)
            .map_err(io::Error::from)
            .and_then(|copy| btrfs::compress(copy, bytes.offset, bytes.length(), level));
        done.map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::OPNOTSUPP | Errno::INVAL) if level.is_some() => LayoutError::NoLevel,
            _ => LayoutError::io("Can't compress", Path::new(&name))(error),
        })
    }

    /// Where the new copy of a range lies; `None` if that is not known.
    pub(crate) fn place(&self, swap: &Swap) -> Option<Vec<Extent>> {
        let (copy, bytes) =
            (make(self.store, &Copy::New.name(swap.piece.file)).ok()?, swap.piece.bytes);
        within(&extents_of(&copy, bytes).ok()?, bytes)
    }

    /// When all are made: they are on the disk, and nothing is left beside them.
    ///
    /// # Errors
    /// What the kernel said.
    pub(crate) fn finish(&self) -> Result<(), LayoutError> {
        let failed = || LayoutError::io("Can't write", Path::new(DONOR));
        if self.donor.is_some() {
            match rustix::fs::unlinkat(&self.store.dir, DONOR, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(failed()(error)),
            }
        }
        self.sync()
    }

    /// Writes to the disk what was copied.
    ///
    /// # Errors
    /// What the kernel said.
    pub(crate) fn sync(&self) -> Result<(), LayoutError> {
        let failed = LayoutError::io("Can't write", Path::new(DONOR));
        rustix::fs::syncfs(&self.store.dir).map_err(failed)
    }
}

/// Copies bytes of a file to a place of another one, and returns their CRC-64.
fn copied(from: &File, (offset, length): (u64, u64), to: &File, at: u64) -> io::Result<u64> {
    let mut digest = CRC.digest();
    let mut buffer = vec![0; usize::try_from(length).map_or(CHUNK, |length| length.min(CHUNK))];
    let mut done = 0;
    while done < length {
        let room = usize::try_from(length - done).map_or(buffer.len(), |n| n.min(buffer.len()));
        let part = &mut buffer[..room];
        from.read_exact_at(part, offset + done)?;
        to.write_all_at(part, at + done)?;
        digest.update(part);
        done += room as u64;
    }
    Ok(digest.finalize())
}

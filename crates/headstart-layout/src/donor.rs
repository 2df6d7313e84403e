//! The donor: a file that is allocated where a layout goes. A driver.

use super::copies;
use super::error::LayoutError;
use super::extents::end;
use super::journal::Donor;
use super::kind::Kind;
use super::names::{self, DONOR};
use super::plan::Plan;
use super::volume::{Store, Volume};
use headstart::cache::residency::page_size;
use headstart::replay::places::joined;
use headstart_sys::fiemap::{self, Extent};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

/// How many places are tried, if the first is not in one piece.
const TRIALS: usize = 4;

impl Store {
    /// Allocates so many bytes for the pieces of a plan, which lie in as few extents as can be found in its first places,
    /// and removes what was allocated before.
    ///
    /// # Errors
    /// There is no room.
    pub fn allocate(&self, bytes: u64, volume: &Volume, plan: &Plan) -> Result<Donor, LayoutError> {
        let path = self.path.join(DONOR);
        self.remove_named(names::has_blocks)?;
        let room = volume.room()?;
        if room < bytes {
            let (needed, free) = (bytes.div_ceil(1 << 20), room >> 20);
            return Err(LayoutError::NoRoom { path: volume.mount_point.clone(), needed, free });
        }
        if volume.kind == Kind::Btrfs {
            return copies::allocate(self, volume, plan);
        }
        let mut best: Option<(usize, String, Donor)> = None;
        for trial in 0..TRIALS {
            // Those of earlier trials stay meanwhile, so that this one is elsewhere.
            if trial > 0 && volume.room()? < bytes {
                break;
            }
            let name = names::trial(trial);
            match self.trial(&name, bytes) {
                Ok(donor) => {
                    // A larger one than is needed may be in more.
                    let pieces = plan.places(&donor.extents).map_or(usize::MAX, |all| all.len());
                    if best.as_ref().is_none_or(|(known, ..)| pieces < *known) {
                        best = Some((pieces, name, donor));
                    }
                }
                Err(Errno::NOSPC) if best.is_some() => break,
                Err(error) => {
                    self.remove_named(names::has_blocks)?;
                    return Err(LayoutError::io("Can't allocate", &path)(error));
                }
            }
            if best.as_ref().is_some_and(|(pieces, ..)| *pieces == 1) {
                break;
            }
        }
        let none = || LayoutError::OtherDonor { path: path.clone() };
        let (_, name, donor) = best.ok_or_else(none)?;
        rustix::fs::renameat(&self.dir, &name, &self.dir, DONOR)
            .map_err(LayoutError::io("Can't rename", &path))?;
        self.remove_named(names::is_trial)?;
        rustix::fs::fsync(&self.dir).map_err(LayoutError::io("Can't write", &path))?;
        Ok(donor)
    }

    fn trial(&self, name: &str, bytes: u64) -> Result<Donor, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::openat(&self.dir, name, flags | OFlags::CLOEXEC, mode)?;
        // Copies are cloned from its end, which then comes to each in turn.
        let flags = match self.kind.shares() {
            true => FallocateFlags::KEEP_SIZE,
            false => FallocateFlags::empty(),
        };
        rustix::fs::fallocate(&file, flags, 0, bytes)?;
        rustix::fs::fsync(&file)?;
        let pieces =
            fiemap::pieces(&file).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        let extents: Vec<Extent> = pieces.into_iter().map(|(extent, _)| extent).collect();
        Ok(Donor { ino: rustix::fs::fstat(&file)?.st_ino, extents: joined(extents) })
    }

    /// Frees what a donor has and a plan does not use.
    ///
    /// # Errors
    /// It is another file, or what the kernel said.
    pub fn trim(&self, donor: &Donor, plan: &Plan) -> Result<(), LayoutError> {
        let path = self.path.join(DONOR);
        let opened = self.file(DONOR, OFlags::RDWR)?.filter(|(_, stat)| stat.st_ino == donor.ino);
        let (file, _) = opened.ok_or_else(|| LayoutError::OtherDonor { path: path.clone() })?;
        let bytes = donor.extents.last().map_or(0, end);
        for unused in plan.unused(bytes, page_size()) {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, flags, unused.offset, unused.length())
                .map_err(LayoutError::io("Can't free a part of", &path))?;
        }
        Ok(())
    }
}

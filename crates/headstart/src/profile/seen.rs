//! From a capture to an observed start: its pages, the names of its files, and their file systems.
//!
//! The driver between the trace and the pure parts of learning: it reads mounts, names and UUIDs of
//! this machine. It writes nothing.

use super::accesses::rows::{self, Names, Style};
use super::accesses::{Access, Object, accesses};
use super::code::code_of;
use super::fold::{Observation, Rules, fold};
use super::resolve::{LiveNames, Resolution, ResolveOptions, resolve};
use super::spans::Spans;
use crate::host::clock::monotonic_ns;
use crate::host::fsid;
use crate::host::id::{Dev, InodeId};
use crate::host::mounts::{MountTable, MountsError};
use crate::host::usage::How;
use crate::pack::{Dropped, EarlierNames, FileSystem, Origin, Pack};
use crate::trace::decode::Tally;
use crate::trace::file::{Capture, Description};
use crate::trace::format::FormatError;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// The UUID of a file system that was made without one.
const NIL: [u8; 16] = [0; 16];

/// A capture that can't be learned from.
#[derive(Debug, Error)]
pub enum SeenError {
    /// It can't be decoded.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// There is nothing in it.
    #[error("The kernel reported no events of the program")]
    Nothing,
}

/// A start as it was seen.
#[derive(Debug)]
pub struct Seen {
    /// The pages of its files.
    pub pages: Observation,
    /// The names of its files.
    pub names: Resolution,
    /// What decoding met.
    pub tally: Tally,
    /// How it was captured.
    pub description: Description,
    /// Files that were removed.
    removed: HashSet<InodeId>,
}

/// A decoded start, whose files have no names yet.
#[derive(Debug)]
pub struct Decoded {
    pages: Observation,
    tally: Tally,
    description: Description,
}

impl Decoded {
    /// Of a capture, whose raw pages are freed: they may be large.
    ///
    /// # Errors
    /// The capture can't be decoded, or holds nothing.
    pub fn of(capture: Capture) -> Result<Self, SeenError> {
        let (pages, tally) = decode(&capture)?;
        let Capture { description, .. } = capture;
        Ok(Self { pages, tally, description })
    }

    /// Of a capture whose accesses are listed later.
    ///
    /// # Errors
    /// Those of [`Decoded::of`].
    pub fn of_kept(capture: &Capture) -> Result<Self, SeenError> {
        let (pages, tally) = decode(capture)?;
        Ok(Self { pages, tally, description: capture.description.clone() })
    }

    /// Resolves its inodes within this time, also by `earlier` names. `walk`: the last resort is a walk
    /// of each file system except these; without it no file system is walked.
    pub fn named(
        self,
        mounts: &MountTable,
        earlier: &EarlierNames,
        walk: Option<&[Dev]>,
        limit: Duration,
    ) -> Seen {
        let Self { mut pages, tally, description } = self;
        pages.remove_made(|dev| block_size(dev, mounts) == Some(description.page_size));
        let mut live = LiveNames::new();
        let tids: Vec<i32> = pages.tids.iter().copied().collect();
        live.observe(&tids);
        let ids: Vec<_> = pages.files.keys().copied().collect();
        let options = ResolveOptions {
            walk: walk.is_some(),
            walked_without_result: walk.unwrap_or_default(),
            live: Some(&live),
            earlier: Some(earlier),
            deadline: Some(Instant::now() + limit),
            ..ResolveOptions::new(mounts)
        };
        let names = resolve(&ids, &options);
        Seen { pages, names, tally, description, removed: HashSet::new() }
    }
}

/// The size of the blocks of a mounted file system, in bytes.
fn block_size(dev: Dev, mounts: &MountTable) -> Option<u64> {
    let mount = mounts.visible_of(dev).first().copied().filter(|_| mounts.answers(dev))?;
    Some(rustix::fs::statvfs(&mount.mount_point).ok()?.f_bsize)
}

/// Adds the block devices of this machine to the description of a capture.
///
/// # Errors
/// The mounts can't be read.
pub fn complete(capture: &mut Capture) -> Result<MountTable, MountsError> {
    let mounts = MountTable::read()?;
    let devices: HashSet<Dev> =
        mounts.mounts().iter().map(|m| m.dev).filter(|dev| dev.major() != 0).collect();
    capture.description.block_devices = devices.iter().map(|dev| dev.0).collect();
    Ok(mounts)
}

/// How long before `now`, a time of the monotonic clock, a time of the trace clock was, which is
/// `ahead` of the monotonic one; all in nanoseconds.
fn ago_ns(at: u64, ahead: i64, now: u64) -> i64 {
    now.cast_signed().saturating_add(ahead).saturating_sub(at.cast_signed())
}

impl Seen {
    /// How long ago its times begin, in nanoseconds, if the clock of the trace is known.
    pub(crate) fn began_ago_ns(&self) -> Option<i64> {
        let ahead = self.description.clock_ahead_ns?;
        Some(ago_ns(self.pages.began, ahead, monotonic_ns()))
    }

    /// Removes a file: the process that becomes the program touches pages of our executable before
    /// its exec.
    pub fn remove_file(&mut self, path: &Path) {
        let Self { pages, names, removed, .. } = self;
        names.files.retain(|(id, file)| {
            let stays = file.path != path;
            if !stays {
                removed.insert(*id);
                pages.files.remove(id);
            }
            stays
        });
    }

    /// Writes the accesses of the capture that it is of, with the names of `processes`.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_accesses(
        &self,
        out: &mut dyn Write,
        capture: &Capture,
        processes: &HashMap<i32, Vec<u8>>,
        style: Style,
    ) -> io::Result<()> {
        let names = Names::new(&self.names, code_of, processes, self.description.page_size);
        let rules = rules(capture);
        // It was decoded before, so that nothing is missing here.
        let events = || capture.events().into_iter().flatten();
        let is_own = |access: &Access| match access.object {
            Object::File(id) => self.removed.contains(&id),
            Object::Metadata(_) => false,
        };
        let accesses = accesses(events, &rules).filter(|access| !is_own(access));
        rows::write(out, accesses, &names, style, self.tally.lost)
    }

    /// The file systems that the start touched.
    pub fn file_systems(&self, mounts: &MountTable) -> HashMap<Dev, FileSystem> {
        let named: HashSet<Dev> = self.names.files.iter().map(|(id, _)| id.dev).collect();
        let of_files = self.pages.files.keys().map(|id| id.dev).chain(named.iter().copied());
        let devices: HashSet<Dev> = of_files.chain(self.pages.metadata.keys().copied()).collect();
        // A layer that is not mounted is known by its overlay.
        let overlay_of = |dev: Dev| {
            let (_, file) = self.names.files.iter().find(|(id, _)| id.dev == dev)?;
            mounts.at(&file.path).filter(|mount| mount.fstype == "overlay")
        };
        // A file system without names may not answer.
        let asked = |dev: Dev| named.contains(&dev) || mounts.answers(dev);
        let describe = |dev: Dev| {
            let visible = mounts.visible_of(dev).first().copied();
            let mount = visible.or_else(|| overlay_of(dev))?;
            Some(FileSystem {
                // Without a UUID the file system is known by type and source.
                uuid: asked(dev)
                    .then(|| fsid::uuid(mount).ok())
                    .flatten()
                    .flatten()
                    .map(|id| id.0)
                    .filter(|id| *id != NIL),
                kind: mount.fstype.to_string_lossy().into_owned(),
                source: mount.source.as_bytes().to_vec(),
            })
        };
        devices.into_iter().filter_map(|dev| Some((dev, describe(dev)?))).collect()
    }

    /// The origin of this start's pack.
    pub fn origin(&self, name: &str, command: Vec<u8>) -> Origin {
        Origin {
            name: name.into(),
            command,
            kernel: self.description.kernel.clone(),
            page_shift: self.description.page_size.trailing_zeros() as u8,
            starts: 1,
            learned_at: u64::try_from(now_ns() / 1_000_000_000).unwrap_or(0),
            lost_events: self.tally.lost,
            has_access_events: self.pages.has_access_events,
            buffer_kb: self.description.buffer_kb,
            duration_us: self.pages.duration / 1000,
            dropped: Dropped::default(),
        }
    }

    /// Whether the start itself read the metadata in the `packs`, so that metadata without an
    /// access was not needed; see `was_cold`.
    pub fn metadata_was_cold<'a>(
        &self,
        pages: &Observation,
        packs: impl Iterator<Item = &'a Pack> + Clone,
        file_systems: &HashMap<Dev, FileSystem>,
        by_replay: u64,
    ) -> bool {
        let in_packs = packs.clone().map(Pack::metadata_bytes).fold(0, u64::saturating_add);
        let by_start = pages.metadata.iter().filter_map(|(dev, seen)| {
            let known = metadata_of(file_systems.get(dev)?, packs.clone());
            Some(seen.inserted.within(&known).pages())
        });
        was_cold(by_start.sum::<u64>() * self.description.page_size, in_packs, by_replay)
    }
}

fn rules(capture: &Capture) -> Rules {
    Rules {
        block_devices: capture.description.block_devices.iter().map(|dev| Dev(*dev)).collect(),
        ignored_tids: capture.description.ignored_tids.iter().copied().collect(),
        metadata_tids: capture.description.metadata_tids.iter().copied().collect(),
        has_access_events: capture.has_access_events(),
    }
}

fn decode(capture: &Capture) -> Result<(Observation, Tally), SeenError> {
    let mut events = capture.events()?;
    let pages = fold(&mut events, &rules(capture));
    let tally = events.tally();
    if tally.events == 0 { Err(SeenError::Nothing) } else { Ok((pages, tally)) }
}

/// The metadata of a file system in these packs.
fn metadata_of<'a>(fs: &FileSystem, packs: impl Iterator<Item = &'a Pack>) -> Spans {
    let mut known = Spans::default();
    for pack in packs {
        let is_it = |at: u16| pack.file_systems.get(usize::from(at)).is_some_and(|of| of.is(fs));
        for range in pack.metadata.iter().filter(|range| is_it(range.file_system)) {
            known.touch(range.page_range(), 0, How::READ);
        }
    }
    known
}

/// Whether a start brought in at least half of its pack's metadata, and none was prefetched; all in
/// bytes. The kernel reports few accesses to resident metadata, so a start with prefetched metadata
/// does not show what is not needed.
fn was_cold(by_start: u64, in_pack: u64, by_replay: u64) -> bool {
    by_replay == 0 && in_pack > 0 && by_start.saturating_mul(2) >= in_pack
}

/// Now, in nanoseconds of Unix time.
pub fn now_ns() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}

/// An interval that ends now, in nanoseconds of Unix time. Its begin is right even if the clock was
/// set meanwhile.
pub fn the_last(time: Duration) -> RangeInclusive<i64> {
    let now = now_ns();
    let time = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    now.saturating_sub(time)..=now
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::{History, MetadataRange};

    #[test]
    fn metadata_of_a_pack_is_that_of_one_file_system() {
        let fs = |tag| FileSystem { uuid: Some([tag; 16]), ..FileSystem::default() };
        let range = |file_system, first| MetadataRange {
            file_system,
            first,
            pages: 4,
            at_us: 0,
            history: History(1),
        };
        let pack = Pack {
            file_systems: vec![fs(1), fs(2)],
            metadata: vec![range(0, 0), range(1, 100), range(7, 200)],
            ..Pack::default()
        };
        let of = |tag| -> Vec<u64> {
            metadata_of(&fs(tag), [&pack].into_iter()).iter().map(|span| span.pages.first).collect()
        };
        assert_eq!((of(1), of(2), of(3)), (vec![0], vec![100], vec![]));
    }

    #[test]
    fn times_of_a_trace_are_compared_with_the_monotonic_clock() {
        for (name, at, ahead, now, expected) in [
            ("the same clock", 700, 0, 1000, 300),
            ("a clock that is ahead", 5700, 5000, 1000, 300),
            ("one that began later", 100, -600, 1000, 300),
            ("a time to come", 1200, 0, 1000, -200),
            ("hostile", u64::MAX, i64::MAX, u64::MAX >> 1, i64::MAX),
        ] {
            assert_eq!(ago_ns(at, ahead, now), expected, "{name}");
        }
    }

    #[test]
    fn metadata_that_was_prefetched_says_nothing_of_what_is_needed() {
        for (name, by_start, in_pack, by_replay, expected) in [
            ("all by the start", 100, 100, 0, true),
            ("half by the start", 50, 100, 0, true),
            ("less than half", 49, 100, 0, false),
            ("all prefetched", 0, 100, 100, false),
            ("half prefetched", 50, 100, 50, false),
            ("nothing in the pack", 50, 0, 0, false),
            ("a hostile pack", u64::MAX, u64::MAX, 0, true),
        ] {
            assert_eq!(was_cold(by_start, in_pack, by_replay), expected, "{name}");
        }
    }
}

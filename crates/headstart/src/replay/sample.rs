//! Whether a start will find its files resident, by a sample of its pack and without waiting for a
//! disk. The driver: it queries the kernel.
//!
//! The sample says nothing about the other ranges, nor about metadata: the caller has the whole
//! pack checked in parallel with the program (`engine`).

use super::frequency::Choice;
use crate::cache::residency::{are_resident, page_size};
use crate::host::identity::Identity;
use crate::host::mounts::is_local;
use crate::host::open::open_cached;
use crate::host::range::PageRange;
use crate::pack::changing::changes_often;
use crate::pack::{Pack, Range};
use std::ffi::OsStr;
use std::path::PathBuf;

/// The number of ranges in a sample, or one more. A start of which a tenth is missing counts as
/// hot once in twelve times, and is prefetched nevertheless.
const SAMPLE: u64 = 24;
/// The weight of a range beside its pages, since a small range is a request too.
const RANGE: u64 = 8;

/// Whether a sample of the chosen ranges of a pack, spread over their bytes, is resident, and so
/// are the names of their files, for the user `uid`. False if that takes a wait, as before Linux
/// 5.12.
pub fn is_in_memory(pack: &Pack, choice: &Choice, uid: u32) -> bool {
    let sample = sample(pack, choice);
    let is_in_memory = |range| Part::of(pack, range).is_some_and(|part| part.is_in_memory(uid));
    !sample.is_empty() && sample.into_iter().all(is_in_memory)
}

/// What of a sample was in memory, to be checked later without the pack.
#[derive(Clone, Debug, Default)]
pub struct InMemory {
    parts: Vec<Part>,
    /// For whom.
    uid: u32,
}

impl InMemory {
    /// What is in memory now of a sample of the chosen ranges of a pack, as [`is_in_memory`] tells it.
    pub fn now(pack: &Pack, choice: &Choice, uid: u32) -> Self {
        let parts = sample(pack, choice).into_iter().filter_map(|range| Part::of(pack, range));
        Self { parts: parts.filter(|part| part.is_in_memory(uid)).collect(), uid }
    }

    /// Whether all of it still is.
    pub fn stays(&self) -> bool {
        self.parts.iter().all(|part| part.is_in_memory(self.uid))
    }
}

/// The sample of the chosen ranges. Pure.
pub fn sample<'a>(pack: &'a Pack, choice: &Choice) -> Vec<&'a Range> {
    let chosen: Vec<&Range> = pack.ranges.iter().filter(|range| choice.has(range)).collect();
    let weight = |range: &Range| u64::from(range.pages) + RANGE;
    let step = chosen.iter().map(|range| weight(range)).sum::<u64>().div_ceil(SAMPLE).max(1);
    let (mut at, mut next) = (0u64, 0);
    let is_in_sample = |range: &&Range| {
        at += weight(range);
        let is_in_it = at > next;
        if is_in_it {
            next = at.next_multiple_of(step);
        }
        is_in_it
    };
    chosen.into_iter().filter(is_in_sample).collect()
}

/// A part of a file.
#[derive(Clone, Debug)]
struct Part {
    path: PathBuf,
    /// None of a file that changes often.
    identity: Option<Identity>,
    pages: PageRange,
}

impl Part {
    /// None on a file server: opening it might wait for that.
    fn of(pack: &Pack, range: &Range) -> Option<Self> {
        let file = pack.files.get(range.file as usize)?;
        let fs = pack.file_systems.get(usize::from(file.file_system))?;
        is_local(OsStr::new(&fs.kind)).then(|| Self {
            path: pack.paths.path(file.node),
            identity: (!changes_often(file.changes)).then_some(file.identity),
            pages: range.page_range().bytes(pack.page_size()).pages(page_size()),
        })
    }

    fn is_in_memory(&self, uid: u32) -> bool {
        // A name that has to be read from a disk is not in memory.
        let opened = open_cached(&self.path, self.identity.as_ref(), uid);
        opened.is_ok_and(|file| are_resident(&file, self.pages))
    }
}

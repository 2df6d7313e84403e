//! Whether a start will find its files resident, by a sample of its pack and without waiting for a
//! disk. The driver: it queries the kernel.
//!
//! The sample says nothing about the other ranges, nor about metadata: the caller has the whole
//! pack checked in parallel with the program (`engine`).

use super::frequency::Choice;
use crate::cache::residency::{are_resident, page_size};
use crate::host::mounts::is_local;
use crate::host::open::open_cached;
use crate::pack::changing::changes_often;
use crate::pack::{Pack, Range};
use std::ffi::OsStr;

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
    !sample.is_empty() && sample.into_iter().all(|range| is_range_in_memory(pack, range, uid))
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

fn is_range_in_memory(pack: &Pack, range: &Range, uid: u32) -> bool {
    let Some(file) = pack.files.get(range.file as usize) else { return false };
    // Opening it might wait for a server.
    let fs = pack.file_systems.get(usize::from(file.file_system));
    if !fs.is_some_and(|fs| is_local(OsStr::new(&fs.kind))) {
        return false;
    }
    let path = pack.paths.path(file.node);
    let identity = (!changes_often(file.changes)).then_some(&file.identity);
    // A name that has to be read from a disk is not in memory.
    let Ok(opened) = open_cached(&path, identity, uid) else { return false };
    are_resident(&opened, range.page_range().bytes(pack.page_size()).pages(page_size()))
}

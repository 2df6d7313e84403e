//! Whether a start will find its files in memory, by a sample of its pack and without
//! waiting for a disk. The driver: it asks the kernel.
//!
//! It says nothing of the files between, nor of metadata: whoever acts on it has all of
//! the pack looked at beside the program (`engine`).

use super::frequency::Choice;
use crate::cache::residency::{are_resident, page_size};
use crate::host::mounts::is_local;
use crate::host::open::open_cached;
use crate::pack::changing::changes_often;
use crate::pack::{Pack, Range};
use std::ffi::OsStr;

/// So many ranges are looked at, at most one more. A start of which a tenth is missing
/// passes for one from memory once in twelve times, and is prefetched all the same.
const SAMPLE: u64 = 24;
/// What a range weighs beside its pages: a few bytes are a request as well.
const RANGE: u64 = 8;

/// Whether a sample of the ranges that are read of a pack, spread over their bytes, is in
/// memory, and so are the names of their files; `uid` is who asks. Not where that can't be
/// found out without waiting, as before Linux 5.12.
pub fn is_in_memory(pack: &Pack, choice: &Choice, uid: u32) -> bool {
    let sample = sample(pack, choice);
    !sample.is_empty() && sample.into_iter().all(|range| is_range_in_memory(pack, range, uid))
}

/// The ranges that are looked at of those that are read. Pure.
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

//! Accesses that the kernel does not report: a part of a file in one large folio is mapped by one
//! page table entry, without a trace event (`filemap_map_pmd` of `mm/filemap.c`).
//!
//! Without a correction the pack would forget such parts. What the start before accessed of such a
//! part is taken to be accessed again. The driver queries the page cache; the rest is pure.

use super::fold::Observation;
use super::named::NamedFiles;
use super::resolve::Resolution;
use super::spans::Spans;
use crate::cache::residency::{are_resident, page_size};
use crate::host::memory::huge_page_size;
use crate::host::open::open_learned;
use crate::host::range::PageRange;
use crate::pack::clock::Clock;
use crate::pack::{File, Pack, Range};
use headstart_sys::huge::{Folio, bring_in};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Adds the pages that the start before touched, by its `pack`, in parts that are in large folios
/// now. Returns how many pages were added. In an `exact` start a touch of such a part was one
/// fault too, which does not show its other pages.
pub fn add_unseen(pages: &mut Observation, names: &Resolution, pack: &Pack, exact: bool) -> u64 {
    let Ok(size) = huge_page_size() else { return 0 };
    let part_pages = size as u64 / page_size();
    let mut candidates = touched_last(pack, size as u64);
    if candidates.is_empty() {
        return 0;
    }
    let learned_files = NamedFiles::of(pack);
    let clock = clock(pages, names, &learned_files, pack);
    let mut added = 0;
    for (id, named) in &names.files {
        let Some(seen) = pages.files.get_mut(id) else { continue };
        let index = learned_files.index(&named.path);
        let Some((file, last)) = index.and_then(|index| candidates.remove_entry(&index)) else {
            continue;
        };
        let learned = pack.files[file as usize];
        let none = Spans::default();
        let now = if exact { &none } else { &seen.touched };
        let parts = untouched_parts(&last, now, part_pages);
        let large = in_large_folios(&named.path, &learned, parts.keys().copied(), size);
        for span in large.iter().filter_map(|part| parts.get(part)).flat_map(Spans::iter) {
            let at = u64::from(clock.at(micros(span.at))) * 1000;
            for touches in [&mut seen.touched, &mut seen.certain] {
                touches.touch(span.pages, at, span.how);
            }
            added += span.pages.count();
        }
    }
    added
}

/// From the times of the start before to those of this one, by the files that both touched.
fn clock(pages: &Observation, names: &Resolution, learned: &NamedFiles, pack: &Pack) -> Clock {
    let mut first: HashMap<u32, u32> = HashMap::new();
    for range in &pack.ranges {
        first.entry(range.file).and_modify(|at| *at = range.at_us.min(*at)).or_insert(range.at_us);
    }
    let both = names.files.iter().filter_map(|(id, named)| {
        let is = pages.files.get(id)?.touched.iter().map(|span| span.at).min()?;
        let was = first.get(&learned.index(&named.path)?)?;
        Some((*was, micros(is)))
    });
    Clock::between(both, (pack.origin.duration_us, pages.duration / 1000))
}

/// Of nanoseconds.
fn micros(time: u64) -> u32 {
    u32::try_from(time / 1000).unwrap_or(u32::MAX)
}

/// What the last start touched through mappings, of files that have room for a huge
/// page, by index of the file.
fn touched_last(pack: &Pack, size: u64) -> HashMap<u32, Spans> {
    let mut found: HashMap<u32, Spans> = HashMap::new();
    let is_candidate = |range: &&Range| {
        let is_large = |file: &File| file.identity.size >= size;
        range.history.is_in_last()
            && range.is_mapped()
            && pack.files.get(range.file as usize).is_some_and(is_large)
    };
    for range in pack.ranges.iter().filter(is_candidate) {
        let at = u64::from(range.at_us) * 1000;
        found.entry(range.file).or_default().touch(range.page_range(), at, range.how);
    }
    found
}

/// The parts of this many pages with a touch in the `last` start and none `now`, with the earlier
/// touches.
fn untouched_parts(last: &Spans, now: &Spans, part_pages: u64) -> BTreeMap<u64, Spans> {
    let mut parts: BTreeMap<u64, Spans> = BTreeMap::new();
    let parts_of = |pages: PageRange| pages.first / part_pages..pages.end.div_ceil(part_pages);
    for span in last.iter() {
        for part in parts_of(span.pages) {
            let pages = PageRange::of(part * part_pages, part_pages).within(span.pages);
            parts.entry(part).or_default().touch(pages, span.at, span.how);
        }
    }
    for span in now.iter() {
        for part in parts_of(span.pages) {
            parts.remove(&part);
        }
    }
    parts
}

/// Those parts of a file, of `size` bytes, that are in memory in one large folio.
fn in_large_folios(
    path: &Path,
    learned: &File,
    parts: impl Iterator<Item = u64>,
    size: usize,
) -> Vec<u64> {
    let uid = rustix::process::geteuid().as_raw();
    let mut parts = parts.peekable();
    // Most starts have none, and their files are not opened.
    if parts.peek().is_none() {
        return Vec::new();
    }
    let Ok((file, ..)) = open_learned(path, Some(&learned.identity), uid) else {
        return Vec::new();
    };
    let pages = size as u64 / page_size();
    let is_large = |part: &u64| {
        // It is resident, so this only maps it.
        are_resident(&file, PageRange::of(part * pages, pages))
            && bring_in(&file, part * size as u64, size).is_ok_and(|folio| folio == Folio::Large)
    };
    parts.filter(is_large).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::usage::How;

    fn spans(ranges: &[(u64, u64)]) -> Spans {
        let mut spans = Spans::default();
        for &(first, end) in ranges {
            spans.touch(PageRange { first, end }, 0, How::MAPPED);
        }
        spans
    }

    #[test]
    fn only_parts_without_any_touch_are_asked_about() {
        for (name, last, now, expected) in [
            ("nothing known", &[][..], &[(0, 3)][..], &[][..]),
            ("none touched", &[(0, 1000)], &[], &[(0, 0, 512), (1, 512, 1000)]),
            ("one page of the first touched", &[(0, 1000)], &[(5, 6)], &[(1, 512, 1000)]),
            ("touched over the border", &[(0, 1000)], &[(511, 513)], &[]),
            ("touched elsewhere", &[(600, 601)], &[(0, 512)], &[(1, 600, 601)]),
        ] {
            let parts = untouched_parts(&spans(last), &spans(now), 512);
            let found: Vec<_> = parts
                .iter()
                .flat_map(|(part, spans)| spans.iter().map(|s| (*part, s.pages.first, s.pages.end)))
                .collect();
            assert_eq!(found, expected, "{name}");
        }
    }
}

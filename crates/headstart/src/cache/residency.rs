//! Which pages of a file are in the page cache.
//!
//! Two calls answer that and each has a gap, which this file closes:
//! mincore(2) says "all" to callers who may not know, and cachestat(2) gives
//! no positions, is missing before Linux 6.5, and on overlayfs counts the
//! overlay's own inode, through which no page is ever cached.
//!
//! They also mean different things by "cached". mincore(2) means pages whose
//! data is there ([`resident_ranges`]); cachestat(2) also counts pages that are
//! still being read, and pages of which only some blocks have been written on
//! file systems with blocks smaller than a page ([`resident_count`]). So the
//! count tells what need not be asked for again, and only the map tells what
//! has arrived.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use headstart_sys::cachestat::{CacheStat, cachestat};
use headstart_sys::mincore::mincore;
use rustix::io::Errno;

/// Pages asked about in one mincore(2) call: 256 MiB of 4 KiB pages, 64 KiB of
/// answer.
const WINDOW: u64 = 1 << 16;

/// `OVERLAYFS_SUPER_MAGIC` of `include/uapi/linux/magic.h`.
const OVERLAYFS_MAGIC: u64 = 0x794c_7630;

/// What the kernel tells this process about the cached pages of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Residency {
    /// Runs of cached pages: sorted, neither overlapping nor touching.
    Known(Vec<Range<u64>>),
    /// The kernel claims that every page is cached, even pages that cannot
    /// exist: it gives that answer for files the caller neither owns nor may
    /// write. Fix: ask as root or as the file's owner.
    Untrusted,
}

impl Residency {
    /// The number of cached pages, if known.
    pub fn pages(&self) -> Option<u64> {
        match self {
            Self::Known(runs) => Some(runs.iter().map(|run| run.end - run.start).sum()),
            Self::Untrusted => None,
        }
    }
}

/// The size of a page in bytes: the unit of every page number in this module.
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// The cached pages among the first `len` bytes of a file.
///
/// The file is mapped in windows and never touched. Parts that cachestat(2)
/// finds empty are not looked at page by page, so that a sparse file of any size
/// costs what is cached of it.
///
/// # Errors
///
/// Those of mmap(2) and mincore(2): `ENODEV` for files that cannot be mapped.
pub fn resident_ranges(file: impl AsFd, len: u64) -> io::Result<Residency> {
    let file = file.as_fd();
    let pages = len.div_ceil(page_size());
    if pages == 0 {
        return Ok(Residency::Known(Vec::new()));
    }
    if !answers_are_true(file, pages)? {
        return Ok(Residency::Untrusted);
    }
    let mut runs = Vec::new();
    collect(file, 0..pages, &mut runs)?;
    Ok(Residency::Known(runs))
}

/// How many of these pages are cached or being read, without
/// mapping anything where cachestat(2) can tell.
///
/// # Errors
///
/// `EPERM` when the kernel does not tell this caller ([`Residency::Untrusted`]);
/// `EOVERFLOW` when the range reaches behind any possible file; those of
/// mmap(2) where mincore(2) has to be asked.
pub fn resident_count(file: impl AsFd, pages: Range<u64>) -> io::Result<u64> {
    let file = file.as_fd();
    if let Some(stat) = count_in_cache(file, &pages)? {
        return Ok(stat.cache);
    }
    if !answers_are_true(file, pages.end)? {
        return Err(Errno::PERM.into());
    }
    let mut runs = Vec::new();
    for window in parts(pages, WINDOW) {
        look_at(file, window, &mut runs)?;
    }
    Ok(runs.iter().map(|run| run.end - run.start).sum())
}

/// Whether all of these pages are cached or being read, as far as can be told.
pub fn are_resident(file: impl AsFd, pages: Range<u64>) -> bool {
    let all = pages.end.saturating_sub(pages.start);
    resident_count(file, pages).is_ok_and(|count| count == all)
}

/// cachestat(2) of a range of pages where its answer concerns the pages that
/// reads of the file use; `None` where it does not or there is none.
pub(crate) fn count_in_cache(file: impl AsFd, pages: &Range<u64>) -> io::Result<Option<CacheStat>> {
    let file = file.as_fd();
    let (offset, len) = bytes_of(pages)?;
    if len == 0 {
        // To the kernel this would mean the rest of the file.
        return Ok(Some(CacheStat::default()));
    }
    match cachestat(file, offset, len) {
        // Only overlayfs can be wrong, and only by counting nothing.
        Ok(stat) if stat.cache > 0 || !is_overlay(file)? => Ok(Some(stat)),
        Ok(_) => Ok(None),
        Err(e) if unsupported(&e) || e.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

/// Whether mincore(2) tells this process the truth about a file: asks it about
/// a page far behind the end, which cannot be cached.
///
/// The kernel decides by the file's owner and mode, the caller's capabilities
/// and user namespace, and security modules; this asks instead of guessing.
fn answers_are_true(file: impl AsFd, pages: u64) -> io::Result<bool> {
    /// In pages: more than the largest folio, so that a folio which reaches
    /// over the end of the file cannot be met; little, because some file
    /// systems end at 4 GiB.
    const FAR: u64 = 1 << 12;
    let size = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
    let end = pages.max(size.div_ceil(page_size()));
    let far = end.checked_next_multiple_of(FAR).and_then(|page| page.checked_add(FAR));
    let offset = far.and_then(|page| page.checked_mul(page_size())).ok_or(Errno::OVERFLOW)?;
    let mut claimed = [true];
    match mincore(file, offset, &mut claimed) {
        Ok(()) => Ok(!claimed[0]),
        // As large as a file can be here: there is nothing behind it to ask for.
        Err(e) if e.raw_os_error() == Some(Errno::OVERFLOW.raw_os_error()) => Ok(false),
        Err(e) => Err(e),
    }
}

fn is_overlay(file: impl AsFd) -> io::Result<bool> {
    Ok(file_system_magic(file)? == OVERLAYFS_MAGIC)
}

/// `f_type` of statfs(2), which is a 32-bit number in a word of either sign.
pub(crate) fn file_system_magic(file: impl AsFd) -> io::Result<u64> {
    // The type of `f_type` is another one on each architecture.
    #[allow(clippy::unnecessary_cast, clippy::cast_sign_loss)]
    let magic = rustix::fs::fstatfs(file)?.f_type as u64;
    Ok(magic & 0xffff_ffff)
}

/// No cachestat(2) in this kernel, or not for this file.
fn unsupported(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSYS | Errno::OPNOTSUPP))
}

/// Offset and length in bytes of a range of pages.
fn bytes_of(pages: &Range<u64>) -> io::Result<(u64, u64)> {
    let offset = pages.start.checked_mul(page_size()).ok_or(Errno::OVERFLOW)?;
    let end = pages.end.checked_mul(page_size()).ok_or(Errno::OVERFLOW)?;
    Ok((offset, end.saturating_sub(offset)))
}

/// A range of pages in parts of at most `size` pages.
fn parts(pages: Range<u64>, size: u64) -> impl Iterator<Item = Range<u64>> {
    let next = move |part: &Range<u64>| {
        let end = pages.end.min(part.end.saturating_add(size));
        (part.end < end).then_some(part.end..end)
    };
    let start = pages.start;
    std::iter::successors(next(&(start..start)), next)
}

/// Adds the cached pages of a part, divided until each division is empty or one
/// window.
fn collect(file: BorrowedFd<'_>, part: Range<u64>, runs: &mut Vec<Range<u64>>) -> io::Result<()> {
    /// Each level counts every cached folio again (5 to 10 ns each, against 20
    /// to 26 ns a page for mincore), so few levels with many parts.
    const DIVISIONS: u64 = 16;
    let pages = part.end - part.start;
    match count_in_cache(file, &part)? {
        Some(stat) if stat.cache == 0 => {}
        _ if pages <= WINDOW => look_at(file, part, runs)?,
        _ => {
            for division in parts(part, WINDOW.max(pages.div_ceil(DIVISIONS))) {
                collect(file, division, runs)?;
            }
        }
    }
    Ok(())
}

/// Adds the cached pages of one window, page by page, to `runs`.
fn look_at(file: impl AsFd, window: Range<u64>, runs: &mut Vec<Range<u64>>) -> io::Result<()> {
    let (offset, _) = bytes_of(&window)?;
    let mut resident = vec![false; (window.end - window.start) as usize];
    mincore(file, offset, &mut resident)?;
    add_runs(window.start, &resident, runs);
    Ok(())
}

/// Adds the runs of `true`, of which the first entry is page `first`.
fn add_runs(first: u64, resident: &[bool], runs: &mut Vec<Range<u64>>) {
    let mut page = first;
    for same in resident.chunk_by(|a, b| a == b) {
        let end = page + same.len() as u64;
        if same[0] {
            push_run(runs, page..end);
        }
        page = end;
    }
}

/// Appends a run that does not lie before the last one, joining what touches.
fn push_run(runs: &mut Vec<Range<u64>>, run: Range<u64>) {
    match runs.last_mut() {
        Some(last) if last.end == run.start => last.end = run.end,
        _ => runs.push(run),
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // Lists of ranges, some of one.
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    /// A file in the page cache with data in the given pages only.
    fn sparse(pages: u64, written: &[Range<u64>]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(pages * page_size()).unwrap();
        for run in written {
            let (offset, len) = bytes_of(run).unwrap();
            file.write_all_at(&vec![1; len as usize], offset).unwrap();
        }
        file
    }

    #[test]
    fn exactly_the_written_pages_are_resident() {
        let cases: &[(u64, &[Range<u64>])] = &[
            (0, &[]),
            (1, &[0..1]),
            (5, &[]),
            (WINDOW * 3, &[]),
            (WINDOW * 3, &[7..8, WINDOW - 2..WINDOW + 3, 3 * WINDOW - 1..3 * WINDOW]),
            (WINDOW << 8, &[0..1, (WINDOW << 7) - 1..(WINDOW << 7) + 1]),
        ];
        for (pages, written) in cases {
            let file = sparse(*pages, written);
            let found = resident_ranges(&file, pages * page_size()).unwrap();
            assert_eq!(found, Residency::Known(written.to_vec()));
            let count = resident_count(&file, 0..*pages).unwrap();
            assert_eq!(Some(count), found.pages());
        }
    }

    #[test]
    fn a_full_file_is_one_run_and_a_last_partial_page_counts() {
        let file = sparse(3, &[0..3]);
        let len = 2 * page_size() + 1;
        assert_eq!(resident_ranges(&file, len).unwrap(), Residency::Known(vec![0..3]));
    }

    #[test]
    fn a_range_is_counted_without_its_surroundings() {
        let file = sparse(100, &[10..20]);
        assert_eq!(resident_count(&file, 15..65).unwrap(), 5);
        assert_eq!(resident_count(&file, 15..15).unwrap(), 0);
        assert_eq!(resident_count(&file, 20..100).unwrap(), 0);
    }

    #[test]
    fn pages_behind_any_possible_file_are_an_error_and_no_panic() {
        let file = sparse(1, &[]);
        for pages in [u64::MAX - 1..u64::MAX, 0..u64::MAX, 1 << 60..(1 << 60) + 1] {
            assert!(resident_count(&file, pages.clone()).is_err(), "{pages:?}");
            assert!(!are_resident(&file, pages));
        }
        assert!(resident_ranges(&file, u64::MAX).is_err());
    }

    proptest! {
        #[test]
        fn runs_and_pages_say_the_same(
            first in 0u64..1 << 40,
            parts in prop::collection::vec(prop::collection::vec(any::<bool>(), 0..40), 0..6),
        ) {
            let mut runs = Vec::new();
            let mut page = first;
            for part in &parts {
                add_runs(page, part, &mut runs);
                page += part.len() as u64;
            }
            let all: Vec<bool> = parts.concat();
            for (page, resident) in (first..).zip(&all) {
                prop_assert_eq!(runs.iter().any(|run| run.contains(&page)), *resident);
            }
            prop_assert!(runs.iter().all(|run| run.start < run.end));
            prop_assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start));
        }

        #[test]
        fn parts_cover_every_page_once(
            start in 0u64..1 << 40,
            len in 0u64..1000,
            size in 1u64..2000,
        ) {
            let mut next = start;
            for part in parts(start..start + len, size) {
                prop_assert_eq!(part.start, next);
                prop_assert!(part.start < part.end && part.end - part.start <= size);
                next = part.end;
            }
            prop_assert_eq!(next, start + len);
        }
    }
}

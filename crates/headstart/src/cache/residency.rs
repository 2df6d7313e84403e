//! Which pages of a file are in the page cache.
//!
//! Two calls tell, and each has a gap. mincore(2) says "all" to callers without permission.
//! cachestat(2) gives no positions, is missing before Linux 6.5, and on overlayfs counts the
//! overlay's own inode, which has no cached pages.
//!
//! They also differ in what "cached" means. mincore(2) means pages with data ([`resident_ranges`]);
//! cachestat(2) also counts pages that are being read, and pages of which only some blocks were
//! written, on file systems with blocks smaller than a page ([`resident_count`]). So the count says
//! what need not be requested again, and the map says what has arrived.

use crate::host::range::{ByteRange, PageRange};
use std::io;
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
    Known(Vec<PageRange>),
    /// The kernel claims that every page is cached, even pages that cannot
    /// exist: it gives that answer for files the caller neither owns nor may
    /// write. Fix: ask as root or as the file's owner.
    Untrusted,
}

impl Residency {
    /// The number of cached pages, if known.
    pub fn pages(&self) -> Option<u64> {
        match self {
            Self::Known(runs) => Some(runs.iter().map(|run| run.count()).sum()),
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
/// The file is mapped in windows and not accessed. Parts that cachestat(2)
/// finds empty are not looked at page by page, so that a sparse file of any size
/// costs what is cached of it.
///
/// # Errors
///
/// Those of mmap(2) and mincore(2): `ENODEV` for files that cannot be mapped.
pub fn resident_ranges(file: impl AsFd, len: u64) -> io::Result<Residency> {
    let file = file.as_fd();
    let pages = PageRange::of_length(len, page_size());
    if pages.is_empty() {
        return Ok(Residency::Known(Vec::new()));
    }
    if !answers_are_true(file, pages.end)? {
        return Ok(Residency::Untrusted);
    }
    let mut runs = Vec::new();
    collect(file, pages, &mut runs)?;
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
pub fn resident_count(file: impl AsFd, pages: PageRange) -> io::Result<u64> {
    let file = file.as_fd();
    if let Some(stat) = count_in_cache(file, pages)? {
        return Ok(stat.cache);
    }
    if !answers_are_true(file, pages.end)? {
        return Err(Errno::PERM.into());
    }
    let mut runs = Vec::new();
    for window in parts(pages, WINDOW) {
        look_at(file, window, &mut runs)?;
    }
    Ok(runs.iter().map(|run| run.count()).sum())
}

/// Whether all of these pages are cached or being read, as far as can be told.
pub fn are_resident(file: impl AsFd, pages: PageRange) -> bool {
    resident_count(file, pages).is_ok_and(|count| count == pages.count())
}

/// cachestat(2) of a range of pages where its answer concerns the pages that
/// reads of the file use; `None` where it does not or there is none.
pub(crate) fn count_in_cache(file: impl AsFd, pages: PageRange) -> io::Result<Option<CacheStat>> {
    let file = file.as_fd();
    let bytes = bytes_of(pages)?;
    if bytes.is_empty() {
        // To the kernel this would mean the rest of the file.
        return Ok(Some(CacheStat::default()));
    }
    match cachestat(file, bytes.offset, bytes.length()) {
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
        // As large as a file can be here: there is nothing behind it to request.
        Err(e) if e.raw_os_error() == Some(Errno::OVERFLOW.raw_os_error()) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Whether a file is on overlayfs.
pub(crate) fn is_overlay(file: impl AsFd) -> io::Result<bool> {
    Ok(file_system_magic(file)? == OVERLAYFS_MAGIC)
}

/// `f_type` of statfs(2), which is a 32-bit number in a word of either sign.
pub(crate) fn file_system_magic(file: impl AsFd) -> io::Result<u64> {
    // Its type differs between architectures.
    #[allow(clippy::unnecessary_cast, clippy::cast_sign_loss)]
    let magic = rustix::fs::fstatfs(file)?.f_type as u64;
    Ok(magic & 0xffff_ffff)
}

/// No cachestat(2) in this kernel, or not for this file.
fn unsupported(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSYS | Errno::OPNOTSUPP))
}

/// The bytes of a range of pages.
fn bytes_of(pages: PageRange) -> io::Result<ByteRange> {
    let _ = pages.end.checked_mul(page_size()).ok_or(Errno::OVERFLOW)?;
    Ok(pages.bytes(page_size()))
}

/// A range of pages in parts of at most `size` pages.
fn parts(pages: PageRange, size: u64) -> impl Iterator<Item = PageRange> {
    let next = move |before: &PageRange| {
        let part = PageRange::of(before.end, size).within(pages);
        (!part.is_empty()).then_some(part)
    };
    std::iter::successors(next(&PageRange::of(pages.first, 0)), next)
}

/// Adds the cached pages of a part, divided until each division is empty or one
/// window.
fn collect(file: BorrowedFd<'_>, part: PageRange, runs: &mut Vec<PageRange>) -> io::Result<()> {
    /// Each level counts every cached folio again (5 to 10 ns each, against 20
    /// to 26 ns a page for mincore), so few levels with many parts.
    const DIVISIONS: u64 = 16;
    let pages = part.count();
    match count_in_cache(file, part)? {
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
fn look_at(file: impl AsFd, window: PageRange, runs: &mut Vec<PageRange>) -> io::Result<()> {
    let mut resident = vec![false; window.count() as usize];
    mincore(file, bytes_of(window)?.offset, &mut resident)?;
    add_runs(window.first, &resident, runs);
    Ok(())
}

/// Adds the runs of `true`, of which the first entry is page `first`.
fn add_runs(first: u64, resident: &[bool], runs: &mut Vec<PageRange>) {
    let mut page = first;
    for same in resident.chunk_by(|a, b| a == b) {
        let end = page + same.len() as u64;
        if same[0] {
            push_run(runs, PageRange { first: page, end });
        }
        page = end;
    }
}

/// Appends a run that does not lie before the last one, joining what touches.
fn push_run(runs: &mut Vec<PageRange>, run: PageRange) {
    match runs.last_mut() {
        Some(last) if last.end == run.first => last.end = run.end,
        _ => runs.push(run),
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // Lists of ranges, some of one.
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs::File;
    use std::ops::Range;
    use std::os::unix::fs::FileExt;

    /// A file in the page cache with data in the given pages only.
    fn sparse(pages: u64, written: &[PageRange]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(pages * page_size()).unwrap();
        for run in written {
            let bytes = bytes_of(*run).unwrap();
            file.write_all_at(&vec![1; bytes.length() as usize], bytes.offset).unwrap();
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
            let written: Vec<_> = written.iter().cloned().map(PageRange::from).collect();
            let file = sparse(*pages, &written);
            let found = resident_ranges(&file, pages * page_size()).unwrap();
            assert_eq!(found, Residency::Known(written));
            let count = resident_count(&file, PageRange::of(0, *pages)).unwrap();
            assert_eq!(Some(count), found.pages());
        }
    }

    #[test]
    fn a_full_file_is_one_run_and_a_last_partial_page_counts() {
        let file = sparse(3, &[PageRange::of(0, 3)]);
        let len = 2 * page_size() + 1;
        assert_eq!(
            resident_ranges(&file, len).unwrap(),
            Residency::Known(vec![PageRange::of(0, 3)])
        );
    }

    #[test]
    fn a_range_is_counted_without_its_surroundings() {
        let file = sparse(100, &[PageRange::of(10, 10)]);
        for (pages, expected) in [(15..65, 5), (15..15, 0), (20..100, 0)] {
            assert_eq!(resident_count(&file, pages.into()).unwrap(), expected);
        }
    }

    #[test]
    fn pages_behind_any_possible_file_are_an_error_and_no_panic() {
        let file = sparse(1, &[]);
        for pages in [u64::MAX - 1..u64::MAX, 0..u64::MAX, 1 << 60..(1 << 60) + 1] {
            assert!(resident_count(&file, pages.clone().into()).is_err(), "{pages:?}");
            assert!(!are_resident(&file, pages.into()));
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
                prop_assert_eq!(runs.iter().any(|run| run.iter().contains(&page)), *resident);
            }
            prop_assert!(runs.iter().all(|run| !run.is_empty()));
            prop_assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].first));
        }

        #[test]
        fn parts_cover_every_page_once(
            start in 0u64..1 << 40,
            len in 0u64..1000,
            size in 1u64..2000,
        ) {
            let mut next = start;
            for part in parts(PageRange::of(start, len), size) {
                prop_assert_eq!(part.first, next);
                prop_assert!((1..=size).contains(&part.count()));
                next = part.end;
            }
            prop_assert_eq!(next, start + len);
        }
    }
}

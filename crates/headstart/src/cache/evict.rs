//! Getting files out of the page cache, and what stayed in it and why.
//!
//! posix_fadvise(2) drops what is clean and unused and says nothing about the
//! rest; this looks at the rest.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::ops::Range;
use std::path::{Path, PathBuf};

use rustix::fs::Advice;
use serde::Serialize;

use super::error::Error;
use super::holders::{Holder, Holders, holders, identity};
use super::open::{Opened, open};
use super::residency::{bytes_of, count_in_cache, file_system_magic, page_size, resident_count};
use crate::id::InodeId;

/// File systems whose pages have nowhere else to be: tmpfs, ramfs, hugetlbfs
/// (`include/uapi/linux/magic.h`).
const IN_MEMORY: [u64; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];

/// A file to evict.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// A regular file, a block device, or a symbolic link to one.
    pub path: PathBuf,
    /// Which pages; `None`: all.
    pub pages: Option<Vec<Range<u64>>>,
}

/// Why pages stayed.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// They are not written to the device yet. Mend: sync, evict again.
    Dirty {
        /// How many pages.
        pages: u64,
    },
    /// They are being written. Mend: evict again.
    Writeback {
        /// How many pages.
        pages: u64,
    },
    /// A process has them in its page tables. Mend: end it.
    Mapped(Holder),
    /// The file system keeps its files in the page cache and nowhere else.
    InMemory,
    /// None of the above: the kernel uses them (a read or write in flight), the
    /// folio they are part of reaches outside the range, or a process has them
    /// mapped that this one may not look at.
    InUse {
        /// How many pages.
        pages: u64,
    },
}

/// What became of one file.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
pub struct Evicted {
    /// Cached pages before; `None`: the kernel does not tell this user.
    pub before: Option<u64>,
    /// Cached pages after; `None` as above.
    pub after: Option<u64>,
    /// Why they stayed; empty when none did or it is not known.
    pub reasons: Vec<Reason>,
}

/// What became of all files.
#[derive(Debug)]
pub struct Report {
    /// One for each target, in their order.
    pub files: Vec<Result<Evicted, Error>>,
    /// Of the processes that may be a reason too, how many could not be looked
    /// at for want of permission; or why none could.
    pub unseen_processes: Result<u64, Error>,
}

/// How many pages of a target are cached now; `None`: the kernel does not tell
/// this user.
///
/// # Errors
///
/// When the file cannot be opened or looked at.
pub fn cached(target: &Target) -> Result<Option<u64>, Error> {
    let opened = open(&target.path)?;
    count(&opened, &clip(target, opened.len), &target.path)
}

/// Drops the targets' pages from the page cache; with `sync`, writes their dirty
/// pages first, which would stay otherwise. Without, the kernel only begins to
/// write them.
pub fn evict(targets: &[Target], sync: bool) -> Report {
    let files: Vec<_> = targets.iter().map(|target| evict_one(target, sync)).collect();
    // All processes are looked at once for all files, and only if needed.
    let mut wanted: HashMap<InodeId, Vec<Range<u64>>> = HashMap::new();
    for (_, left) in files.iter().flatten() {
        if let Some(id) = left.id {
            wanted.entry(id).or_default().extend(left.pages.iter().cloned());
        }
    }
    let found = if wanted.is_empty() { Ok(Holders::default()) } else { holders(&wanted) };
    let (by_file, unseen_processes) = match found {
        Ok(found) => (found.by_file, Ok(found.unreadable)),
        Err(e) => (HashMap::new(), Err(Error::io("list the processes in", Path::new("/proc"))(e))),
    };
    let explain = |(mut evicted, left): (Evicted, Left)| {
        let holders = left.id.and_then(|id| by_file.get(&id)).map_or(&[][..], Vec::as_slice);
        evicted.reasons = reasons(evicted.after.unwrap_or(0), &left, holders);
        evicted
    };
    Report { files: files.into_iter().map(|file| file.map(explain)).collect(), unseen_processes }
}

/// What is needed to explain the pages that stayed.
#[derive(Default, Debug)]
struct Left {
    /// Set when pages stayed that processes may hold.
    id: Option<InodeId>,
    /// The pages that were to go.
    pages: Vec<Range<u64>>,
    dirty: u64,
    writeback: u64,
    in_memory: bool,
}

fn evict_one(target: &Target, sync: bool) -> Result<(Evicted, Left), Error> {
    let path = target.path.as_path();
    let opened = open(path)?;
    let pages = clip(target, opened.len);
    let before = count(&opened, &pages, path)?;
    if sync {
        rustix::fs::fdatasync(&opened.file).map_err(Error::io("write the dirty pages of", path))?;
    }
    let whole = target.pages.is_none();
    advise(&opened, &pages, whole).map_err(Error::io("evict", path))?;
    let mut after = count(&opened, &pages, path)?;
    if after.is_some_and(|after| after > 0) {
        // What was being read or written at the first try may be done now.
        advise(&opened, &pages, whole).map_err(Error::io("evict", path))?;
        after = count(&opened, &pages, path)?;
    }
    let left = match after {
        Some(1..) => {
            look(&opened, pages).map_err(Error::io("look at the cached pages of", path))?
        }
        _ => Left::default(),
    };
    Ok((Evicted { before, after, reasons: Vec::new() }, left))
}

fn advise(opened: &Opened, pages: &[Range<u64>], whole: bool) -> std::io::Result<()> {
    if whole {
        // To the end, wherever that is by now.
        return Ok(rustix::fs::fadvise(&opened.file, 0, None, Advice::DontNeed)?);
    }
    for run in pages {
        let (offset, len) = bytes_of(run)?;
        if let Some(len) = NonZeroU64::new(len) {
            rustix::fs::fadvise(&opened.file, offset, Some(len), Advice::DontNeed)?;
        }
    }
    Ok(())
}

fn look(opened: &Opened, pages: Vec<Range<u64>>) -> std::io::Result<Left> {
    if IN_MEMORY.contains(&file_system_magic(&opened.file)?) {
        return Ok(Left { in_memory: true, ..Left::default() });
    }
    let mut left = Left { id: Some(identity(&opened.file)?), ..Left::default() };
    for run in &pages {
        if let Some(stat) = count_in_cache(&opened.file, run)? {
            left.dirty += stat.dirty;
            left.writeback += stat.writeback;
        }
    }
    left.pages = pages;
    Ok(left)
}

/// Why `after` pages stayed, given what was found out.
fn reasons(after: u64, left: &Left, holders: &[Holder]) -> Vec<Reason> {
    if after == 0 {
        return Vec::new();
    }
    if left.in_memory {
        return vec![Reason::InMemory];
    }
    let mut reasons = Vec::new();
    if left.dirty > 0 {
        reasons.push(Reason::Dirty { pages: left.dirty });
    }
    if left.writeback > 0 {
        reasons.push(Reason::Writeback { pages: left.writeback });
    }
    reasons.extend(holders.iter().cloned().map(Reason::Mapped));
    let unexplained = after.saturating_sub(left.dirty).saturating_sub(left.writeback);
    // How many pages a holder keeps is not known: each mapped one keeps a folio.
    if holders.is_empty() && unexplained > 0 {
        reasons.push(Reason::InUse { pages: unexplained });
    }
    reasons
}

/// The pages of a target that a file of `len` bytes has.
fn clip(target: &Target, len: u64) -> Vec<Range<u64>> {
    let end = len.div_ceil(page_size());
    let Some(pages) = &target.pages else { return std::iter::once(0..end).collect() };
    let clipped = pages.iter().map(|run| run.start..run.end.min(end));
    clipped.filter(|run| run.start < run.end).collect()
}

fn count(opened: &Opened, pages: &[Range<u64>], path: &Path) -> Result<Option<u64>, Error> {
    let mut sum = 0;
    for run in pages {
        match resident_count(&opened.file, run.start, run.end - run.start) {
            Ok(count) => sum += count,
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => return Ok(None),
            Err(e) => return Err(Error::io("look at the cached pages of", path)(e)),
        }
    }
    Ok(Some(sum))
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // Lists of ranges, some of one.
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;

    fn holder(pid: u32) -> Holder {
        Holder { pid, command: "sh".into(), pages: 1, locked: false }
    }

    #[test]
    fn every_page_that_stayed_has_a_reason() {
        let left = |dirty, writeback| Left { dirty, writeback, ..Left::default() };
        let cases = [
            (0, left(3, 3), vec![holder(1)], vec![]),
            (5, left(0, 0), vec![], vec![Reason::InUse { pages: 5 }]),
            (5, left(5, 0), vec![], vec![Reason::Dirty { pages: 5 }]),
            (
                5,
                left(1, 2),
                vec![],
                vec![
                    Reason::Dirty { pages: 1 },
                    Reason::Writeback { pages: 2 },
                    Reason::InUse { pages: 2 },
                ],
            ),
            // Counted one after the other, so they can exceed what stayed.
            (1, left(0, 2), vec![], vec![Reason::Writeback { pages: 2 }]),
            (
                9,
                left(0, 0),
                vec![holder(1), holder(2)],
                vec![Reason::Mapped(holder(1)), Reason::Mapped(holder(2))],
            ),
            (9, Left { in_memory: true, ..Left::default() }, vec![], vec![Reason::InMemory]),
        ];
        for (after, left, holders, expected) in cases {
            assert_eq!(reasons(after, &left, &holders), expected);
        }
    }

    #[test]
    fn ranges_are_clipped_to_the_file() {
        let target = |pages| Target { path: PathBuf::new(), pages };
        let len = 3 * page_size() + 1;
        assert_eq!(clip(&target(None), len), [0..4]);
        assert_eq!(clip(&target(Some(vec![0..2, 3..9, 4..9])), len), [0..2, 3..4]);
    }

    #[test]
    fn a_file_on_disk_goes_and_a_missing_one_is_an_error_in_its_place() {
        // Where the build is, since /tmp may be in memory.
        let build = std::env::current_exe().unwrap();
        let dir = tempfile::tempdir_in(build.parent().unwrap()).unwrap();
        let path = dir.path().join("file");
        let data = vec![1; 10 * page_size() as usize];
        File::create(&path).unwrap().write_all(&data).unwrap();
        let targets = [
            Target { path: dir.path().join("missing"), pages: None },
            Target { path: path.clone(), pages: Some(vec![0..4]) },
            Target { path, pages: None },
        ];
        let report = evict(&targets, true);
        assert!(report.files[0].is_err());
        let [_, part, all] = &report.files[..] else { panic!("{report:?}") };
        let part = part.as_ref().unwrap();
        assert_eq!(part.before, Some(4));
        let all = all.as_ref().unwrap();
        assert_eq!((all.after, &all.reasons[..]), (Some(0), &[][..]));
        assert_eq!(cached(&targets[2]).unwrap(), Some(0));
    }
}

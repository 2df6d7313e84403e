//! Evicts files from the page cache, and explains which pages stayed.
//!
//! posix_fadvise(2) drops clean unused pages and does not report the rest; this does.

use crate::host::range::PageRange;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rustix::fs::Advice;
use rustix::io::Errno;
use serde::Serialize;

use super::error::Error;
use super::holders::{Holder, Holders, holders, identity};
use super::open::{Opened, open};
use super::residency::{count_in_cache, file_system_magic, page_size, resident_count};
use crate::host::id::InodeId;

/// File systems whose pages have nowhere else to be: tmpfs, ramfs, hugetlbfs
/// (`include/uapi/linux/magic.h`).
const IN_MEMORY: [u64; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];

/// Why pages stayed.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// They are not written to the device yet. Fix: sync, evict again.
    Dirty {
        /// How many pages.
        pages: u64,
    },
    /// They are being written. Fix: evict again.
    Writeback {
        /// How many pages.
        pages: u64,
    },
    /// A process has them in its page tables. Fix: end it.
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

/// The result for one file.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
pub struct Evicted {
    /// Cached pages before; `None` if the kernel does not tell this user.
    pub before: Option<u64>,
    /// Cached pages after; `None` as above.
    pub after: Option<u64>,
    /// Why they stayed; empty when none did or it is not known.
    pub reasons: Vec<Reason>,
}

/// The result for all files.
#[derive(Debug)]
pub struct EvictionReport {
    /// One for each file, in their order.
    pub files: Vec<Result<Evicted, Error>>,
    /// Of the processes that may be a reason too, how many could not be looked
    /// at for want of permission; or why none could.
    pub unseen_processes: Result<u64, Error>,
}

/// How many pages of a file are cached now; `None`: the kernel does not tell
/// this user.
///
/// # Errors
///
/// When the file cannot be opened or looked at.
pub fn cached(path: &Path) -> Result<Option<u64>, Error> {
    count(&open(path)?, path)
}

/// Drops the pages of regular files, block devices or symbolic links to them from the page
/// cache; with `sync`, writes their dirty pages first, which would stay otherwise. Without,
/// the kernel only begins to write them.
pub fn evict(files: &[PathBuf], sync: bool) -> EvictionReport {
    let files: Vec<_> = files.iter().map(|path| evict_one(path, sync)).collect();
    // All processes are looked at once for all files, and only if needed.
    let mut wanted: HashMap<InodeId, Vec<PageRange>> = HashMap::new();
    for (_, left) in files.iter().flatten() {
        if let Some(id) = left.id {
            wanted.entry(id).or_default().push(left.pages);
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
    EvictionReport {
        files: files.into_iter().map(|file| file.map(explain)).collect(),
        unseen_processes,
    }
}

/// Does the same without asking why pages stayed, which takes a look at all processes; what
/// went wrong.
pub fn drop_pages(files: &[PathBuf], sync: bool) -> Vec<Error> {
    files.iter().filter_map(|path| drop_one(path, sync).err()).collect()
}

/// What is needed to explain the pages that stayed.
#[derive(Default, Debug)]
struct Left {
    /// Set when pages stayed that processes may hold.
    id: Option<InodeId>,
    /// The pages that were to go.
    pages: PageRange,
    dirty: u64,
    writeback: u64,
    in_memory: bool,
}

/// A file whose pages were dropped.
struct Dropped {
    opened: Opened,
    /// Cached pages; `None`: the kernel does not tell this user.
    before: Option<u64>,
    after: Option<u64>,
}

fn drop_one(path: &Path, sync: bool) -> Result<Dropped, Error> {
    let opened = open(path)?;
    let before = count(&opened, path)?;
    if sync {
        match rustix::fs::fdatasync(&opened.file) {
            // File systems that are never written, as squashfs, can't.
            Ok(()) | Err(Errno::INVAL | Errno::ROFS) => {}
            Err(e) => return Err(Error::io("write the dirty pages of", path)(e)),
        }
    }
    // To the end, wherever that is by now.
    let advise = || {
        rustix::fs::fadvise(&opened.file, 0, None, Advice::DontNeed)
            .map_err(Error::io("evict", path))
    };
    advise()?;
    let mut after = count(&opened, path)?;
    if after.is_some_and(|after| after > 0) {
        // I/O of the first try may be complete now.
        advise()?;
        after = count(&opened, path)?;
    }
    Ok(Dropped { opened, before, after })
}

fn evict_one(path: &Path, sync: bool) -> Result<(Evicted, Left), Error> {
    let Dropped { opened, before, after } = drop_one(path, sync)?;
    let left = match after {
        Some(1..) => look(&opened).map_err(Error::io("look at the cached pages of", path))?,
        _ => Left::default(),
    };
    Ok((Evicted { before, after, reasons: Vec::new() }, left))
}

fn look(opened: &Opened) -> std::io::Result<Left> {
    if IN_MEMORY.contains(&file_system_magic(&opened.file)?) {
        return Ok(Left { in_memory: true, ..Left::default() });
    }
    let (id, pages) = (Some(identity(&opened.file)?), pages(opened));
    let (mut dirty, mut writeback) = (0, 0);
    if let Some(stat) = count_in_cache(&opened.file, pages)? {
        (dirty, writeback) = (stat.dirty, stat.writeback);
    }
    Ok(Left { id, pages, dirty, writeback, in_memory: false })
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

fn pages(opened: &Opened) -> PageRange {
    PageRange::of_length(opened.len, page_size())
}

fn count(opened: &Opened, path: &Path) -> Result<Option<u64>, Error> {
    match resident_count(&opened.file, pages(opened)) {
        Ok(count) => Ok(Some(count)),
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => Ok(None),
        Err(e) => Err(Error::io("look at the cached pages of", path)(e)),
    }
}

#[cfg(test)]
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
    fn a_file_on_disk_goes_and_a_missing_one_is_an_error_in_its_place() {
        // Where the build is, since /tmp may be in memory.
        let build = std::env::current_exe().unwrap();
        let dir = tempfile::tempdir_in(build.parent().unwrap()).unwrap();
        let path = dir.path().join("file");
        let data = vec![1; 10 * page_size() as usize];
        File::create(&path).unwrap().write_all(&data).unwrap();
        let files = [dir.path().join("missing"), path.clone()];
        let report = evict(&files, true);
        let [missing, file] = &report.files[..] else { panic!("{report:?}") };
        assert!(missing.as_ref().is_err_and(Error::is_gone));
        let file = file.as_ref().unwrap();
        assert_eq!(file.before, Some(10));
        assert_eq!((file.after, &file.reasons[..]), (Some(0), &[][..]));
        assert_eq!(cached(&path).unwrap(), Some(0));
        let errors = drop_pages(&files, true);
        assert!(errors.len() == 1 && errors[0].is_gone(), "{errors:?}");
    }
}

//! Removes pages that a start did not access, but that were mapped with an accessed page. Pure.
//!
//! A fault maps up to 15 resident pages around its page, and the kernel reports all alike. A start
//! that was recorded exactly ([`crate::trace::exact`]) tells which of them the program needs. From
//! then on a page of such a file counts as needed if that start or a later one faulted for it
//! alone, as for a missing page. Pages that are only mapped with others stay out of the pack, or
//! leave it after some starts.

use super::fold::{Observation, Pages};
use super::named::NamedFiles;
use super::resolve::{Resolution, ResolvedFile};
use super::spans::Spans;
use crate::host::id::InodeId;
use crate::host::usage::How;
use crate::pack::{Identity, Pack};
use std::collections::HashMap;

/// If this share of a file's pages, in percent, are fault-around pages even in an exact start, its
/// mappings could not be registered, and the file is not exact.
const MOST_PERCENT: u64 = 10;

/// Fault-around pages of a start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FaultAround {
    /// Pages that were removed.
    pub skipped: u64,
    /// Files that were recorded exactly.
    pub exact_files: u64,
}

/// Removes fault-around pages from an observed start, by the exact files of the `pack`, or, if the
/// start is `exact`, by its own events.
pub fn drop_fault_around(
    seen: &mut Observation,
    names: &Resolution,
    pack: Option<&Pack>,
    exact: bool,
) -> FaultAround {
    let mut found = FaultAround::default();
    if !seen.has_access_events {
        return found;
    }
    let known = pack.filter(|_| !exact).and_then(ExactPages::of);
    if !exact && known.is_none() {
        return found;
    }
    for (id, named) in &names.files {
        let Some(pages) = seen.files.get_mut(id) else { continue };
        let before = pages.touched.pages();
        if exact {
            found.exact_files += u64::from(mark_exact(pages));
        } else if let Some(needed) = known.as_ref().and_then(|k| k.of_file(*id, named)) {
            remove(pages, &pages.touched.without(&pages.certain).without(needed));
        }
        found.skipped += before - pages.touched.pages();
    }
    found
}

/// Keeps only pages with events of their own, if that is nearly all. Returns whether the file was
/// mapped and exact.
fn mark_exact(pages: &mut Pages) -> bool {
    let all = pages.touched.pages();
    let certain = pages.touched.within(&pages.certain);
    let is_exact = (all - certain.pages()) * 100 < all * MOST_PERCENT;
    if is_exact {
        remove(pages, &pages.touched.without(&certain));
    }
    is_exact && pages.touched.iter().any(|span| span.how.has(How::MAPPED))
}

/// Removes these pages from an exact file.
fn remove(pages: &mut Pages, fault_around: &Spans) {
    pages.touched = pages.touched.without(fault_around);
    // The fault for another page brought them in.
    pages.inserted = pages.inserted.without(fault_around);
    pages.touched.mark(How::EXACT, |span| span.how.has(How::MAPPED));
}

/// The exact files of a pack.
struct ExactPages<'a> {
    pack: &'a Pack,
    names: NamedFiles,
    /// The pages that are needed, by index of the file.
    needed: HashMap<u32, Spans>,
}

impl<'a> ExactPages<'a> {
    /// `None` without exact files.
    fn of(pack: &'a Pack) -> Option<Self> {
        let mut needed: HashMap<u32, Spans> = HashMap::new();
        for range in pack.ranges.iter().filter(|r| r.how.has(How::EXACT)) {
            let spans = needed.entry(range.file).or_default();
            spans.touch(range.page_range(), 0, range.how);
        }
        // A file that replaced another is not exact yet.
        for range in pack.ranges.iter().filter(|r| r.how.has(How::INFERRED)) {
            needed.remove(&range.file);
        }
        (!needed.is_empty()).then(|| Self { pack, names: NamedFiles::of(pack), needed })
    }

    /// The pages that are needed of a file, if that is known.
    fn of_file(&self, id: InodeId, named: &ResolvedFile) -> Option<&Spans> {
        let index = self.names.index(&named.path)?;
        let learned = &self.pack.files.get(index as usize)?.identity;
        let ResolvedFile { size, mtime_ns, ctime_ns, .. } = *named;
        let now = Identity { ino: id.ino, size, mtime_ns, ctime_ns };
        self.needed.get(&index).filter(|_| learned.is_still(&now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::id::Dev;
    use crate::host::range::PageRange;
    use crate::pack::build::{FilePart, Parts};
    use crate::pack::paths::PathInterner;
    use crate::pack::pieces::Piece;
    use crate::pack::{FileSystem, History, Origin};
    use crate::profile::resolve::FileKind;
    use std::path::Path;

    const ID: InodeId = InodeId { dev: Dev::new(8, 1), ino: 42 };

    fn names() -> Resolution {
        let file = ResolvedFile {
            path: "/lib/a".into(),
            kind: FileKind::Regular,
            size: 1 << 20,
            mtime_ns: 5,
            ctime_ns: 6,
            born_ns: None,
            mode: 0o100_644,
        };
        Resolution { files: [(ID, file)].into(), ..Resolution::default() }
    }

    /// A start that mapped the first pages in one go, and of these faulted for the others.
    fn start(mapped: &[(u64, u64)], certain: &[(u64, u64)]) -> Observation {
        let mut pages = Pages::default();
        for &(first, end) in mapped {
            pages.touched.touch(PageRange { first, end }, 0, How::MAPPED);
        }
        for &(first, end) in certain {
            pages.touched.touch(PageRange { first, end }, 0, How::MAPPED);
            pages.certain.touch(PageRange { first, end }, 0, How::MAPPED);
        }
        Observation {
            files: [(ID, pages)].into(),
            has_access_events: true,
            ..Observation::default()
        }
    }

    fn pack(ino: u64, how: How, pieces: &[(u64, u64)]) -> Pack {
        let mut parts =
            Parts { origin: Origin { page_shift: 12, ..Origin::default() }, ..Parts::default() };
        let file_system = parts.file_system(&FileSystem::default()).unwrap();
        let identity = Identity { ino, size: 1 << 20, mtime_ns: 5, ctime_ns: 6 };
        let piece = |&(first, end)| Piece {
            pages: PageRange { first, end },
            at_us: 0,
            how,
            history: History(1),
        };
        let pieces = pieces.iter().map(piece).collect();
        let mut paths = PathInterner::default();
        let node = paths.intern(Path::new("/lib/a")).unwrap();
        parts.files.insert(node, FilePart { file_system, identity, changes: History(0), pieces });
        parts.build(paths.table())
    }

    fn touched(seen: &Observation) -> Vec<(u64, u64)> {
        seen.files[&ID].touched.iter().map(|s| (s.pages.first, s.pages.end)).collect()
    }

    #[test]
    fn an_exact_start_keeps_what_showed_by_itself_unless_that_is_too_little() {
        for (name, mapped, certain, expected, marked) in [
            ("all by itself", vec![], vec![(0, 9)], vec![(0, 9)], true),
            ("a fault-around page", vec![(0, 1)], vec![(1, 30)], vec![(1, 30)], true),
            ("mostly fault-around pages", vec![(0, 16)], vec![(3, 4)], vec![(0, 16)], false),
        ] {
            let mut seen = start(&mapped, &certain);
            let found = drop_fault_around(&mut seen, &names(), None, true);
            assert_eq!(found.exact_files, u64::from(marked), "{name}");
            assert_eq!(touched(&seen), expected, "{name}");
            let all_marked = seen.files[&ID].touched.iter().all(|s| s.how.has(How::EXACT));
            assert_eq!(all_marked, marked, "{name}");
        }
    }

    #[test]
    fn an_old_fault_around_page_is_not_taken_to_be_needed_by_what_is_known_exactly() {
        let mut known = pack(42, How::MAPPED | How::EXACT, &[(0, 2), (4, 5)]);
        known.ranges[1].how = How::MAPPED;
        let mut seen = start(&[(0, 16)], &[(7, 8)]);
        drop_fault_around(&mut seen, &names(), Some(&known), false);
        assert_eq!(touched(&seen), [(0, 2), (7, 8)]);
        assert!(seen.files[&ID].touched.iter().all(|span| span.how.has(How::EXACT)));
    }

    #[test]
    fn without_access_events_nothing_is_removed() {
        let mut seen = start(&[(0, 16)], &[]);
        seen.has_access_events = false;
        let known = pack(42, How::MAPPED | How::EXACT, &[(0, 2)]);
        drop_fault_around(&mut seen, &names(), Some(&known), false);
        assert_eq!(touched(&seen), [(0, 16)]);
    }

    #[test]
    fn later_starts_add_what_they_faulted_for_and_no_fault_around_pages() {
        let exact = How::MAPPED | How::EXACT;
        for (name, pack, expected) in [
            ("known exactly", pack(42, exact, &[(0, 2), (8, 9)]), vec![(0, 2), (5, 6), (8, 9)]),
            ("not known exactly", pack(42, How::MAPPED, &[(0, 2)]), vec![(0, 16)]),
            ("another file", pack(43, exact, &[(0, 2)]), vec![(0, 16)]),
            ("inferred", pack(42, exact | How::INFERRED, &[(0, 2)]), vec![(0, 16)]),
        ] {
            let mut seen = start(&[(0, 16)], &[(5, 6)]);
            let found = drop_fault_around(&mut seen, &names(), Some(&pack), false);
            assert_eq!(touched(&seen), expected, "{name}");
            let kept: u64 = expected.iter().map(|(first, end)| end - first).sum();
            assert_eq!(found, FaultAround { skipped: 16 - kept, exact_files: 0 }, "{name}");
        }
    }
}

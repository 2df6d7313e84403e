//! Classifies the pages of a start, by file: combines what was touched, planned and requested.
//! Pure.

use super::counts::{Classification, PageCounts};
use super::last_run::LastRun;
use super::last_run::timeline::{PrefetchedSpan, Timeline};
use crate::cache::residency::page_size;
use crate::host::id::Dev;
use crate::pack::build::Parts;
use crate::pack::changing::changes_often;
use crate::pack::paths::{NodeId, PathInterner};
use crate::pack::pieces::Piece;
use crate::pack::{FileSystem, Pack};
use crate::profile::fold::{Observation, Pages};
use crate::profile::learn::may_be_read;
use crate::profile::resolve::Resolution;
use crate::profile::spans::Spans;
use crate::replay::engine::Log;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// What was prefetched of a start.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrefetchedPages<'a> {
    /// What of a pack was prefetched, if any was.
    pub pack: Option<&'a Pack>,
    /// What was requested, if that was kept.
    pub log: Option<&'a Log>,
    /// When the program was let go, in µs on the clock of the log.
    pub released_us: u64,
}

/// Classifies the pages that were planned and touched, in total and over time. Files that are
/// always resident, such as those of an initramfs, are skipped.
pub fn classify(
    seen: &Observation,
    names: &Resolution,
    file_systems: &HashMap<Dev, FileSystem>,
    replayed: PrefetchedPages<'_>,
) -> (PageCounts, LastRun) {
    let mut paths = PathInterner::default();
    let PrefetchedPages { pack, log, released_us } = replayed;
    let mut planned = pack.map(|pack| Parts::of(pack, &mut paths)).unwrap_or_default();
    let page = page_size();
    let mut prefetched = log.map(|log| Requests::of(log, released_us, page, &paths));
    let mut prefetched_of = |node: NodeId| prefetched.as_mut()?.take(node);
    let (mut outcome, mut timeline) = (PageCounts::default(), Timeline::new(seen.duration));
    let none = Spans::default();
    let mut named = HashSet::new();
    // Files that were read before they were replaced come first: they were planned.
    let replaced = names.replaced.iter().map(|replaced| (&replaced.was, &replaced.file));
    for (id, file) in replaced.chain(names.files.iter().map(|(id, file)| (id, file))) {
        let Some(pages) = seen.files.get(id) else { continue };
        named.insert(*id);
        if !may_be_read(file_systems, id.dev) {
            continue;
        }
        let node = paths.find(&file.path);
        let part = node
            .and_then(|node| planned.files.remove(&node))
            .filter(|p| p.identity.ino == id.ino || changes_often(p.changes));
        let spans = part.map(|p| spans_of(&p.pieces)).unwrap_or_default();
        // Reads request whole buffers, beyond the end of the file.
        let mut touched = pages.touched.clone();
        touched.cut(file.size.div_ceil(page));
        let classes = Classification::of(&touched, &pages.inserted, &spans);
        outcome.add(&classes);
        let prefetched = node.and_then(&mut prefetched_of).unwrap_or_default();
        timeline.add(Some(&file.path), &classes, &prefetched);
    }
    let unnamed = seen.files.iter().filter(|(id, _)| !named.contains(id));
    let unknown: HashSet<_> =
        names.unnamed.iter().filter(|(_, why)| why.is_unknown()).map(|(id, _)| id).collect();
    for (id, pages) in unnamed.filter(|(id, _)| may_be_read(file_systems, id.dev)) {
        let classes = if unknown.contains(id) && pages.touched.pages() > 0 {
            let classes = Classification::of_unnamed(&pages.touched, &pages.inserted);
            outcome.add_unnamed(&classes);
            classes
        } else {
            let classes = Classification::of(&pages.touched, &pages.inserted, &none);
            outcome.add(&classes);
            classes
        };
        timeline.add(None, &classes, &[]);
    }
    for (node, part) in &planned.files {
        let classes = Classification::of(&none, &none, &spans_of(&part.pieces));
        outcome.add(&classes);
        let path = paths.table().path(*node);
        timeline.add(Some(&path), &classes, &prefetched_of(*node).unwrap_or_default());
    }
    for (dev, pages) in &seen.metadata {
        let uuid = file_systems.get(dev).and_then(|fs| fs.uuid);
        let is_it = |index: &u16| {
            let fs = planned.file_systems.get(usize::from(*index));
            uuid.is_some() && fs.and_then(|fs| fs.uuid) == uuid
        };
        let part = planned.metadata.iter().find(|(index, _)| is_it(index));
        let spans = part.map(|(_, pieces)| spans_of(pieces)).unwrap_or_default();
        let classes = metadata(pages, &spans);
        outcome.add_metadata(&classes);
        timeline.add_metadata(&classes);
    }
    let run = LastRun { replayed: pack.is_some(), ..timeline.finish() };
    (outcome, run)
}

/// The metadata of a device. All pages that were brought in count as needed, since accesses are
/// not always reported.
fn metadata(pages: &Pages, planned: &Spans) -> Classification {
    Classification::of(&pages.inserted, &pages.inserted, planned)
}

/// What was requested of files, on the clock of the start: in one list, of which most files have one.
#[derive(Default)]
struct Requests {
    all: Vec<PrefetchedSpan>,
    /// By the node of their paths.
    files: HashMap<NodeId, Range<usize>>,
}

impl Requests {
    fn of(log: &Log, released_us: u64, page: u64, paths: &PathInterner) -> Self {
        let nanos = |us: u64| i64::try_from(us).unwrap_or(i64::MAX).saturating_mul(1000);
        let mut out = Self::default();
        log.each_file(|path, parts| {
            let Some(node) = paths.find(&path) else { return };
            let begin = out.all.len();
            out.all.extend(parts.iter().map(|prefetched| PrefetchedSpan {
                pages: prefetched.step.bytes.pages(page),
                at: nanos(prefetched.at_us).saturating_sub(nanos(released_us)),
            }));
            out.files.insert(node, begin..out.all.len());
        });
        out
    }

    /// What was requested of a file, once.
    fn take(&mut self, node: NodeId) -> Option<Vec<PrefetchedSpan>> {
        self.files.remove(&node).map(|range| self.all[range].to_vec())
    }
}

fn spans_of(pieces: &[Piece]) -> Spans {
    let mut in_time: Vec<&Piece> = pieces.iter().collect();
    in_time.sort_by_key(|piece| piece.at_us);
    let mut spans = Spans::default();
    for p in in_time {
        spans.touch(p.pages, u64::from(p.at_us) * 1000, p.how);
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::id::InodeId;
    use crate::host::range::PageRange;
    use crate::profile::fold::{Rules, fold};
    use crate::profile::resolve::{FileKind, ResolvedFile};
    use crate::trace::{Event, EventKind};

    #[test]
    fn what_is_in_memory_anyway_is_neither_touched_nor_missing() {
        let (disk, tmpfs, initramfs) = (Dev::new(8, 1), Dev::new(0, 30), Dev::new(0, 2));
        let fs = |kind: &str| FileSystem { uuid: None, kind: kind.into(), source: vec![] };
        let known = [(disk, fs("ext4")), (tmpfs, fs("tmpfs"))];
        for (dev, is_named, expected) in [
            (disk, true, 3),
            (disk, false, 3),
            (tmpfs, true, 0),
            (tmpfs, false, 0),
            (initramfs, false, 0),
        ] {
            let id = InodeId { dev, ino: 7 };
            let event = |time, kind| Event { time, tid: 1, kind, id, pages: PageRange::of(0, 3) };
            let rules = Rules { has_access_events: true, ..Rules::default() };
            let seen = fold([event(1, EventKind::Insert), event(2, EventKind::Read)], &rules);
            let file = ResolvedFile {
                path: "/a".into(),
                size: 1 << 20,
                mtime_ns: 0,
                ctime_ns: 0,
                born_ns: None,
                kind: FileKind::Regular,
                mode: 0,
            };
            let files = is_named.then_some((id, file)).into_iter().collect();
            let names = Resolution { files, ..Resolution::default() };
            let (outcome, _) =
                classify(&seen, &names, &known.clone().into(), PrefetchedPages::default());
            let found = (outcome.touched_pages, outcome.missing_pages);
            assert_eq!(found, (expected, expected), "{dev}, {is_named}");
        }
    }
}

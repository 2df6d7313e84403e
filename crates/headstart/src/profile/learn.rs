//! From one observed start and its resolved names to a pack of that start. Pure.

use super::fold::Observation;
use super::resolve::{FileKind, Replaced, Resolution, ResolvedFile, Unnamed};
use super::spans::Spans;
use crate::host::id::{Dev, InodeId};
use crate::host::range::PageRange;
use crate::host::superblock::is_in_device_cache;
use crate::host::usage::How;
use crate::pack::build::{FilePart, Parts};
use crate::pack::paths::PathInterner;
use crate::pack::pieces::Piece;
use crate::pack::{Dropped, FileSystem, History, Identity, Origin, Pack};
use std::collections::HashMap;
use std::mem;
use std::ops::RangeInclusive;
use std::path::Path;

/// File systems whose files are always in memory.
const IN_MEMORY: [&str; 5] = ["tmpfs", "ramfs", "devtmpfs", "hugetlbfs", "rootfs"];

/// Whether files of a file system of this type are always in memory.
pub fn is_in_memory(kind: &str) -> bool {
    IN_MEMORY.contains(&kind)
}

/// Whether files of a device can be prefetched. An unnamed device without a known file system
/// can't: it belongs to the kernel or the initramfs.
pub(crate) fn may_be_read(file_systems: &HashMap<Dev, FileSystem>, dev: Dev) -> bool {
    match file_systems.get(&dev) {
        Some(fs) => !is_in_memory(&fs.kind),
        None => dev.major() != 0,
    }
}

/// Created files are kept in the pack up to this size and number, since they may be state that the
/// next start reads; more are results. Files that were only written are kept up to the same number.
const LARGEST_STATE: u64 = 1 << 20;
const MOST_STATES: usize = 64;

/// How far two clocks that are compared at the end of a start may differ before, in nanoseconds: the monotonic
/// clock is rarely slewed by more than 500 ppm (adjtimex(2)). Times of files are those of the last tick,
/// so they only make a touch look later.
fn clock_error_ns(start_us: u64) -> i64 {
    i64::try_from(start_us / 2).unwrap_or(i64::MAX).saturating_add(1_000_000)
}

/// What is known of the start besides its pages.
#[derive(Clone, Debug)]
pub struct Start {
    /// Everything of [`Origin`] that the driver knows.
    pub origin: Origin,
    /// The file systems by device.
    pub file_systems: HashMap<Dev, FileSystem>,
    /// When it was, in nanoseconds of Unix time. What was made later than that was made by
    /// another clock, or before this one was set right.
    pub during: RangeInclusive<i64>,
    /// Whether pages that the program brought in without an access event belong to the pack: after
    /// a complete replay they are its own readahead.
    pub keep_untouched: bool,
    /// When the times of touches begin, in nanoseconds of Unix time, if they can be compared with times
    /// of files: not without waits.
    pub began_ns: Option<i64>,
}

/// Builds the pack of one start, whose pages are dropped file by file. `code` tells the pages of a file that
/// are mapped as code.
pub fn pack_of_start(
    seen: Observation,
    names: &Resolution,
    start: Start,
    code: impl Fn(&Path) -> Vec<PageRange>,
) -> Pack {
    let Start { origin, file_systems, during, keep_untouched, began_ns } = start;
    let Observation { mut files, metadata, .. } = seen;
    let page_size = 1u64 << origin.page_shift;
    let clock_error = clock_error_ns(origin.duration_us);
    let is_made_during =
        |file: &ResolvedFile| file.born_ns.is_some_and(|born| during.contains(&born));
    let room = HashMap::with_capacity(files.len());
    let mut parts = Parts { origin, files: room, ..Parts::default() };
    let mut paths = PathInterner::default();
    let mut dropped = count_unnamed(names);
    let (mut made, mut appended) = (Vec::new(), Vec::new());
    let reused: HashMap<InodeId, &Replaced> =
        names.reused.iter().map(|reused| (reused.was, reused)).collect();
    let mut read_before = Vec::new();
    // Files that replaced a read file come last, and take its place.
    let named = names.files.iter().map(|(id, file)| (id, id, file));
    let replaced =
        names.replaced.iter().map(|replaced| (&replaced.was, &replaced.is, &replaced.file));
    for (id, is, file) in named.chain(replaced) {
        let Some(pages) = files.remove(id) else { continue };
        let Some(fs) = file_systems.get(&id.dev) else {
            dropped.unreachable += 1;
            continue;
        };
        if file.kind != FileKind::Regular {
            dropped.irregular += 1;
            continue;
        }
        if is_in_memory(&fs.kind) {
            dropped.in_memory += 1;
            continue;
        }
        let is_new = is_made_during(file);
        let is_written = is_new || during.contains(&file.mtime_ns);
        if id != is && !is_written {
            // Another version, which somebody else put there.
            dropped.deleted += 1;
            continue;
        }
        let untouched = match keep_untouched && !is_written {
            true => pages.inserted.without(&pages.touched),
            false => Spans::default(),
        };
        let is_made = is_new && id == is;
        let added_at = pages.inserted.iter().map(|span| span.at).min();
        let mut spans = match file.born_ns.filter(|_| is_made) {
            // What it reads of a file that it made is what it wrote; before that there was one that it
            // removed, whose inode was used again.
            Some(born) => {
                let age = born.saturating_sub(began_ns.unwrap_or(born)).saturating_sub(clock_error);
                pages.touched.before(u64::try_from(age).unwrap_or(0))
            }
            None => pages.touched,
        };
        for span in untouched.iter() {
            spans.touch(span.pages, span.at, How::INSERTED);
        }
        // The file had another name when it was read, and the start made what has that name now: it removed
        // the file, or keeps it as a backup.
        let other = reused.get(id).filter(|other| is_made || is_made_during(&other.file));
        if let Some(other) = other {
            read_before.push((*other, mem::take(&mut spans)));
        }
        // Reads request whole buffers, beyond the end of the file.
        spans.cut(file.size.div_ceil(page_size));
        let Some(file_system) = parts.file_system(fs) else { continue };
        let part = FilePart {
            file_system,
            identity: identity(*is, file),
            changes: History::default().after_start(is_written),
            pieces: Vec::new(),
        };
        if spans.is_empty() {
            match (paths.intern(&file.path), added_at) {
                (Some(node), _) if is_made && (1..=LARGEST_STATE).contains(&file.size) => {
                    made.push((node, part, ONLY_WRITTEN));
                }
                (Some(node), Some(at)) if is_written && !is_new && file.size > 0 => {
                    let how = How::WRITTEN | How::APPENDED;
                    appended.push((node, part, Piece { at_us: micros(at), how, ..ONLY_WRITTEN }));
                }
                _ => dropped.written += u32::from(is_written),
            }
            continue;
        }
        mark_code(&mut spans, || code(&file.path));
        let Some(node) = paths.intern(&file.path) else { continue };
        parts.files.insert(node, FilePart { pieces: pieces_of_start(&spans), ..part });
    }
    for (Replaced { is, file, .. }, mut spans) in read_before {
        spans.cut(file.size.div_ceil(page_size));
        if spans.is_empty() {
            continue;
        }
        // Another version, which somebody else put there.
        let fs = file_systems.get(&is.dev).filter(|_| during.contains(&file.mtime_ns));
        dropped.deleted += u32::from(fs.is_none());
        if let Some(file_system) = fs.and_then(|fs| parts.file_system(fs))
            && let Some(node) = paths.intern(&file.path)
        {
            parts.files.entry(node).or_insert_with(|| FilePart {
                file_system,
                identity: identity(*is, file),
                changes: History::default().after_start(true),
                pieces: pieces_of_start(&spans),
            });
        }
    }
    for mut written in [made, appended] {
        written.retain(|(node, ..)| !parts.files.contains_key(node));
        if written.len() > MOST_STATES {
            dropped.written += written.len() as u32;
            written.clear();
        }
        for (node, part, piece) in written {
            parts.files.insert(node, FilePart { pieces: vec![piece], ..part });
        }
    }
    for (device, pages) in metadata {
        // Without a UUID the device would not be found again. Of file systems that have their
        // metadata elsewhere this is what somebody else read, such as blkid(8).
        let is_metadata =
            |fs: &&FileSystem| fs.uuid.is_some() && is_in_device_cache(fs.kind.as_ref());
        let known = file_systems.get(&device).filter(is_metadata);
        let Some(fs) = known else { continue };
        let Some(file_system) = parts.file_system(fs) else { continue };
        let mut spans = pages.inserted;
        for span in pages.touched.iter() {
            spans.touch(span.pages, span.at, How::READ);
        }
        // Copies of a file system have the same UUID.
        parts.metadata.entry(file_system).or_default().extend(pieces_of_start(&spans));
    }
    parts.origin.dropped = dropped;
    drop(files);
    parts.build(paths.table())
}

/// The pieces of one start.
pub fn pieces_of_start(spans: &Spans) -> Vec<Piece> {
    spans
        .iter()
        .map(|s| Piece { pages: s.pages, at_us: micros(s.at), how: s.how, history: History(1) })
        .collect()
}

fn micros(nanoseconds: u64) -> u32 {
    u32::try_from(nanoseconds / 1000).unwrap_or(u32::MAX)
}

/// A piece without pages to read, which keeps the file in the pack.
const ONLY_WRITTEN: Piece =
    Piece { pages: PageRange::of(0, 1), at_us: 0, how: How::WRITTEN, history: History(1) };

fn identity(id: InodeId, file: &ResolvedFile) -> Identity {
    let ResolvedFile { size, mtime_ns, ctime_ns, .. } = *file;
    Identity { ino: id.ino, size, mtime_ns, ctime_ns }
}

fn count_unnamed(names: &Resolution) -> Dropped {
    let mut dropped = Dropped::default();
    for (_, reason) in &names.unnamed {
        let count = match reason {
            Unnamed::Deleted => &mut dropped.deleted,
            Unnamed::Unreachable => &mut dropped.unreachable,
            Unnamed::NotFound => &mut dropped.not_found,
            Unnamed::WalkSkipped | Unnamed::OutOfTime | Unnamed::NoAnswer => {
                &mut dropped.not_looked_for
            }
            Unnamed::NoPermission => &mut dropped.no_permission,
            Unnamed::Changed => &mut dropped.changed,
            Unnamed::Internal => &mut dropped.in_memory,
        };
        *count += 1;
    }
    dropped
}

/// Marks what was touched through a mapping within the code of a file.
fn mark_code(spans: &mut Spans, code: impl FnOnce() -> Vec<PageRange>) {
    if !spans.iter().any(|s| s.how.has(How::MAPPED)) {
        return;
    }
    let code = code();
    spans.mark(How::EXECUTED, |s| {
        s.how.has(How::MAPPED) && code.iter().any(|c| !c.within(s.pages).is_empty())
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::fold::Pages;
    use std::path::PathBuf;

    const DISK: Dev = Dev::new(8, 1);

    fn file(born: i64, mtime: i64) -> ResolvedFile {
        ResolvedFile {
            path: PathBuf::from("/file"),
            size: 1 << 16,
            mtime_ns: mtime,
            ctime_ns: mtime,
            born_ns: Some(born),
            kind: FileKind::Regular,
            mode: 0,
        }
    }

    fn start(kind: &str, uuid: Option<[u8; 16]>, during: RangeInclusive<i64>) -> Start {
        let fs = FileSystem { uuid, kind: kind.into(), ..FileSystem::default() };
        Start {
            origin: Origin {
                page_shift: 12,
                starts: 1,
                duration_us: 4_000_000,
                ..Origin::default()
            },
            file_systems: [(DISK, fs)].into(),
            during,
            keep_untouched: false,
            began_ns: Some(5_000_000_000),
        }
    }

    #[test]
    fn what_was_made_during_the_start_was_not_there_to_be_read() {
        for (name, born, mtime, expected) in [
            ("an old file", 10, 10, Some((How::READ, 0))),
            ("one that it wrote", 10, 150, Some((How::READ, 1))),
            ("one that it made", 150, 150, Some((How::WRITTEN, 1))),
            ("one of a clock that was ahead", 900, 900, Some((How::READ, 0))),
        ] {
            let id = InodeId { dev: DISK, ino: 7 };
            let mut pages = Pages::default();
            pages.touched.touch(PageRange::of(0, 4), 0, How::READ);
            let seen = Observation { files: [(id, pages)].into(), ..Observation::default() };
            let names =
                Resolution { files: vec![(id, file(born, mtime))], ..Resolution::default() };
            let start = start("ext4", None, 100..=200);
            let pack = pack_of_start(seen, &names, start, |_| Vec::new());
            let found = pack.ranges.first().map(|range| (range.how, pack.files[0].changes.0));
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn what_was_read_before_a_file_was_made_in_its_inode_is_of_the_one_that_it_replaced() {
        const MS: u64 = 1_000_000;
        let began = 5_000_000_000;
        for (name, born_ms, at_ms, began_ns, expected) in [
            ("read, and replaced later", 900, 300, Some(began), How::READ),
            ("read, and replaced soon", 900, 896, Some(began), How::READ),
            ("written and read then", 900, 901, Some(began), How::WRITTEN),
            ("too close to tell", 900, 897, Some(began), How::WRITTEN),
            ("recorded late", 900, 300, Some(began + 600_000_000), How::WRITTEN),
            ("made at once", 0, 0, Some(began), How::WRITTEN),
            ("times without waits can't be compared", 900, 300, None, How::WRITTEN),
        ] {
            let id = InodeId { dev: DISK, ino: 7 };
            let mut pages = Pages::default();
            pages.touched.touch(PageRange::of(0, 1), at_ms * MS, How::READ);
            let seen = Observation { files: [(id, pages)].into(), ..Observation::default() };
            let born = began + born_ms * MS as i64;
            let names = Resolution { files: vec![(id, file(born, born))], ..Resolution::default() };
            let during = began..=6_000_000_000;
            let start = Start { began_ns, ..start("ext4", Some([7; 16]), during) };
            let pack = pack_of_start(seen, &names, start, |_| Vec::new());
            let found: Vec<_> = pack.ranges.iter().map(|range| range.how).collect();
            assert_eq!((found, pack.files[0].changes), (vec![expected], History(1)), "{name}");
        }
    }

    #[test]
    fn what_was_read_before_another_file_was_made_in_its_inode_is_of_the_name_that_it_had() {
        const MS: u64 = 1_000_000;
        let (reused, other) = (InodeId { dev: DISK, ino: 7 }, InodeId { dev: DISK, ino: 8 });
        let during = 5_000_000_000..=6_000_000_000;
        let born = 5_900_000_000;
        for (name, mtime, expected) in [
            ("replaced by the start", born, vec![("/file", How::WRITTEN), ("/state", How::READ)]),
            ("by somebody before", 7, vec![("/file", How::WRITTEN)]),
        ] {
            let mut pages = Pages::default();
            pages.touched.touch(PageRange::of(0, 1), 300 * MS, How::READ);
            pages.touched.touch(PageRange::of(1, 1), 900 * MS, How::READ);
            let seen = Observation { files: [(reused, pages)].into(), ..Observation::default() };
            let state = ResolvedFile { path: "/state".into(), ..file(born, mtime) };
            let names = Resolution {
                files: vec![(reused, file(born, born))],
                reused: vec![Replaced { was: reused, is: other, file: state }],
                ..Resolution::default()
            };
            let start = start("ext4", Some([7; 16]), during.clone());
            let pack = pack_of_start(seen, &names, start, |_| Vec::new());
            let range = |range: &crate::pack::Range| {
                let file = &pack.files[range.file as usize];
                (pack.paths.path(file.node), file.identity.ino, range.first, range.how)
            };
            let mut found: Vec<_> = pack.ranges.iter().map(range).collect();
            found.sort_by(|a, b| a.0.cmp(&b.0));
            let expected = expected.into_iter().map(|(path, how)| {
                (PathBuf::from(path), if path == "/state" { 8 } else { 7 }, 0, how)
            });
            assert_eq!(found, expected.collect::<Vec<_>>(), "{name}");
        }
    }

    #[test]
    fn what_was_read_of_a_file_that_became_a_backup_is_of_the_one_that_took_its_name() {
        let (was, is) = (InodeId { dev: DISK, ino: 7 }, InodeId { dev: DISK, ino: 8 });
        for (name, born, other_born, expected) in [
            ("the start made the other", 10, 150, ("/state", 8)),
            ("somebody made it before", 10, 90, ("/file", 7)),
            ("the start wrote to it", 10, 20, ("/file", 7)),
        ] {
            let mut pages = Pages::default();
            pages.touched.touch(PageRange::of(0, 1), 5000, How::READ);
            let seen = Observation { files: [(was, pages)].into(), ..Observation::default() };
            let state = ResolvedFile { path: "/state".into(), ..file(other_born, 150) };
            let names = Resolution {
                files: vec![(was, file(born, born))],
                reused: vec![Replaced { was, is, file: state }],
                ..Resolution::default()
            };
            let start = start("ext4", Some([7; 16]), 100..=200);
            let pack = pack_of_start(seen, &names, start, |_| Vec::new());
            let found: Vec<_> = pack
                .files
                .iter()
                .map(|file| (pack.paths.path(file.node), file.identity.ino))
                .collect();
            assert_eq!(found, [(PathBuf::from(expected.0), expected.1)], "{name}");
            assert_eq!(pack.ranges[0].how, How::READ, "{name}");
        }
    }

    #[test]
    fn what_was_only_written_of_an_old_file_may_be_at_its_end() {
        let appended = How::WRITTEN | How::APPENDED;
        for (name, size, inserted, born, expected) in [
            ("written", 9000, 1, 10, Some((appended, 5))),
            ("made", 9000, 1, 150, Some((How::WRITTEN, 0))),
            ("in memory already", 9000, 0, 10, None),
            ("empty", 0, 1, 10, None),
        ] {
            let id = InodeId { dev: DISK, ino: 7 };
            let mut pages = Pages::default();
            pages.inserted.touch(PageRange::of(2, inserted), 5000, How::INSERTED);
            let seen = Observation { files: [(id, pages)].into(), ..Observation::default() };
            let written = ResolvedFile { size, ..file(born, 150) };
            let names = Resolution { files: vec![(id, written)], ..Resolution::default() };
            let start = start("ext4", Some([7; 16]), 100..=200);
            let pack = pack_of_start(seen, &names, start, |_| Vec::new());
            let found = pack.ranges.first().map(|range| (range.how, range.at_us));
            assert_eq!(found, expected, "{name}");
            assert_eq!(pack.origin.dropped.written, u32::from(expected.is_none()), "{name}");
        }
    }

    #[test]
    fn of_block_devices_only_what_a_replay_can_read_is_learned() {
        for (kind, uuid, expected) in [
            ("ext4", Some([7; 16]), 1),
            ("erofs", Some([7; 16]), 1),
            ("ext4", None, 0),
            ("xfs", Some([7; 16]), 0),
            ("btrfs", Some([7; 16]), 0),
        ] {
            let mut pages = Pages::default();
            pages.inserted.touch(PageRange::of(0, 4), 0, How::INSERTED);
            let seen = Observation { metadata: [(DISK, pages)].into(), ..Observation::default() };
            let start = start(kind, uuid, 100..=200);
            let pack = pack_of_start(seen, &Resolution::default(), start, |_| Vec::new());
            assert_eq!(pack.metadata.len(), expected, "{kind} {uuid:?}");
        }
    }
}

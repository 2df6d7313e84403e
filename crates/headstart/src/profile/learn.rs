//! From one observed start and its resolved names to a pack of one start.
//! Pure.

use super::fold::Observation;
use super::resolve::{FileKind, Resolution, Unnamed};
use super::spans::{How, Spans};
use crate::id::Dev;
use crate::pack::build::{FilePart, Parts, pieces_of_start};
use crate::pack::paths::PathInterner;
use crate::pack::{Dropped, FileSystem, Identity, Origin, Pack};
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

/// File systems whose files are in memory anyway.
pub(crate) const IN_MEMORY: [&str; 5] = ["tmpfs", "ramfs", "devtmpfs", "hugetlbfs", "rootfs"];

/// What is known of the start beside its pages.
#[derive(Clone, Debug)]
pub struct Start {
    /// Everything of [`Origin`] that the driver knows.
    pub origin: Origin,
    /// The file systems by device.
    pub file_systems: HashMap<Dev, FileSystem>,
    /// When it began, in nanoseconds of Unix time.
    pub began_ns: i64,
    /// Whether what the program brought in without a visible use belongs to
    /// the pack: after a complete replay these are its own read-ahead.
    pub keep_untouched: bool,
}

/// Builds the pack of one start. `code` tells the pages of a file that are
/// mapped as code.
pub fn pack_of_start(
    seen: &Observation,
    names: &Resolution,
    start: Start,
    code: impl Fn(&Path) -> Vec<Range<u64>>,
) -> Pack {
    let Start { origin, file_systems, began_ns, keep_untouched } = start;
    let page_size = 1u64 << origin.page_shift;
    let mut parts = Parts { origin, ..Parts::default() };
    let mut paths = PathInterner::default();
    let mut dropped = count_unnamed(names);
    for (id, file) in &names.files {
        let Some(pages) = seen.files.get(id) else { continue };
        let Some(fs) = file_systems.get(&id.dev) else {
            dropped.unreachable += 1;
            continue;
        };
        if file.kind != FileKind::Regular {
            dropped.irregular += 1;
            continue;
        }
        if IN_MEMORY.contains(&fs.kind.as_str()) {
            dropped.in_memory += 1;
            continue;
        }
        if file.mtime_ns >= began_ns {
            dropped.written += 1;
            continue;
        }
        let mut spans = pages.touched.clone();
        if keep_untouched {
            for span in pages.inserted.without(&pages.touched).iter() {
                spans.touch(span.first, span.end - span.first, span.at, How::INSERTED);
            }
        }
        // Reads ask for whole buffers, beyond the end of the file.
        spans.cut(file.size.div_ceil(page_size));
        if spans.is_empty() {
            continue;
        }
        mark_code(&mut spans, || code(&file.path));
        let Some(file_system) = parts.file_system(fs) else { continue };
        let identity = Identity {
            ino: id.ino,
            size: file.size,
            mtime_ns: file.mtime_ns,
            ctime_ns: file.ctime_ns,
        };
        let pieces = pieces_of_start(&spans);
        let Some(node) = paths.intern(&file.path) else { continue };
        parts.files.insert(node, FilePart { file_system, identity, pieces });
    }
    for (device, pages) in &seen.metadata {
        // Without a UUID the device would not be found again.
        let known = file_systems.get(device).filter(|fs| fs.uuid.is_some());
        let Some(fs) = known else { continue };
        let Some(file_system) = parts.file_system(fs) else { continue };
        let mut spans = pages.inserted.clone();
        for span in pages.touched.iter() {
            spans.touch(span.first, span.end - span.first, span.at, How::READ);
        }
        parts.metadata.insert(file_system, pieces_of_start(&spans));
    }
    parts.origin.dropped = dropped;
    parts.build(paths.table())
}

fn count_unnamed(names: &Resolution) -> Dropped {
    let mut dropped = Dropped::default();
    for (_, reason) in &names.unnamed {
        let count = match reason {
            Unnamed::Deleted => &mut dropped.deleted,
            Unnamed::Unreachable => &mut dropped.unreachable,
            Unnamed::NotFound => &mut dropped.not_found,
            Unnamed::WalkSkipped | Unnamed::OutOfTime => &mut dropped.not_looked_for,
            Unnamed::NoPermission => &mut dropped.no_permission,
            Unnamed::Changed => &mut dropped.changed,
            Unnamed::Internal => &mut dropped.in_memory,
        };
        *count += 1;
    }
    dropped
}

/// Marks what was touched through a mapping within the code of a file.
fn mark_code(spans: &mut Spans, code: impl FnOnce() -> Vec<Range<u64>>) {
    if !spans.iter().any(|s| s.how.has(How::MAPPED)) {
        return;
    }
    let code = code();
    spans.mark(How::EXECUTED, |s| {
        s.how.has(How::MAPPED) && code.iter().any(|c| s.first < c.end && c.start < s.end)
    });
}

//! A pack of imported accesses, with what was found of their names on this machine.

use crate::accesses::{Accesses, Name};
use headstart::pack::build::{FilePart, Parts};
use headstart::pack::paths::PathInterner;
use headstart::pack::{FileSystem, History, Identity, Origin, Pack};
use headstart::profile::learn::pieces_of_start;
use headstart::profile::spans::{Span, Spans};
use std::collections::HashMap;
use std::path::PathBuf;

/// A regular file on this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Its path without symbolic links.
    pub path: PathBuf,
    /// What it is now.
    pub identity: Identity,
    /// What it is on.
    pub file_system: FileSystem,
}

/// A pack of one start with these accesses. `find` tells what a name is on this machine, `origin` all
/// that the accesses don't tell.
pub fn pack(
    accesses: &Accesses,
    origin: Origin,
    mut find: impl FnMut(&Name) -> Option<Found>,
) -> Pack {
    let origin = Origin {
        page_shift: accesses.page_size.trailing_zeros() as u8,
        starts: 1,
        lost_events: accesses.lacks.lost,
        has_access_events: accesses.has_access_events,
        duration_us: accesses.duration() / 1000,
        ..origin
    };
    let mut parts = Parts { origin, ..Parts::default() };
    let mut paths = PathInterner::default();
    // Several names may be one file.
    let mut same: HashMap<PathBuf, (Found, Vec<Span>)> = HashMap::new();
    for (name, spans) in accesses.files() {
        let Some(found) = find(name) else { continue };
        let (_, all) = same.entry(found.path.clone()).or_insert_with(|| (found, Vec::new()));
        all.extend(spans.iter());
    }
    for (path, (found, mut all)) in same {
        all.sort_by_key(|span| span.at);
        let mut spans = Spans::default();
        for Span { pages, at, how } in all {
            spans.touch(pages, at, how);
        }
        spans.cut(found.identity.size.div_ceil(accesses.page_size));
        let (Some(file_system), Some(node), false) =
            (parts.file_system(&found.file_system), paths.intern(&path), spans.is_empty())
        else {
            continue;
        };
        let part = FilePart {
            file_system,
            identity: found.identity,
            changes: History::default(),
            pieces: pieces_of_start(&spans),
        };
        parts.files.insert(node, part);
    }
    parts.build(paths.table())
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart::host::range::ByteRange;
    use headstart::host::usage::How;

    #[test]
    fn names_of_one_file_are_joined_and_ranges_end_with_the_file() {
        let mut accesses = Accesses::new(4096, 1000);
        let name = |name: &str| Name::Path(name.into());
        accesses.add_bytes(name("/gone"), ByteRange::of(0, 1), 1_000_000, How::READ).unwrap();
        accesses.add_whole(name("/link"), 2_000_000, How::MAPPED).unwrap();
        accesses.add_bytes(name("/file"), ByteRange::of(4096, 1), 60_000_000, How::READ).unwrap();
        accesses.add_bytes(name("/empty"), ByteRange::of(0, 1), 61_000_000, How::READ).unwrap();
        let pack = pack(&accesses, Origin { name: "x".into(), ..Origin::default() }, |name| {
            let Name::Path(name) = name else { return None };
            let (path, size) = match &name[..] {
                b"/link" | b"/file" => ("/file", 10_000),
                b"/empty" => ("/empty", 0),
                _ => return None,
            };
            let identity = Identity { ino: 5, size, ..Identity::default() };
            let file_system = FileSystem { kind: "ext4".into(), ..FileSystem::default() };
            Some(Found { path: path.into(), identity, file_system })
        });
        let ranges: Vec<_> =
            pack.ranges.iter().map(|r| (r.first, r.pages, r.at_us, r.how)).collect();
        assert_eq!(pack.files.len(), 1);
        assert_eq!(ranges, [(0, 3, 1000, How::READ | How::MAPPED)]);
        assert_eq!((pack.origin.starts, pack.origin.duration_us), (1, 60_000));
    }
}

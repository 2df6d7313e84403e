//! Packs of file systems that are mounted and of one that is not, for tests.

use super::machine::Machine;
use crate::host::identity::Identity;
use crate::host::mounts::MountTable;
use crate::host::range::PageRange;
use crate::host::usage::How;
use crate::pack::build::{FilePart, Parts};
use crate::pack::paths::PathInterner;
use crate::pack::pieces::Piece;
use crate::pack::{FileSystem, History, Origin, Pack, store};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A pack of a file on this file system.
pub(super) fn pack_of_a_file_on(fs: &FileSystem) -> Pack {
    let mut names = PathInterner::default();
    let origin = Origin { page_shift: 12, starts: 1, ..Origin::default() };
    let mut parts = Parts { origin, ..Parts::default() };
    let file_system = parts.file_system(fs).unwrap();
    let pieces =
        vec![Piece { pages: PageRange::of(0, 1), at_us: 0, how: How::READ, history: History(1) }];
    let part = FilePart { file_system, identity: Identity::default(), changes: History(0), pieces };
    parts.files.insert(names.intern(Path::new("/a")).unwrap(), part);
    parts.build(names.table())
}

/// A file system that is nowhere mounted.
pub(super) fn away() -> FileSystem {
    FileSystem { uuid: Some([0xee; 16]), kind: "ext4".into(), ..Default::default() }
}

/// One that is mounted on every machine.
pub(super) fn here(kind: &str) -> FileSystem {
    let table = MountTable::read().unwrap();
    let mount = table.mounts().iter().find(|mount| mount.fstype == kind).unwrap();
    let source = mount.source.as_bytes().to_vec();
    FileSystem { uuid: None, kind: kind.into(), source }
}

/// Puts a pack of a file on this file system there.
pub(super) fn keep_pack(machine: &Machine, phase: &str, fs: &FileSystem) {
    store::lock(&machine.pack(phase, fs)).unwrap().write(&pack_of_a_file_on(fs)).unwrap();
}

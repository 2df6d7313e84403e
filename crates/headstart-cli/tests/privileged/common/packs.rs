//! Packs that nobody learned: of files that a test has.

use headstart::host::fsid;
use headstart::host::identity::identity_of;
use headstart::host::mounts::MountTable;
use headstart::host::usage::How;
use headstart::pack::build::{FilePart, Parts};
use headstart::pack::paths::PathInterner;
use headstart::pack::pieces::Piece;
use headstart::pack::{FileSystem, History, Origin, store};
use headstart_testing::LoopFs;
use std::path::Path;

/// Writes a pack of files on `fs` in touch order, each with its name in the pack, where it is now,
/// and how many of its first pages are known.
pub fn write(fs: &LoopFs, pack: &Path, files: &[(&Path, &Path, u64)]) {
    let mounts = MountTable::read().unwrap();
    let uuid = fsid::uuid(mounts.at(&fs.path().join("x")).unwrap()).unwrap().unwrap();
    let on = FileSystem { uuid: Some(uuid.0), kind: fs.kind().into(), source: vec![] };
    let origin = Origin { page_shift: 12, starts: 1, ..Origin::default() };
    let (mut parts, mut names) = (Parts { origin, ..Parts::default() }, PathInterner::default());
    let file_system = parts.file_system(&on).unwrap();
    for (at_us, &(name, file, pages)) in (0..).zip(files) {
        let identity = identity_of(&rustix::fs::stat(file).unwrap());
        let piece = Piece { pages: (0..pages).into(), at_us, how: How::READ, history: History(1) };
        let part = FilePart { file_system, identity, changes: History(0), pieces: vec![piece] };
        parts.files.insert(names.intern(name).unwrap(), part);
    }
    store::lock(pack).unwrap().write(&parts.build(names.table())).unwrap();
}

//! Splits a pack by file system. Pure.

use crate::pack::build::{FilePart, Parts};
use crate::pack::paths::PathInterner;
use crate::pack::{FileSystem, Pack};

/// A pack for each file system with ranges in this pack.
pub fn split(pack: &Pack) -> Vec<(FileSystem, Pack)> {
    let mut names = PathInterner::default();
    let whole = Parts::of(pack, &mut names);
    let mut shares = Parts::default();
    // A pack of somebody else may have one twice.
    let share_of: Vec<Option<u16>> =
        whole.file_systems.iter().map(|fs| shares.file_system(fs)).collect();
    let share_of = |fs: u16| share_of.get(usize::from(fs)).copied().flatten().map(usize::from);
    let alone = |fs: &FileSystem| Parts {
        origin: whole.origin.clone(),
        file_systems: vec![fs.clone()],
        ..Parts::default()
    };
    let mut parts: Vec<Parts> = shares.file_systems.iter().map(alone).collect();
    for (node, file) in whole.files {
        if let Some(part) = share_of(file.file_system).and_then(|at| parts.get_mut(at)) {
            part.files.insert(node, FilePart { file_system: 0, ..file });
        }
    }
    for (fs, pieces) in whole.metadata {
        if let Some(part) = share_of(fs).and_then(|at| parts.get_mut(at)) {
            part.metadata.entry(0).or_default().extend(pieces);
        }
    }
    let all = shares.file_systems.into_iter().zip(parts);
    let used = all.filter(|(_, part)| !part.files.is_empty() || !part.metadata.is_empty());
    let packs = used.map(|(fs, part)| (fs, part.build(names.table())));
    packs.filter(|(_, pack)| !is_empty(pack)).collect()
}

/// A pack for each file system that the boot touched, and an empty one for each other that is
/// `known`, of which it needed nothing.
pub fn with_untouched<'a>(
    boot: &Pack,
    known: impl Iterator<Item = &'a FileSystem>,
) -> Vec<(FileSystem, Pack)> {
    let mut shares = split(boot);
    for fs in known {
        if !shares.iter().any(|(touched, _)| touched.is(fs)) {
            let nothing = Pack { origin: boot.origin.clone(), ..Pack::default() };
            shares.push((fs.clone(), nothing));
        }
    }
    shares
}

/// What a pack has of a file system; `None` when it does not name it.
pub fn share(pack: Pack, is: impl Fn(&FileSystem) -> bool) -> Option<(FileSystem, Pack)> {
    if let [fs] = &pack.file_systems[..] {
        let fs = fs.clone();
        return is(&fs).then_some((fs, pack));
    }
    split(&pack).into_iter().find(|(fs, _)| is(fs))
}

/// Whether there is nothing in a pack.
pub fn is_empty(pack: &Pack) -> bool {
    pack.ranges.is_empty() && pack.metadata.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::range::PageRange;
    use crate::host::usage::How;
    use crate::pack::merge::{Rule, merge};
    use crate::pack::pieces::Piece;
    use crate::pack::{History, Identity, Origin};
    use proptest::prelude::*;
    use std::path::{Path, PathBuf};

    fn fs(tag: u8) -> FileSystem {
        let uuid = (tag > 0).then_some([tag; 16]);
        FileSystem { uuid, kind: "ext4".into(), source: vec![] }
    }

    fn piece(first: u64, end: u64) -> Piece {
        Piece { pages: PageRange { first, end }, at_us: 7, how: How::READ, history: History(1) }
    }

    /// A boot that touched files (file system, pages), and metadata of these file systems.
    fn boot(files: &[(u8, u64)], metadata: &[(u8, u64)]) -> Pack {
        let mut names = PathInterner::default();
        let origin = Origin { page_shift: 12, starts: 1, ..Origin::default() };
        let mut parts = Parts { origin, ..Parts::default() };
        for (number, (on, pages)) in files.iter().enumerate() {
            let file_system = parts.file_system(&fs(*on)).unwrap();
            let node = names.intern(Path::new(&format!("/{on}/{number}"))).unwrap();
            let pieces = vec![piece(0, *pages)];
            let identity = Identity { ino: number as u64, ..Identity::default() };
            parts
                .files
                .insert(node, FilePart { file_system, identity, changes: History(0), pieces });
        }
        for (on, pages) in metadata {
            let file_system = parts.file_system(&fs(*on)).unwrap();
            parts.metadata.insert(file_system, vec![piece(0, *pages)]);
        }
        parts.build(names.table())
    }

    fn files(pack: &Pack) -> Vec<PathBuf> {
        pack.files.iter().map(|file| pack.paths.path(file.node)).collect()
    }

    #[test]
    fn each_file_system_gets_what_is_of_it_and_those_without_anything_get_nothing() {
        let mut whole = boot(&[(1, 4), (2, 5), (1, 6)], &[(2, 3), (3, 1)]);
        whole.file_systems.push(fs(4));
        let shares = split(&whole);
        let of: Vec<_> = shares.iter().map(|(fs, _)| fs.clone()).collect();
        assert_eq!(of, [fs(1), fs(2), fs(3)]);
        for ((fs, pack), (names, pages, metadata)) in
            shares.iter().zip([(&["/1/0", "/1/2"][..], 10, 0), (&["/2/1"], 5, 3), (&[], 0, 1)])
        {
            assert_eq!(&pack.file_systems, std::slice::from_ref(fs));
            assert_eq!(pack.origin, whole.origin);
            assert_eq!(files(pack), names.iter().map(PathBuf::from).collect::<Vec<_>>());
            assert_eq!(pack.data_bytes(), pages << 12);
            assert_eq!(pack.metadata_bytes(), metadata << 12);
        }
    }

    #[test]
    fn of_what_is_known_and_was_not_touched_there_is_nothing_with_the_boots_origin() {
        let touched = boot(&[(1, 4)], &[]);
        let known = [fs(1), fs(2)];
        let shares = with_untouched(&touched, known.iter());
        assert_eq!(shares.len(), 2);
        assert_eq!(shares[0], (fs(1), touched.clone()));
        assert_eq!(shares[1].0, fs(2));
        assert!(is_empty(&shares[1].1) && shares[1].1.origin == touched.origin);
    }

    #[test]
    fn a_pack_is_only_trusted_about_the_requested_file_system() {
        let one = boot(&[(1, 4)], &[]);
        let both = boot(&[(1, 4), (2, 5)], &[]);
        let of = |tag| move |is: &FileSystem| is.is(&fs(tag));
        assert_eq!(share(one.clone(), of(1)), Some((fs(1), one.clone())));
        assert_eq!(share(one, of(2)), None);
        let (on, part) = share(both.clone(), of(2)).unwrap();
        assert_eq!((on, files(&part)), (fs(2), vec![PathBuf::from("/2/1")]));
        assert_eq!(share(both, of(3)), None);
        assert_eq!(share(Pack::default(), of(1)), None);
    }

    #[test]
    fn a_file_system_that_is_named_twice_has_one_pack() {
        let mut pack = boot(&[(1, 4), (2, 5)], &[(2, 3)]);
        pack.file_systems[1] = fs(1);
        let shares = split(&pack);
        assert_eq!(shares.len(), 1);
        assert_eq!((files(&shares[0].1).len(), shares[0].1.metadata_bytes()), (2, 3 << 12));
    }

    proptest! {
        #[test]
        fn the_parts_are_the_whole(
            files in proptest::collection::vec((0u8..4, 1u64..9), 0..12),
            metadata in proptest::collection::btree_map(1u8..4, 1u64..9, 0..4),
        ) {
            let metadata: Vec<(u8, u64)> = metadata.into_iter().collect();
            let whole = boot(&files, &metadata);
            let shares = split(&whole);
            prop_assert!(shares.iter().all(|(_, part)| part.file_systems.len() == 1));
            let parts = shares.into_iter().map(|(_, part)| part);
            let union = parts.reduce(|one, other| merge(&one, &other, Rule::Union));
            let mut union = union.unwrap_or_default();
            // What is left is the order in which they are listed.
            let number = |pack: &Pack, at: u16| pack.file_systems[usize::from(at)].uuid;
            let shape = |pack: &Pack| {
                let file = |r: &crate::pack::Range| &pack.files[r.file as usize];
                let mut ranges: Vec<_> = pack.ranges.iter().map(|r| {
                    let file = file(r);
                    let path = pack.paths.path(file.node);
                    (path, number(pack, file.file_system), file.identity.ino, r.first, r.pages,
                     r.at_us, r.how.0, r.history.0)
                }).collect();
                ranges.sort();
                let mut metadata: Vec<_> = pack.metadata.iter().map(|m| {
                    (number(pack, m.file_system), m.first, m.pages, m.at_us, m.history.0)
                }).collect();
                metadata.sort();
                (ranges, metadata)
            };
            prop_assert_eq!(shape(&union), shape(&whole));
            union.origin = whole.origin.clone();
            prop_assert_eq!(union.files.len(), whole.files.len());
        }
    }
}

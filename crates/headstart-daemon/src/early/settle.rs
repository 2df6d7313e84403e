//! What came of a replay before a start: which of its bytes the programs that then started could
//! use, and the time that this saved. Pure.
//!
//! The first program that touches a page has the gain. A program that finds its pages resident
//! reads nothing itself, so that nothing counts twice.

use headstart::pack::Pack;
use headstart::pack::build::{FilePart, Parts};
use headstart::pack::paths::PathInterner;
use headstart::pack::pieces::{Piece, overlay};
use headstart::replay::benefit::Expected;
use headstart::replay::frequency::Frequency;
use headstart::replay::model::Model;

/// What came of a replay.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Settled {
    /// Of the bytes that were read, those that no program could use.
    pub wasted_bytes: u64,
    /// Time that was saved, as estimated, in µs; 0 where the device was never measured.
    pub saved_us: u64,
}

/// Which part of a replay that read `read_bytes` of `replayed`, and the `share` of it that was not
/// resident before, served these packs of programs that started.
pub fn settle(
    replayed: &Pack,
    read_bytes: u64,
    share: f64,
    started: &[Pack],
    model: Option<Model>,
) -> Settled {
    let all = bytes(replayed);
    let mut names = PathInterner::default();
    let mut left = Parts::of(replayed, &mut names);
    let mut settled = Settled::default();
    for pack in started {
        let used = take(&mut left, pack, &mut names).build(names.table());
        if let Some(model) = model {
            let expected = Expected::of(&used, &Frequency::EVER.choice(&used), &model);
            let saved_us = expected.avoided_wait(share).usual_us;
            settled.saved_us = settled.saved_us.saturating_add(saved_us);
        }
    }
    let unused = bytes(&left.build(names.table()));
    settled.wasted_bytes = (read_bytes as f64 * (unused as f64 / all.max(1) as f64)) as u64;
    settled
}

fn bytes(pack: &Pack) -> u64 {
    pack.data_bytes().saturating_add(pack.metadata_bytes())
}

/// What a program uses of `left`, which loses it.
fn take(left: &mut Parts, program: &Pack, names: &mut PathInterner) -> Parts {
    let program = Parts::of(program, names);
    let (origin, file_systems) = (left.origin.clone(), left.file_systems.clone());
    let mut used = Parts { origin, file_systems, ..Parts::default() };
    for (node, file) in &mut left.files {
        if let Some(theirs) = program.files.get(node) {
            let (pieces, rest) = divided(&file.pieces, &theirs.pieces);
            used.files.insert(*node, FilePart { pieces, ..file.clone() });
            file.pieces = rest;
        }
    }
    for (of, theirs) in &program.metadata {
        let system = program.file_systems.get(usize::from(*of));
        let of = system.and_then(|system| used.file_system(system));
        if let Some((of, pieces)) = of.and_then(|of| Some((of, left.metadata.get_mut(&of)?))) {
            let (taken, rest) = divided(pieces, theirs);
            used.metadata.insert(of, taken);
            *pieces = rest;
        }
    }
    used
}

/// The pieces that are in both, and those that are not in the second.
fn divided(pieces: &[Piece], theirs: &[Piece]) -> (Vec<Piece>, Vec<Piece>) {
    let of = |wanted: bool| {
        overlay(pieces.to_vec(), theirs.to_vec(), |mine, theirs| {
            mine.filter(|_| theirs.is_some() == wanted)
        })
    };
    (of(true), of(false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart::host::usage::How;
    use headstart::pack::{File, FileSystem, History, Identity, MetadataRange, Origin, Range};
    use proptest::prelude::*;
    use std::path::PathBuf;

    const MODEL: Model = Model::of(5000, 5000, 125, 16, 3000);

    /// Files with so many pages from the first on, and metadata pages from the first on.
    fn pack(files: &[(&str, u32)], metadata: u32) -> Pack {
        let mut names = PathInterner::default();
        let mut pack = Pack {
            origin: Origin { page_shift: 12, starts: 1, ..Origin::default() },
            file_systems: vec![FileSystem { uuid: Some([7; 16]), ..FileSystem::default() }],
            ..Pack::default()
        };
        let (at_us, history) = (0, History(1));
        for (number, (path, pages)) in files.iter().enumerate() {
            let node = names.intern(&PathBuf::from(path)).unwrap();
            let identity = Identity { size: 1 << 30, ..Identity::default() };
            pack.files.push(File { file_system: 0, node, identity, changes: History(0) });
            let (file, pages) = (number as u32, *pages);
            pack.ranges.push(Range { file, first: 0, pages, at_us, how: How::READ, history });
        }
        if metadata > 0 {
            let range = MetadataRange { file_system: 0, first: 0, pages: metadata, at_us, history };
            pack.metadata.push(range);
        }
        pack.paths = names.finish();
        pack
    }

    #[test]
    fn what_no_program_could_use_was_wasted_and_the_first_one_has_the_gain() {
        let replayed = pack(&[("/a", 60), ("/b", 30)], 10);
        let (a, b, other) =
            (pack(&[("/a", 40)], 0), pack(&[("/b", 99)], 10), pack(&[("/c", 9)], 0));
        let of = |started: &[&Pack], model| {
            let started: Vec<_> = started.iter().copied().cloned().collect();
            settle(&replayed, 1000, 1.0, &started, model)
        };
        for (what, started, wasted) in [
            ("nothing", &[][..], 1000),
            ("another", &[&other], 1000),
            ("a part", &[&a], 600),
            ("twice", &[&a, &a], 600),
            ("with metadata", &[&b, &other], 600),
            ("both", &[&a, &b], 200),
        ] {
            assert_eq!(of(started, None), Settled { wasted_bytes: wasted, saved_us: 0 }, "{what}");
        }
        let once = of(&[&a], Some(MODEL)).saved_us;
        assert!(once >= 5000);
        assert_eq!(of(&[&a, &a], Some(MODEL)).saved_us, once);
        assert!(of(&[&a, &b], Some(MODEL)).saved_us > once);
        assert_eq!(of(&[], Some(MODEL)).saved_us, 0);
    }

    proptest! {
        #[test]
        fn no_more_is_wasted_than_was_read_and_another_start_wastes_nothing_more(
            replayed in (1u32..50, 1u32..50, 0u32..9),
            started in proptest::collection::vec((0u32..60, 0u32..60, 0u32..12), 0..4),
            read_bytes: u32, share in 0.0f64..=1.0,
        ) {
            let of = |(a, b, metadata): (u32, u32, u32)| pack(&[("/a", a), ("/b", b)], metadata);
            let (replayed, started): (_, Vec<_>) = (of(replayed), started.into_iter().map(of).collect());
            let mut before = settle(&replayed, read_bytes.into(), share, &[], Some(MODEL));
            prop_assert_eq!(before.wasted_bytes, u64::from(read_bytes));
            for count in 1..=started.len() {
                let now = settle(&replayed, read_bytes.into(), share, &started[..count], Some(MODEL));
                prop_assert!(now.wasted_bytes <= before.wasted_bytes && now.saved_us >= before.saved_us);
                before = now;
            }
        }
    }
}

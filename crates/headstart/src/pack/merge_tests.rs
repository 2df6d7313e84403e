//! Tests of merging: packs as a whole, and each of its functions.

use super::*;
use crate::host::range::PageRange;
use crate::pack::build::MAX_FILE_SYSTEMS;
use crate::pack::{FileSystem, History, Identity, MetadataRange, Origin, Range};
use std::path::Path;

#[path = "merge_appended_tests.rs"]
mod appended;

const NEXT: Rule = Rule::NextStart { keep: 4, metadata_seen: true, keep_time_us: 0 };

/// Touches keep their times if they move by less.
const STEADY: Rule = Rule::NextStart { keep: 4, metadata_seen: true, keep_time_us: 10 };

fn piece(first: u64, end: u64) -> Piece {
    Piece { pages: PageRange { first, end }, at_us: 0, how: How::READ, history: History(1) }
}

/// A start that touched these files (path, inode, pages) and metadata.
fn start(files: &[(&str, u64, (u64, u64))], metadata: &[(u64, u64)]) -> Pack {
    let mut parts = Parts {
        origin: Origin { page_shift: 12, starts: 1, ..Origin::default() },
        ..Parts::default()
    };
    let mut names = PathInterner::default();
    let fs = FileSystem { uuid: Some([7; 16]), ..FileSystem::default() };
    let file_system = parts.file_system(&fs).unwrap();
    for &(path, ino, (first, end)) in files {
        let identity = Identity { ino, ..Identity::default() };
        let pieces = vec![piece(first, end)];
        let part = FilePart { file_system, identity, changes: History(0), pieces };
        parts.files.insert(names.intern(Path::new(path)).unwrap(), part);
    }
    if !metadata.is_empty() {
        let pieces = metadata.iter().map(|&(a, b)| piece(a, b)).collect();
        parts.metadata.insert(file_system, pieces);
    }
    parts.build(names.table())
}

fn shape(pack: &Pack) -> Vec<(String, u64, u64, u8)> {
    let mut out: Vec<_> = pack
        .ranges
        .iter()
        .map(|r| {
            let path = pack.paths.path(pack.files[r.file as usize].node);
            let end = r.first + u64::from(r.pages);
            (path.display().to_string(), r.first, end, r.history.0)
        })
        .collect();
    out.sort();
    out
}

#[test]
fn history_tells_for_each_page_in_which_starts_it_was_touched() {
    let pack = start(&[("/a", 1, (0, 8))], &[]);
    let pack = merge(&pack, start(&[("/a", 1, (4, 12))], &[]), NEXT);
    let a = |first, end, history| ("/a".to_owned(), first, end, history);
    assert_eq!(shape(&pack), [a(0, 4, 0b10), a(4, 8, 0b11), a(8, 12, 0b01)]);
    assert_eq!(pack.origin.starts, 2);
}

#[test]
fn what_four_starts_did_not_touch_drops_out() {
    let mut pack = start(&[("/a", 1, (0, 4)), ("/b", 2, (0, 4))], &[]);
    for left in [2, 2, 2, 1] {
        pack = merge(&pack, start(&[("/a", 1, (0, 4))], &[]), NEXT);
        assert_eq!(pack.files.len(), left);
    }
    assert_eq!(pack.paths.len(), 1, "its name is forgotten too");
}

#[test]
fn what_only_came_in_stays_as_long_as_its_file_is_used() {
    let files = [("/a", 1, (0, 4)), ("/b", 2, (0, 4))];
    let mut pack = start(&files, &[]);
    // A part of each only came in, and all of a third.
    let mut came_in = start(&[("/a", 1, (8, 12)), ("/b", 2, (8, 12)), ("/c", 3, (0, 4))], &[]);
    for range in &mut came_in.ranges {
        range.how = How::INSERTED;
    }
    pack = merge(&pack, &came_in, Rule::Union);
    for _ in 0..8 {
        pack = merge(&pack, start(&[("/a", 1, (0, 4))], &[]), NEXT);
    }
    let a = |first, end| ("/a".to_owned(), first, end, 0xff);
    assert_eq!(shape(&pack), [a(0, 4), a(8, 12), ("/c".to_owned(), 0, 4, 0xff)]);
}

#[test]
fn what_a_kernel_without_events_of_accesses_saw_come_in_is_forgotten_as_well() {
    let mut pack = start(&[("/a", 1, (0, 4)), ("/c", 3, (0, 4))], &[]);
    for range in &mut pack.ranges {
        range.how = How::INSERTED;
    }
    let mut next = start(&[("/a", 1, (0, 4))], &[]);
    next.origin.has_access_events = true;
    for _ in 0..4 {
        pack = merge(&pack, &next, NEXT);
    }
    assert_eq!(pack.files.len(), 1);
}

#[test]
fn in_a_union_what_is_assumed_adds_nothing_to_what_is_known() {
    let known = start(&[("/a", 1, (0, 4))], &[]);
    let mut inferred = start(&[("/a", 1, (0, 8))], &[]);
    for range in &mut inferred.ranges {
        range.how |= How::INFERRED;
    }
    assert_eq!(merge(&inferred, &known, Rule::Union), known);
    assert_eq!(merge(&known, &inferred, Rule::Union), known);
}

#[test]
fn a_replaced_file_starts_afresh_and_the_others_stay() {
    let pack = start(&[("/a", 1, (0, 4)), ("/b", 2, (0, 4))], &[]);
    let pack = merge(&pack, start(&[("/a", 9, (6, 8)), ("/b", 2, (0, 4))], &[]), NEXT);
    assert_eq!(shape(&pack), [("/a".into(), 6, 8, 1), ("/b".into(), 0, 4, 0b11)]);
}

#[test]
fn metadata_found_in_memory_is_no_sign_against_it() {
    let cold = start(&[("/a", 1, (0, 4))], &[(100, 104)]);
    let warm = start(&[("/a", 1, (0, 4))], &[]);
    let mut pack = cold.clone();
    for _ in 0..8 {
        pack =
            merge(&pack, &warm, Rule::NextStart { keep: 4, metadata_seen: false, keep_time_us: 0 });
    }
    assert_eq!(pack.metadata.len(), 1);
    for _ in 0..4 {
        pack = merge(&pack, &warm, NEXT);
    }
    assert!(pack.metadata.is_empty());
}

#[test]
fn what_only_an_earlier_start_saw_has_the_times_of_the_latest() {
    let timed = |a: u32, b: u32, end: u64, metadata: &[(u64, u64)]| {
        let mut pack = start(&[("/a", 1, (0, 4)), ("/b", 2, (0, 4))], metadata);
        pack.origin.duration_us = end;
        for range in &mut pack.ranges {
            let path = pack.paths.path(pack.files[range.file as usize].node);
            range.at_us = if path == Path::new("/a") { a } else { b };
        }
        pack
    };
    let mut slow = timed(1000, 5000, 9000, &[(100, 104)]);
    slow.metadata[0].at_us = 3000;
    let quick = timed(100, 300, 400, &[]);
    let merged = |rule| merge(&slow, &quick, rule).metadata[0].at_us;
    assert_eq!(merged(Rule::NextStart { keep: 4, metadata_seen: false, keep_time_us: 0 }), 200);
    assert_eq!(merged(Rule::Union), 3000, "which start would it be of?");
}

#[test]
fn a_lossy_start_never_replaces_a_clean_one() {
    let mut pack = start(&[], &[]);
    assert!(accepts(&pack, 0));
    assert!(!accepts(&pack, 1));
    pack.origin.lost_events = 5;
    assert!(accepts(&pack, 1));
}

#[test]
fn ranges_that_overlap_come_out_apart() {
    let mut hostile = start(&[("/a", 1, (0, 8)), ("/b", 2, (0, 8))], &[(0, 8)]);
    hostile.ranges.push(Range { first: 4, pages: 8, ..hostile.ranges[0] });
    hostile.metadata.push(MetadataRange { first: 4, pages: 8, ..hostile.metadata[0] });
    let other = start(&[("/b", 2, (0, 8))], &[]);
    for rule in [NEXT, Rule::Union] {
        for (old, new) in [(&hostile, &other), (&other, &hostile)] {
            let merged = merge(old, new, rule);
            let mut of_a = shape(&merged);
            of_a.retain(|(path, ..)| path == "/a");
            let history = if rule == NEXT && old == &hostile { 2 } else { 1 };
            assert_eq!(of_a, [("/a".into(), 0, 12, history)]);
            assert_eq!(merged.metadata.iter().map(|r| r.pages).sum::<u32>(), 12);
        }
    }
}

#[test]
fn what_was_learned_with_another_page_size_is_forgotten() {
    let mut old = start(&[("/a", 1, (0, 8)), ("/b", 2, (0, 8))], &[(100, 104)]);
    old.origin.page_shift = 16;
    let new = start(&[("/a", 1, (4, 5))], &[]);
    for rule in [NEXT, Rule::Union] {
        assert_eq!(merge(&old, &new, rule), new);
    }
}

#[test]
fn file_systems_beyond_the_limit_are_skipped() {
    let many = |tag: u8| {
        let mut pack = start(&[], &[(0, 1)]);
        let uuid = |i: usize| [&i.to_le_bytes()[..], &[tag; 8]].concat().try_into().ok();
        pack.file_systems = (0..MAX_FILE_SYSTEMS)
            .map(|i| FileSystem { uuid: uuid(i), ..FileSystem::default() })
            .collect();
        let range = pack.metadata[0];
        let of = |file_system| MetadataRange { file_system, ..range };
        pack.metadata = (0..MAX_FILE_SYSTEMS as u16).map(of).collect();
        pack
    };
    assert_eq!(merge(many(1), many(2), Rule::Union), many(2));
    assert_eq!(merge(many(1), many(1), Rule::Union), many(1));
}

#[test]
fn in_a_union_what_few_starts_are_known_of_does_not_seem_seldom() {
    let mut long = start(&[("/a", 1, (0, 4)), ("/b", 2, (0, 4))], &[]);
    for _ in 0..5 {
        long = merge(&long, start(&[("/a", 1, (0, 4)), ("/b", 2, (0, 4))], &[]), NEXT);
    }
    // Of two starts the first touched some pages and both touched others.
    let short = start(&[("/a", 1, (6, 9)), ("/c", 3, (0, 1))], &[]);
    let short = merge(&short, start(&[("/a", 1, (8, 9)), ("/c", 3, (0, 1))], &[]), NEXT);
    for (a, b) in [(&long, &short), (&short, &long)] {
        let range = |path: &str, first, end, history| (path.to_owned(), first, end, history);
        assert_eq!(
            shape(&merge(a, b, Rule::Union)),
            [
                range("/a", 0, 4, 0b11_1111),
                range("/a", 6, 8, 0b10_1010),
                range("/a", 8, 9, 0b11_1111),
                range("/b", 0, 4, 0b11_1111),
                range("/c", 0, 1, 0b11),
            ]
        );
    }
}

#[test]
fn a_union_keeps_what_either_knows() {
    let a = start(&[("/a", 1, (0, 4))], &[(1, 2)]);
    let b = start(&[("/a", 1, (2, 6)), ("/b", 2, (0, 1))], &[(5, 6)]);
    let both = merge(&a, &b, Rule::Union);
    assert_eq!(shape(&both), [("/a".into(), 0, 6, 1), ("/b".into(), 0, 1, 1)]);
    assert_eq!(both.metadata.len(), 2);
    assert_eq!(merge(&both, &both, Rule::Union), both);
}

fn file(ino: u64, changes: u8, pieces: Vec<Piece>) -> FilePart {
    let changes = History(changes);
    FilePart { file_system: 0, identity: Identity { ino, ..Identity::default() }, changes, pieces }
}

fn with(how: How, history: u8) -> Piece {
    Piece { how, history: History(history), ..piece(0, 4) }
}

/// What of a file's pieces a test looks at.
fn seen(pieces: &[Piece]) -> Vec<(How, u8)> {
    pieces.iter().map(|piece| (piece.how, piece.history.0)).collect()
}

#[test]
fn additions_stand_for_reads_where_an_old_kernel_reports_nothing_else() {
    let (read, inserted) = (How::READ, How::INSERTED);
    for (name, old, new, how, expected) in [
        ("a new kernel", false, true, inserted, read),
        ("it was mapped as well", false, true, inserted | How::MAPPED, inserted | How::MAPPED),
        ("it was mapped", false, true, How::MAPPED, How::MAPPED),
        ("both saw accesses", true, true, inserted, inserted),
        ("neither did", false, false, inserted, inserted),
        ("an old kernel again", true, false, inserted, inserted),
    ] {
        let mut parts = Parts::default();
        parts.origin.has_access_events = old;
        parts.files.insert(NodeId::ROOT, file(1, 0, vec![with(how, 1)]));
        take_additions_for_reads(
            &mut parts,
            &Origin { has_access_events: new, ..Origin::default() },
        );
        assert_eq!(parts.files[&NodeId::ROOT].pieces[0].how, expected, "{name}");
    }
}

#[test]
fn a_joined_pack_is_as_of_the_latest_start() {
    let of = |starts, lost_events, learned_at| Origin {
        starts,
        lost_events,
        learned_at,
        ..Origin::default()
    };
    let (old, new) = (of(3, 7, 100), of(2, 5, 200));
    assert_eq!(NEXT.origin(&old, new.clone()), of(5, 5, 200));
    assert_eq!(Rule::Union.origin(&old, new.clone()), of(3, 7, 200));
    assert_eq!(Rule::Union.origin(&new, old), of(3, 7, 100));
}

#[test]
fn file_systems_of_the_old_pack_get_the_numbers_of_the_new_one() {
    let fs = |tag| FileSystem { uuid: Some([tag; 16]), ..FileSystem::default() };
    let mut joined = Parts { file_systems: vec![fs(1), fs(2)], ..Parts::default() };
    let numbers = OldNumbers::of(&[fs(3), fs(2)], &mut joined);
    assert_eq!([0, 1, 2].map(|old| numbers.now(old)), [Some(2), Some(1), None]);
    assert_eq!(joined.file_systems, [fs(1), fs(2), fs(3)]);
}

#[test]
fn empty_files_and_file_systems_are_dropped_and_the_rest_is_renumbered() {
    let fs = |tag| FileSystem { uuid: Some([tag; 16]), ..FileSystem::default() };
    let on = |file_system, pieces| FilePart { file_system, ..file(1, 0, pieces) };
    let mut parts = Parts { file_systems: (0..5).map(fs).collect(), ..Parts::default() };
    parts.files.insert(NodeId(1), on(0, Vec::new()));
    parts.files.insert(NodeId(2), on(1, vec![piece(0, 1)]));
    parts.files.insert(NodeId(3), on(4, vec![piece(0, 1)]));
    parts.metadata.insert(2, Vec::new());
    parts.metadata.insert(3, vec![piece(0, 1)]);
    drop_empty(&mut parts);
    assert_eq!(parts.file_systems, [fs(1), fs(3), fs(4)]);
    let mut files: Vec<_> = parts.files.iter().map(|(node, f)| (node.0, f.file_system)).collect();
    files.sort_unstable();
    assert_eq!(files, [(2, 0), (3, 2)]);
    assert_eq!(parts.metadata.keys().collect::<Vec<_>>(), [&1]);
}

#[test]
fn what_was_known_of_a_file_is_kept_as_long_as_it_is_the_same() {
    let known = |ino| file(ino, 0b10, vec![with(How::READ, 0b11)]);
    let inferred = |ino| file(ino, 0, vec![with(How::READ | How::INFERRED, 0b100)]);
    let is = |ino| file(ino, 0, vec![with(How::READ, 1)]);
    let (read, both) = (How::READ, How::READ | How::INFERRED);
    for (name, rule, was, is, history, changes) in [
        ("the same", NEXT, Some(file(1, 0, vec![with(read, 0b11)])), is(1), (read, 0b111), 0),
        ("new", NEXT, None, is(1), (read, 1), 0),
        ("replaced", NEXT, Some(file(2, 0, vec![with(read, 0b11)])), is(1), (read, 1), 1),
        ("replaced soon again", NEXT, Some(known(2)), is(1), (read, 0b111), 0b101),
        ("only inferred", NEXT, Some(inferred(1)), is(1), (read, 1), 0),
        ("one known, one inferred", Rule::Union, Some(known(1)), inferred(1), (read, 0b11), 0b10),
        (
            "another is inferred",
            Rule::Union,
            Some(file(2, 0, vec![with(read, 1)])),
            inferred(1),
            (both, 0b100),
            0,
        ),
        ("both inferred", Rule::Union, Some(inferred(1)), inferred(1), (both, 0b100), 0),
        ("inferred by the next", NEXT, Some(known(1)), inferred(1), (both, 0b110), 0b100),
    ] {
        let mut joined = is;
        join_file(rule, was, &mut joined);
        assert_eq!((seen(&joined.pieces), joined.changes.0), (vec![history], changes), "{name}");
    }
}

#[test]
fn a_file_without_a_touch_ages_unless_it_only_came_in() {
    let (read, inserted) = (How::READ, How::INSERTED);
    let known = |hows: &[How]| {
        let piece = |(page, how): (u64, &How)| Piece {
            pages: PageRange::of(2 * page, 1),
            ..with(*how, 0b11)
        };
        file(1, 0b11, (0..).zip(hows).map(piece).collect())
    };
    for (name, rule, hows, histories, changes) in [
        ("it was read", NEXT, &[read][..], &[0b110][..], 0b110),
        ("it came in", NEXT, &[inserted], &[0b111], 0b110),
        ("a part came in", NEXT, &[read, inserted], &[0b110, 0b110], 0b110),
        ("in a union", Rule::Union, &[read, inserted], &[0b11, 0b11], 0b11),
    ] {
        let joined = untouched(rule, known(hows));
        let found: Vec<u8> = joined.pieces.iter().map(|piece| piece.history.0).collect();
        assert_eq!((&found[..], joined.changes.0), (histories, changes), "{name}");
    }
}

#[test]
fn metadata_of_one_file_system_is_joined_and_that_of_others_stays() {
    let fs = |tag| FileSystem { uuid: Some([tag; 16]), ..FileSystem::default() };
    let mut joined = Parts { file_systems: vec![fs(1), fs(2)], ..Parts::default() };
    let numbers = OldNumbers::of(&[fs(2), fs(3)], &mut joined);
    let pieces = |first| vec![piece(first, first + 1)];
    let old = HashMap::from([(0, pieces(0)), (1, pieces(0)), (7, pieces(0))]);
    let new = HashMap::from([(0, pieces(0)), (1, pieces(8))]);
    let seen = |rule| {
        let found = join_metadata(rule, old.clone(), new.clone(), &numbers);
        let shape =
            |pieces: &Vec<Piece>| pieces.iter().map(|p| (p.pages.first, p.history.0)).collect();
        let mut found: Vec<_> =
            found.iter().map(|(number, p)| (*number, shape(p))).collect::<Vec<(u16, Vec<_>)>>();
        found.sort_unstable();
        found
    };
    let unseen = Rule::NextStart { keep: 4, metadata_seen: false, keep_time_us: 0 };
    assert_eq!(seen(NEXT), [(0, vec![(0, 1)]), (1, vec![(0, 2), (8, 1)]), (2, vec![(0, 2)])]);
    assert_eq!(seen(unseen), [(0, vec![(0, 1)]), (1, vec![(0, 3), (8, 1)]), (2, vec![(0, 3)])]);
    assert_eq!(
        seen(Rule::Union),
        [(0, vec![(0, 1)]), (1, vec![(0, 1), (8, 1)]), (2, vec![(0, 1)])]
    );
}

#[test]
fn a_stretch_of_pages_has_the_history_of_both_and_the_time_of_the_latest() {
    let (read, mapped) = (How::READ, How::MAPPED);
    let at = |at_us, how, history| Some(Piece { at_us, ..with(how, history) });
    for (name, rule, old, new, is_silent, expected) in [
        (
            "touched again",
            NEXT,
            at(1, read, 0b11),
            at(2, mapped, 1),
            false,
            at(2, read | mapped, 0b111),
        ),
        ("not much later", STEADY, at(30, read, 1), at(40, read, 1), false, at(30, read, 0b11)),
        ("not much earlier", STEADY, at(40, read, 1), at(30, read, 1), false, at(40, read, 0b11)),
        ("much later", STEADY, at(30, read, 1), at(41, read, 1), false, at(41, read, 0b11)),
        ("the same use", NEXT, at(1, read, 0b11), at(2, read, 1), false, at(2, read, 0b111)),
        ("new", NEXT, None, at(2, read, 1), false, at(2, read, 1)),
        ("not touched", NEXT, at(1, read, 0b11), None, false, at(1, read, 0b110)),
        ("silent", NEXT, at(1, read, 0b11), None, true, at(1, read, 0b111)),
        (
            "silent after a start without it",
            NEXT,
            at(1, read, 0b10),
            None,
            true,
            at(1, read, 0b100),
        ),
        ("not touched for long", NEXT, at(1, read, 0b1000), None, false, None),
        (
            "there, but not touched",
            NEXT,
            at(1, read, 0b11),
            at(2, read, 0b10),
            false,
            at(2, read, 0b110),
        ),
        (
            "in both",
            Rule::Union,
            at(1, read, 0b110),
            at(2, mapped, 0b11),
            false,
            at(2, read | mapped, 0b111),
        ),
        ("long ago", Rule::Union, at(1, read, 0x80), None, false, at(1, read, 0x80)),
        ("never", Rule::Union, at(1, read, 0), None, false, None),
        ("in neither", NEXT, None, None, false, None),
    ] {
        assert_eq!(join_piece(rule, old, new, |_| is_silent), expected, "{name}");
    }
}

#[test]
fn only_histories_of_a_union_are_lengthened() {
    let (long, short) = (
        vec![with(How::READ, 0b1011)],
        vec![Piece { pages: PageRange::of(8, 1), ..with(How::READ, 0b10) }],
    );
    for (rule, expected) in [
        (Rule::Union, [0b1011, 0b1010]),
        (Rule::NextStart { keep: 8, metadata_seen: true, keep_time_us: 0 }, [0b1_0110, 0]),
    ] {
        let joined = join_pieces(rule, long.clone(), short.clone(), |_| false);
        let histories: Vec<u8> = joined.iter().map(|piece| piece.history.0).collect();
        let kept: Vec<u8> = expected.into_iter().filter(|history| *history > 0).collect();
        assert_eq!(histories, kept, "{rule:?}");
    }
}

//! Joins packs: the next start into what is known, or two packs into one.
//! Pure.

use super::Pack;
use super::build::{FilePart, Parts};
use super::changing::{carries_on, changes_after};
use super::clock::Clock;
use super::history::{HISTORY_STARTS, first_seen};
use super::paths::PathInterner;
use super::pieces::{Piece, overlay};
use crate::host::usage::How;
use std::collections::HashMap;

/// How the second pack relates to the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// It is the next start of the same program.
    NextStart {
        /// Starts in a row without a touch after which a range is dropped,
        /// 1 to 8.
        keep: u32,
        /// Whether metadata that the start didn't touch was not needed: false
        /// for a start that found it in memory, where no touch is seen.
        metadata_seen: bool,
    },
    /// It was learned beside the first: what either knows is kept.
    Union,
}

/// Whether a start with `lost` lost events may be merged into `old`: a lossy
/// profile never replaces a clean one.
pub fn accepts(old: &Pack, lost: u64) -> bool {
    lost == 0 || old.origin.lost_events > 0
}

/// Joins `new` into `old`. A file whose identity differs is replaced, unless it changes
/// at each start ([`super::changing`]); so is one of which the old pack only presumes
/// something, and all of a pack that was learned with another page size.
pub fn merge(old: &Pack, new: &Pack, rule: Rule) -> Pack {
    let mut names = PathInterner::default();
    let mut new = Parts::of(new, &mut names);
    let mut old = if old.origin.page_shift == new.origin.page_shift {
        Parts::of(old, &mut names)
    } else {
        Parts::default()
    };
    if new.origin.has_access_events && !old.origin.has_access_events {
        // The kernel that it was learned with told of arrivals alone: these were its touches.
        for piece in old.files.values_mut().flat_map(|file| &mut file.pieces) {
            if piece.how == How::INSERTED {
                piece.how = How::READ;
            }
        }
    }
    let clock = match rule {
        Rule::NextStart { .. } => clock(&old, &new),
        Rule::Union => Clock::default(),
    };
    let mut out = Parts { origin: new.origin, ..Parts::default() };
    out.file_systems = std::mem::take(&mut new.file_systems);
    match rule {
        Rule::NextStart { .. } => {
            out.origin.starts = old.origin.starts.saturating_add(out.origin.starts);
        }
        Rule::Union => {
            out.origin.starts = old.origin.starts.max(out.origin.starts);
            out.origin.lost_events = old.origin.lost_events.max(out.origin.lost_events);
        }
    }
    let fs_of_old: Vec<Option<u16>> =
        old.file_systems.iter().map(|fs| out.file_system(fs)).collect();
    let fs_of_old = |index: u16| fs_of_old.get(usize::from(index)).copied().flatten();

    // Also what only one side has is laid over nothing, so that it comes out in
    // order whatever it was.
    let data =
        |was, is, is_used| overlay(on_time(was, &clock), is, |a, b| data(rule, is_used, a, b));
    let mut old_files = old.files;
    for (node, mut is) in new.files {
        let was = old_files.remove(&node);
        let is_known = |was: &FilePart| !was.is_presumed() && was.identity == is.identity;
        if rule == Rule::Union && is.is_presumed() && was.as_ref().is_some_and(is_known) {
            // It adds nothing to what is known.
            is.pieces.clear();
        }
        let changes = match (&was, rule) {
            (Some(was), Rule::NextStart { .. }) => changes_after(was, &is),
            (Some(was), Rule::Union) => was.changes | is.changes,
            (None, _) => is.changes,
        };
        let pieces = match was.filter(|was| !was.is_presumed() && carries_on(was, &is)) {
            Some(was) => {
                let (was, is) = comparable(rule, was.pieces, is.pieces);
                data(was, is, true)
            }
            None => data(Vec::new(), is.pieces, true),
        };
        out.files.insert(node, FilePart { changes, pieces, ..is });
    }
    for (node, was) in old_files {
        let Some(file_system) = fs_of_old(was.file_system) else { continue };
        let changes = match rule {
            Rule::NextStart { .. } => was.changes << 1,
            Rule::Union => was.changes,
        };
        // A start that used it would have touched the others.
        let is_used = was.pieces.iter().all(|piece| piece.how == How::INSERTED);
        let pieces = data(was.pieces, Vec::new(), is_used);
        out.files.insert(node, FilePart { file_system, changes, pieces, ..was });
    }

    let mut old_metadata: HashMap<u16, Vec<Piece>> = HashMap::new();
    for (index, was) in old.metadata {
        let Some(file_system) = fs_of_old(index) else { continue };
        old_metadata.entry(file_system).or_default().extend(was);
    }
    for (file_system, is) in new.metadata {
        let was = old_metadata.remove(&file_system).unwrap_or_default();
        let (was, is) = comparable(rule, was, is);
        out.metadata.insert(
            file_system,
            overlay(on_time(was, &clock), is, |a, b| metadata_piece(rule, a, b)),
        );
    }
    for (file_system, was) in old_metadata {
        let pieces = overlay(on_time(was, &clock), Vec::new(), |a, b| metadata_piece(rule, a, b));
        out.metadata.insert(file_system, pieces);
    }
    drop_empty(&mut out);
    out.build(names.table())
}

/// From the times of the old start to those of the new, by the files that are in both.
fn clock(old: &Parts, new: &Parts) -> Clock {
    let first = |part: &FilePart| part.pieces.iter().map(|piece| piece.at_us).min();
    let both = new.files.iter().filter_map(|(node, is)| {
        let was = old.files.get(node)?;
        Some((first(was)?, first(is)?))
    });
    Clock::between(both, (old.origin.duration_us, new.origin.duration_us))
}

/// What the old start touched, when the new one would have.
fn on_time(mut pieces: Vec<Piece>, clock: &Clock) -> Vec<Piece> {
    for piece in &mut pieces {
        piece.at_us = clock.at(piece.at_us);
    }
    pieces
}

/// Two sets of ranges of one file, of packs that were learned beside each other. Of
/// the one that fewer starts are known of these are taken to go on as they were, so
/// that its ranges do not seem seldom touched.
fn comparable(rule: Rule, was: Vec<Piece>, is: Vec<Piece>) -> (Vec<Piece>, Vec<Piece>) {
    if rule != Rule::Union {
        return (was, is);
    }
    let known = |pieces: &[Piece]| first_seen(pieces.iter().fold(0, |all, p| all | p.history));
    let (of_was, of_is) = (known(&was), known(&is));
    let lengthened = |mut pieces: Vec<Piece>, known: u32| {
        if known > 0 {
            let mask = u8::MAX >> (HISTORY_STARTS - of_was.max(of_is));
            for piece in &mut pieces {
                let repeat = (known..HISTORY_STARTS).step_by(known as usize);
                piece.history = repeat.fold(piece.history, |h, by| h | piece.history << by) & mask;
            }
        }
        pieces
    };
    (lengthened(was, of_was), lengthened(is, of_is))
}

/// Forgets files and file systems of which nothing is left.
fn drop_empty(parts: &mut Parts) {
    parts.files.retain(|_, file| !file.pieces.is_empty());
    parts.metadata.retain(|_, pieces| !pieces.is_empty());
    let mut used = vec![false; parts.file_systems.len()];
    let of_files = parts.files.values().map(|file| file.file_system);
    for file_system in of_files.chain(parts.metadata.keys().copied()) {
        used[usize::from(file_system)] = true;
    }
    let mut next = 0u16;
    let renumbered: Vec<u16> = used
        .iter()
        .map(|used| {
            let number = next;
            next += u16::from(*used);
            number
        })
        .collect();
    let mut used = used.into_iter();
    parts.file_systems.retain(|_| used.next().unwrap_or(false));
    for file in parts.files.values_mut() {
        file.file_system = renumbered[usize::from(file.file_system)];
    }
    parts.metadata =
        parts.metadata.drain().map(|(fs, p)| (renumbered[usize::from(fs)], p)).collect();
}

/// What is kept of a stretch of data; `is_used`: for all that can be told the new start used
/// the file.
fn data(rule: Rule, is_used: bool, old: Option<Piece>, new: Option<Piece>) -> Option<Piece> {
    // A page that only ever came in unused leaves no sign once it is read
    // ahead: its absence says nothing.
    let silent = is_used && old.is_some_and(|p| p.how == How::INSERTED);
    piece(rule, old, new, silent)
}

fn metadata_piece(rule: Rule, old: Option<Piece>, new: Option<Piece>) -> Option<Piece> {
    let silent = matches!(rule, Rule::NextStart { metadata_seen: false, .. });
    piece(rule, old, new, silent)
}

/// What is kept of a stretch of pages; `silent` when its absence from the new
/// start is no evidence.
fn piece(rule: Rule, old: Option<Piece>, new: Option<Piece>, silent: bool) -> Option<Piece> {
    let before = old.map_or(0, |p| p.history);
    let now = new.map_or(0, |p| p.history);
    let history = match rule {
        Rule::Union => before | now,
        Rule::NextStart { .. } if silent && new.is_none() => before << 1 | before & 1,
        Rule::NextStart { .. } => before << 1 | now & 1,
    };
    let window = match rule {
        Rule::NextStart { keep, .. } => u8::MAX >> (HISTORY_STARTS - keep.clamp(1, HISTORY_STARTS)),
        Rule::Union => u8::MAX,
    };
    // The latest start knows the time best.
    let of = new.or(old)?;
    let how = match (old, new) {
        (Some(a), Some(b)) => a.how | b.how,
        _ => of.how,
    };
    (history & window != 0).then_some(Piece { how, history, ..of })
}

#[cfg(test)]
mod tests {
    use super::super::build::MAX_FILE_SYSTEMS;
    use super::super::{FileSystem, Identity, MetadataRange, Origin, Range};
    use super::*;
    use std::path::Path;

    const NEXT: Rule = Rule::NextStart { keep: 4, metadata_seen: true };

    fn piece(first: u64, end: u64) -> Piece {
        Piece { first, end, at_us: 0, how: How::READ, history: 1 }
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
            let part = FilePart { file_system, identity, changes: 0, pieces };
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
                (path.display().to_string(), r.first, end, r.history)
            })
            .collect();
        out.sort();
        out
    }

    #[test]
    fn history_tells_for_each_page_in_which_starts_it_was_touched() {
        let pack = start(&[("/a", 1, (0, 8))], &[]);
        let pack = merge(&pack, &start(&[("/a", 1, (4, 12))], &[]), NEXT);
        let a = |first, end, history| ("/a".to_owned(), first, end, history);
        assert_eq!(shape(&pack), [a(0, 4, 0b10), a(4, 8, 0b11), a(8, 12, 0b01)]);
        assert_eq!(pack.origin.starts, 2);
    }

    #[test]
    fn what_four_starts_did_not_touch_drops_out() {
        let mut pack = start(&[("/a", 1, (0, 4)), ("/b", 2, (0, 4))], &[]);
        for left in [2, 2, 2, 1] {
            pack = merge(&pack, &start(&[("/a", 1, (0, 4))], &[]), NEXT);
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
            pack = merge(&pack, &start(&[("/a", 1, (0, 4))], &[]), NEXT);
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
    fn in_a_union_what_is_presumed_adds_nothing_to_what_is_known() {
        let known = start(&[("/a", 1, (0, 4))], &[]);
        let mut presumed = start(&[("/a", 1, (0, 8))], &[]);
        for range in &mut presumed.ranges {
            range.how |= How::PRESUMED;
        }
        assert_eq!(merge(&presumed, &known, Rule::Union), known);
        assert_eq!(merge(&known, &presumed, Rule::Union), known);
    }

    #[test]
    fn a_replaced_file_starts_afresh_and_the_others_stay() {
        let pack = start(&[("/a", 1, (0, 4)), ("/b", 2, (0, 4))], &[]);
        let pack = merge(&pack, &start(&[("/a", 9, (6, 8)), ("/b", 2, (0, 4))], &[]), NEXT);
        assert_eq!(shape(&pack), [("/a".into(), 6, 8, 1), ("/b".into(), 0, 4, 0b11)]);
    }

    #[test]
    fn metadata_found_in_memory_is_no_sign_against_it() {
        let cold = start(&[("/a", 1, (0, 4))], &[(100, 104)]);
        let warm = start(&[("/a", 1, (0, 4))], &[]);
        let mut pack = cold.clone();
        for _ in 0..8 {
            pack = merge(&pack, &warm, Rule::NextStart { keep: 4, metadata_seen: false });
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
        assert_eq!(merged(Rule::NextStart { keep: 4, metadata_seen: false }), 200);
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
    fn file_systems_beyond_the_limit_are_left_out() {
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
        assert_eq!(merge(&many(1), &many(2), Rule::Union), many(2));
        assert_eq!(merge(&many(1), &many(1), Rule::Union), many(1));
    }

    #[test]
    fn in_a_union_what_few_starts_are_known_of_does_not_seem_seldom() {
        let mut long = start(&[("/a", 1, (0, 4)), ("/b", 2, (0, 4))], &[]);
        for _ in 0..5 {
            long = merge(&long, &start(&[("/a", 1, (0, 4)), ("/b", 2, (0, 4))], &[]), NEXT);
        }
        // Of two starts the first touched some pages and both touched others.
        let short = start(&[("/a", 1, (6, 9)), ("/c", 3, (0, 1))], &[]);
        let short = merge(&short, &start(&[("/a", 1, (8, 9)), ("/c", 3, (0, 1))], &[]), NEXT);
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
}

//! Page ranges with their history, and the overlay of two sets of them. Pure.

use crate::host::range::PageRange;
use crate::host::usage::How;
use crate::pack::History;

/// Adjacent pages with first touches within this time are one range, in nanoseconds. Finer times
/// would take space and not improve the order on a disk.
pub const COALESCE_NS: u64 = 10_000_000;

/// A range of one file or device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The pages.
    pub pages: PageRange,
    /// When it was first touched, in µs.
    pub at_us: u32,
    /// How it was touched.
    pub how: How,
    /// In which starts; bit 0 is the last.
    pub history: History,
}

/// Lays `new` over `old`. For each range of pages in either, `combine` gets the pieces of both
/// sides and returns the result. Adjacent equal results are joined.
pub fn overlay(
    old: Vec<Piece>,
    new: Vec<Piece>,
    combine: impl Fn(Option<Piece>, Option<Piece>) -> Option<Piece>,
) -> Vec<Piece> {
    let (old, new) = (disjoint(old), disjoint(new));
    let mut cuts: Vec<u64> =
        old.iter().chain(&new).flat_map(|p| [p.pages.first, p.pages.end]).collect();
    cuts.sort_unstable();
    cuts.dedup();
    let mut out: Vec<Piece> = Vec::new();
    let (mut o, mut n) = (0, 0);
    for pair in cuts.windows(2) {
        let &[first, end] = pair else { continue };
        let from_old = covering(&old, &mut o, first);
        let from_new = covering(&new, &mut n, first);
        if from_old.is_none() && from_new.is_none() {
            continue;
        }
        let pages = PageRange { first, end };
        let Some(piece) = combine(from_old, from_new).map(|p| Piece { pages, ..p }) else {
            continue;
        };
        match out.last_mut() {
            Some(last) if last.pages.end == first && alike(last, &piece) => {
                last.pages.end = end;
                last.at_us = last.at_us.min(piece.at_us);
            }
            _ => out.push(piece),
        }
    }
    out
}

/// Sorted by page and without overlaps, which only a hostile pack has.
fn disjoint(mut pieces: Vec<Piece>) -> Vec<Piece> {
    pieces.sort_by_key(|p| p.pages.first);
    let mut end = 0;
    pieces.retain_mut(|p| {
        p.pages.first = p.pages.first.max(end);
        end = end.max(p.pages.end);
        !p.pages.is_empty()
    });
    pieces
}

/// The piece that holds `page`; `at` moves forward with the pages requested.
fn covering(pieces: &[Piece], at: &mut usize, page: u64) -> Option<Piece> {
    while pieces.get(*at).is_some_and(|p| p.pages.end <= page) {
        *at += 1;
    }
    pieces.get(*at).filter(|p| p.pages.first <= page).copied()
}

fn alike(a: &Piece, b: &Piece) -> bool {
    let apart = u64::from(a.at_us.abs_diff(b.at_us)) * 1000;
    a.history == b.history && a.how == b.how && apart <= COALESCE_NS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn piece(first: u64, end: u64, history: u8) -> Piece {
        Piece {
            pages: PageRange { first, end },
            at_us: 5,
            how: How::READ,
            history: History(history),
        }
    }

    fn union(old: Option<Piece>, new: Option<Piece>) -> Option<Piece> {
        let of = |piece: Option<Piece>| piece.map(|p| p.history).unwrap_or_default();
        let history = of(old).union(of(new));
        Some(Piece { history, ..old.or(new)? })
    }

    #[test]
    fn overlaps_are_cut_where_the_sides_differ_and_joined_where_they_agree() {
        for (old, new, expected) in [
            (vec![piece(0, 8, 1)], vec![piece(4, 12, 2)], vec![(0, 4, 1), (4, 8, 3), (8, 12, 2)]),
            (vec![piece(0, 4, 1)], vec![piece(4, 8, 1)], vec![(0, 8, 1)]),
            (vec![piece(0, 4, 1)], vec![piece(6, 8, 1)], vec![(0, 4, 1), (6, 8, 1)]),
            (vec![piece(0, 8, 1), piece(2, 4, 4)], vec![], vec![(0, 8, 1)]),
        ] {
            let got: Vec<_> = overlay(old, new, union)
                .iter()
                .map(|p| (p.pages.first, p.pages.end, p.history.0))
                .collect();
            assert_eq!(got, expected);
        }
    }

    proptest! {
        #[test]
        fn every_page_gets_what_both_sides_say_of_it(
            old in proptest::collection::vec((0u64..40, 1u64..8, 1u8..4), 0..8),
            new in proptest::collection::vec((0u64..40, 1u64..8, 1u8..4), 0..8),
        ) {
            let set = |list: &[(u64, u64, u8)]| disjoint(
                list.iter().map(|&(first, pages, h)| piece(first, first + pages, h)).collect());
            let (old, new) = (set(&old), set(&new));
            let at = |list: &[Piece], page| {
                let found: Vec<&Piece> = list.iter().filter(|p| p.pages.first <= page && page < p.pages.end).collect();
                assert!(found.len() < 2);
                found.first().map(|p| p.history.0)
            };
            let merged = overlay(old.clone(), new.clone(), union);
            for page in 0..50 {
                let expected = match (at(&old, page), at(&new, page)) {
                    (None, None) => None,
                    (a, b) => Some(a.unwrap_or(0) | b.unwrap_or(0)),
                };
                prop_assert_eq!(at(&merged, page), expected);
            }
        }
    }
}

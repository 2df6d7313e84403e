//! Ranges that don't overlap, by their first pages: one in place, few in a list, many in a tree. Pure.
//!
//! Most files have one range. A tree takes half a KiB for that, and a list as long as a large recording
//! takes too long to insert into.

use super::spans::Span;
use std::collections::BTreeMap;
use std::mem;
use std::slice;

/// A list is no longer.
const FEW: usize = 64;

/// The ranges, sorted.
#[derive(Clone, Debug)]
pub(super) enum Sorted {
    One(Span),
    Few(Vec<Span>),
    Many(BTreeMap<u64, Span>),
}

impl Default for Sorted {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Sorted {
    /// Adds a range; none has the same first page.
    pub(super) fn insert(&mut self, new: Span) {
        match self {
            Self::Few(list) if list.is_empty() => *self = Self::One(new),
            Self::One(one) => {
                let mut both = vec![*one];
                both.insert(position(&both, new.pages.first), new);
                *self = Self::Few(both);
            }
            Self::Few(list) if list.len() < FEW => {
                list.insert(position(list, new.pages.first), new);
            }
            Self::Few(list) => {
                let all = mem::take(list).into_iter().chain([new]);
                *self = Self::Many(all.map(|span| (span.pages.first, span)).collect());
            }
            Self::Many(tree) => _ = tree.insert(new.pages.first, new),
        }
    }

    /// All, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Span> {
        let (list, tree) = match self {
            Self::One(one) => (slice::from_ref(one), None),
            Self::Few(list) => (&list[..], None),
            Self::Many(tree) => (&[][..], Some(tree)),
        };
        list.iter().chain(tree.into_iter().flat_map(BTreeMap::values))
    }

    /// All, in order; their first pages have to stay.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Span> {
        let (list, tree) = match self {
            Self::One(one) => (slice::from_mut(one), None),
            Self::Few(list) => (&mut list[..], None),
            Self::Many(tree) => (&mut [][..], Some(tree)),
        };
        list.iter_mut().chain(tree.into_iter().flat_map(BTreeMap::values_mut))
    }

    /// Those that begin from `first` on and before `end`, which is not before that.
    pub(super) fn beginning_in(&self, first: u64, end: u64) -> impl Iterator<Item = &Span> {
        let part = |list: &'_ [Span]| position(list, first)..position(list, end);
        let (list, tree) = match self {
            Self::One(one) => (&slice::from_ref(one)[part(slice::from_ref(one))], None),
            Self::Few(list) => (&list[part(list)], None),
            Self::Many(tree) => (&[][..], Some(tree.range(first..end))),
        };
        list.iter().chain(tree.into_iter().flatten().map(|(_, span)| span))
    }

    /// The first of these.
    pub(super) fn first_in_mut(&mut self, first: u64, end: u64) -> Option<&mut Span> {
        match self {
            Self::One(one) => Some(one).filter(|span| (first..end).contains(&span.pages.first)),
            Self::Few(list) => {
                let at = position(list, first);
                list.get_mut(at).filter(|span| span.pages.first < end)
            }
            Self::Many(tree) => tree.range_mut(first..end).next().map(|(_, span)| span),
        }
    }

    /// The last that begins at this page or before it.
    pub(super) fn last_upto(&self, page: u64) -> Option<&Span> {
        match self {
            Self::One(one) => Some(one).filter(|span| span.pages.first <= page),
            Self::Few(list) => list.get(last_upto(list, page)?),
            Self::Many(tree) => tree.range(..=page).next_back().map(|(_, span)| span),
        }
    }

    /// The same.
    pub(super) fn last_upto_mut(&mut self, page: u64) -> Option<&mut Span> {
        match self {
            Self::One(one) => Some(one).filter(|span| span.pages.first <= page),
            Self::Few(list) => {
                let at = last_upto(list, page)?;
                list.get_mut(at)
            }
            Self::Many(tree) => tree.range_mut(..=page).next_back().map(|(_, span)| span),
        }
    }

    /// Drops those that begin at this page or behind it.
    pub(super) fn drop_from(&mut self, page: u64) {
        match self {
            Self::One(one) if one.pages.first >= page => *self = Self::default(),
            Self::One(_) => {}
            Self::Few(list) => list.truncate(position(list, page)),
            Self::Many(tree) => drop(tree.split_off(&page)),
        }
    }
}

/// Where the first is that does not begin before this page.
fn position(list: &[Span], page: u64) -> usize {
    list.partition_point(|span| span.pages.first < page)
}

fn last_upto(list: &[Span], page: u64) -> Option<usize> {
    list.partition_point(|span| span.pages.first <= page).checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::range::PageRange;
    use crate::host::usage::How;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_list_and_a_tree_answer_alike_whatever_their_number(
            firsts in proptest::collection::btree_set(0u64..400, 0..2 * FEW),
            order in any::<u64>(),
            first in 0u64..420,
            length in 0u64..40,
        ) {
            let span = |first| Span { pages: PageRange::of(first, 1), at: first, how: How::READ };
            let mut shuffled: Vec<u64> = firsts.iter().copied().collect();
            shuffled.sort_by_key(|first| first.wrapping_mul(order | 1));
            let (mut sorted, mut tree) = (Sorted::default(), Sorted::Many(BTreeMap::new()));
            for first in shuffled {
                sorted.insert(span(first));
                tree.insert(span(first));
            }
            prop_assert_eq!(matches!(sorted, Sorted::One(_)), firsts.len() == 1);
            prop_assert_eq!(matches!(sorted, Sorted::Many(_)), firsts.len() > FEW);
            let end = first + length;
            for either in [&mut sorted, &mut tree] {
                let all: Vec<u64> = either.iter().map(|span| span.at).collect();
                prop_assert_eq!(&all, &firsts.iter().copied().collect::<Vec<_>>());
                let within: Vec<u64> = either.beginning_in(first, end).map(|span| span.at).collect();
                prop_assert_eq!(&within, &firsts.range(first..end).copied().collect::<Vec<_>>());
                let next = either.first_in_mut(first, end).map(|span| span.at);
                prop_assert_eq!(next, firsts.range(first..end).next().copied());
                let last = firsts.range(..=first).next_back().copied();
                prop_assert_eq!(either.last_upto(first).map(|span| span.at), last);
                prop_assert_eq!(either.last_upto_mut(first).map(|span| span.at), last);
                either.drop_from(first);
                prop_assert_eq!(either.iter().count(), firsts.range(..first).count());
                prop_assert_eq!(either.iter_mut().count(), firsts.range(..first).count());
            }
        }
    }
}

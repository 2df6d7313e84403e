//! Which threads belong to a process tree, from the events of `fork` in a trace that several trees
//! share. Pure.

use super::file::Capture;
use super::format::{Field, FormatError, PageHeader, parse_event, parse_page_header};
use super::page::records;
use super::raw::RawPages;
use std::collections::HashSet;

/// A thread that made another, or a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Fork {
    /// Nanoseconds of the trace clock.
    pub time: u64,
    /// The thread that forked.
    pub parent: i32,
    /// The new thread.
    pub child: i32,
}

/// Finds the events of `sched_process_fork` in raw pages.
#[derive(Clone, Debug)]
pub struct Forks {
    header: PageHeader,
    common_type: Field,
    id: u16,
    parent: Field,
    child: Field,
}

impl Forks {
    /// By the texts of `events/header_page` and of the event's `format`.
    ///
    /// # Errors
    /// They can't be understood.
    pub fn new(header_page: &str, format: &str) -> Result<Self, FormatError> {
        let format = parse_event(format)?;
        let need = |name| format.field(name).cloned().ok_or(FormatError::Missing(name));
        Ok(Self {
            header: parse_page_header(header_page)?,
            common_type: need("common_type")?,
            id: format.id,
            parent: need("parent_pid")?,
            child: need("child_pid")?,
        })
    }

    /// All forks of raw pages, in the order of time.
    pub fn of(&self, pages: &RawPages) -> Vec<Fork> {
        let mut out = Vec::new();
        for page in pages.iter() {
            // What a broken page has before the error counts; decoding reports it.
            let _ = records(&page.unpack(), &self.header, |time, record| {
                out.extend(self.fork(time, record));
            });
        }
        out.sort_unstable();
        out
    }

    fn fork(&self, time: u64, record: &[u8]) -> Option<Fork> {
        let is_fork = self.common_type.read(record) == Some(u64::from(self.id));
        let tid = |field: &Field| Some(field.read(record)? as u32 as i32);
        is_fork.then_some(())?;
        Some(Fork { time, parent: tid(&self.parent)?, child: tid(&self.child)? })
    }
}

/// The threads of a tree that begins with these, by forks in the order of time.
pub fn tree(roots: &[i32], forks: &[Fork]) -> HashSet<i32> {
    let mut out: HashSet<i32> = roots.iter().copied().collect();
    for fork in forks {
        if out.contains(&fork.parent) {
            out.insert(fork.child);
        }
    }
    out
}

/// Keeps only the events of these threads in a capture: all others that occur are ignored.
///
/// # Errors
/// Its description can't be understood.
pub fn keep_only(capture: &mut Capture, tids: &HashSet<i32>) -> Result<(), FormatError> {
    let seen: HashSet<i32> = capture.events()?.map(|event| event.tid).collect();
    capture.description.ignored_tids.extend(seen.difference(tids));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::decode::tests::{HEADER, format, page, record};
    use super::super::events::tests::capture;
    use super::*;
    use proptest::prelude::*;

    const FORK: u16 = 77;

    fn forks() -> Forks {
        let text = format(FORK, "sched_process_fork", &[("parent_pid", 4), ("child_pid", 4)]);
        Forks::new(HEADER, &text).unwrap()
    }

    fn forked(parent: u64, child: u64) -> Vec<u8> {
        record(FORK, &[(parent, 4), (child, 4)])
    }

    #[test]
    fn forks_are_found_among_other_events_and_sorted() {
        let other = record(3, &[(42, 8), (1, 4), (9, 8)]);
        let first = page(&[(10, forked(1, 2)), (20, other)]);
        let second = page(&[(5, forked(7, 8))]);
        let found = forks().of(&capture(&[(0, first), (0, second)], 0).pages);
        let tids: Vec<_> = found.iter().map(|fork| (fork.parent, fork.child)).collect();
        assert_eq!(tids, [(7, 8), (1, 2)]);
    }

    #[test]
    fn a_tree_has_what_its_members_made_and_nothing_else() {
        let fork = |time, parent, child| Fork { time, parent, child };
        for (name, roots, forks, expected) in [
            ("nothing forked", vec![1], vec![], vec![1]),
            ("a child and its child", vec![1], vec![fork(1, 1, 2), fork(2, 2, 3)], vec![1, 2, 3]),
            ("those of others", vec![1], vec![fork(1, 5, 6), fork(2, 6, 7)], vec![1]),
            ("before its parent was one", vec![1], vec![fork(1, 2, 3), fork(2, 1, 2)], vec![1, 2]),
            ("two threads", vec![1, 4], vec![fork(1, 4, 5)], vec![1, 4, 5]),
        ] {
            assert_eq!(tree(&roots, &forks), expected.into_iter().collect(), "{name}");
        }
    }

    proptest! {
        #[test]
        fn trees_of_different_roots_share_no_thread_while_numbers_are_not_used_again(
            parents in proptest::collection::vec(0usize..40, 0..40)
        ) {
            // Thread 1 and thread 2 are the roots; each other one is made by one before it.
            let made = |(at, parent): (usize, &usize)| Fork {
                time: at as u64,
                parent: (parent % (at + 2)) as i32 + 1,
                child: at as i32 + 3,
            };
            let forks: Vec<_> = parents.iter().enumerate().map(made).collect();
            let (one, two) = (tree(&[1], &forks), tree(&[2], &forks));
            prop_assert!(one.is_disjoint(&two));
            prop_assert_eq!(one.len() + two.len(), forks.len() + 2);
        }

        #[test]
        fn any_bytes_are_decoded(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            forks().of(&capture(&[(0, bytes)], 0).pages);
        }
    }
}

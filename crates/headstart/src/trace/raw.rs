//! Raw pages of trace buffers, as the kernel hands them out. Copies share them, so that a part of a
//! recording takes no memory of its own. Pure.

use std::sync::Arc;

/// Raw pages, each with its CPU, in the order in which they were read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RawPages {
    pages: Vec<(u32, Arc<[u8]>)>,
    bytes: usize,
}

impl RawPages {
    /// Adds the used part of a page.
    pub fn push(&mut self, cpu: u32, page: &[u8]) {
        self.pages.push((cpu, page.into()));
        self.bytes += page.len();
    }

    /// All pages, each with its CPU.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, &[u8])> {
        self.pages.iter().map(|(cpu, page)| (*cpu, &page[..]))
    }

    /// Number of pages.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Bytes of all pages.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The pages from one to another, by number; those that are not there are none of it.
    #[must_use]
    pub fn part(&self, from: usize, until: usize) -> Self {
        let until = until.min(self.len());
        let pages = self.pages[from.min(until)..until].to_vec();
        let bytes = pages.iter().map(|(_, page)| page.len()).sum();
        Self { pages, bytes }
    }
}

impl<'a> FromIterator<(u32, &'a [u8])> for RawPages {
    fn from_iter<I: IntoIterator<Item = (u32, &'a [u8])>>(pages: I) -> Self {
        let mut out = Self::default();
        pages.into_iter().for_each(|(cpu, page)| out.push(cpu, page));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_shares_its_pages_and_void_numbers_are_no_panic() {
        let contents: [&[u8]; 4] = [&[1], &[2; 2], &[], &[4; 4]];
        let all: RawPages = contents.iter().zip(5..).map(|(page, cpu)| (cpu, *page)).collect();
        assert_eq!((all.len(), all.bytes(), all.is_empty()), (4, 7, false));
        for (from, until, expected) in
            [(0, 4, 0..4), (1, 3, 1..3), (2, 2, 2..2), (4, 4, 4..4), (3, 1, 1..1), (7, 9, 4..4)]
        {
            let part = all.part(from, until);
            let pages: Vec<_> = expected.clone().map(|at| (at as u32 + 5, contents[at])).collect();
            assert!(part.iter().eq(pages.iter().copied()), "{from} to {until}");
            assert_eq!(part, pages.into_iter().collect(), "{from} to {until}");
            for ((_, one), (_, other)) in part.pages.iter().zip(&all.pages[expected]) {
                assert!(Arc::ptr_eq(one, other), "{from} to {until}");
            }
        }
    }
}

//! Raw pages of trace buffers, as the kernel hands them out, packed: most of a record repeats the one
//! before it. Copies share them, so that a part of a recording takes no memory of its own. Pure.

use lz4_flex::block::{compress_prepend_size, decompress_size_prepended};
use std::sync::Arc;

/// Raw pages, in the order in which they were read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RawPages {
    pages: Vec<RawPage>,
    packed_bytes: usize,
}

/// The used part of a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RawPage {
    cpu: u32,
    bytes: u32,
    packed: Arc<[u8]>,
}

impl RawPage {
    /// The CPU in whose buffer it was.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Its bytes.
    pub fn unpack(&self) -> Vec<u8> {
        // It was packed here.
        decompress_size_prepended(&self.packed).unwrap_or_default()
    }
}

impl RawPages {
    /// Adds the used part of a page.
    pub fn push(&mut self, cpu: u32, page: &[u8]) {
        let packed = compress_prepend_size(page);
        self.packed_bytes += packed.len();
        self.pages.push(RawPage { cpu, bytes: page.len() as u32, packed: packed.into() });
    }

    /// All pages.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &RawPage> {
        self.pages.iter()
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
    pub fn bytes(&self) -> u64 {
        self.pages.iter().map(|page| u64::from(page.bytes)).sum()
    }

    /// What they take in memory, in bytes.
    pub fn packed_bytes(&self) -> usize {
        self.packed_bytes
    }

    /// The pages from one to another, by number; those that are not there are none of it.
    #[must_use]
    pub fn part(&self, from: usize, until: usize) -> Self {
        let until = until.min(self.len());
        let pages = self.pages[from.min(until)..until].to_vec();
        let packed_bytes = pages.iter().map(|page| page.packed.len()).sum();
        Self { pages, packed_bytes }
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
    use proptest::prelude::*;

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
            let found: Vec<_> = part.iter().map(|page| (page.cpu(), page.unpack())).collect();
            assert!(found.iter().map(|(cpu, page)| (*cpu, &page[..])).eq(pages.iter().copied()));
            assert_eq!(part, pages.into_iter().collect(), "{from} to {until}");
            for (one, other) in part.iter().zip(&all.pages[expected]) {
                assert!(Arc::ptr_eq(&one.packed, &other.packed), "{from} to {until}");
            }
        }
    }

    #[test]
    fn records_that_resemble_each_other_take_a_part_of_their_memory() {
        let record = |number: u32| [number.to_le_bytes(), [7; 4], [0; 4], [0; 4]].concat();
        let page: Vec<u8> = (0..250).flat_map(record).collect();
        let pages: RawPages = [(0, &page[..])].into_iter().collect();
        assert_eq!(pages.bytes(), 4000);
        assert!(pages.packed_bytes() < 2000, "{}", pages.packed_bytes());
        assert_eq!(pages.part(0, 1).packed_bytes(), pages.packed_bytes());
    }

    proptest! {
        #[test]
        fn pages_are_what_was_added(
            pages in proptest::collection::vec(
                (0u32..4, proptest::collection::vec(0u8..3, 0..5000)), 0..4)
        ) {
            let packed: RawPages = pages.iter().map(|(cpu, page)| (*cpu, &page[..])).collect();
            let found: Vec<_> = packed.iter().map(|page| (page.cpu(), page.unpack())).collect();
            prop_assert_eq!(packed.bytes(), pages.iter().map(|(_, page)| page.len() as u64).sum::<u64>());
            prop_assert_eq!(found, pages);
        }
    }
}

//! The address space of a process: what is mapped where. The kernel reports no munmap(2), so what
//! was unmapped stays until something else is mapped there.

use std::collections::BTreeMap;
use std::rc::Rc;

/// What is mapped where, by numbers of mappings.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Space {
    /// By their first address: the one behind the last, and the number. Children share it until
    /// one of both maps something.
    parts: Rc<BTreeMap<u64, (u64, u32)>>,
    /// How many parts were copied for it, or for the one that it was forked from.
    pub copied: usize,
    /// Whether fork(2) has made a copy, so that pages are shared until they are written.
    pub was_forked: bool,
}

impl Space {
    /// A mapping takes the place of what was there.
    pub fn map(&mut self, start: u64, end: u64, number: u32) {
        if start >= end {
            return;
        }
        if Rc::strong_count(&self.parts) > 1 {
            self.copied = self.parts.len();
        }
        let parts = Rc::make_mut(&mut self.parts);
        // The one that begins before may be cut, on both sides.
        if let Some((&before, &(until, old))) = parts.range(..start).next_back()
            && until > start
        {
            parts.insert(before, (start, old));
            if until > end {
                parts.insert(end, (until, old));
            }
        }
        while let Some((&inside, &(until, old))) = parts.range(start..end).next() {
            parts.remove(&inside);
            if until > end {
                parts.insert(end, (until, old));
            }
        }
        parts.insert(start, (end, number));
    }

    /// The mapping of an address.
    pub fn find(&self, address: u64) -> Option<u32> {
        self.part(address).map(|(_, number)| number)
    }

    /// The mapping that ends where that of an address begins.
    pub fn before(&self, address: u64) -> Option<u32> {
        let (start, _) = self.part(address)?;
        let (_, &(until, number)) = self.parts.range(..start).next_back()?;
        (until == start).then_some(number)
    }

    fn part(&self, address: u64) -> Option<(u64, u32)> {
        let (&start, &(end, number)) = self.parts.range(..=address).next_back()?;
        (address < end).then_some((start, number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_new_mapping_cuts_those_that_it_covers() {
        let mut space = Space::default();
        space.map(0, 100, 1);
        space.map(40, 60, 2);
        for (address, found) in
            [(0, Some(1)), (39, Some(1)), (40, Some(2)), (59, Some(2)), (60, Some(1)), (100, None)]
        {
            assert_eq!(space.find(address), found, "{address}");
        }
        assert_eq!(space.before(45), Some(1));
        assert_eq!(space.before(0), None);
        space.map(50, 50, 3);
        assert_eq!(space.find(50), Some(2));
    }

    #[test]
    fn a_space_is_copied_when_one_of_two_processes_maps_something() {
        let mut parent = Space::default();
        (0..5).for_each(|at| parent.map(at * 10, at * 10 + 5, 1));
        let mut child = parent.clone();
        child.map(100, 101, 2);
        child.map(102, 103, 2);
        parent.map(100, 101, 3);
        assert_eq!((parent.copied, child.copied), (0, 5));
        assert_eq!((parent.find(100), child.find(100)), (Some(3), Some(2)));
    }

    proptest! {
        #[test]
        fn the_last_mapping_of_an_address_is_found(
            maps in proptest::collection::vec((0u64..60, 0u64..30), 0..40),
        ) {
            let (mut space, mut pages) = (Space::default(), [None; 100]);
            for (number, (start, length)) in maps.into_iter().enumerate() {
                space.map(start, start + length, number as u32);
                pages[start as usize..(start + length) as usize].fill(Some(number as u32));
            }
            for (address, expected) in pages.into_iter().enumerate() {
                prop_assert_eq!(space.find(address as u64), expected, "{}", address);
            }
        }
    }
}

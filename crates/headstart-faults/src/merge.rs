//! Puts the records of all CPUs in one order, by time. Each CPU's own are kept in theirs.

use crate::record::{Layout, Record, Records, What};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The records of a CPU, with [`What::Loses`] where those were lost that a record later counts.
#[derive(Debug)]
struct Stream<'a> {
    records: Records<'a>,
    last: u64,
    /// What was announced.
    held: Option<Record<'a>>,
}

impl<'a> Iterator for Stream<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        if let Some(held) = self.held.take() {
            return Some(held);
        }
        let record = self.records.next()?;
        if matches!(record.what, What::Lost(_)) {
            self.held = Some(record);
            return Some(Record { time: self.last, what: What::Loses, ..record });
        }
        self.last = record.time;
        Some(record)
    }
}

/// The records of all CPUs.
#[derive(Debug)]
pub struct Merged<'a> {
    streams: Vec<Stream<'a>>,
    /// The next record of each stream.
    next: Vec<Option<Record<'a>>>,
    heap: BinaryHeap<Reverse<(u64, usize)>>,
}

impl<'a> Merged<'a> {
    /// Those of these rings.
    pub fn new(rings: &'a [Vec<u8>], layout: &'a Layout) -> Self {
        let stream =
            |ring: &'a Vec<u8>| Stream { records: Records::new(ring, layout), last: 0, held: None };
        let mut streams: Vec<_> = rings.iter().map(stream).collect();
        let next: Vec<_> = streams.iter_mut().map(Iterator::next).collect();
        let times = next.iter().enumerate();
        let heap = times.filter_map(|(at, next)| Some(Reverse(((*next)?.time, at)))).collect();
        Self { streams, next, heap }
    }

    /// Records that could not be decoded; a damaged end of a ring is one.
    pub fn skipped(&self) -> u64 {
        self.streams.iter().map(|stream| stream.records.skipped).sum()
    }
}

impl<'a> Iterator for Merged<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let Reverse((_, at)) = self.heap.pop()?;
        let following = self.streams[at].next();
        if let Some(record) = following {
            self.heap.push(Reverse((record.time, at)));
        }
        let mut record = std::mem::replace(&mut self.next[at], following)?;
        if let What::Switch { cpu, .. } = &mut record.what {
            *cpu = at;
        }
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::made::{bytes, layout};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_of_all_cpus_come_in_the_order_of_time(
            times in proptest::collection::vec(proptest::collection::vec(0u64..50, 0..20), 0..5),
        ) {
            let layout = layout();
            let ring = |times: &Vec<u64>| {
                let mut times = times.clone();
                times.sort_unstable();
                let record = |time| Record { time, pid: 1, tid: 1, what: What::Exit };
                times.into_iter().flat_map(|time| bytes(&record(time))).collect::<Vec<u8>>()
            };
            let rings: Vec<_> = times.iter().map(ring).collect();
            let found: Vec<u64> = Merged::new(&rings, &layout).map(|record| record.time).collect();
            let mut expected = times.concat();
            expected.sort_unstable();
            prop_assert_eq!(found, expected);
        }
    }
}

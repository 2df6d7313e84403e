//! The events of a capture in the order of time: merges the sorted buffers of the CPUs during
//! decoding. Pure.
//!
//! Only one page of each CPU is decoded at a time, so a long capture needs no memory beyond its raw
//! pages.

use super::Event;
use super::decode::{Decoder, Tally};
use super::file::Capture;
use super::format::FormatError;
use super::raw::RawPage;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// The events of a capture; [`Capture::events`] makes it.
#[derive(Debug)]
pub struct Events<'a> {
    decoder: Decoder,
    cpus: Vec<Cpu<'a>>,
    /// Time of the next event of each CPU that has one, and its index.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    tally: Tally,
    /// What the kernel's statistics say was lost.
    lost: u64,
}

/// The rest of one CPU's buffer.
#[derive(Debug, Default)]
struct Cpu<'a> {
    pages: VecDeque<&'a RawPage>,
    decoded: VecDeque<Event>,
}

impl<'a> Events<'a> {
    /// The events of `capture`.
    ///
    /// # Errors
    /// Its description can't be understood.
    pub(super) fn of(capture: &'a Capture) -> Result<Self, FormatError> {
        let decoder = capture.description.decoder()?;
        let mut cpus: BTreeMap<u32, Cpu<'a>> = BTreeMap::new();
        for page in capture.pages.iter() {
            cpus.entry(page.cpu()).or_default().pages.push_back(page);
        }
        let mut events = Self {
            decoder,
            cpus: cpus.into_values().collect(),
            next: BinaryHeap::new(),
            tally: Tally::default(),
            lost: capture.description.lost,
        };
        for index in 0..events.cpus.len() {
            events.line_up(index);
        }
        Ok(events)
    }

    /// What was met so far; all of it after the last event.
    pub fn tally(&self) -> Tally {
        let mut tally = self.tally;
        // A page that does not say how much is missing lacks one at least.
        let unknown = tally.lost_unknown.saturating_add(tally.broken_pages);
        // The statistics know also of events that no page speaks of.
        tally.lost = tally.lost.saturating_add(unknown).max(self.lost);
        tally
    }

    /// Decodes until CPU number `index` has an event, and enters that.
    fn line_up(&mut self, index: usize) {
        let Self { decoder, cpus, next, tally, .. } = self;
        let Some(cpu) = cpus.get_mut(index) else { return };
        while cpu.decoded.is_empty() {
            let Some(page) = cpu.pages.pop_front() else { return };
            decoder.page(&page.unpack(), tally, |event| cpu.decoded.push_back(event));
        }
        next.extend(cpu.decoded.front().map(|event| Reverse((event.time, index))));
    }
}

impl Iterator for Events<'_> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let Reverse((_, index)) = self.next.pop()?;
        let event = self.cpus.get_mut(index)?.decoded.pop_front();
        self.line_up(index);
        event
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::decode::tests::{HEADER, formats, page, record};
    use super::super::file::Description;
    use super::*;
    use proptest::prelude::*;

    pub fn capture(pages: &[(u32, Vec<u8>)], lost: u64) -> Capture {
        Capture {
            description: Description {
                header_page: HEADER.into(),
                formats: formats().into(),
                page_size: 4096,
                kernel: String::new(),
                block_devices: vec![],
                ignored_tids: vec![],
                metadata_tids: vec![],
                lost,
                clock_ahead_ns: None,
                buffer_kb: 0,
            },
            pages: pages.iter().map(|(cpu, page)| (*cpu, &page[..])).collect(),
        }
    }

    fn fault(index: u64) -> Vec<u8> {
        record(3, &[(42, 8), (1, 4), (index, 8)])
    }

    #[test]
    fn what_pages_and_statistics_say_of_losses_becomes_one_number() {
        const MISSED: u8 = 1 << 7;
        const STORED: u8 = 1 << 6;
        let with = |flags: u8, after: &[u8]| {
            let mut page = page(&[(1, fault(1))]);
            page[11] |= flags;
            page.extend(after);
            (0, page)
        };
        let five = 5u64.to_ne_bytes();
        let broken = (0, vec![0; 9]);
        for (pages, statistics, lost) in [
            (vec![with(0, &[])], 0, 0),
            (vec![with(0, &[])], 9, 9),
            (vec![with(MISSED | STORED, &five)], 0, 5),
            (vec![with(MISSED | STORED, &five), with(MISSED | STORED, &five)], 7, 10),
            (vec![with(MISSED, &[])], 0, 1),
            (vec![with(MISSED, &[]), broken], 0, 2),
        ] {
            let capture = capture(&pages, statistics);
            let mut events = capture.events().unwrap();
            assert_eq!(events.by_ref().count(), pages.iter().filter(|p| p.1.len() > 9).count());
            assert_eq!(events.tally().lost, lost);
        }
    }

    #[test]
    fn a_page_that_is_cut_is_counted_as_broken() {
        let whole = page(&[(2, fault(2))]);
        let cut = whole[..whole.len() - 1].to_vec();
        let capture = capture(&[(0, page(&[(1, fault(1))])), (0, cut)], 0);
        let mut events = capture.events().unwrap();
        assert_eq!(events.by_ref().count(), 1);
        assert_eq!((events.tally().broken_pages, events.tally().lost), (1, 1));
    }

    proptest! {
        #[test]
        fn events_of_all_cpus_come_in_the_order_of_time(
            cpus in proptest::collection::vec(
                proptest::collection::vec(proptest::collection::vec(0u64..50, 0..6), 0..5), 0..4)
        ) {
            let mut pages = Vec::new();
            let mut expected = Vec::new();
            for (cpu, lists) in cpus.iter().enumerate() {
                let mut time = 0;
                for list in lists {
                    let records: Vec<_> = list
                        .iter()
                        .map(|step| {
                            time += step;
                            expected.push((time, cpu as u64));
                            (time, fault(cpu as u64))
                        })
                        .collect();
                    pages.push((cpu as u32, page(&records)));
                }
            }
            // Stable: of one time, the order of CPUs and of their records.
            expected.sort_by_key(|(time, cpu)| (*time, *cpu));
            let capture = capture(&pages, 0);
            let got: Vec<_> = capture.events().unwrap().map(|e| (e.time, e.pages.first)).collect();
            prop_assert_eq!(got, expected);
        }
    }
}

//! Folds the events of a start into the pages that it touched and those that it brought in itself.
//! Pure; inodes stay numbers.

use super::pace::{Pace, Pacing};
use super::spans::Spans;
use crate::host::id::{Dev, InodeId};
use crate::host::range::PageRange;
use crate::host::usage::How;
use crate::trace::{Event, EventKind};
use std::collections::{HashMap, HashSet};

/// What a start did with one file, or with one block device's metadata.
#[derive(Clone, Default, Debug)]
pub struct Pages {
    /// Accessed pages, with the time of the first access.
    pub touched: Spans,
    /// Those of them with an event of their own: a read or a fault. Others may be fault-around
    /// pages.
    pub certain: Spans,
    /// Pages that the program itself had to bring into the cache.
    pub inserted: Spans,
}

/// A start, not yet resolved to paths.
#[derive(Clone, Default, Debug)]
pub struct Observation {
    /// By inode.
    pub files: HashMap<InodeId, Pages>,
    /// Metadata of file systems, by block device, in pages of the device.
    pub metadata: HashMap<Dev, Pages>,
    /// Blocks that the start allocated, by file system, until [`Observation::remove_made`].
    pub allocated: HashMap<Dev, Spans>,
    /// When the first event was, in nanoseconds of the trace clock.
    pub began: u64,
    /// Nanoseconds from the first event to the last.
    pub duration: u64,
    /// The waits of the start.
    pub pace: Pace,
    /// Threads that caused events.
    pub tids: HashSet<i32>,
    /// Whether accesses were reported; otherwise additions to the page cache count as touches.
    pub has_access_events: bool,
}

impl Observation {
    /// Adds an access to metadata; whether it is one.
    fn add_metadata(&mut self, event: &Event, at: u64, rules: &Rules) -> bool {
        match event.kind {
            EventKind::Metadata => {
                let device = self.metadata.entry(event.id.dev).or_default();
                device.touched.touch(event.pages, at, How::READ);
            }
            EventKind::Insert if is_block_device(event, rules) => {
                let device = self.metadata.entry(Dev(event.id.ino as u32)).or_default();
                device.inserted.touch(event.pages, at, How::INSERTED);
            }
            _ => return false,
        }
        true
    }

    /// Adds blocks, except those that were metadata before: the start read these, and freed them.
    fn add_allocation(&mut self, event: &Event) {
        let mut blocks = Spans::default();
        blocks.touch(event.pages, 0, How::WRITTEN);
        if let Some(known) = self.metadata.get(&event.id.dev) {
            blocks = blocks.without(&known.touched).without(&known.inserted);
        }
        let allocated = self.allocated.entry(event.id.dev).or_default();
        blocks.iter().for_each(|span| allocated.touch(span.pages, span.at, span.how));
    }

    /// Removes metadata that the start made itself, such as the block of a new directory: nothing of it was read.
    /// `has_page_blocks` tells whether the blocks of a file system are as large as pages.
    pub fn remove_made(&mut self, has_page_blocks: impl Fn(Dev) -> bool) {
        for (dev, made) in std::mem::take(&mut self.allocated) {
            let Some(pages) = self.metadata.get_mut(&dev) else { continue };
            if has_page_blocks(dev) {
                pages.touched = pages.touched.without(&made);
                pages.inserted = pages.inserted.without(&made);
            }
        }
    }

    /// The same as if the start had not waited for a disk.
    #[must_use]
    pub fn without_waits(&self) -> Self {
        let computed = |at| self.pace.computed(at);
        let pages = |pages: &Pages| Pages {
            touched: pages.touched.at_times(computed),
            certain: pages.certain.at_times(computed),
            inserted: pages.inserted.at_times(computed),
        };
        Self {
            files: self.files.iter().map(|(id, p)| (*id, pages(p))).collect(),
            metadata: self.metadata.iter().map(|(dev, p)| (*dev, pages(p))).collect(),
            allocated: self.allocated.clone(),
            began: self.began,
            duration: computed(self.duration),
            pace: Pace::default(),
            tids: self.tids.clone(),
            has_access_events: self.has_access_events,
        }
    }
}

/// Which events count, and what they mean.
#[derive(Clone, Default, Debug)]
pub struct Rules {
    /// Block devices that carry a file system: inserts into their own cache
    /// are metadata.
    pub block_devices: HashSet<Dev>,
    /// Threads that are not the program's.
    pub ignored_tids: HashSet<i32>,
    /// Those of them that read files for the program, ahead of it: metadata that they read counts as
    /// read by it.
    pub metadata_tids: HashSet<i32>,
    /// Whether the kernel reports accesses.
    pub has_access_events: bool,
}

/// Folds events, which come in the order of time. Times in the result count
/// from the first event.
pub fn fold(events: impl IntoIterator<Item = Event>, rules: &Rules) -> Observation {
    let mut out =
        Observation { has_access_events: rules.has_access_events, ..Observation::default() };
    let (mut fetched, mut pacing) = (Fetched::default(), Pacing::default());
    let mut began = None;
    for event in events {
        if rules.ignored_tids.contains(&event.tid) {
            pacing.other(&event);
            if rules.metadata_tids.contains(&event.tid) {
                out.add_metadata(
                    &event,
                    event.time.saturating_sub(began.unwrap_or(event.time)),
                    rules,
                );
            }
            continue;
        }
        // It is no access, and may be that of a thread which writes what others wrote before.
        if event.kind == EventKind::Allocation {
            out.add_allocation(&event);
            continue;
        }
        out.began = *began.get_or_insert(event.time);
        // Only a broken trace goes back in time.
        let at = event.time.saturating_sub(out.began);
        match event.kind {
            EventKind::Insert => pacing.missed(),
            EventKind::Read | EventKind::Map | EventKind::Fault | EventKind::Metadata => {
                pacing.used(at);
            }
            EventKind::Allocation => {}
        }
        out.duration = out.duration.max(at);
        out.tids.insert(event.tid);
        let pages = event.pages;
        if out.add_metadata(&event, at, rules) {
            continue;
        }
        match event.kind {
            // They were added.
            EventKind::Metadata | EventKind::Allocation => {}
            EventKind::Insert => {
                let file = out.files.entry(event.id).or_default();
                file.inserted.touch(pages, at, How::INSERTED);
                if !rules.has_access_events {
                    file.touched.touch(pages, at, How::INSERTED);
                }
                fetched.note(&event);
            }
            EventKind::Read | EventKind::Map | EventKind::Fault => {
                // A program that reads a block device itself has the same events.
                let how = if event.kind == EventKind::Read { How::READ } else { How::MAPPED };
                let file = out.files.entry(event.id).or_default();
                let first = fetched.used_silently(&event).unwrap_or(pages.first);
                let pages = PageRange { first, ..pages };
                file.touched.touch(pages, at, how);
                if event.kind != EventKind::Map {
                    file.certain.touch(pages, at, how);
                }
            }
        }
    }
    // Where uses are not reported there are none between waits.
    out.pace = if rules.has_access_events { pacing.finish() } else { Pace::default() };
    out
}

/// What each thread brought in last, to see reads that the kernel does not
/// report: while the last page of a batch is still in flight, `filemap_get_pages`
/// hands out those before it without the event, and reports the next batch
/// (`mm/filemap.c`, where `filemap_update_page` says to come back).
#[derive(Debug, Default)]
pub(super) struct Fetched(HashMap<i32, (InodeId, PageRange)>);

impl Fetched {
    /// Notes an addition.
    pub(super) fn note(&mut self, insert: &Event) {
        match self.0.get_mut(&insert.tid) {
            Some((id, last)) if *id == insert.id && last.end == insert.pages.first => {
                last.end = insert.pages.end;
            }
            _ => {
                self.0.insert(insert.tid, (insert.id, insert.pages));
            }
        }
    }

    /// The first page of those before a read that the same thread brought in for
    /// the same purpose: a read fetches from its own begin on.
    pub(super) fn used_silently(&mut self, used: &Event) -> Option<u64> {
        let (id, last) = self.0.remove(&used.tid)?;
        let silent = used.kind == EventKind::Read && id == used.id;
        let follows = last.first < used.pages.first && used.pages.first <= last.end;
        (silent && follows).then_some(last.first)
    }
}

/// Whether an addition is one to the cache of a block device. The pseudo file system of these names
/// the device in the inode number (`block/bdev.c`: i_ino = bd_dev).
pub(super) fn is_block_device(event: &Event, rules: &Rules) -> bool {
    event.id.dev.major() == 0
        && u32::try_from(event.id.ino).is_ok_and(|ino| rules.block_devices.contains(&Dev(ino)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const FILE: InodeId = InodeId { dev: Dev::new(8, 1), ino: 42 };

    fn event(kind: EventKind, id: InodeId, first: u64, pages: u64) -> Event {
        Event { time: 100, tid: 7, kind, id, pages: PageRange::of(first, pages) }
    }

    fn pages(spans: &Spans) -> Vec<(u64, u64)> {
        spans.iter().map(|s| (s.pages.first, s.pages.end)).collect()
    }

    #[test]
    fn what_came_in_and_what_was_used_are_kept_apart() {
        let rules = Rules { has_access_events: true, ..Rules::default() };
        let events = [event(EventKind::Insert, FILE, 0, 32), event(EventKind::Fault, FILE, 3, 1)];
        let seen = fold(events, &rules);
        assert_eq!(pages(&seen.files[&FILE].touched), [(3, 4)]);
        assert_eq!(pages(&seen.files[&FILE].inserted), [(0, 32)]);
    }

    #[test]
    fn pages_of_a_read_that_the_kernel_did_not_report_count_as_used() {
        let rules = Rules { has_access_events: true, ..Rules::default() };
        let other = InodeId { ino: 43, ..FILE };
        let insert = |first| event(EventKind::Insert, FILE, first, 1);
        let read = |first, pages| event(EventKind::Read, FILE, first, pages);
        let elsewhere = event(EventKind::Read, other, 0, 1);
        let in_other_thread = Event { tid: 8, ..read(1, 31) };
        for (name, events, expected) in [
            ("as in a trace of two pages", vec![insert(0), insert(1), read(1, 31)], (0, 32)),
            ("reported as ever", vec![insert(0), insert(1), read(0, 2)], (0, 2)),
            ("another was read meanwhile", vec![insert(0), elsewhere, read(1, 31)], (1, 32)),
            ("another thread", vec![insert(0), insert(1), in_other_thread], (1, 32)),
            ("only what came in together", vec![insert(0), insert(9), read(10, 1)], (9, 11)),
            ("too far away", vec![insert(0), insert(1), read(9, 1)], (9, 10)),
            ("a fault", vec![insert(0), insert(1), event(EventKind::Fault, FILE, 1, 1)], (1, 2)),
        ] {
            let seen = fold(events, &rules);
            assert_eq!(pages(&seen.files[&FILE].touched), [expected], "{name}");
        }
    }

    #[test]
    fn without_access_events_additions_stand_in_for_accesses() {
        let seen = fold([event(EventKind::Insert, FILE, 0, 32)], &Rules::default());
        assert_eq!(pages(&seen.files[&FILE].touched), [(0, 32)]);
    }

    #[test]
    fn additions_in_a_block_device_are_metadata_and_others_of_that_number_are_not() {
        let device = Dev::new(7, 0);
        let rules = Rules { block_devices: [device].into(), ..Rules::default() };
        let bdev = InodeId { dev: Dev::new(0, 9), ino: u64::from(device.0) };
        let real = InodeId { dev: Dev::new(8, 1), ..bdev };
        let seen = fold(
            [
                event(EventKind::Insert, bdev, 5, 1),
                event(EventKind::Insert, real, 6, 1),
                event(EventKind::Metadata, InodeId { dev: device, ino: 0 }, 8, 1),
            ],
            &rules,
        );
        assert_eq!(pages(&seen.metadata[&device].inserted), [(5, 6)]);
        assert_eq!(pages(&seen.metadata[&device].touched), [(8, 9)]);
        assert_eq!(seen.files.keys().collect::<Vec<_>>(), [&real]);
    }

    #[test]
    fn metadata_in_blocks_that_a_start_allocated_was_made_and_not_read() {
        let device = Dev::new(7, 0);
        let id = InodeId { dev: device, ino: 0 };
        let bdev = InodeId { dev: Dev::new(0, 9), ino: u64::from(device.0) };
        let rules =
            Rules { block_devices: [device].into(), ignored_tids: [8].into(), ..Rules::default() };
        let allocation = |first, pages| event(EventKind::Allocation, id, first, pages);
        let touch = |first| event(EventKind::Metadata, id, first, 1);
        let insert = |first| event(EventKind::Insert, bdev, first, 1);
        let of_another = Event { tid: 8, ..allocation(4, 1) };
        for (name, events, has_page_blocks, expected) in [
            ("made", vec![allocation(4, 2), insert(5), touch(5), touch(9)], true, &[9][..]),
            ("blocks of another size", vec![allocation(4, 2), touch(5)], false, &[5]),
            (
                "read, freed and made",
                vec![insert(5), allocation(4, 2), touch(4), touch(5)],
                true,
                &[5],
            ),
            ("touched before", vec![touch(5), allocation(5, 1)], true, &[5]),
            ("another process", vec![of_another, touch(4)], true, &[4]),
            ("made and freed twice", vec![allocation(4, 1), touch(4), allocation(4, 1)], true, &[]),
        ] {
            let mut seen = fold(events, &rules);
            seen.remove_made(|dev| dev == device && has_page_blocks);
            let of = &seen.metadata[&device];
            let both = of.touched.iter().chain(of.inserted.iter());
            let found: BTreeSet<u64> = both.flat_map(|span| span.pages.iter()).collect();
            assert_eq!(found, expected.iter().copied().collect(), "{name}");
        }
    }

    #[test]
    fn an_allocation_is_no_access() {
        let id = InodeId { dev: FILE.dev, ino: 0 };
        let at = |time, tid, kind, id| Event { time, tid, ..event(kind, id, 3, 1) };
        let events = [
            at(50, 8, EventKind::Allocation, id),
            at(100, 7, EventKind::Fault, FILE),
            at(200, 8, EventKind::Allocation, id),
        ];
        let seen = fold(events, &Rules::default());
        assert_eq!((seen.began, seen.duration, seen.tids), (100, 0, [7].into()));
        assert_eq!(pages(&seen.allocated[&FILE.dev]), [(3, 4)]);
        assert!(seen.metadata.is_empty());
    }

    #[test]
    fn what_was_waited_for_misses_and_for_what_others_prefetched_can_be_taken_out() {
        const MS: u64 = 1_000_000;
        let rules = |has_access_events| Rules {
            has_access_events,
            ignored_tids: [8].into(),
            ..Rules::default()
        };
        let at = |ms: u64, tid, kind| Event { time: ms * MS, tid, ..event(kind, FILE, ms, 1) };
        let used = |ms| at(ms, 7, EventKind::Fault);
        for (name, between, access, expected) in [
            ("computing", vec![], true, 40),
            ("a miss", vec![at(20, 7, EventKind::Insert)], true, 1),
            ("prefetched", vec![at(20, 8, EventKind::Insert), at(30, 8, EventKind::Read)], true, 5),
            ("no uses are reported", vec![at(20, 7, EventKind::Insert)], false, 40),
        ] {
            let events: Vec<Event> =
                [used(10)].into_iter().chain(between).chain([used(50)]).collect();
            let seen = fold(events, &rules(access)).without_waits();
            let last = seen.files[&FILE].touched.iter().last().unwrap();
            assert_eq!((last.at / MS, seen.duration / MS), (expected, expected), "{name}");
        }
    }

    #[test]
    fn of_threads_that_read_before_the_program_only_metadata_counts() {
        let device = Dev::new(7, 0);
        let ours = [8, 9].into();
        let rules = Rules {
            block_devices: [device].into(),
            ignored_tids: ours,
            metadata_tids: [8].into(),
            ..Rules::default()
        };
        let bdev = InodeId { dev: Dev::new(0, 9), ino: u64::from(device.0) };
        let of =
            |tid, time, id, first| Event { tid, time, ..event(EventKind::Insert, id, first, 1) };
        let events = [
            of(8, 50, bdev, 4),
            of(8, 60, FILE, 5),
            of(7, 100, FILE, 6),
            of(8, 130, bdev, 7),
            of(9, 140, bdev, 8),
        ];
        let seen = fold(events, &rules);
        let metadata: Vec<_> = seen.metadata[&device]
            .inserted
            .iter()
            .map(|span| (span.pages.first, span.at))
            .collect();
        assert_eq!(metadata, [(4, 0), (7, 30)]);
        assert_eq!(pages(&seen.files[&FILE].inserted), [(6, 7)]);
        assert_eq!((seen.began, seen.duration, seen.tids.len()), (100, 0, 1));
    }

    #[test]
    fn events_of_ignored_threads_leave_no_trace() {
        let rules = Rules { ignored_tids: [7].into(), ..Rules::default() };
        let seen = fold([event(EventKind::Insert, FILE, 0, 1)], &rules);
        assert!(seen.files.is_empty() && seen.tids.is_empty());
    }
}

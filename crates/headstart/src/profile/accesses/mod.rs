//! The accesses of a recorded start, one by one: who, when, which bytes of which file, and how.
//! [`rows`] writes them as text or CSV. Pure.
//!
//! The kernel reports accesses and additions to the page cache. An addition is what an access needed,
//! or the kernel's readahead: `needed` finds which.

mod needed;
pub mod rows;

use super::fold::{Fetched, Rules, is_block_device};
use crate::host::id::{Dev, InodeId};
use crate::host::range::PageRange;
use crate::trace::{Event, EventKind};
use needed::Needed;
use std::collections::VecDeque;

/// How pages were accessed or added.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// By read(2) and its like, also metadata by the file system.
    Read,
    /// Through a mapping. More than a page is a fault-around window: at least one of its pages was.
    Mapped,
    /// Added to the page cache for an access of the same thread: it had to be read from the disk.
    Added,
    /// Added to the page cache beyond that: prefetched by the kernel.
    Readahead,
}

/// What was accessed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Object {
    /// A file.
    File(InodeId),
    /// Metadata of the file system on a block device.
    Metadata(Dev),
}

/// Pages of one object that a thread accessed at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// In ns from the first event on.
    pub time: u64,
    /// The thread, as the kernel numbers it.
    pub tid: i32,
    /// What was accessed.
    pub object: Object,
    /// Its pages; at least one.
    pub pages: PageRange,
    /// How.
    pub kind: Kind,
}

/// The accesses of a start, in the order of time. `events` returns its events from the first one on,
/// and is called twice.
pub fn accesses<E: Iterator<Item = Event>>(
    events: impl Fn() -> E,
    rules: &Rules,
) -> Accesses<'_, E> {
    let needed = Needed::of(events(), rules);
    Accesses {
        events: events(),
        rules,
        needed,
        fetched: Fetched::default(),
        began: None,
        next: VecDeque::new(),
    }
}

/// Those of a start; [`accesses`] makes it.
#[derive(Debug)]
pub struct Accesses<'a, E> {
    events: E,
    rules: &'a Rules,
    needed: Needed,
    fetched: Fetched,
    began: Option<u64>,
    /// Made of the last event.
    next: VecDeque<Access>,
}

impl<E: Iterator<Item = Event>> Iterator for Accesses<'_, E> {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        while self.next.is_empty() {
            let event = self.events.find(|event| !self.rules.ignored_tids.contains(&event.tid))?;
            self.add(&event);
        }
        self.next.pop_front()
    }
}

impl<E> Accesses<'_, E> {
    fn add(&mut self, event: &Event) {
        let began = *self.began.get_or_insert(event.time);
        let object = object(event, self.rules);
        let (time, tid) = (event.time.saturating_sub(began), event.tid);
        let access = |pages, kind| Access { time, tid, object, pages, kind };
        match event.kind {
            EventKind::Insert => {
                let needed = self.needed.next(event.pages);
                let before = PageRange { end: needed.first, ..event.pages };
                let behind = PageRange { first: needed.end, ..event.pages };
                let parts =
                    [(before, Kind::Readahead), (needed, Kind::Added), (behind, Kind::Readahead)];
                let parts = parts.into_iter().filter(|(pages, _)| !pages.is_empty());
                self.next.extend(parts.map(|(pages, kind)| access(pages, kind)));
                if matches!(object, Object::File(_)) {
                    self.fetched.note(event);
                }
            }
            EventKind::Metadata => self.next.push_back(access(event.pages, Kind::Read)),
            EventKind::Allocation => {}
            EventKind::Read | EventKind::Map | EventKind::Fault => {
                let first = self.fetched.used_silently(event).unwrap_or(event.pages.first);
                let is_read = event.kind == EventKind::Read;
                let kind = if is_read { Kind::Read } else { Kind::Mapped };
                self.next.push_back(access(PageRange { first, ..event.pages }, kind));
            }
        }
    }
}

fn object(event: &Event, rules: &Rules) -> Object {
    match event.kind {
        EventKind::Metadata => Object::Metadata(event.id.dev),
        EventKind::Insert if is_block_device(event, rules) => {
            Object::Metadata(Dev(event.id.ino as u32))
        }
        _ => Object::File(event.id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FILE: InodeId = InodeId { dev: Dev::new(8, 1), ino: 42 };

    fn event(tid: i32, kind: EventKind, first: u64, pages: u64) -> Event {
        Event { time: 100, tid, kind, id: FILE, pages: PageRange::of(first, pages) }
    }

    fn listed(events: &[Event], rules: &Rules) -> Vec<(i32, Kind, u64, u64)> {
        let all = accesses(|| events.iter().copied(), rules);
        all.map(|a| (a.tid, a.kind, a.pages.first, a.pages.end)).collect()
    }

    #[test]
    fn what_a_thread_accesses_next_or_faulted_was_needed_and_the_rest_is_readahead() {
        use EventKind::{Fault, Insert, Map, Read};
        use Kind::{Added, Mapped, Readahead};
        let rules = Rules { has_access_events: true, ignored_tids: [9].into(), ..Rules::default() };
        let read = Kind::Read;
        for (name, events, expected) in [
            (
                "a read of what was added for it",
                vec![event(1, Insert, 0, 32), event(1, Read, 0, 4)],
                vec![(1, Added, 0, 4), (1, Readahead, 4, 32), (1, read, 0, 4)],
            ),
            (
                "a fault in the middle of a window, which fault-around maps later",
                vec![event(1, Fault, 8, 1), event(1, Insert, 0, 32), event(1, Map, 0, 16)],
                vec![
                    (1, Mapped, 8, 9),
                    (1, Readahead, 0, 8),
                    (1, Added, 8, 9),
                    (1, Readahead, 9, 32),
                    (1, Mapped, 0, 16),
                ],
            ),
            (
                "another thread",
                vec![event(1, Insert, 0, 4), event(2, Read, 0, 4), event(1, Read, 9, 1)],
                vec![(1, Readahead, 0, 4), (2, read, 0, 4), (1, read, 9, 10)],
            ),
            (
                "a read of which the kernel reports the second part only",
                vec![event(1, Insert, 0, 1), event(1, Insert, 1, 1), event(1, Read, 1, 31)],
                vec![(1, Added, 0, 1), (1, Added, 1, 2), (1, read, 0, 32)],
            ),
            ("ours", vec![event(9, Insert, 0, 4), event(9, Read, 0, 4)], vec![]),
        ] {
            assert_eq!(listed(&events, &rules), expected, "{name}");
        }
    }

    #[test]
    fn without_access_events_all_additions_count_as_needed() {
        let events = [event(1, EventKind::Insert, 0, 32)];
        assert_eq!(listed(&events, &Rules::default()), [(1, Kind::Added, 0, 32)]);
    }

    #[test]
    fn metadata_is_that_of_its_device() {
        let device = Dev::new(7, 0);
        let rules = Rules { block_devices: [device].into(), ..Rules::default() };
        let bdev = InodeId { dev: Dev::new(0, 9), ino: u64::from(device.0) };
        let touched = InodeId { dev: device, ino: 0 };
        let events = [
            Event { id: bdev, ..event(1, EventKind::Insert, 5, 1) },
            Event { id: touched, ..event(1, EventKind::Metadata, 8, 1) },
            event(1, EventKind::Fault, 0, 1),
        ];
        let objects: Vec<_> =
            accesses(|| events.iter().copied(), &rules).map(|a| a.object).collect();
        let metadata = Object::Metadata(device);
        assert_eq!(objects, [metadata, metadata, Object::File(FILE)]);
    }

    proptest! {
        #[test]
        fn each_page_of_an_event_is_in_one_access(
            events in proptest::collection::vec((1i32..4, 0u8..4, 0u64..40, 1u64..9), 0..60),
        ) {
            use EventKind::{Fault, Insert, Map, Read};
            let kind = |at: u8| [Insert, Read, Map, Fault][usize::from(at)];
            let events: Vec<_> =
                events.into_iter().map(|(tid, at, first, n)| event(tid, kind(at), first, n)).collect();
            let rules = Rules { has_access_events: true, ..Rules::default() };
            let added = |(_, kind, ..): &&(i32, Kind, u64, u64)| *kind >= Kind::Added;
            let listed = listed(&events, &rules);
            let pages: u64 = listed.iter().filter(added).map(|(_, _, first, end)| end - first).sum();
            let inserts = events.iter().filter(|event| event.kind == Insert);
            prop_assert_eq!(pages, inserts.clone().map(|event| event.pages.count()).sum::<u64>());
            let accesses = listed.iter().filter(|access| !added(access)).count();
            prop_assert_eq!(accesses, events.len() - inserts.count());
        }
    }
}

//! The time of each touch without the waits for a disk. Pure.
//!
//! A start that is prefetched in another order waits at other places, so only the time between
//! waits says when it needs a page. The kernel does not report how long a wait was: a long time
//! without a touch counts as a wait if a request was made in it, or a prefetch was still going on.

use crate::trace::{Event, EventKind};
use std::collections::HashSet;

/// If the start itself requested I/O, this much of the time before the next access, in nanoseconds,
/// counts as computing.
const MISSED_NS: u64 = 1_000_000;
/// The same while a prefetch is in flight, when the program may wait.
const AHEAD_NS: u64 = 5_000_000;

/// A time without accesses, of which only a part counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Wait {
    begin: u64,
    end: u64,
    /// How much of it counts.
    counts: u64,
    /// The time that was removed before.
    before: u64,
}

/// The waits of a start.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Pace {
    /// In order.
    waits: Vec<Wait>,
    /// Where times begin to count, in nanoseconds since the beginning of the start.
    from: i64,
}

impl Pace {
    /// The time, in nanoseconds, that a start had not waited until `at`.
    pub fn computed(&self, at: u64) -> u64 {
        let at = i64::try_from(at).unwrap_or(i64::MAX).saturating_add(self.from);
        u64::try_from(self.since_begin(at).saturating_sub(self.since_begin(self.from))).unwrap_or(0)
    }

    /// The same for times that count from `from`, in nanoseconds since the beginning.
    #[must_use]
    pub fn since(&self, from: i64) -> Self {
        Self { waits: self.waits.clone(), from: self.from.saturating_add(from) }
    }

    fn since_begin(&self, at: i64) -> i64 {
        let Ok(time) = u64::try_from(at) else { return at };
        let waits = self.waits.partition_point(|wait| wait.begin <= time);
        let Some(wait) = waits.checked_sub(1).map(|last| self.waits[last]) else { return at };
        let within = (time - wait.begin).min(wait.counts);
        let after = time.saturating_sub(wait.end);
        i64::try_from(wait.begin - wait.before + within + after).unwrap_or(i64::MAX)
    }
}

/// Finds the waits, told of events in the order of their times, which count from the beginning of
/// the start, in nanoseconds.
#[derive(Default, Debug)]
pub struct Pacing {
    waits: Vec<Wait>,
    /// What are waits if it turns out that the disk was read meanwhile.
    perhaps: Vec<Wait>,
    last_use: u64,
    /// Whether the start has requested I/O since then.
    missed: bool,
    /// Who prefetches.
    readers: HashSet<i32>,
    /// Whether a prefetch request has not completed, as far as is known.
    is_coming: bool,
    /// Whether that was so at some time since the last use.
    was_coming: bool,
}

impl Pacing {
    /// An event of another process. A prefetching thread that reads a page shows that all of its
    /// requests are complete.
    pub fn other(&mut self, event: &Event) {
        match event.kind {
            EventKind::Insert => {
                self.readers.insert(event.tid);
                (self.is_coming, self.was_coming) = (true, true);
            }
            EventKind::Read if self.readers.contains(&event.tid) => {
                self.is_coming = false;
                self.waits.append(&mut self.perhaps);
            }
            EventKind::Read
            | EventKind::Map
            | EventKind::Fault
            | EventKind::Metadata
            | EventKind::Allocation => {}
        }
    }

    /// The start requested I/O.
    pub fn missed(&mut self) {
        self.missed = true;
    }

    /// The start accessed a page.
    pub fn used(&mut self, at: u64) {
        let (begin, end) = (self.last_use, at.max(self.last_use));
        let wait =
            |counts: u64| (end - begin > counts).then_some(Wait { begin, end, counts, before: 0 });
        if self.missed {
            self.waits.extend(wait(MISSED_NS));
        } else if self.is_coming {
            self.perhaps.extend(wait(AHEAD_NS));
        } else if self.was_coming {
            self.waits.extend(wait(AHEAD_NS));
        }
        (self.last_use, self.missed, self.was_coming) = (end, false, self.is_coming);
    }

    /// The waits. Nothing counts as a wait for requests that never completed.
    pub fn finish(mut self) -> Pace {
        self.waits.sort_unstable_by_key(|wait| wait.begin);
        let mut out = 0;
        for wait in &mut self.waits {
            wait.before = out;
            out += wait.end - wait.begin - wait.counts;
        }
        Pace { waits: self.waits, from: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::id::{Dev, InodeId};
    use crate::host::range::PageRange;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    #[derive(Clone, Copy, Debug)]
    enum Seen {
        Used(u64),
        Missed,
        Ahead,
        Arrived,
        /// Somebody reads who requests nothing.
        Other,
    }
    use Seen::{Ahead, Arrived, Missed, Other, Used};

    fn event(kind: EventKind, tid: i32) -> Event {
        let id = InodeId { dev: Dev::new(8, 1), ino: 42 };
        Event { time: 0, tid, kind, id, pages: PageRange::of(0, 1) }
    }

    fn pace(events: &[Seen]) -> Pace {
        let mut pacing = Pacing::default();
        for seen in events {
            match *seen {
                Used(ms) => pacing.used(ms * MS),
                Missed => pacing.missed(),
                Ahead => pacing.other(&event(EventKind::Insert, 7)),
                Arrived => pacing.other(&event(EventKind::Read, 7)),
                Other => pacing.other(&event(EventKind::Read, 8)),
            }
        }
        pacing.finish()
    }

    #[test]
    fn a_wait_for_the_disk_hardly_counts_and_computing_does() {
        for (name, events, expected) in [
            ("computing", &[Used(0), Used(80), Used(90)][..], [80, 90, 99]),
            ("a miss", &[Used(0), Missed, Used(80), Used(90)], [1, 11, 20]),
            ("the next gap is no wait", &[Missed, Used(10), Used(80), Used(90)], [71, 81, 90]),
            ("prefetched meanwhile", &[Ahead, Used(80), Missed, Used(90), Arrived], [5, 6, 15]),
            ("until it has arrived", &[Ahead, Used(5), Arrived, Used(80), Used(90)], [10, 20, 29]),
            ("by those who ask", &[Ahead, Used(80), Arrived, Other, Used(90)], [5, 10, 19]),
            ("it never arrives", &[Ahead, Used(5), Other, Used(80), Used(90)], [80, 90, 99]),
            ("no longer than it was", &[Used(0), Missed, Used(0), Used(80)], [80, 90, 99]),
        ] {
            let pace = pace(events);
            let got = [80, 90, 99].map(|ms| pace.computed(ms * MS) / MS);
            assert_eq!(got, expected, "{name}");
        }
    }

    #[test]
    fn times_that_count_from_later_exclude_earlier_waits() {
        let pace = pace(&[Missed, Used(50), Missed, Used(100)]);
        let later = pace.since(60 * MS as i64);
        assert_eq!(later.computed(0), 0);
        assert_eq!(later.computed(60 * MS), 20 * MS);
        let earlier = pace.since(-10 * MS as i64);
        assert_eq!(earlier.computed(10 * MS), 10 * MS);
        assert_eq!(earlier.computed(60 * MS), 11 * MS);
    }

    proptest! {
        #[test]
        fn computed_times_keep_the_order_and_are_no_later(
            steps in prop::collection::vec((0u64..200, 0u8..4), 0..40),
            from in -50i64..300,
        ) {
            let mut now = 0;
            let events: Vec<Seen> = steps.iter().map(|&(step, kind)| {
                now += step;
                match kind { 0 => Used(now), 1 => Missed, 2 => Ahead, _ => Arrived }
            }).collect();
            let pace = pace(&events).since(from * MS as i64);
            let mut last = 0;
            for ms in 0..500 {
                let computed = pace.computed(ms * MS);
                prop_assert!(last <= computed && computed <= ms * MS);
                last = computed;
            }
        }
    }
}

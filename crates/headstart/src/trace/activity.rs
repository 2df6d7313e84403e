//! The activity detector: how much of a trace shows that programs are still being started. It
//! counts pages that are added to the page cache, and first accesses, since prefetched pages are
//! not added when they are needed. Pure.

use super::forks::Fork;
use super::{Event, EventKind};
use crate::host::id::InodeId;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

/// Fewer new pages than this at once count as idle.
const TRICKLE: u64 = 8;
/// Pages of a file that come into use together.
const STRETCH: u64 = 256;

/// A stretch of a file, and whether it is read or mapped: what prefetches may read it, but
/// maps nothing.
type Use = (InodeId, u64, bool);

/// Tells what is new of the events of one recording.
#[derive(Debug, Default)]
pub(super) struct ActivityDetector {
    used: HashSet<Use>,
    last: Option<Use>,
}

impl ActivityDetector {
    /// How many pages of this event are new: those that came in; those that were mapped into
    /// memory in a stretch of which none was before; and one for a first read of a stretch,
    /// as reads reach beyond the end of a small file.
    pub(super) fn of(&mut self, event: &Event) -> u64 {
        let (is_read, pages) = match event.kind {
            EventKind::Insert => return event.pages.count(),
            EventKind::Metadata | EventKind::Allocation => return 0,
            EventKind::Read => (true, 1),
            EventKind::Map | EventKind::Fault => (false, event.pages.count()),
        };
        let used = (event.id, event.pages.first / STRETCH, is_read);
        // Most events are of the same stretch as the one before.
        let is_new = self.last != Some(used) && self.used.insert(used);
        self.last = Some(used);
        if is_new { pages } else { 0 }
    }
}

/// One of several recordings that share a trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Recording(u64);

/// Since when each of several recordings is idle. Times are given.
#[derive(Debug, Default)]
pub(super) struct Activities {
    /// Threads stay after the end of their recording: they are still in the trace.
    of_thread: HashMap<i32, Recording>,
    open: BTreeMap<Recording, Activity>,
    next: u64,
}

#[derive(Debug)]
struct Activity {
    detector: ActivityDetector,
    /// New pages since the last [`Activities::settle`].
    new: u64,
    last: Instant,
}

impl Activities {
    /// A recording begins with these threads.
    pub(super) fn begin(&mut self, tids: &[i32], now: Instant) -> Recording {
        let recording = Recording(self.next);
        self.next += 1;
        let activity = Activity { detector: ActivityDetector::default(), new: 0, last: now };
        self.open.insert(recording, activity);
        self.join(recording, tids);
        recording
    }

    /// It has these threads, too.
    pub(super) fn join(&mut self, recording: Recording, tids: &[i32]) {
        self.of_thread.extend(tids.iter().map(|tid| (*tid, recording)));
    }

    /// It ends. What its threads do from now on is nobody's activity.
    pub(super) fn end(&mut self, recording: Recording) {
        self.open.remove(&recording);
    }

    /// Takes forks, in the order of time, that are older than the events which come next.
    pub(super) fn note_forks(&mut self, forks: &[Fork]) {
        for fork in forks {
            if let Some(recording) = self.of_thread.get(&fork.parent) {
                self.of_thread.insert(fork.child, *recording);
            }
        }
    }

    /// Takes an event. That of a thread whose fork was lost may be of any recording.
    pub(super) fn note(&mut self, event: &Event) {
        let of = self.of_thread.get(&event.tid);
        for (recording, activity) in &mut self.open {
            if of.is_none_or(|of| of == recording) {
                activity.new = activity.new.saturating_add(activity.detector.of(event));
            }
        }
    }

    /// All that was collected now has been taken.
    pub(super) fn settle(&mut self, now: Instant) {
        for activity in self.open.values_mut() {
            if std::mem::take(&mut activity.new) > TRICKLE {
                activity.last = now;
            }
        }
    }

    /// For how long hardly any page was added or first accessed for a recording that has not ended.
    pub(super) fn idle_for(&self, recording: Recording, now: Instant) -> Option<Duration> {
        self.open.get(&recording).map(|activity| now.saturating_duration_since(activity.last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::id::Dev;
    use crate::host::range::PageRange;

    #[test]
    fn what_comes_in_or_into_use_is_new_and_what_is_used_again_is_not() {
        let mut detector = ActivityDetector::default();
        for (kind, ino, first, pages, expected) in [
            (EventKind::Insert, 1, 0, 32, 32),
            (EventKind::Insert, 1, 0, 32, 32),
            (EventKind::Map, 1, 0, 16, 16),
            (EventKind::Map, 1, 16, 16, 0),
            (EventKind::Fault, 1, 40, 1, 0),
            (EventKind::Read, 1, 0, 32, 1),
            (EventKind::Map, 1, 0, 16, 0),
            (EventKind::Read, 1, 8, 32, 0),
            (EventKind::Map, 1, 256, 16, 16),
            (EventKind::Fault, 2, 0, 1, 1),
            (EventKind::Metadata, 0, 7, 1, 0),
        ] {
            let id = InodeId { dev: Dev::new(8, 1), ino };
            let pages = PageRange::of(first, pages);
            let event = Event { time: 0, tid: 1, kind, id, pages };
            assert_eq!(detector.of(&event), expected, "{event:?}");
        }
    }

    #[test]
    fn each_recording_is_idle_by_itself_and_what_ended_ones_go_on_to_do_counts_for_none() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut activities = Activities::default();
        let [one, two] = [1, 2].map(|tid| activities.begin(&[tid], began));
        let three = activities.begin(&[3], began);
        activities.end(three);
        activities.join(two, &[9]);
        let fork = |parent, child| Fork { time: 1, parent, child };
        activities.note_forks(&[fork(1, 4), fork(4, 5), fork(3, 6), fork(99, 8)]);
        let cases = [
            ("a child of a child", 5, TRICKLE + 1, [0, 1]),
            ("a trickle", 5, TRICKLE, [1, 2]),
            ("one that joined", 9, TRICKLE + 1, [2, 0]),
            ("one of an ended recording", 3, 99, [3, 1]),
            ("its child", 6, 99, [4, 2]),
            ("nobody knows whose", 8, TRICKLE + 1, [0, 0]),
        ];
        for (second, (name, tid, pages, expected)) in (1..).zip(cases) {
            let now = at(second);
            let id = InodeId { dev: Dev::new(8, 1), ino: 1 };
            let pages = PageRange::of(0, pages);
            activities.note(&Event { time: 0, tid, kind: EventKind::Insert, id, pages });
            activities.settle(now);
            let idle = [one, two].map(|it| activities.idle_for(it, now).unwrap().as_secs());
            assert_eq!(idle, expected, "{name}");
        }
        assert_eq!(activities.idle_for(three, began), None);
    }
}

//! The activity detector: how much of a trace shows that programs are still being started. It
//! counts pages that are added to the page cache, and first accesses, since prefetched pages are
//! not added when they are needed. Pure.

use super::{Event, EventKind};
use crate::host::id::InodeId;
use std::collections::HashSet;

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
            EventKind::Metadata => return 0,
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
}

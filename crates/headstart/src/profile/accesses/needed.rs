//! Which pages of each addition to the page cache an access needed: the kernel adds more than that
//! (readahead), and reports a fault before it adds its page, and a read after. Pure.

use crate::host::id::InodeId;
use crate::host::range::PageRange;
use crate::profile::fold::{Fetched, Rules, is_block_device};
use crate::trace::{Event, EventKind};
use std::collections::{HashMap, VecDeque};

/// The needed pages of additions, in their order.
#[derive(Debug, Default)]
pub struct Needed {
    pages: VecDeque<PageRange>,
    /// Whether accesses are known; else all additions were needed.
    is_known: bool,
}

/// What a thread did last.
#[derive(Debug, Default)]
struct Thread {
    /// A fault, which additions follow.
    fault: Option<(InodeId, PageRange)>,
    /// Additions since its last access, and their numbers.
    open: Vec<(usize, Event)>,
}

impl Needed {
    /// Those of a start.
    pub fn of(events: impl Iterator<Item = Event>, rules: &Rules) -> Self {
        let mut out = Self { is_known: rules.has_access_events, ..Self::default() };
        if !out.is_known {
            return out;
        }
        let (mut threads, mut fetched) = (HashMap::<i32, Thread>::new(), Fetched::default());
        for event in events.filter(|event| !rules.ignored_tids.contains(&event.tid)) {
            let thread = threads.entry(event.tid).or_default();
            match event.kind {
                // Accesses of metadata name no page of it.
                EventKind::Insert if is_block_device(&event, rules) => {
                    out.pages.push_back(event.pages);
                }
                EventKind::Insert => {
                    let of_fault = thread.fault.filter(|(id, _)| *id == event.id);
                    let pages = match of_fault {
                        Some((_, pages)) => pages.within(event.pages),
                        None => {
                            thread.open.push((out.pages.len(), event));
                            PageRange::default()
                        }
                    };
                    out.pages.push_back(pages);
                    fetched.note(&event);
                }
                EventKind::Metadata | EventKind::Allocation => {}
                EventKind::Read | EventKind::Map | EventKind::Fault => {
                    let first = fetched.used_silently(&event).unwrap_or(event.pages.first);
                    let used = PageRange { first, ..event.pages };
                    for (at, added) in thread.open.drain(..).filter(|(_, e)| e.id == event.id) {
                        if let Some(pages) = out.pages.get_mut(at) {
                            *pages = added.pages.within(used);
                        }
                    }
                    let is_fault = event.kind == EventKind::Fault;
                    thread.fault = is_fault.then_some((event.id, event.pages));
                }
            }
        }
        out
    }

    /// The needed pages of the next addition, which has these; an empty range at their end if none is.
    pub fn next(&mut self, added: PageRange) -> PageRange {
        let needed = if self.is_known { self.pages.pop_front().unwrap_or_default() } else { added };
        if needed.is_empty() { PageRange { first: added.end, end: added.end } } else { needed }
    }
}

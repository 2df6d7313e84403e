//! Files of trace-cmd, versions 6 and 7 (`trace-cmd.dat.v6(5)`, `trace-cmd.dat.v7(5)`).
//!
//! ```text
//! file ──▶ layout ──▶ chunks ──▶ events ──▶ Accesses
//!          where what  pages of   of all      └────▶ faults
//!          is          a CPU      CPUs               function graph
//! ```
//!
//! Of a compressed file one chunk of each CPU is unpacked at a time.

mod chunks;
mod description;
mod events;
pub mod faults;
mod layout;

pub(crate) use description::Description;
pub use faults::FaultCounts;

use crate::accesses::{Accesses, Name};
use crate::error::ImportError;
use events::{Events, TraceEvent};
use headstart::host::usage::How;
use headstart::trace::EventKind;
use layout::TraceDat;
pub(crate) use layout::begin_of_texts;

/// What is said of other clocks.
const NO_TIMES: &str =
    "the clock of the trace does not count ns: only the order of its events is taken";

/// Whether a file is one of trace-cmd.
pub fn is_trace(bytes: &[u8]) -> bool {
    bytes.starts_with(layout::MAGIC)
}

/// The accesses in a file: `mm_filemap_get_pages`, `mm_filemap_map_pages` and `mm_filemap_fault`, or
/// without the first two `mm_filemap_add_to_page_cache`.
///
/// # Errors
/// The file is damaged, or has none of these events.
pub fn import(bytes: &[u8]) -> Result<Accesses, ImportError> {
    let trace = TraceDat::parse(bytes)?;
    let mut events = Events::of(&trace)?;
    let mut accesses =
        Accesses::new(trace.page_size, bytes.len()).less(trace.description.kept_bytes());
    accesses.has_access_events = events.knows(EventKind::Read) && events.knows(EventKind::Map);
    for event in &mut events {
        if let TraceEvent::Page(mut event) = event {
            if trace.odd_clock.is_some() {
                event.time = accesses.next_step();
            }
            add(&mut accesses, &event)?;
        }
    }
    if trace.odd_clock.is_some() {
        accesses.lacks.coarse = Some(NO_TIMES);
    }
    accesses.lacks.lost = trace.lost.max(events.lost());
    accesses.lacks.not_understood = events.broken();
    accesses.lacks.other_traces = trace.others;
    if accesses.is_empty() {
        return Err(ImportError::Nothing(
            "record with: trace-cmd record -e mm_filemap_get_pages -e mm_filemap_map_pages \
             -e mm_filemap_fault -e mm_filemap_add_to_page_cache CMD",
        ));
    }
    Ok(accesses)
}

/// An event as an access; none where accesses are known and it is none.
pub(crate) fn add(
    accesses: &mut Accesses,
    event: &headstart::trace::Event,
) -> Result<(), ImportError> {
    let how = match event.kind {
        EventKind::Read => How::READ,
        EventKind::Map | EventKind::Fault => How::MAPPED,
        EventKind::Insert if !accesses.has_access_events => How::INSERTED,
        EventKind::Insert | EventKind::Metadata | EventKind::Allocation => return Ok(()),
    };
    accesses.add(Name::Inode(event.id), event.pages, event.time, how)
}

#[cfg(test)]
pub(crate) mod made;
#[cfg(test)]
mod tests;

//! From raw pages to [`Event`]s, by the layouts the kernel describes.
//!
//! Pure. Records of other events, and records too short for their own
//! format, are counted, not decoded.

use super::format::{EventFormat, Field, FormatError, PageHeader, parse_event, parse_page_header};
use super::page::{Lost, records};
use super::{Event, Kind};
use crate::id::{Dev, InodeId};
use serde::Serialize;

/// Bytes of a disk sector, the unit of `block_touch_buffer`.
const SECTOR: u64 = 512;

/// The trace events that headstart reads, by group and name.
pub const EVENTS: [(&str, &str, Kind); 5] = [
    ("filemap", "mm_filemap_add_to_page_cache", Kind::Insert),
    ("filemap", "mm_filemap_get_pages", Kind::Read),
    ("filemap", "mm_filemap_map_pages", Kind::Map),
    ("filemap", "mm_filemap_fault", Kind::Fault),
    ("block", "block_touch_buffer", Kind::Metadata),
];

/// Where one event keeps what we need of it.
#[derive(Clone, Debug)]
struct Layout {
    id: u16,
    kind: Kind,
    tid: Field,
    dev: Field,
    /// Absent from block events.
    ino: Option<Field>,
    first: Field,
    extent: Extent,
}

/// How an event says how much it covers.
#[derive(Clone, Debug)]
enum Extent {
    One,
    Order(Field),
    LastIndex(Field),
    SectorBytes(Field),
}

/// Counts of what decoding met.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize)]
pub struct Tally {
    /// Events decoded.
    pub events: u64,
    /// Records of events that are none of ours.
    pub foreign: u64,
    /// Events that the kernel dropped, as the pages say.
    pub lost: u64,
    /// Pages before which an unknown number was dropped.
    pub lost_unknown: u64,
    /// Pages that were broken; what stood before the break was used.
    pub broken_pages: u64,
}

/// Decodes pages of one kernel.
#[derive(Clone, Debug)]
pub struct Decoder {
    header: PageHeader,
    common_type: Field,
    layouts: Vec<Layout>,
    page_size: u64,
}

impl Decoder {
    /// From the text of `events/header_page` and of the events' `format`
    /// files; formats of unknown events are left out. `page_size` is the
    /// traced kernel's, in bytes.
    pub fn new<'a>(
        header_page: &str,
        formats: impl IntoIterator<Item = &'a str>,
        page_size: u64,
    ) -> Result<Self, FormatError> {
        let mut layouts = Vec::new();
        let mut common_type = None;
        for text in formats {
            let format = parse_event(text)?;
            let Some(&(_, _, kind)) = EVENTS.iter().find(|(_, name, _)| *name == format.name)
            else {
                continue;
            };
            common_type = Some(need(&format, "common_type")?);
            layouts.push(Layout::new(&format, kind)?);
        }
        Ok(Self {
            header: parse_page_header(header_page)?,
            common_type: common_type.ok_or(FormatError::Missing("common_type"))?,
            layouts,
            page_size: page_size.max(SECTOR),
        })
    }

    /// Whether events of this kind were described.
    pub fn knows(&self, kind: Kind) -> bool {
        self.layouts.iter().any(|l| l.kind == kind)
    }

    /// Decodes one page, in time order, and adds to `tally`.
    pub fn page(&self, page: &[u8], tally: &mut Tally, mut each: impl FnMut(Event)) {
        let end = records(page, &self.header, |time, data| match self.record(time, data) {
            Some(event) => {
                tally.events += 1;
                each(event);
            }
            None => tally.foreign += 1,
        });
        match end {
            Ok(Lost::None) => {}
            Ok(Lost::Unknown) => tally.lost_unknown += 1,
            Ok(Lost::Count(n)) => tally.lost = tally.lost.saturating_add(n),
            Err(_) => tally.broken_pages += 1,
        }
    }

    fn record(&self, time: u64, data: &[u8]) -> Option<Event> {
        let id = self.common_type.read(data)?;
        self.layouts.iter().find(|l| u64::from(l.id) == id)?.event(time, data, self.page_size)
    }
}

fn need(format: &EventFormat, name: &'static str) -> Result<Field, FormatError> {
    format.field(name).cloned().ok_or(FormatError::Missing(name))
}

impl Layout {
    fn new(format: &EventFormat, kind: Kind) -> Result<Self, FormatError> {
        let block = kind == Kind::Metadata;
        Ok(Self {
            id: format.id,
            kind,
            tid: need(format, "common_pid")?,
            dev: need(format, if block { "dev" } else { "s_dev" })?,
            ino: if block { None } else { Some(need(format, "i_ino")?) },
            first: need(format, if block { "sector" } else { "index" })?,
            extent: match kind {
                // Kernels before large folios have no order: one page each.
                Kind::Insert => format.field("order").cloned().map_or(Extent::One, Extent::Order),
                Kind::Read | Kind::Map => Extent::LastIndex(need(format, "last_index")?),
                Kind::Fault => Extent::One,
                Kind::Metadata => Extent::SectorBytes(need(format, "size")?),
            },
        })
    }

    fn event(&self, time: u64, data: &[u8], page_size: u64) -> Option<Event> {
        let first = self.first.read(data)?;
        let (first, pages) = match &self.extent {
            Extent::One => (first, 1),
            Extent::Order(field) => (first, 1u64.checked_shl(field.read(data)? as u32)?),
            Extent::LastIndex(field) => {
                // An empty read asks for last = first - 1.
                (first, field.read(data)?.wrapping_sub(first).wrapping_add(1).max(1))
            }
            Extent::SectorBytes(field) => {
                let start = first.checked_mul(SECTOR)?;
                let end = start.checked_add(field.read(data)?.max(1))?;
                (start / page_size, end.div_ceil(page_size) - start / page_size)
            }
        };
        Some(Event {
            time,
            tid: self.tid.read(data)? as u32 as i32,
            kind: self.kind,
            id: InodeId {
                dev: Dev(self.dev.read(data)? as u32),
                ino: self.ino.as_ref().map_or(Some(0), |f| f.read(data))?,
            },
            first,
            pages,
        })
    }
}

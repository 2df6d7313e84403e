//! From raw pages to [`Event`]s, by the layouts that the kernel describes.
//!
//! Pure. Records of other events, and records that contradict their own format or name pages beyond
//! the largest file, are counted and not decoded.

use super::format::{EventFormat, Field, FormatError, PageHeader, parse_event, parse_page_header};
use super::page::{Lost, records};
use super::{Event, EventKind};
use crate::host::id::{Dev, InodeId};
use crate::host::range::{ByteRange, PageRange};
use serde::Serialize;

/// Bytes of the smallest valid page.
const MIN_PAGE: u64 = 512;
/// No file is larger (`MAX_LFS_FILESIZE`, `include/linux/fs.h`).
const MAX_FILE_BYTES: u64 = i64::MAX.cast_unsigned();

/// The trace events that headstart reads of every file system, by group and name.
pub const EVENTS: [(&str, &str, EventKind); 5] = [
    ("filemap", "mm_filemap_add_to_page_cache", EventKind::Insert),
    ("filemap", "mm_filemap_get_pages", EventKind::Read),
    ("filemap", "mm_filemap_map_pages", EventKind::Map),
    ("filemap", "mm_filemap_fault", EventKind::Fault),
    ("block", "block_touch_buffer", EventKind::Metadata),
];

/// A further one, of ext4 only. The kernel's command line does not enable it, since it can't where ext4 is a module.
const ALLOCATION: (&str, &str, EventKind) = ("ext4", "ext4_allocate_blocks", EventKind::Allocation);

/// All trace events that headstart reads.
pub(super) fn all_events() -> impl Iterator<Item = (&'static str, &'static str, EventKind)> {
    EVENTS.into_iter().chain([ALLOCATION])
}

/// The fields that are needed of an event.
#[derive(Clone, Debug)]
struct Layout {
    id: u16,
    kind: EventKind,
    tid: Field,
    dev: Field,
    /// Absent where the device stands for the file.
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
    /// A number of blocks, as `first`.
    Count(Field),
    /// `first` counts blocks of this many bytes.
    BlockBytes(Field),
}

/// Counts of what decoding met.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize)]
pub struct Tally {
    /// Events decoded.
    pub events: u64,
    /// Records of other events, and broken ones.
    pub foreign: u64,
    /// Events that the kernel dropped, as the pages say.
    pub lost: u64,
    /// Pages before which an unknown number was dropped.
    pub lost_unknown: u64,
    /// Broken pages; the records before the error were used.
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
    /// files; formats of unknown events are skipped. `page_size` is the
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
            let Some((_, _, kind)) = all_events().find(|(_, name, _)| *name == format.name) else {
                continue;
            };
            common_type = Some(need(&format, "common_type")?);
            match Layout::new(&format, kind) {
                // Recordings work without it.
                Err(_) if kind == EventKind::Allocation => {}
                layout => layouts.push(layout?),
            }
        }
        Ok(Self {
            header: parse_page_header(header_page)?,
            common_type: common_type.ok_or(FormatError::Missing("common_type"))?,
            layouts,
            page_size: page_size.clamp(MIN_PAGE, MAX_FILE_BYTES),
        })
    }

    /// Whether events of this kind were described.
    pub fn knows(&self, kind: EventKind) -> bool {
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

    /// Decodes one record, as it lies in a page or in a sample of perf; `None` for another event.
    pub fn record(&self, time: u64, data: &[u8]) -> Option<Event> {
        let id = self.common_type.read(data)?;
        self.layouts.iter().find(|l| u64::from(l.id) == id)?.event(time, data, self.page_size)
    }
}

fn need(format: &EventFormat, name: &'static str) -> Result<Field, FormatError> {
    format.field(name).cloned().ok_or(FormatError::Missing(name))
}

impl Layout {
    fn new(format: &EventFormat, kind: EventKind) -> Result<Self, FormatError> {
        let (dev, ino, first) = match kind {
            EventKind::Metadata => ("dev", None, "sector"),
            EventKind::Allocation => ("dev", None, "block"),
            _ => ("s_dev", Some("i_ino"), "index"),
        };
        Ok(Self {
            id: format.id,
            kind,
            tid: need(format, "common_pid")?,
            dev: need(format, dev)?,
            ino: ino.map(|ino| need(format, ino)).transpose()?,
            first: need(format, first)?,
            extent: match kind {
                // Kernels before large folios have no order: one page each.
                EventKind::Insert => {
                    format.field("order").cloned().map_or(Extent::One, Extent::Order)
                }
                EventKind::Read | EventKind::Map => Extent::LastIndex(need(format, "last_index")?),
                EventKind::Fault => Extent::One,
                EventKind::Metadata => Extent::BlockBytes(need(format, "size")?),
                EventKind::Allocation => Extent::Count(need(format, "len")?),
            },
        })
    }

    fn event(&self, time: u64, data: &[u8], page_size: u64) -> Option<Event> {
        let first = self.first.read(data)?;
        let pages = match &self.extent {
            Extent::One => PageRange::of(first, 1),
            Extent::Order(field) => {
                let order = u32::try_from(field.read(data)?).ok()?;
                PageRange::of(first, 1u64.checked_shl(order)?)
            }
            Extent::LastIndex(field) => {
                // An empty read requests last = first - 1.
                let end = field.read(data)?.wrapping_add(1);
                PageRange::of(first, end.checked_sub(first)?.max(1))
            }
            Extent::Count(field) => {
                // What failed is reported as none.
                let count = Some(field.read(data)?).filter(|count| *count > 0)?;
                PageRange { first, end: first.checked_add(count)? }
            }
            Extent::BlockBytes(field) => {
                // The event calls it sector and stores `b_blocknr`, in units
                // of `b_size` (include/trace/events/block.h).
                let bytes = field.read(data)?.max(1);
                let start = first.checked_mul(bytes)?;
                let end = start.checked_add(bytes)?;
                ByteRange { offset: start, end }.pages(page_size)
            }
        };
        if pages.end > MAX_FILE_BYTES / page_size {
            return None;
        }
        Some(Event {
            time,
            tid: self.tid.read(data)? as u32 as i32,
            kind: self.kind,
            id: InodeId {
                dev: Dev(self.dev.read(data)? as u32),
                ino: self.ino.as_ref().map_or(Some(0), |f| f.read(data))?,
            },
            pages,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub const HEADER: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
        \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
        \tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n";

    /// The `format` of an event whose own fields are these, from byte 8 on.
    pub fn format(id: u16, name: &str, fields: &[(&str, usize)]) -> String {
        let mut text = format!("name: {name}\nID: {id}\nformat:\n");
        let common = [("common_type", 0, 2), ("common_pid", 4, 4)];
        let mut at = 8;
        let own = fields.iter().map(|&(field, size)| {
            at += size;
            (field, at - size, size)
        });
        for (field, offset, size) in common.into_iter().chain(own) {
            text += &format!("\tfield:unsigned long {field};\toffset:{offset};\tsize:{size};\n");
        }
        text
    }

    pub fn formats() -> [String; 5] {
        let file = [("i_ino", 8), ("s_dev", 4)];
        let with = |more: &[_]| [&file[..], more].concat();
        [
            format(1, "mm_filemap_add_to_page_cache", &with(&[("index", 8), ("order", 2)])),
            format(2, "mm_filemap_get_pages", &with(&[("index", 8), ("last_index", 8)])),
            format(3, "mm_filemap_fault", &with(&[("index", 8)])),
            format(4, "block_touch_buffer", &[("dev", 4), ("sector", 8), ("size", 8)]),
            format(5, "ext4_allocate_blocks", &[("dev", 4), ("ino", 8), ("block", 8), ("len", 4)]),
        ]
    }

    /// The bytes of a record of thread 7.
    pub fn record(id: u16, fields: &[(u64, usize)]) -> Vec<u8> {
        let mut out = [&id.to_ne_bytes()[..], &[0; 2], &7u32.to_ne_bytes()].concat();
        for (value, size) in fields {
            let bytes = value.to_le_bytes();
            out.extend(&bytes[..*size]);
        }
        out
    }

    /// A page with one record at each of these times.
    pub fn page(records: &[(u64, Vec<u8>)]) -> Vec<u8> {
        let start = records.first().map_or(0, |(time, _)| *time);
        let (mut body, mut before) = (Vec::new(), start);
        for (time, data) in records {
            body.extend((((time - before) as u32) << 5).to_le_bytes());
            body.extend((data.len() as u32 + 4).to_le_bytes());
            body.extend(data);
            body.resize(body.len().next_multiple_of(4), 0);
            before = *time;
        }
        [&start.to_ne_bytes()[..], &(body.len() as u64).to_ne_bytes(), &body].concat()
    }

    fn decode(page: &[u8]) -> (Vec<Event>, Tally) {
        let formats = formats();
        let decoder = Decoder::new(HEADER, formats.iter().map(String::as_str), 4096).unwrap();
        let (mut events, mut tally) = (Vec::new(), Tally::default());
        decoder.page(page, &mut tally, |event| events.push(event));
        (events, tally)
    }

    const LAST: u64 = (i64::MAX as u64 >> 12) - 1;
    const DEV: (u64, usize) = (8 << 20 | 1, 4);

    #[test]
    fn each_event_covers_the_pages_that_it_names() {
        let insert = |index, order| record(1, &[(42, 8), DEV, (index, 8), (order, 2)]);
        let read = |index, last| record(2, &[(42, 8), DEV, (index, 8), (last, 8)]);
        let fault = |index| record(3, &[(42, 8), DEV, (index, 8)]);
        let touch = |sector, size| record(4, &[DEV, (sector, 8), (size, 8)]);
        let allocation = |block, len| record(5, &[DEV, (42, 8), (block, 8), (len, 4)]);
        for (name, data, expected) in [
            ("one page", insert(5, 0), Some((EventKind::Insert, 5, 1))),
            ("a folio", insert(512, 9), Some((EventKind::Insert, 512, 512))),
            (
                "to the last page there is",
                insert(LAST - 7, 3),
                Some((EventKind::Insert, LAST - 7, 8)),
            ),
            ("beyond it", insert(LAST - 6, 3), None),
            ("of no size", insert(0, 64), None),
            ("a read", read(3, 10), Some((EventKind::Read, 3, 8))),
            ("a read of nothing", read(3, 2), Some((EventKind::Read, 3, 1))),
            ("a read of nothing at 0", read(0, u64::MAX), Some((EventKind::Read, 0, 1))),
            ("a read backwards", read(3, 1), None),
            ("a read without end", read(3, u64::MAX - 1), None),
            ("a fault", fault(LAST), Some((EventKind::Fault, LAST, 1))),
            ("a fault beyond the end", fault(u64::MAX), None),
            ("a block of half a page", touch(7, 2048), Some((EventKind::Metadata, 3, 1))),
            ("a block of a page", touch(7, 4096), Some((EventKind::Metadata, 7, 1))),
            ("a block of two pages", touch(7, 8192), Some((EventKind::Metadata, 14, 2))),
            ("beyond all disks", touch(u64::MAX / 4096, 4096), None),
            ("blocks", allocation(7, 3), Some((EventKind::Allocation, 7, 3))),
            ("the last block", allocation(LAST, 1), Some((EventKind::Allocation, LAST, 1))),
            ("blocks beyond the end", allocation(LAST, 2), None),
            ("more blocks than there are", allocation(u64::MAX, 1), None),
            ("an allocation that failed", allocation(0, 0), None),
            ("cut off", fault(1)[..20].to_vec(), None),
            ("another event", record(9, &[(0, 8); 4]), None),
        ] {
            let (events, tally) = decode(&page(&[(100, data)]));
            let got = events.first().map(|e| (e.kind, e.pages.first, e.pages.count()));
            assert_eq!(got, expected, "{name}");
            let (known, foreign) = (u64::from(got.is_some()), u64::from(got.is_none()));
            assert_eq!((tally.events, tally.foreign), (known, foreign), "{name}");
            if let Some(event) = events.first() {
                let of_device = matches!(event.kind, EventKind::Metadata | EventKind::Allocation);
                let ino = if of_device { 0 } else { 42 };
                assert_eq!((event.time, event.tid), (100, 7), "{name}");
                assert_eq!(event.id, InodeId { dev: Dev::new(8, 1), ino }, "{name}");
            }
        }
    }

    #[test]
    fn only_of_allocations_other_fields_are_no_error() {
        let decoder = |id, name: &str| {
            let other = format(id, name, &[("other", 8)]);
            let formats = formats();
            let known =
                formats.iter().filter(|format| !format.contains(&format!("name: {name}\n")));
            Decoder::new(HEADER, known.chain([&other]).map(String::as_str), 4096)
        };
        let found = decoder(5, "ext4_allocate_blocks").unwrap();
        assert!(found.knows(EventKind::Metadata) && !found.knows(EventKind::Allocation));
        assert!(decoder(4, "block_touch_buffer").is_err());
    }

    #[test]
    fn a_kernel_that_tells_no_order_brings_in_one_page_a_time() {
        let fields = [("i_ino", 8), ("s_dev", 4), ("index", 8)];
        let old = format(1, "mm_filemap_add_to_page_cache", &fields);
        let decoder = Decoder::new(HEADER, [&old[..]], 4096).unwrap();
        let page = page(&[(1, record(1, &[(42, 8), DEV, (9, 8)]))]);
        let mut pages = Vec::new();
        decoder
            .page(&page, &mut Tally::default(), |e| pages.push((e.pages.first, e.pages.count())));
        assert_eq!(pages, [(9, 1)]);
        assert!(decoder.knows(EventKind::Insert) && !decoder.knows(EventKind::Read));
    }

    #[test]
    fn a_description_without_a_needed_field_is_refused() {
        let no_index = format(3, "mm_filemap_fault", &[("i_ino", 8), ("s_dev", 4)]);
        for (formats, missing) in
            [(vec![], "common_type"), (vec![no_index.as_str()], "index"), (vec!["name: x"], "ID")]
        {
            assert_eq!(
                Decoder::new(HEADER, formats, 4096).unwrap_err(),
                FormatError::Missing(missing)
            );
        }
    }

    proptest! {
        #[test]
        fn any_fields_give_pages_of_a_possible_file(
            fields in proptest::collection::vec(any::<u64>(), 4), id in 1u16..6, size in 0usize..9,
        ) {
            let fields: Vec<_> = fields.into_iter().map(|value| (value, size.min(8))).collect();
            for event in decode(&page(&[(1, record(id, &fields))])).0 {
                prop_assert!(!event.pages.is_empty());
                prop_assert!(event.pages.end <= LAST + 1);
            }
        }
    }
}

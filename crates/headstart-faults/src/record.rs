//! Decodes the records of a perf ring buffer (`include/uapi/linux/perf_event.h`). Pairs nothing.
//!
//! Each sample begins with the number of its event; all other records end with process, thread,
//! time and that number (`sample_id_all`).

use crate::points::{Fields as PointFields, Point};
use crate::waits::Operation;
use headstart::host::id::{Dev, InodeId};
use std::collections::{BTreeMap, HashMap};

/// What an event reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The start of a fault.
    Begin,
    /// The end of one without I/O.
    MinorEnd,
    /// The end of one with I/O.
    MajorEnd,
    /// A tracepoint.
    Point(Point),
}

/// How records look.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Layout {
    /// What the events are, by their numbers.
    pub events: HashMap<u64, Event>,
    /// Whether samples of starts end with the size of the page that is mapped.
    pub begins_have_pages: bool,
    /// Whether those of ends do.
    pub ends_have_pages: bool,
    /// The fields of tracepoints.
    pub points: BTreeMap<Point, PointFields>,
    /// The size of a page, in bytes.
    pub page: u64,
}

/// A record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// In ns of the monotonic clock.
    pub time: u64,
    /// The process that it is about.
    pub pid: i32,
    /// The thread.
    pub tid: i32,
    /// What happened.
    pub what: What<'a>,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What<'a> {
    /// A fault begins.
    Begin {
        /// The instruction.
        ip: u64,
        /// The address that is accessed.
        address: u64,
        /// The size of the page that the page table maps there, 0 if none; `None` where the
        /// kernel does not report that.
        page: Option<u64>,
    },
    /// The thread's fault has been served.
    End {
        /// Whether it needed I/O.
        is_major: bool,
        /// The size of the page that is mapped now, if that is recorded.
        page: Option<u64>,
    },
    /// A mapping is new or changed.
    Map(Mapped<'a>),
    /// The thread has this name.
    Name {
        /// Without its NUL.
        name: &'a [u8],
        /// Whether execve(2) gave it.
        by_exec: bool,
    },
    /// It was started by this process.
    Start {
        /// The process that started it; the same for a thread.
        parent: i32,
        /// The thread of it.
        parent_tid: i32,
    },
    /// It has ended.
    Exit,
    /// From now on records of a CPU are lost; [`crate::merge`] adds this before [`What::Lost`].
    Loses,
    /// So many records were lost before.
    Lost(u64),
    /// A system call begins.
    Enter {
        /// Its number.
        call: u32,
        /// Whether that is one of 32-bit programs.
        is_32_bit: bool,
        /// Its arguments.
        arguments: [u64; 6],
    },
    /// It returns.
    Return {
        /// Its result; negative for an error.
        value: i64,
    },
    /// A CPU goes from one thread, of any program, to another. 0 is none.
    Switch {
        /// Who ran.
        previous: i32,
        /// Why it does not go on.
        left: Left,
        /// Who runs now.
        next: i32,
        /// The name of that one.
        name: &'a [u8],
        /// The CPU, by its place among the rings.
        cpu: usize,
    },
    /// What a thread, of any program, has waited for is there.
    Waking {
        /// The thread.
        tid: i32,
        /// Whether an interrupt came in between, as that of a device or a timer: the thread that ran
        /// has nothing to do with it.
        by_interrupt: bool,
    },
    /// A request is given to a block device.
    Issue {
        /// The disk.
        device: Dev,
        /// The first sector, of 512 bytes.
        sector: u64,
        /// Bytes.
        bytes: u64,
        /// What it does.
        operation: Operation,
        /// Whether it is readahead.
        is_readahead: bool,
    },
    /// It is done.
    Complete {
        /// The disk.
        device: Dev,
        /// The first sector.
        sector: u64,
    },
    /// The thread reads pages of a file.
    Pages {
        /// The file.
        file: InodeId,
        /// The first of them, in bytes.
        offset: u64,
    },
}

/// Why a thread left its CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// Another one runs first.
    Runnable,
    /// It waits.
    Waits,
    /// It was stopped, by a signal or a debugger.
    Stopped,
    /// It has ended.
    Ended,
}

impl What<'_> {
    /// The event of a sample.
    pub fn event(&self) -> Option<Event> {
        match self {
            Self::Begin { .. } => Some(Event::Begin),
            Self::End { is_major: false, .. } => Some(Event::MinorEnd),
            Self::End { is_major: true, .. } => Some(Event::MajorEnd),
            _ => None,
        }
    }
}

/// A mapping, as the kernel reports it (`PERF_RECORD_MMAP2`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapped<'a> {
    /// Where it begins.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// In the file, in bytes.
    pub offset: u64,
    /// `PROT_*`
    pub protection: u32,
    /// `MAP_*`
    pub flags: u32,
    /// The file's inode on the device of its super block; zeros for memory.
    pub file: InodeId,
    /// The path, or what it is: `//anon`, `[heap]`, `[stack]`, `[vdso]`.
    pub name: &'a [u8],
}

/// Kinds of records, `PERF_RECORD_*`; those from 64 on are written by perf(1) only.
#[allow(missing_docs)] // include/uapi/linux/perf_event.h says what each is.
pub mod kind {
    pub const MMAP: u32 = 1;
    pub const LOST: u32 = 2;
    pub const COMM: u32 = 3;
    pub const EXIT: u32 = 4;
    pub const FORK: u32 = 7;
    pub const SAMPLE: u32 = 9;
    pub const MMAP2: u32 = 10;
    pub const LOST_SAMPLES: u32 = 13;
    pub const AUXTRACE: u32 = 71;
    pub const COMPRESSED: u32 = 81;
    pub const COMPRESSED2: u32 = 83;
}

/// Bytes of the header of a record.
pub const HEADER: usize = 8;
/// `PERF_RECORD_MISC_COMM_EXEC`, and of mappings `PERF_RECORD_MISC_MMAP_DATA`
const BY_EXEC: u16 = 1 << 13;
/// `PERF_RECORD_MISC_MMAP_BUILD_ID`: that stands where device and inode do else.
const BUILD_ID: u16 = 1 << 14;
/// Protection and flags of mappings in old records, which tell code from data only.
const CODE: u32 = 5;
const DATA: u32 = 3;
const PRIVATE: u32 = 2;
/// Process and thread, time, number of the event.
const TRAILER: usize = 24;

/// The records of a CPU, in its order.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    layout: &'a Layout,
    /// Records of other kinds, or that are too short for theirs.
    pub skipped: u64,
    /// Bytes at the end that are no record: they count as one that was skipped.
    pub damaged: usize,
}

impl<'a> Records<'a> {
    /// Those in these bytes.
    pub fn new(bytes: &'a [u8], layout: &'a Layout) -> Self {
        Self { rest: bytes, layout, skipped: 0, damaged: 0 }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        while !self.rest.is_empty() {
            let Some((kind, misc, body, rest)) = split(self.rest) else {
                self.damaged = self.rest.len();
                self.skipped += 1;
                self.rest = &[];
                break;
            };
            self.rest = rest;
            match decode(kind, misc, body, self.layout) {
                Some(record) => return Some(record),
                None => self.skipped += 1,
            }
        }
        None
    }
}

/// Kind, flags and body of the first record, and what follows it; `None` if it is cut off.
pub fn split(bytes: &[u8]) -> Option<(u32, u16, &[u8], &[u8])> {
    let mut header = Fields(bytes);
    let kind = header.u32()?;
    let both = header.u32()?.to_ne_bytes();
    let misc = u16::from_ne_bytes([both[0], both[1]]);
    let size = usize::from(u16::from_ne_bytes([both[2], both[3]]));
    let body = bytes.get(HEADER..size)?;
    Some((kind, misc, body, &bytes[size..]))
}

fn decode<'a>(kind: u32, misc: u16, body: &'a [u8], layout: &Layout) -> Option<Record<'a>> {
    if kind == kind::SAMPLE {
        return sample(body, layout);
    }
    let (body, trailer) = body.split_at(body.len().checked_sub(TRAILER)?);
    let mut trailer = Fields(trailer);
    let (pid, tid) = (trailer.i32()?, trailer.i32()?);
    let time = trailer.u64()?;
    match of_kernel(kind, misc, body)? {
        (_, _, what @ What::Lost(_)) => Some(Record { time, pid, tid, what }),
        (pid, tid, what) => Some(Record { time, pid, tid, what }),
    }
}

/// What a record of a mapping, a name, a start, an end or a loss says without its trailer, and of which
/// process and thread, 0 for a loss; `None` for another kind, or one that is too short.
pub fn of_kernel(kind: u32, misc: u16, body: &[u8]) -> Option<(i32, i32, What<'_>)> {
    let mut fields = Fields(body);
    Some(match kind {
        kind::LOST => {
            let _event = fields.u64()?;
            (0, 0, What::Lost(fields.u64()?))
        }
        kind::LOST_SAMPLES => (0, 0, What::Lost(fields.u64()?)),
        kind::COMM => {
            let (pid, tid) = (fields.i32()?, fields.i32()?);
            let by_exec = misc & BY_EXEC != 0;
            (pid, tid, What::Name { name: text(fields.0), by_exec })
        }
        kind::EXIT | kind::FORK => {
            let (pid, parent, tid) = (fields.i32()?, fields.i32()?, fields.i32()?);
            let start = What::Start { parent, parent_tid: fields.i32()? };
            (pid, tid, if kind == kind::FORK { start } else { What::Exit })
        }
        kind::MMAP | kind::MMAP2 => {
            let (pid, tid) = (fields.i32()?, fields.i32()?);
            let (start, length, offset) = (fields.u64()?, fields.u64()?, fields.u64()?);
            let mut file = InodeId { dev: Dev(0), ino: 0 };
            let mut protection = if misc & BY_EXEC == 0 { CODE } else { DATA };
            let mut flags = PRIVATE;
            if kind == kind::MMAP2 {
                let (major, minor, ino) = (fields.u32()?, fields.u32()?, fields.u64()?);
                let _generation = fields.u64()?;
                if misc & BUILD_ID == 0 {
                    file = InodeId { dev: Dev::new(major, minor), ino };
                }
                (protection, flags) = (fields.u32()?, fields.u32()?);
            }
            let name = text(fields.0);
            let mapped = Mapped { start, length, offset, protection, flags, file, name };
            (pid, tid, What::Map(mapped))
        }
        _ => return None,
    })
}

fn sample<'a>(body: &'a [u8], layout: &Layout) -> Option<Record<'a>> {
    let mut fields = Fields(body);
    let event = *layout.events.get(&fields.u64()?)?;
    if let Event::Point(point) = event {
        return of_point(point, fields, layout);
    }
    let ip = if event == Event::Begin { fields.u64()? } else { 0 };
    let (pid, tid, time) = (fields.i32()?, fields.i32()?, fields.u64()?);
    let address = if event == Event::Begin { fields.u64()? } else { 0 };
    let has_page =
        if event == Event::Begin { layout.begins_have_pages } else { layout.ends_have_pages };
    let page = if has_page { Some(fields.u64()?) } else { None };
    let what = match event {
        Event::Begin => What::Begin { ip, address, page },
        Event::MinorEnd => What::End { is_major: false, page },
        Event::MajorEnd => What::End { is_major: true, page },
        Event::Point(_) => return None,
    };
    Some(Record { time, pid, tid, what })
}

/// `PERF_SAMPLE_REGS_ABI_32`
const IS_32_BIT: u64 = 1;

fn of_point<'a>(point: Point, mut fields: Fields<'a>, layout: &Layout) -> Option<Record<'a>> {
    let (pid, tid, time) = (fields.i32()?, fields.i32()?, fields.u64()?);
    let size = fields.u32()?;
    let (raw, rest) = fields.0.split_at_checked(usize::try_from(size).ok()?)?;
    let abi = if point == Point::Enter { Fields(rest).u64()? } else { 0 };
    let what = layout.points.get(&point)?.decode(raw, abi == IS_32_BIT, layout.page)?;
    Some(Record { time, pid, tid, what })
}

/// A text up to its first NUL.
fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Numbers, one after another.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }
    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }
    fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_ne_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_ne_bytes)
    }
}

#[cfg(test)]
#[path = "record_made.rs"]
pub(crate) mod made;

#[cfg(test)]
mod tests {
    use super::made::{bytes, layout};
    use super::*;
    use proptest::prelude::*;

    fn mapped(name: &[u8]) -> What<'_> {
        What::Map(Mapped {
            start: 0x7000,
            length: 0x2000,
            offset: 0x1000,
            protection: 5,
            flags: 2,
            file: InodeId { dev: Dev::new(8, 17), ino: 1 << 40 },
            name,
        })
    }

    #[test]
    fn each_kind_of_record_comes_back_as_it_was_written() {
        for what in [
            What::Begin { ip: 1, address: 2, page: Some(4096) },
            What::End { is_major: false, page: Some(0) },
            What::End { is_major: true, page: Some(2 << 20) },
            mapped(b"/usr/lib/a.so"),
            mapped(b""),
            What::Name { name: b"program", by_exec: true },
            What::Name { name: b"a thread", by_exec: false },
            What::Start { parent: 3, parent_tid: 4 },
            What::Exit,
            What::Lost(77),
        ] {
            let record = Record { time: 9, pid: 7, tid: 8, what };
            let written = [bytes(&record), bytes(&record)].concat();
            let layout = layout();
            let mut records = Records::new(&written, &layout);
            assert_eq!(records.by_ref().collect::<Vec<_>>(), [record, record]);
            assert_eq!((records.skipped, records.damaged), (0, 0));
        }
    }

    #[test]
    fn records_of_other_events_are_skipped_and_counted_and_what_is_cut_ends_it() {
        let (record, layout) = (Record { time: 9, pid: 7, tid: 8, what: What::Exit }, layout());
        let mut foreign =
            bytes(&Record { what: What::End { is_major: false, page: None }, ..record });
        foreign[HEADER] = 9;
        let throttled = [5u32.to_ne_bytes(), [0, 0, 8, 0]].concat();
        let whole = [foreign, throttled, bytes(&record), bytes(&record)[..20].to_vec()].concat();
        let mut records = Records::new(&whole, &layout);
        assert_eq!(records.by_ref().collect::<Vec<_>>(), [record]);
        assert_eq!((records.skipped, records.damaged), (3, 20));
        let mut empty = Records::new(&[0; 16], &layout);
        assert_eq!((empty.next(), empty.damaged), (None, 16));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic_and_each_record_takes_some(
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
            kind in 0u8..12, size in 0u8..100,
        ) {
            let mut bytes = bytes;
            for (at, byte) in [kind, 0, 0, 0, 0, 0, size, 0].into_iter().enumerate() {
                if let Some(place) = bytes.get_mut(at) { *place = byte; }
            }
            let layout = layout();
            let mut records = Records::new(&bytes, &layout);
            let count = records.by_ref().count() + records.skipped as usize;
            let whole = count - usize::from(records.damaged > 0);
            prop_assert!(whole * HEADER + records.damaged <= bytes.len());
        }
    }
}

//! Decodes what tracepoints report, by the kernel's description of their fields, never by fixed
//! offsets. Opens none.

use crate::record::{Left, What};
use crate::waits::Operation;
use headstart::host::id::{Dev, InodeId};
use headstart::trace::format::{EventFormat, Field};

/// A tracepoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Point {
    /// A system call begins.
    Enter,
    /// It returns.
    Return,
    /// A CPU goes from one thread to another.
    Switch,
    /// A thread is about to be able to run.
    Waking,
    /// A request is given to a device.
    Issue,
    /// It is done.
    Complete,
    /// Pages of a file were found in the page cache, or read, for read(2).
    Pages,
    /// A page comes into the page cache: what stands in for [`Point::Pages`] before Linux 6.13.
    Added,
}

impl Point {
    /// Group and name in tracefs.
    pub fn name(self) -> (&'static str, &'static str) {
        match self {
            Self::Enter => ("raw_syscalls", "sys_enter"),
            Self::Return => ("raw_syscalls", "sys_exit"),
            Self::Switch => ("sched", "sched_switch"),
            Self::Waking => ("sched", "sched_waking"),
            Self::Issue => ("block", "block_rq_issue"),
            Self::Complete => ("block", "block_rq_complete"),
            Self::Pages => ("filemap", "mm_filemap_get_pages"),
            Self::Added => ("filemap", "mm_filemap_add_to_page_cache"),
        }
    }

    /// Whether it is recorded of all threads of the machine: it is reported in a thread that need not
    /// be the one that it is about.
    pub fn of_all_threads(self) -> bool {
        matches!(self, Self::Switch | Self::Waking | Self::Issue | Self::Complete)
    }

    /// The fields that are read.
    fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Enter => &["id", "args"],
            Self::Return => &["id", "ret"],
            Self::Switch => &["prev_pid", "prev_state", "next_pid", "next_comm"],
            Self::Waking => &["pid", "common_flags"],
            Self::Issue => &["dev", "sector", "bytes", "rwbs"],
            Self::Complete => &["dev", "sector"],
            Self::Pages => &["s_dev", "i_ino", "index"],
            Self::Added => &["s_dev", "i_ino", "index"],
        }
    }
}

/// The places of a tracepoint's fields, in the order of its names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fields {
    point: Point,
    at: Vec<Field>,
}

/// Why a thread leaves, by `prev_state` (`TASK_REPORT` of `include/linux/sched.h`): higher bits are those
/// of one that could go on.
fn left(state: u64) -> Left {
    const STOPPED: u64 = 0x0c;
    const ENDED: u64 = 0x30;
    match state & 0xff {
        0 => Left::Runnable,
        state if state & ENDED != 0 => Left::Ended,
        state if state & STOPPED != 0 => Left::Stopped,
        _ => Left::Waits,
    }
}

/// `TRACE_FLAG_HARDIRQ` and `TRACE_FLAG_SOFTIRQ` (`include/linux/trace_events.h`).
const IN_INTERRUPT: u64 = 0x08 | 0x10;

impl Fields {
    /// Those of a point in its description; `Err` with the name of one that is missing or has a size
    /// that is none of a number.
    ///
    /// # Errors
    /// The name of that field.
    pub fn new(point: Point, format: &EventFormat) -> Result<Self, &'static str> {
        let find = |name: &&'static str| {
            let field = format.field(name).ok_or(*name)?;
            let is_text = ["args", "rwbs", "next_comm"].contains(name);
            let is_sound = is_text || matches!(field.size, 1 | 2 | 4 | 8);
            if is_sound { Ok(field.clone()) } else { Err(*name) }
        };
        let at = point.fields().iter().map(find).collect::<Result<_, _>>()?;
        Ok(Self { point, at })
    }

    /// Which point it is.
    pub fn point(&self) -> Point {
        self.point
    }

    /// What a record says; `page` is the size of a page, `is_32_bit` whether user space is so.
    pub fn decode<'a>(&self, record: &'a [u8], is_32_bit: bool, page: u64) -> Option<What<'a>> {
        let number = |at: usize| self.at.get(at)?.read(record);
        let bytes = |at: usize| {
            let field = self.at.get(at)?;
            record.get(field.offset..field.offset.checked_add(field.size)?)
        };
        let tid = |at: usize| Some(number(at)? as i32);
        let file = || {
            let dev = Dev(u32::try_from(number(0)?).ok()?);
            Some(InodeId { dev, ino: number(1)? })
        };
        Some(match self.point {
            Point::Enter => {
                let mut arguments = [0; 6];
                let (words, _) = bytes(1)?.as_chunks::<{ size_of::<usize>() }>();
                for (argument, word) in arguments.iter_mut().zip(words) {
                    *argument = usize::from_ne_bytes(*word) as u64;
                }
                // Not a call at all (-1), as where a debugger has skipped it.
                What::Enter { call: u32::try_from(number(0)?).ok()?, is_32_bit, arguments }
            }
            Point::Return => {
                let result = self.at.get(1)?;
                let value = number(1)?;
                let value =
                    if result.size == 4 { i64::from(value as i32) } else { value.cast_signed() };
                What::Return { value }
            }
            Point::Switch => {
                let name = bytes(3)?;
                let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
                What::Switch {
                    previous: tid(0)?,
                    left: left(number(1)?),
                    next: tid(2)?,
                    name: name.get(..length)?,
                    cpu: 0,
                }
            }
            Point::Waking => {
                What::Waking { tid: tid(0)?, by_interrupt: number(1)? & IN_INTERRUPT != 0 }
            }
            Point::Issue => {
                let flags = bytes(3)?;
                let flags = flags.split(|byte| *byte == 0).next().unwrap_or_default();
                What::Issue {
                    device: Dev(u32::try_from(number(0)?).ok()?),
                    sector: number(1)?,
                    bytes: number(2)?,
                    operation: operation(flags),
                    is_readahead: flags.get(1..).is_some_and(|flags| flags.contains(&b'A')),
                }
            }
            Point::Complete => {
                What::Complete { device: Dev(u32::try_from(number(0)?).ok()?), sector: number(1)? }
            }
            Point::Pages | Point::Added => {
                What::Pages { file: file()?, offset: number(2)?.saturating_mul(page) }
            }
        })
    }
}

/// What a request does, from its flags (`blk_fill_rwbs` of `kernel/trace/blktrace.c`).
fn operation(flags: &[u8]) -> Operation {
    // A flush before the operation comes first.
    let flags = flags.strip_prefix(b"F").filter(|rest| !rest.is_empty()).unwrap_or(flags);
    match flags.first() {
        Some(b'R') => Operation::Read,
        Some(b'W') => Operation::Write,
        _ => Operation::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart::trace::format::parse_event;
    use proptest::prelude::*;

    /// The description of a point, from name, offset and size of its fields.
    fn format(fields: &[(&str, usize, usize)]) -> EventFormat {
        let lines: String = fields
            .iter()
            .map(|(name, at, size)| format!("\tfield:x {name};\toffset:{at};\tsize:{size};\n"))
            .collect();
        parse_event(&format!("name: x\nID: 7\nformat:\n{lines}")).unwrap()
    }

    fn switch() -> Fields {
        let fields = [
            ("prev_pid", 24, 4),
            ("prev_state", 32, 8),
            ("next_comm[16]", 40, 16),
            ("next_pid", 56, 4),
        ];
        Fields::new(Point::Switch, &format(&fields)).unwrap()
    }

    #[test]
    fn a_thread_that_is_preempted_does_not_wait_and_one_that_ended_is_known() {
        let fields = switch();
        for (state, left) in [
            (0u64, Left::Runnable),
            (0x100, Left::Runnable),
            (1, Left::Waits),
            (2, Left::Waits),
            (0x80, Left::Waits),
            (4, Left::Stopped),
            (0x10, Left::Ended),
        ] {
            let mut record = [0; 64];
            record[24..28].copy_from_slice(&7i32.to_ne_bytes());
            record[32..40].copy_from_slice(&state.to_ne_bytes());
            record[40..44].copy_from_slice(b"cat\0");
            record[56..60].copy_from_slice(&8i32.to_ne_bytes());
            let expected = What::Switch { previous: 7, left, next: 8, name: b"cat", cpu: 0 };
            assert_eq!(fields.decode(&record, false, 4096), Some(expected), "{state:#x}");
        }
    }

    #[test]
    fn a_call_has_its_arguments_and_one_that_is_none_is_nothing() {
        let fields = Fields::new(Point::Enter, &format(&[("id", 8, 8), ("args[6]", 16, 48)]));
        let record = |id: i64| {
            let mut record = vec![0; 8];
            record.extend(id.to_ne_bytes());
            (1u64..7).for_each(|argument| record.extend(argument.to_ne_bytes()));
            record
        };
        let fields = fields.unwrap();
        let expected = What::Enter { call: 3, is_32_bit: true, arguments: [1, 2, 3, 4, 5, 6] };
        assert_eq!(fields.decode(&record(3), true, 4096), Some(expected));
        assert_eq!(fields.decode(&record(-1), false, 4096), None);
        assert_eq!(fields.decode(&record(3)[..20], false, 4096), None);
    }

    #[test]
    fn a_thread_is_woken_by_an_interrupt_or_by_what_runs() {
        let fields = [("common_flags", 2, 1), ("pid", 24, 4)];
        let fields = Fields::new(Point::Waking, &format(&fields)).unwrap();
        for (flags, by_interrupt) in [(0u8, false), (1, false), (8, true), (0x11, true)] {
            let mut record = [0; 28];
            (record[2], record[24]) = (flags, 7);
            let expected = What::Waking { tid: 7, by_interrupt };
            assert_eq!(fields.decode(&record, false, 4096), Some(expected), "{flags:#x}");
        }
    }

    #[test]
    fn a_request_does_what_its_flags_say() {
        for (flags, expected, is_readahead) in [
            (&b"R"[..], Operation::Read, false),
            (b"RA", Operation::Read, true),
            (b"RAM", Operation::Read, true),
            (b"WS", Operation::Write, false),
            (b"FWFSM", Operation::Write, false),
            (b"FF", Operation::Other, false),
            (b"F", Operation::Other, false),
            (b"D", Operation::Other, false),
            (b"", Operation::Other, false),
        ] {
            let names = [("dev", 0, 4), ("sector", 8, 8), ("bytes", 16, 4), ("rwbs[8]", 20, 8)];
            let fields = Fields::new(Point::Issue, &format(&names)).unwrap();
            let mut record = vec![0; 28];
            record[..4].copy_from_slice(&Dev::new(8, 1).0.to_ne_bytes());
            record[8] = 64;
            record[17] = 16;
            record[20..20 + flags.len()].copy_from_slice(flags);
            let device = Dev::new(8, 1);
            let what =
                What::Issue { device, sector: 64, bytes: 4096, operation: expected, is_readahead };
            assert_eq!(fields.decode(&record, false, 4096), Some(what), "{flags:?}");
        }
    }

    #[test]
    fn a_page_has_its_place_in_bytes_and_none_is_behind_all_files() {
        let names = [("s_dev", 0, 4), ("i_ino", 4, 8), ("index", 12, 8)];
        let fields = Fields::new(Point::Pages, &format(&names)).unwrap();
        for (index, expected) in [(3u64, 3 << 16), (u64::MAX, u64::MAX)] {
            let record = [&[1, 0, 0, 8][..], &7u64.to_ne_bytes(), &index.to_ne_bytes()].concat();
            let what = fields.decode(&record, false, 1 << 16);
            assert!(matches!(what, Some(What::Pages { offset, .. }) if offset == expected));
        }
    }

    #[test]
    fn a_description_without_a_field_is_refused_with_its_name() {
        let missing = Fields::new(Point::Complete, &format(&[("dev", 8, 4)]));
        assert_eq!(missing, Err("sector"));
        let odd = Fields::new(Point::Waking, &format(&[("pid", 8, 3)]));
        assert_eq!(odd, Err("pid"));
        let missing = Fields::new(Point::Waking, &format(&[("pid", 8, 4)]));
        assert_eq!(missing, Err("common_flags"));
    }

    proptest! {
        #[test]
        fn no_description_and_no_bytes_make_the_decoder_panic(
            at in proptest::collection::vec((0usize..200, 0usize..70), 4),
            record in proptest::collection::vec(any::<u8>(), 0..100),
            which in 0usize..8,
        ) {
            let point = [Point::Enter, Point::Return, Point::Switch, Point::Waking, Point::Issue,
                         Point::Complete, Point::Pages, Point::Added][which];
            let fields: Vec<_> = point.fields().iter().zip(&at)
                .map(|(name, (offset, size))| (*name, *offset, *size)).collect();
            if let Ok(fields) = Fields::new(point, &format(&fields)) {
                let _ = fields.decode(&record, false, 65536);
            }
        }
    }
}

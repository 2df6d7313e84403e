//! A recording as CSV (RFC 4180, but lines end as those of Unix): a row for each fault, by the time of
//! its start. Writes no file.

use crate::recording::{Cause, End, Fault, Object, Recording};
use crate::tables::{Place, SectionsOf, place};
use headstart::host::names::csv_field;
use std::fmt::Write;

/// The first line. Times are in ns, addresses and offsets hexadecimal.
pub const HEADER: &str = "time_ns,pid,tid,comm,ip,address,file,offset,permissions,section,kind,\
                          cause,huge,latency_ns\n";

/// What memory is called that is no file.
pub fn memory(object: Object) -> &'static str {
    match object {
        Object::Heap => "[heap]",
        Object::Stack => "[stack]",
        _ => "[anonymous]",
    }
}

/// A kind of end.
pub(crate) fn kind(end: End) -> &'static str {
    match end {
        End::Minor => "minor",
        End::Major => "major",
        End::None => "unended",
        End::Lost => "end-lost",
    }
}

/// A cause; empty where it is not known.
pub(crate) fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::NotMapped => "not-mapped",
        Cause::Copy => "copy",
        Cause::ZeroPage => "zero-page",
        Cause::MakeWritable => "make-writable",
        Cause::Other => "other",
        Cause::Unknown => "",
    }
}

/// The row of a fault. Times are from `start` on.
pub fn row(
    out: &mut String,
    recording: &Recording,
    sections: &SectionsOf,
    start: u64,
    fault: &Fault,
) {
    let (place, offset) = place(recording, sections, fault);
    let (file, section) = match &place {
        Place::File { name, section, .. } => (recording.name(*name), &**section),
        Place::Memory(object) => (memory(*object).as_bytes(), ""),
        Place::Special(name) => (recording.name(*name), ""),
        Place::Unknown => (&b""[..], ""),
    };
    let permissions = recording.mapping(fault.mapping).map(|mapping| mapping.permissions());
    let owner = recording.owner(fault);
    let (pid, tid) = owner.map_or((0, 0), |(thread, process)| (process.pid, thread.tid));
    let name = owner.map_or(&b""[..], |(thread, _)| recording.name(thread.name));
    let time = i128::from(fault.time) - i128::from(start);
    // Writing to a String can't fail.
    let _ = write!(out, "{time},{pid},{tid},{},", csv_field(name));
    let _ = write!(out, "{:#x},{:#x},{},", fault.ip, fault.address, csv_field(file));
    if let Some(offset) = offset {
        let _ = write!(out, "{offset:#x}");
    }
    let _ = write!(out, ",{},{},", permissions.unwrap_or_default(), csv_field(section.as_bytes()));
    let _ = write!(out, "{},{},{},", kind(fault.end), cause(fault.cause), u8::from(fault.is_huge));
    if fault.end.is_known() {
        let _ = write!(out, "{}", fault.latency);
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Mapping, Process, Thread};
    use headstart::host::id::{Dev, InodeId};

    #[test]
    fn a_row_has_all_that_is_known_of_a_fault() {
        let recording = Recording {
            mappings: vec![Mapping {
                object: Object::File,
                name: 0,
                start: 0x7000,
                offset: 0x1000,
                protection: 5,
                is_shared: false,
                file: InodeId { dev: Dev::default(), ino: 0 },
            }],
            names: vec![b"/a,\"b\n".to_vec(), b"comm".to_vec()],
            processes: vec![Process { pid: 7, name: 1 }],
            threads: vec![Thread { tid: 8, process: 0, name: 1 }],
            ..Recording::default()
        };
        let fault = Fault {
            time: 150,
            latency: 30,
            end: End::Major,
            cause: Cause::NotMapped,
            is_huge: false,
            thread: 0,
            ip: 0x40,
            address: 0x7010,
            mapping: Some(0),
            behind: None,
        };
        let unended = Fault { mapping: None, end: End::None, time: 90, ..fault };
        let lost = Fault { end: End::Lost, ..unended };
        let mut out = String::new();
        for fault in [fault, unended, lost] {
            row(&mut out, &recording, &SectionsOf::new(), 100, &fault);
        }
        let rows = "50,7,8,comm,0x40,0x7010,\"/a,\"\"b\\012\",0x1010,r-xp,,major,not-mapped,0,30\n\
                    -10,7,8,comm,0x40,0x7010,,,,,unended,not-mapped,0,\n\
                    -10,7,8,comm,0x40,0x7010,,,,,end-lost,not-mapped,0,\n";
        assert_eq!(out, rows);
        let commas = |line: &str| line.matches(',').count();
        assert_eq!(commas(HEADER), commas(rows.lines().nth(1).unwrap()));
    }
}

//! Accesses as rows of text or CSV, also grouped: consecutive accesses of a thread to the same object
//! become one row. Formats; writes to what it is given.

use super::{Access, Kind, Object};
use crate::host::id::InodeId;
use crate::host::names::{csv_field, name};
use crate::host::range::{ByteRange, PageRange};
use crate::profile::resolve::Resolution;
use std::collections::HashMap;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How rows are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Columns for people.
    Text,
    /// CSV (RFC 4180, but lines end as those of Unix).
    Csv,
}

impl Format {
    /// The first line: how results of it begin.
    pub const fn header(self) -> &'static str {
        match self {
            Self::Text => {
                concat!(
                    "        TIME   THREAD  PROCESS      ",
                    "    HOW                         OFFSET      LENGTH  ACCESSES  FILE\n"
                )
            }
            Self::Csv => "time_ns,until_ns,tid,process,file,offset,length,bytes,accesses,how\n",
        }
    }
}

/// What rows are, and how they are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    /// Their format.
    pub format: Format,
    /// Whether consecutive accesses of a thread to the same object are one.
    pub group: bool,
}

/// A file of a start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct File {
    path: Vec<u8>,
    size: u64,
    code: Vec<PageRange>,
}

/// The names of files and processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Names<'a> {
    files: HashMap<InodeId, File>,
    /// Of threads, as far as the kernel remembers them.
    processes: &'a HashMap<i32, Vec<u8>>,
    page_size: u64,
}

impl<'a> Names<'a> {
    /// Of files that were resolved, with the pages that hold `code` of each, and of threads.
    pub fn new(
        resolved: &Resolution,
        code: impl Fn(&Path) -> Vec<PageRange>,
        processes: &'a HashMap<i32, Vec<u8>>,
        page_size: u64,
    ) -> Self {
        let file = |(id, file): &(InodeId, crate::profile::resolve::ResolvedFile)| {
            let path = file.path.as_os_str().as_bytes().to_vec();
            (*id, File { path, size: file.size, code: code(&file.path) })
        };
        Self { files: resolved.files.iter().map(file).collect(), processes, page_size }
    }

    fn object(&self, object: Object) -> Vec<u8> {
        match object {
            Object::File(id) => match self.files.get(&id) {
                Some(file) => file.path.clone(),
                None => format!("[inode {} of {}]", id.ino, id.dev).into_bytes(),
            },
            Object::Metadata(dev) => format!("[metadata of {dev}]").into_bytes(),
        }
    }

    /// The bytes of an access. Reads may reach beyond the end of a file.
    fn bytes(&self, access: &Access) -> ByteRange {
        let bytes = access.pages.bytes(self.page_size);
        match access.object {
            Object::File(id) => match self.files.get(&id) {
                // It may have been shorter when it was resolved.
                Some(file) if file.size > bytes.offset => {
                    ByteRange { end: bytes.end.min(file.size), ..bytes }
                }
                _ => bytes,
            },
            Object::Metadata(_) => bytes,
        }
    }

    fn how(&self, access: &Access) -> &'static str {
        let is_code = |id| {
            let code = self.files.get(&id).map(|file| &file.code[..]).unwrap_or_default();
            code.iter().any(|pages| !pages.within(access.pages).is_empty())
        };
        match (access.kind, access.object) {
            (Kind::Read, _) => "read",
            (Kind::Mapped, Object::File(id)) if is_code(id) => "executed",
            (Kind::Mapped, _) => "mapped",
            (Kind::Added, _) => "added",
            (Kind::Readahead, _) => "readahead",
        }
    }
}

/// What a row is of.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Row {
    time: u64,
    until: u64,
    tid: i32,
    object: Object,
    span: ByteRange,
    bytes: u64,
    accesses: u64,
    /// Each once, in the order in which they came.
    how: Vec<&'static str>,
}

/// Writes accesses, each as a row or in groups, and how many events were `lost` after them.
///
/// # Errors
/// Those of the writer.
pub fn write(
    out: &mut dyn Write,
    accesses: impl Iterator<Item = Access>,
    names: &Names,
    style: Style,
    lost: u64,
) -> io::Result<()> {
    let Style { format, group } = style;
    out.write_all(format.header().as_bytes())?;
    // By thread.
    let mut open: HashMap<i32, Row> = HashMap::new();
    for access in accesses {
        let (span, how) = (names.bytes(&access), names.how(&access));
        let row = Row {
            time: access.time,
            until: access.time,
            tid: access.tid,
            object: access.object,
            span,
            bytes: span.length(),
            accesses: 1,
            how: vec![how],
        };
        if !group {
            row.write(out, names, format)?;
            continue;
        }
        match open.get_mut(&row.tid) {
            Some(before) if before.object == row.object => before.add(row),
            Some(before) => std::mem::replace(before, row).write(out, names, format)?,
            None => {
                open.insert(row.tid, row);
            }
        }
    }
    let mut open: Vec<Row> = open.into_values().collect();
    open.sort_by_key(|row| (row.time, row.tid));
    open.iter().try_for_each(|row| row.write(out, names, format))?;
    match (lost, format) {
        (0, _) => Ok(()),
        (lost, Format::Text) => writeln!(out, "{lost} events were lost: accesses are missing"),
        (lost, Format::Csv) => writeln!(out, ",,,,,,,,{lost},lost"),
    }
}

impl Row {
    /// Adds an access of the same thread and object.
    fn add(&mut self, row: Self) {
        self.until = row.until;
        self.span.offset = self.span.offset.min(row.span.offset);
        self.span.end = self.span.end.max(row.span.end);
        self.bytes = self.bytes.saturating_add(row.bytes);
        self.accesses += row.accesses;
        for how in row.how {
            if !self.how.contains(&how) {
                self.how.push(how);
            }
        }
    }

    fn write(&self, out: &mut dyn Write, names: &Names, format: Format) -> io::Result<()> {
        let Self { time, until, tid, span, bytes, accesses, .. } = self;
        let process = names.processes.get(tid).map_or(&b""[..], Vec::as_slice);
        let (file, how) = (names.object(self.object), self.how.join("+"));
        let (offset, length) = (span.offset, span.length());
        match format {
            Format::Text => writeln!(
                out,
                "{:12.6} {tid:8}  {:15}  {how:20}  {offset:12} {length:11}  {accesses:8}  {}",
                *time as f64 / 1e9,
                name(process),
                name(&file),
            ),
            Format::Csv => writeln!(
                out,
                "{time},{until},{tid},{},{},{offset},{length},{bytes},{accesses},{how}",
                csv_field(process),
                csv_field(&file),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::id::Dev;
    use proptest::prelude::*;

    const FILE: InodeId = InodeId { dev: Dev::new(8, 1), ino: 42 };

    fn names(processes: &HashMap<i32, Vec<u8>>) -> Names<'_> {
        let file = File {
            path: b"/a,\"b\n".to_vec(),
            size: 5 * 4096 + 7,
            code: vec![PageRange::of(2, 1)],
        };
        Names { files: [(FILE, file)].into(), processes, page_size: 4096 }
    }

    fn access(time: u64, tid: i32, first: u64, pages: u64, kind: Kind) -> Access {
        let object = Object::File(FILE);
        Access { time, tid, object, pages: PageRange::of(first, pages), kind }
    }

    fn text(accesses: &[Access], format: Format, group: bool, lost: u64) -> String {
        let (mut out, processes) = (Vec::new(), [(7, b"sh\x1b".to_vec())].into());
        write(
            &mut out,
            accesses.iter().copied(),
            &names(&processes),
            Style { format, group },
            lost,
        )
        .unwrap();
        let text = String::from_utf8(out).unwrap();
        text.strip_prefix(format.header()).unwrap().to_owned()
    }

    #[test]
    fn a_row_has_who_when_what_where_and_how() {
        let other = InodeId { ino: 43, ..FILE };
        let accesses = [
            access(5, 7, 0, 2, Kind::Read),
            access(6, 8, 1, 4, Kind::Mapped),
            access(7, 8, 4, 4, Kind::Readahead),
            Access { object: Object::File(other), ..access(8, 8, 1, 1, Kind::Mapped) },
            Access { object: Object::Metadata(FILE.dev), ..access(9, 8, 1, 1, Kind::Added) },
        ];
        let expected = "5,5,7,sh\\033,\"/a,\"\"b\\012\",0,8192,8192,1,read\n\
                        6,6,8,,\"/a,\"\"b\\012\",4096,16384,16384,1,executed\n\
                        7,7,8,,\"/a,\"\"b\\012\",16384,4103,4103,1,readahead\n\
                        8,8,8,,[inode 43 of 8:1],4096,4096,4096,1,mapped\n\
                        9,9,8,,[metadata of 8:1],4096,4096,4096,1,added\n\
                        ,,,,,,,,3,lost\n";
        assert_eq!(text(&accesses, Format::Csv, false, 3), expected);
        let shown = text(&accesses[..1], Format::Text, false, 3);
        let expected = concat!(
            "    0.000000        7  sh\\033           read                             0        8192         1  /a,\"b\\012\n",
            "3 events were lost: accesses are missing\n"
        );
        assert_eq!(shown, expected);
    }

    #[test]
    fn consecutive_accesses_of_a_thread_to_a_file_are_a_group() {
        let other = Object::File(InodeId { ino: 43, ..FILE });
        let accesses = [
            access(5, 7, 3, 1, Kind::Added),
            access(6, 8, 0, 1, Kind::Mapped),
            access(7, 7, 3, 1, Kind::Read),
            access(8, 7, 1, 1, Kind::Read),
            Access { object: other, ..access(9, 7, 0, 1, Kind::Read) },
        ];
        let file = "\"/a,\"\"b\\012\"";
        let expected = format!(
            "5,8,7,sh\\033,{file},4096,12288,12288,3,added+read\n\
             6,6,8,,{file},0,4096,4096,1,mapped\n\
             9,9,7,sh\\033,[inode 43 of 8:1],0,4096,4096,1,read\n"
        );
        assert_eq!(text(&accesses, Format::Csv, true, 0), expected);
    }

    #[test]
    fn very_many_threads_take_no_longer_each_and_stay_in_the_order_of_time() {
        let threads = 100_000;
        let accesses: Vec<_> = (0..2 * threads)
            .map(|n| access(u64::from(n), (n % threads) as i32, 0, 1, Kind::Read))
            .collect();
        let text = text(&accesses, Format::Csv, true, 0);
        let tids: Vec<u32> =
            text.lines().map(|line| line.split(',').nth(2).unwrap().parse().unwrap()).collect();
        assert!(tids.iter().copied().eq(0..threads));
    }

    proptest! {
        #[test]
        fn groups_have_the_accesses_and_bytes_of_their_rows(
            accesses in proptest::collection::vec((1i32..4, 0u64..3, 0u64..9, 1u64..5), 0..50),
        ) {
            let accesses: Vec<_> = (0..)
                .zip(accesses)
                .map(|(time, (tid, ino, first, pages))| Access {
                    object: Object::File(InodeId { ino, ..FILE }),
                    ..access(time, tid, first, pages, Kind::Read)
                })
                .collect();
            let sums = |group| {
                let text = text(&accesses, Format::Csv, group, 0);
                let column = |line: &str, at| line.split(',').nth(at).unwrap().parse::<u64>().unwrap();
                [7, 8].map(|at| text.lines().map(|line| column(line, at)).sum::<u64>())
            };
            prop_assert_eq!(sums(true), sums(false));
        }
    }
}

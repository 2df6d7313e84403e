//! Where what lies in a file of trace-cmd.

use super::chunks::Chunks;
use super::description::Description;
use crate::error::ImportError;
use crate::fields::{Fields, from};
use crate::unpack::{Compression, unpack};
use std::borrow::Cow;

/// What every file begins with.
pub(super) const MAGIC: &[u8] = b"\x17\x08\x44tracing";
/// What sections may unpack to for each byte of the file, and in any case.
const MOST_TIMES: usize = 8;
const SMALL: usize = 1 << 18;
/// CPUs that a file may have; the kernel's limit is 8192.
const MOST_CPUS: u32 = 1 << 14;

/// Options of both versions.
mod option {
    pub const DONE: u16 = 0;
    pub const CPUSTAT: u16 = 2;
    pub const BUFFER: u16 = 3;
    pub const CLOCK: u16 = 4;
    pub const HEADER_INFO: u16 = 16;
    pub const FTRACE_EVENTS: u16 = 17;
    pub const EVENT_FORMATS: u16 = 18;
    pub const KALLSYMS: u16 = 19;
    pub const CMDLINES: u16 = 21;
    pub const BUFFER_TEXT: u16 = 22;
}

/// Bytes of the number of chunks of a compressed trace.
const COUNT_BYTES: usize = 4;
/// Flag of a section of version 7.
const IS_COMPRESSED: u16 = 1;

/// A file of trace-cmd.
#[derive(Debug)]
pub(super) struct TraceDat<'a> {
    pub version: u32,
    /// Its length.
    pub bytes: usize,
    /// Bytes of a page of the traced kernel.
    pub page_size: u64,
    pub description: Description,
    /// The trace of each CPU.
    pub cpus: Vec<Chunks<'a>>,
    /// Events that the kernel dropped, as its statistics say.
    pub lost: u64,
    /// Traces of instances besides the one that is read.
    pub others: u64,
    /// The clock of the trace, if that does not count ns.
    pub odd_clock: Option<String>,
    /// Where the traces of instances are, in version 6.
    instances: Vec<u64>,
}

fn damaged(part: &'static str) -> ImportError {
    ImportError::Damaged { format: "trace.dat", part }
}

impl<'a> TraceDat<'a> {
    /// Reads all but the traces.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, ImportError> {
        let mut fields = Fields(bytes);
        let (version, page_size) = begin(&mut fields)?;
        let mut out = match version {
            6 => Self::version_6(bytes, fields, page_size)?,
            7 => Self::version_7(bytes, fields, page_size)?,
            other => {
                return Err(ImportError::Unsupported(format!(
                    "The trace.dat file has version {other}; 6 and 7 can be imported"
                )));
            }
        };
        out.bytes = bytes.len();
        // Traces of CPUs don't overlap, or all of them would take more than the file.
        let most = bytes.len() + out.cpus.len() * COUNT_BYTES;
        if out.cpus.iter().map(Chunks::bytes).fold(0, usize::saturating_add) > most {
            return Err(damaged("the trace of a CPU"));
        }
        Ok(out)
    }

    fn new(version: u32, page_size: u64) -> Self {
        let description = Description::default();
        Self {
            version,
            bytes: 0,
            page_size,
            description,
            cpus: Vec::new(),
            lost: 0,
            others: 0,
            odd_clock: None,
            instances: Vec::new(),
        }
    }

    fn version_6(
        bytes: &'a [u8],
        mut fields: Fields<'a>,
        page_size: u64,
    ) -> Result<Self, ImportError> {
        let mut out = Self::new(6, page_size);
        out.description = Description::parse(&mut fields, true)?;
        let cpus = fields.u32().filter(|cpus| *cpus <= MOST_CPUS).ok_or(damaged("the CPUs"))?;
        let mut kind = fields.take(10).ok_or(damaged("the kind of trace"))?;
        if kind == b"options  \0" {
            out.options(&mut fields).ok_or(damaged("the options"))?;
            kind = fields.take(10).ok_or(damaged("the kind of trace"))?;
        }
        if kind != b"flyrecord\0" {
            return Err(text_only());
        }
        let instances = std::mem::take(&mut out.instances);
        let traces = std::iter::once(Some(fields)).chain(instances.iter().map(|at| {
            let mut fields = from(bytes, *at)?;
            fields.expect(b"flyrecord\0")?;
            Some(fields)
        }));
        // The first is that of `trace-cmd record`; it is empty if only others were recorded.
        for fields in traces {
            let cpus = fields.and_then(|mut fields| cpu_traces(bytes, &mut fields, cpus));
            let cpus = cpus.ok_or(damaged("the trace of a CPU"))?;
            if cpus.iter().all(|cpu| cpu.bytes() == 0) {
                continue;
            } else if out.cpus.is_empty() {
                out.cpus = cpus;
            } else {
                out.others += 1;
            }
        }
        Ok(out)
    }

    /// The options of version 6.
    fn options(&mut self, fields: &mut Fields) -> Option<()> {
        loop {
            let option = fields.u16()?;
            if option == option::DONE {
                return Some(());
            }
            let size = fields.u32()?;
            let data = fields.take(size.into())?;
            match option {
                option::CPUSTAT => self.lost = self.lost.saturating_add(lost(data)),
                option::BUFFER => self.instances.extend(Fields(data).u64()),
                option::CLOCK => self.odd_clock = odd_clock(data),
                _ => {}
            }
        }
    }

    fn version_7(
        bytes: &'a [u8],
        mut fields: Fields<'a>,
        page_size: u64,
    ) -> Result<Self, ImportError> {
        let name = fields.text().ok_or(damaged("the kind of compression"))?;
        let compression = match name {
            b"none" => Compression::None,
            b"zlib" => Compression::Zlib,
            b"zstd" => Compression::Zstd,
            other => {
                return Err(ImportError::Unsupported(format!(
                    "The trace.dat file is compressed with {}; none, zlib and zstd can be imported",
                    headstart::host::names::name(other)
                )));
            }
        };
        fields.text().ok_or(damaged("the kind of compression"))?;
        let mut next = fields.u64().ok_or(damaged("the options"))?;
        let mut file =
            Sections { bytes, compression, left: SMALL + bytes.len().saturating_mul(MOST_TIMES) };
        let mut out = Self::new(7, page_size);
        let mut buffers: Vec<Vec<u8>> = Vec::new();
        let mut is_text = false;
        // Each set of options tells where the next is; no file has many.
        for _ in 0..64 {
            if next == 0 {
                break;
            }
            let options = file.section(next).ok_or(damaged("the options"))?;
            let mut fields = Fields(&options);
            next = loop {
                let (option, size) =
                    fields.u16().zip(fields.u32()).ok_or(damaged("the options"))?;
                let data = fields.take(size.into()).ok_or(damaged("an option"))?;
                let place = Fields(data).u64();
                let mut part = |read: fn(&mut Description, &mut Fields) -> Option<()>, part| {
                    let section = place.and_then(|place| file.section(place));
                    section
                        .and_then(|section| read(&mut out.description, &mut Fields(&section)))
                        .ok_or(damaged(part))
                };
                match option {
                    option::DONE => break place.unwrap_or(0),
                    option::HEADER_INFO => part(Description::header, "the layout of pages")?,
                    option::FTRACE_EVENTS => {
                        part(Description::ftrace_formats, "the formats of ftrace's own events")?;
                    }
                    option::EVENT_FORMATS => {
                        part(Description::event_formats, "the formats of events")?;
                    }
                    option::KALLSYMS => part(Description::symbols, "the kernel's symbols")?,
                    option::CMDLINES => {
                        part(Description::thread_names, "the names of threads")?;
                    }
                    option::CPUSTAT => out.lost = out.lost.saturating_add(lost(data)),
                    option::BUFFER => buffers.push(data.to_vec()),
                    option::BUFFER_TEXT => is_text = true,
                    _ => {}
                }
            };
        }
        let mut traces = Vec::new();
        for option in &buffers {
            traces.push(Buffer::parse(&file, option).ok_or(damaged("the trace of a CPU"))?);
        }
        if traces.is_empty() && is_text {
            return Err(text_only());
        }
        traces.retain(|buffer| buffer.cpus.iter().any(|cpu| cpu.bytes() > 0));
        // The instance without a name is the one that `trace-cmd record` fills.
        let top = traces.iter().position(|buffer| buffer.is_top).unwrap_or(0);
        if let Some(Buffer { cpus, page_size, odd_clock, .. }) = traces.get(top).cloned() {
            out.others = traces.len() as u64 - 1;
            (out.cpus, out.page_size, out.odd_clock) = (cpus, page_size, odd_clock);
        }
        Ok(out)
    }
}

/// The traces of an instance.
#[derive(Clone, Debug)]
struct Buffer<'a> {
    is_top: bool,
    odd_clock: Option<String>,
    page_size: u64,
    cpus: Vec<Chunks<'a>>,
}

impl<'a> Buffer<'a> {
    fn parse(file: &Sections<'a>, option: &[u8]) -> Option<Self> {
        let mut fields = Fields(option);
        let mut section = from(file.bytes, fields.u64()?)?;
        let (_, flags) = (section.u16()?, section.u16()?);
        let (name, clock) = (fields.text()?, fields.text()?);
        let page_size = fields.u32()?.into();
        let count = fields.u32().filter(|cpus| *cpus <= MOST_CPUS)?;
        let mut cpus = Vec::new();
        for _ in 0..count {
            let (_cpu, offset, size) = (fields.u32()?, fields.u64()?, fields.u64()?);
            cpus.push(if flags & IS_COMPRESSED == 0 || size == 0 {
                Chunks::whole(trace(file.bytes, offset, size)?)
            } else {
                // The size that trace-cmd 3.1 writes lacks the number of chunks.
                let rest = from(file.bytes, offset)?.0;
                let most = usize::try_from(size).ok()?.saturating_add(COUNT_BYTES);
                Chunks::compressed(rest.get(..most).unwrap_or(rest), file.compression)?
            });
        }
        Some(Self { is_top: name.is_empty(), odd_clock: odd_clock(clock), page_size, cpus })
    }
}

/// Place and size of the trace of each CPU, in version 6.
fn cpu_traces<'a>(bytes: &'a [u8], fields: &mut Fields, cpus: u32) -> Option<Vec<Chunks<'a>>> {
    let mut cpu = || Some(Chunks::whole(trace(bytes, fields.u64()?, fields.u64()?)?));
    (0..cpus).map(|_| cpu()).collect()
}

/// Version and page size; the file has numbers as this machine has.
pub(super) fn begin(fields: &mut Fields) -> Result<(u32, u64), ImportError> {
    fields.expect(MAGIC).ok_or(damaged("its begin"))?;
    let version = fields.text().and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
    let version = version.ok_or(damaged("the version"))?;
    let (order, _long) =
        fields.array::<1>().zip(fields.array::<1>()).ok_or(damaged("the kind of machine"))?;
    if order != [u8::from(cfg!(target_endian = "big"))] {
        return Err(ImportError::Unsupported(
            "The trace.dat file is of a machine with another byte order; import it there".into(),
        ));
    }
    let page_size = fields.u32().ok_or(damaged("the page size"))?;
    Ok((version, page_size.into()))
}

/// The version behind the point of one like `0.6`, as perf writes it, and the rest up to the texts.
pub(crate) fn begin_of_texts(fields: &mut Fields) -> Option<u32> {
    fields.expect(MAGIC)?;
    let version = std::str::from_utf8(fields.text()?).ok()?.rsplit('.').next()?.parse().ok()?;
    let (_order, _long, _page) = (fields.array::<1>()?, fields.array::<1>()?, fields.u32()?);
    Some(version)
}

fn text_only() -> ImportError {
    ImportError::Unsupported(
        "The trace.dat file has a latency trace, which is text; record without -p and its latency \
         tracers"
            .into(),
    )
}

/// The trace of a CPU. An empty one may be anywhere.
fn trace(bytes: &[u8], offset: u64, size: u64) -> Option<&[u8]> {
    if size == 0 { Some(&[]) } else { from(bytes, offset)?.take(size) }
}

/// Clocks that count ns (Documentation/trace/ftrace.rst).
const CLOCKS: [&[u8]; 8] =
    [b"local", b"global", b"uptime", b"perf", b"mono", b"mono_raw", b"boot", b"tai"];

/// A clock that does not, by its name or by the text of `trace_clock`, which has all names and this one
/// in brackets.
fn odd_clock(text: &[u8]) -> Option<String> {
    let text = text.split(|byte| *byte == 0).next()?;
    let chosen = text.iter().position(|byte| *byte == b'[').map_or(text, |at| &text[at + 1..]);
    let name = chosen.split(|byte| *byte == b']').next()?.trim_ascii();
    let is_odd = !name.is_empty() && !CLOCKS.contains(&name);
    is_odd.then(|| headstart::host::names::name(name))
}

/// Events that were dropped, by the statistics of a CPU.
fn lost(statistics: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(statistics);
    let number = |line: &str| {
        let (name, value) = line.split_once(':')?;
        ["overrun", "dropped events"].contains(&name.trim()).then(|| value.trim().parse().ok())?
    };
    text.lines().filter_map(number).fold(0, u64::saturating_add)
}

/// The sections of version 7.
struct Sections<'a> {
    bytes: &'a [u8],
    compression: Compression,
    /// Bytes that may still be unpacked.
    left: usize,
}

impl<'a> Sections<'a> {
    /// The content of the section at an offset.
    fn section(&mut self, offset: u64) -> Option<Cow<'a, [u8]>> {
        let mut fields = from(self.bytes, offset)?;
        let (_id, flags, _text, size) =
            (fields.u16()?, fields.u16()?, fields.u32()?, fields.u64()?);
        let content = fields.take(size)?;
        if flags & IS_COMPRESSED == 0 {
            return Some(content.into());
        }
        let mut fields = Fields(content);
        let (packed, unpacked) = (fields.u32()?, usize::try_from(fields.u32()?).ok()?);
        self.left = self.left.checked_sub(unpacked)?;
        let content = unpack(fields.take(packed.into())?, self.compression, unpacked)?;
        Some(content.into())
    }
}

#[cfg(test)]
mod tests {
    use super::odd_clock;

    #[test]
    fn a_clock_that_counts_no_ns_is_known_by_its_name_alone_and_among_all() {
        for (text, expected) in [
            (&b"local"[..], None),
            (b"", None),
            (b"[local] global counter x86-tsc\n\0", None),
            (b"local global [counter] x86-tsc\n\0", Some("counter")),
            (b"x86-tsc", Some("x86-tsc")),
        ] {
            assert_eq!(odd_clock(text).as_deref(), expected);
        }
    }
}

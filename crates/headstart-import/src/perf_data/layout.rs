//! What a file of perf holds, and where.

use crate::error::ImportError;
use crate::fields::{Fields, from};
use crate::trace_dat::{self, Description};

/// What a file begins with, on a machine with this byte order.
pub(super) const MAGIC: [u8; 8] = 0x3245_4c49_4652_4550u64.to_ne_bytes();
/// `PERF_TYPE_*` and the events of software that are read (`include/uapi/linux/perf_event.h`).
const SOFTWARE: u32 = 1;
const TRACEPOINT: u32 = 2;
const PAGE_FAULTS: u64 = 2;
const MINOR_FAULTS: u64 = 5;
const MAJOR_FAULTS: u64 = 6;
/// The feature that holds the formats of trace events.
const TRACING_DATA: u32 = 1;
/// Bytes of the header without those that newer ones may add.
const HEADER_BYTES: u64 = 104;
/// Bytes of the shortest description of an event.
const ATTRIBUTE_BYTES: u64 = 48;
const MOST_ATTRIBUTES: u64 = 4096;

/// What an event reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// Faults at their begin.
    Faults,
    /// Ends of minor ones.
    MinorFaults,
    /// Of major ones.
    MajorFaults,
    /// A trace event.
    Tracepoint,
    /// Anything else.
    Other,
}

/// An event, and how its samples look.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Attribute {
    pub source: Source,
    pub sample_type: u64,
    pub read_format: u64,
    /// Whether records that are no samples end with process and time.
    pub has_trailer: bool,
    /// Whether not each event has a sample.
    pub is_sampled: bool,
}

/// The events of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Attributes {
    pub all: Vec<Attribute>,
    /// The numbers of instances of events, in order, each with its place among all.
    pub ids: Vec<(u64, u32)>,
}

impl Attributes {
    /// The event with an instance of this number.
    pub(super) fn of_id(&self, id: u64) -> Option<&Attribute> {
        let at = self.ids.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.all.get(self.ids[at].1 as usize)
    }
}

/// A file of perf.
#[derive(Debug)]
pub(super) struct PerfData<'a> {
    pub attributes: Attributes,
    pub data: &'a [u8],
    pub description: Option<Description>,
    /// Its length.
    pub bytes: usize,
}

fn damaged(part: &'static str) -> ImportError {
    ImportError::Damaged { format: "perf.data", part }
}

/// A part of a file: offset and size.
fn part<'a>(bytes: &'a [u8], fields: &mut Fields) -> Option<&'a [u8]> {
    let (offset, size) = (fields.u64()?, fields.u64()?);
    from(bytes, offset)?.take(size)
}

impl<'a> PerfData<'a> {
    /// Reads all but the records.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, ImportError> {
        let mut fields = Fields(bytes);
        fields.expect(&MAGIC).ok_or_else(|| {
            ImportError::Unsupported(
                "The perf.data file is of a machine with another byte order; import it there"
                    .into(),
            )
        })?;
        let size = fields.u64().ok_or(damaged("the header"))?;
        if size < HEADER_BYTES {
            return Err(ImportError::Unsupported(
                "The perf.data file was written to a pipe; record with perf record -o FILE".into(),
            ));
        }
        let entry = fields.u64().ok_or(damaged("the header"))?;
        let attributes = part(bytes, &mut fields).ok_or(damaged("the events"))?;
        let (offset, size) = fields.u64().zip(fields.u64()).ok_or(damaged("the header"))?;
        // perf writes the size last; a recording that was killed has none.
        if size == 0 {
            return Err(damaged("the records, which perf did not finish,"));
        }
        let data = from(bytes, offset).and_then(|mut data| data.take(size));
        let data = data.ok_or(damaged("the records"))?;
        let attributes = attributes_of(bytes, attributes, entry).ok_or(damaged("the events"))?;
        fields.take(16).ok_or(damaged("the header"))?;
        let features = fields.array::<32>().ok_or(damaged("the header"))?;
        let description = tracing(bytes, &features, offset.saturating_add(size)).transpose()?;
        Ok(Self { attributes, data, description, bytes: bytes.len() })
    }
}

fn attributes_of(bytes: &[u8], entries: &[u8], size: u64) -> Option<Attributes> {
    let count =
        (entries.len() as u64).checked_div(size).filter(|count| *count <= MOST_ATTRIBUTES)?;
    let mut left = entries.len().max(bytes.len());
    let mut fields = Fields(entries);
    let mut out = Attributes::default();
    for at in 0..count as u32 {
        let entry = fields.take(size)?;
        let head = entry.get(..entry.len().checked_sub(16)?)?;
        if (head.len() as u64) < ATTRIBUTE_BYTES {
            return None;
        }
        let ids = part(bytes, &mut Fields(&entry[head.len()..]))?;
        // Lists of numbers don't overlap, or all of them would take more than the file.
        left = left.checked_sub(ids.len())?;
        out.ids.extend(ids.chunks_exact(8).filter_map(|id| Some((Fields(id).u64()?, at))));
        out.all.push(attribute(head)?);
    }
    out.ids.sort_unstable();
    out.ids.dedup_by_key(|(id, _)| *id);
    Some(out)
}

fn attribute(head: &[u8]) -> Option<Attribute> {
    let mut fields = Fields(head);
    let (kind, _size, config) = (fields.u32()?, fields.u32()?, fields.u64()?);
    let (period, sample_type, read_format) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let flags = fields.u64()?;
    // The first flag is the lowest bit, or the highest of machines with the other byte order.
    let flag = |bit: u32| {
        let bit = if cfg!(target_endian = "little") { bit } else { 63 - bit };
        flags >> bit & 1 != 0
    };
    let (is_frequency, has_trailer) = (flag(10), flag(18));
    let source = match (kind, config) {
        (SOFTWARE, PAGE_FAULTS) => Source::Faults,
        (SOFTWARE, MINOR_FAULTS) => Source::MinorFaults,
        (SOFTWARE, MAJOR_FAULTS) => Source::MajorFaults,
        (TRACEPOINT, _) => Source::Tracepoint,
        _ => Source::Other,
    };
    let is_sampled = is_frequency || period > 1;
    Some(Attribute { source, sample_type, read_format, has_trailer, is_sampled })
}

/// The formats of trace events, among the features behind the records.
fn tracing(
    bytes: &[u8],
    features: &[u8; 32],
    table: u64,
) -> Option<Result<Description, ImportError>> {
    let bit = |feature: u32| {
        let word = features.get(feature as usize / 64 * 8..)?;
        Some(Fields(word).u64()? >> (feature % 64) & 1 != 0)
    };
    if bit(TRACING_DATA) != Some(true) {
        return None;
    }
    let before = (0..TRACING_DATA).filter(|feature| bit(*feature) == Some(true)).count() as u64;
    let section = from(bytes, table.saturating_add(before * 16))
        .and_then(|mut entry| part(bytes, &mut entry));
    Some(section.ok_or(damaged("the formats of events")).and_then(|section| {
        let mut fields = Fields(section);
        let version =
            trace_dat::begin_of_texts(&mut fields).ok_or(damaged("the formats of events"))?;
        Description::parse(&mut fields, version >= 6)
    }))
}

//! The records of a file in the order of time.

use super::layout::{Attribute, Attributes, PerfData, Source};
use super::sample::{Sample, attribute_of, sample, trailer, trailer_bytes};
use crate::error::ImportError;
use crate::fields::Fields;
use crate::unpack::unpack_stream;
use headstart_faults::record::{What as Kernel, kind, of_kernel, split};
use std::io::Read;

/// What compressed records may unpack to, for each byte of the file and in any case.
const MOST_TIMES: usize = 8;
const SMALL: usize = 1 << 16;
/// A record that is read has at least this length, so that what is kept of it takes half of that.
const SHORTEST: usize = 32;

/// A record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Record<'a> {
    pub time: u64,
    pub pid: i32,
    pub tid: i32,
    pub what: What<'a>,
}

/// What it tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What<'a> {
    /// Of mappings, names and processes.
    Kernel(Kernel<'a>),
    /// A fault, by this event.
    Fault(Source, Sample<'a>),
    /// The record of a trace event.
    Raw(&'a [u8]),
}

/// The records.
#[derive(Debug)]
pub(super) struct Stream<'a> {
    attributes: &'a Attributes,
    /// Records as they stand in the file.
    file: &'a [u8],
    /// Those that were compressed.
    unpacked: Vec<u8>,
    /// Time and place of each, by time. A place behind the file is in `unpacked`.
    index: Vec<(u64, usize)>,
    lost: u64,
    skipped: u64,
}

impl<'a> Stream<'a> {
    /// Those of a file.
    pub(super) fn of(file: &'a PerfData<'a>) -> Result<Self, ImportError> {
        let mut out = Self {
            attributes: &file.attributes,
            file: file.data,
            unpacked: Vec::new(),
            index: Vec::new(),
            lost: 0,
            skipped: 0,
        };
        let mut packed = Vec::new();
        out.enter(file.data, 0, &mut packed);
        if !packed.is_empty() {
            let limit = SMALL + file.bytes.saturating_mul(MOST_TIMES);
            let pieces = Pieces { pieces: packed.iter(), rest: &[] };
            let damaged = ImportError::Damaged { format: "perf.data", part: "a compressed record" };
            out.unpacked = unpack_stream(pieces, limit).ok_or(damaged)?;
            let unpacked = std::mem::take(&mut out.unpacked);
            out.enter(&unpacked, file.data.len(), &mut Vec::new());
            out.unpacked = unpacked;
        }
        out.index.sort_unstable();
        Ok(out)
    }

    /// Enters records that are read, with the place where they begin.
    fn enter<'b>(&mut self, data: &'b [u8], begin: usize, packed: &mut Vec<&'b [u8]>) {
        let mut at = 0;
        while at < data.len() {
            let Some((kind, misc, body, _)) = split(&data[at..]) else {
                self.skipped += 1;
                break;
            };
            let size = body.len() + 8;
            match kind {
                kind::COMPRESSED => packed.push(body),
                kind::COMPRESSED2 => {
                    let content = Fields(body).u64().and_then(|size| Fields(&body[8..]).take(size));
                    packed.extend(content);
                }
                // Its data follows it.
                kind::AUXTRACE => {
                    let more = Fields(body).u64().and_then(|more| usize::try_from(more).ok());
                    at = at.saturating_add(more.unwrap_or(usize::MAX));
                }
                kind::SAMPLE | kind::LOST_SAMPLES | kind::MMAP..=kind::MMAP2 => {
                    match decode(self.attributes, kind, misc, body) {
                        Some(Some(record)) => {
                            if let What::Kernel(Kernel::Lost(lost)) = record.what {
                                self.lost = self.lost.saturating_add(lost);
                            }
                            if size >= SHORTEST {
                                self.index.push((record.time, begin + at));
                            }
                        }
                        Some(None) => {}
                        None => self.skipped += 1,
                    }
                }
                _ => {}
            }
            at = at.saturating_add(size);
        }
    }

    /// What is kept besides the file, in bytes.
    pub(super) fn kept_bytes(&self) -> usize {
        self.unpacked.len() + self.index.len() * size_of::<(u64, usize)>()
    }

    /// Events that were lost when it was recorded.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Records that can't be read.
    pub(super) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Whether an event was recorded, and of whether each has a sample.
    pub(super) fn has(&self, source: Source) -> Option<bool> {
        let of = |attribute: &&Attribute| attribute.source == source;
        self.attributes.all.iter().find(of).map(|attribute| !attribute.is_sampled)
    }

    /// The records.
    pub(super) fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let file = self.file;
        self.index.iter().filter_map(move |(_, place)| {
            let data = match place.checked_sub(file.len()) {
                Some(at) => self.unpacked.get(at..)?,
                None => file.get(*place..)?,
            };
            let (kind, misc, body, _) = split(data)?;
            decode(self.attributes, kind, misc, body)?
        })
    }
}

/// A record; `Some(None)` for one that is not read, `None` for a damaged one.
fn decode<'b>(
    attributes: &Attributes,
    kind: u32,
    misc: u16,
    body: &'b [u8],
) -> Option<Option<Record<'b>>> {
    if kind == kind::SAMPLE {
        let attribute = attribute_of(body, attributes)?;
        let sample = sample(body, attribute)?;
        let what = match attribute.source {
            Source::Tracepoint => What::Raw(sample.raw),
            Source::Other => return Some(None),
            fault => What::Fault(fault, sample),
        };
        return Some(Some(Record { time: sample.time, pid: sample.pid, tid: sample.tid, what }));
    }
    let first = attributes.all.first()?;
    let (_, _, time) = if first.has_trailer { trailer(body, first)? } else { (0, 0, 0) };
    let body = &body[..body.len().checked_sub(trailer_bytes(first))?];
    use kind::{COMM, EXIT, FORK, LOST, LOST_SAMPLES, MMAP, MMAP2};
    if ![COMM, EXIT, FORK, LOST, LOST_SAMPLES, MMAP, MMAP2].contains(&kind) {
        return Some(None);
    }
    let (pid, tid, what) = of_kernel(kind, misc, body)?;
    // The kernel's own mappings have no process.
    if pid < 0 && matches!(what, Kernel::Map(_)) {
        return Some(None);
    }
    Some(Some(Record { time, pid, tid, what: What::Kernel(what) }))
}

/// Pieces of a compressed stream, one after another.
struct Pieces<'a> {
    pieces: std::slice::Iter<'a, &'a [u8]>,
    rest: &'a [u8],
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while self.rest.is_empty() {
            match self.pieces.next() {
                Some(piece) => self.rest = piece,
                None => return Ok(0),
            }
        }
        self.rest.read(buffer)
    }
}

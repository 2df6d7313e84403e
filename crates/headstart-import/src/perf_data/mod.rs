//! Files of perf(1) (`tools/perf/Documentation/perf.data-file-format.txt` of Linux).
//!
//! ```text
//! file ──▶ layout ──▶ stream ──▶ sample ──▶ Accesses    events of the page cache, or
//!          events,    records     fields        │       addresses of page faults in mappings
//!          features   by time                   └────▶ faults
//! ```

pub mod faults;
mod layout;
mod sample;
mod stream;

use crate::accesses::{Accesses, Name};
use crate::error::ImportError;
use crate::trace_dat::{self, Description};
use headstart::host::range::ByteRange;
use headstart::host::usage::How;
use headstart::trace::EventKind;
use headstart::trace::decode::Decoder;
use headstart_faults::record::What;
use headstart_faults::recording::Object;
use layout::{PerfData, Source};
use stream::Stream;

/// What is said of faults.
const BY_FAULTS: &str =
    "page faults don't tell what read(2) reads, nor what the kernel mapped around a fault";
/// What is said of mappings.
const BY_MAPPINGS: &str =
    "the perf.data file has no accesses to pages: mappings are taken as a whole";
/// How to record what can be imported.
const RECORD: &str = "record with: perf record -a -c 1 -e filemap:mm_filemap_get_pages,\
                      filemap:mm_filemap_map_pages,filemap:mm_filemap_fault CMD";

/// Whether a file is one of perf.
pub fn is_perf(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PERFILE2") || bytes.starts_with(b"2ELIFREP")
}

/// The accesses in a file: by events of the page cache if it has some, else by page faults with
/// addresses, else all that was mapped.
///
/// # Errors
/// The file is damaged, or has none of these.
pub fn import(bytes: &[u8], page_size: u64) -> Result<Accesses, ImportError> {
    let file = PerfData::parse(bytes)?;
    let stream = Stream::of(&file)?;
    let described = file.description.as_ref().map_or(0, Description::kept_bytes);
    let kept = stream.kept_bytes() + described;
    let mut accesses = Accesses::new(page_size, bytes.len()).less(kept);
    let decoder = file.description.as_ref().and_then(|description| {
        let formats = description.formats.iter().map(String::as_str);
        Decoder::new(&description.header_page, formats, accesses.page_size).ok()
    });
    let has = |source| file.attributes.all.iter().any(|attribute| attribute.source == source);
    match decoder.filter(|_| has(Source::Tracepoint)) {
        Some(decoder) => by_events(&stream, &decoder, &mut accesses)?,
        None => by_faults(&stream, bytes.len(), &mut accesses)?,
    }
    if accesses.is_empty() {
        by_mappings(&stream, &mut accesses)?;
    }
    accesses.lacks.lost = stream.lost();
    accesses.lacks.not_understood += stream.skipped();
    if accesses.is_empty() { Err(ImportError::Nothing(RECORD)) } else { Ok(accesses) }
}

fn by_events(
    stream: &Stream,
    decoder: &Decoder,
    accesses: &mut Accesses,
) -> Result<(), ImportError> {
    // What is described was recorded: perf keeps the formats of its events only.
    accesses.has_access_events = decoder.knows(EventKind::Read) && decoder.knows(EventKind::Map);
    for record in stream.records() {
        match record.what {
            stream::What::Kernel(What::Map(mapped)) if mapped.file.ino != 0 => {
                accesses.knows(mapped.file, mapped.name);
            }
            stream::What::Raw(data) => {
                if let Some(event) = decoder.record(record.time, data) {
                    trace_dat::add(accesses, &event)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn by_faults(stream: &Stream, bytes: usize, accesses: &mut Accesses) -> Result<(), ImportError> {
    accesses.lacks.coarse = Some(BY_FAULTS);
    let recording = faults::recording(stream, bytes)?;
    for fault in &recording.faults {
        let Some(mapping) = recording.mapping(fault.mapping) else { continue };
        if mapping.object != Object::File || fault.address == 0 {
            continue;
        }
        let how = if mapping.is_executable() { How::MAPPED | How::EXECUTED } else { How::MAPPED };
        // The path tells more than the inode: it holds for another mount of the same files.
        let name = Name::Path(recording.name(mapping.name).to_vec());
        let bytes = ByteRange::of(mapping.offset_of(fault.address), 1);
        accesses.add_bytes(name, bytes, fault.time, how)?;
    }
    Ok(())
}

fn by_mappings(stream: &Stream, accesses: &mut Accesses) -> Result<(), ImportError> {
    accesses.lacks.coarse = Some(BY_MAPPINGS);
    for record in stream.records() {
        if let stream::What::Kernel(What::Map(mapped)) = record.what
            && mapped.name.starts_with(b"/")
            && !mapped.name.starts_with(b"//")
        {
            let bytes = ByteRange::of(mapped.offset, mapped.length);
            accesses.add_bytes(
                Name::Path(mapped.name.to_vec()),
                bytes,
                record.time,
                How::MAPPED,
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

//! The section headers of a repacked file, for debuggers and tools such as strip(1): a new table
//! at the end of the file, with the names of the sections before it.

use super::refuse::Refusal;
use crate::image::Image;
use std::ops::Range;

/// Bytes of a section header.
const HEADER: usize = 64;
/// Of the gABI: packed relative relocations.
pub(super) const SHT_RELR: u32 = 19;
/// Bytes of zeros behind the last thing that a header describes; linkers leave some.
const PADDING: u64 = 4096;
/// Sections with a checksum of the file that they are in, which is checked at each start.
const CHECKSUMS: [&str; 2] = [".note.fdo.integrity", ".signature"];
/// The name of the new section.
pub(super) const NAME: &[u8] = b".relr.dyn";

/// A new place of a section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Moved {
    pub address: u64,
    pub offset: u64,
    pub size: u64,
}

/// What is put behind the end of the file, and where the headers begin and how many they are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Tail {
    pub bytes: Vec<u8>,
    pub headers: u64,
    pub count: u16,
}

/// Whether the file ends where its headers say that it does, and holds no checksum of itself.
pub(super) fn check(image: &Image) -> Result<(), Refusal> {
    for name in CHECKSUMS {
        if image.section(name).is_some() {
            return Err(Refusal::Checksum(name.into()));
        }
    }
    let in_file = image.sections.iter().filter(|section| section.is_in_file());
    let sections = in_file.map(|section| section.offset.saturating_add(section.size));
    let segments = image.segments.iter().map(|one| one.offset.saturating_add(one.file_size));
    let headers = [image.section_headers.end, image.program_headers.end];
    let end = sections.chain(segments).chain(headers).max().unwrap_or(0);
    let len = image.data.len() as u64;
    let rest = usize::try_from(end).ok().and_then(|end| image.data.get(end..)).unwrap_or(&[]);
    let is_padding = (rest.len() as u64) < PADDING && rest.iter().all(|byte| *byte == 0);
    if is_padding { Ok(()) } else { Err(Refusal::Trailer(len.saturating_sub(end))) }
}

/// The tail of a file whose section `n` goes to the place that `moved(n)` says, with a new one
/// for the packed table. Nothing for a file without section headers.
pub(super) fn tail(
    image: &Image,
    moved: impl Fn(usize) -> Option<Moved>,
    relr: Moved,
) -> Result<Option<Tail>, Refusal> {
    let range = |range: &Range<u64>| {
        let begin = usize::try_from(range.start).ok()?;
        image.data.get(begin..usize::try_from(range.end).ok()?)
    };
    let damaged = Refusal::Unusual("its section headers are damaged");
    if image.sections.is_empty() {
        // e_shoff: something is there that could not be read.
        let has_none = image.data.get(40..48).is_some_and(|at| at.iter().all(|byte| *byte == 0));
        return if has_none { Ok(None) } else { Err(damaged) };
    }
    let headers = range(&image.section_headers).ok_or(damaged.clone())?;
    let (headers, rest) = headers.as_chunks::<HEADER>();
    let count = headers.len();
    // Above that the count is in the first header.
    let fits = rest.is_empty() && count == image.sections.len() && count < 0xfeff;
    let names = image.sections.get(image.section_names).filter(|_| fits).ok_or(damaged.clone())?;
    let names = range(&(names.offset..names.offset.saturating_add(names.size))).ok_or(damaged)?;

    let align = |len: usize| len.next_multiple_of(8);
    let begin = align(image.data.len());
    let mut bytes = vec![0; begin - image.data.len()];
    let name = names.len() as u32;
    bytes.extend(names);
    bytes.extend(NAME);
    bytes.push(0);
    let names_size = bytes.len() - (begin - image.data.len());
    bytes.resize(align(image.data.len() + bytes.len()) - image.data.len(), 0);
    let first = (image.data.len() + bytes.len()) as u64;
    let names = Moved { address: 0, offset: begin as u64, size: names_size as u64 };
    for (n, header) in headers.iter().enumerate() {
        let mut header = *header;
        let place = if n == image.section_names { Some(names) } else { moved(n) };
        if let Some(place) = place {
            header[16..24].copy_from_slice(&place.address.to_le_bytes());
            header[24..32].copy_from_slice(&place.offset.to_le_bytes());
            header[32..40].copy_from_slice(&place.size.to_le_bytes());
        }
        bytes.extend(header);
    }
    bytes.extend(name.to_le_bytes());
    bytes.extend(SHT_RELR.to_le_bytes());
    // SHF_ALLOC; the last two are alignment and the size of an entry.
    for word in [2, relr.address, relr.offset, relr.size, 0, 8, 8] {
        bytes.extend(word.to_le_bytes());
    }
    Ok(Some(Tail { bytes, headers: first, count: count as u16 + 1 }))
}

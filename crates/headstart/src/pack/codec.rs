//! The file form of a pack; `doc/pack-format.md` describes it.
//!
//! Pure. The decoder trusts no count and no index: it allocates no more than the bytes at hand
//! could fill, and the packs that it returns need no further check.

use super::build::MAX_FILE_SYSTEMS;
use super::paths::{NodeId, PathTable};
use super::varint::{Cursor, put, put_bytes, put_signed};
use super::{Dropped, File, FileSystem, History, Identity, MetadataRange, Origin, Pack, Range};
use crate::host::usage::How;
use crc::{CRC_32_ISCSI, Crc, Table};
use thiserror::Error;

/// The first bytes of every pack.
pub const MAGIC: &[u8; 8] = b"HEADSTRT";
/// The version that this program reads and writes.
pub const VERSION: u16 = 2;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 32;
/// CRC-32C in software: to detect the CPU's instruction takes several `cpuid`, each of which exits
/// a virtual machine, and a pack is small.
static CHECKSUM: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);
/// The first file of a pack is encoded by its difference from this.
const FIRST: File = File {
    file_system: 0,
    node: NodeId::ROOT,
    identity: Identity { ino: 0, size: 0, mtime_ns: 0, ctime_ns: 0 },
    changes: History(0),
};
/// The page sizes of Linux, from 4 KiB to 64 KiB.
const PAGE_SHIFTS: std::ops::RangeInclusive<u8> = 12..=16;

/// A pack that can't be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PackError {
    /// Not a pack at all.
    #[error("it is no headstart pack")]
    Magic,
    /// Of another version of headstart.
    #[error("it has format version {0} and this headstart reads {VERSION}; learn it again")]
    Version(u16),
    /// Shorter or longer than it says.
    #[error("it is cut off or overlong ({actual} bytes instead of {expected}); learn it again")]
    Length {
        /// Bytes that the header promises.
        expected: u64,
        /// Bytes there are.
        actual: u64,
    },
    /// The checksum differs.
    #[error("its checksum is wrong; learn it again")]
    Checksum,
    /// The content contradicts itself.
    #[error("it is corrupt (bad {0}); learn it again")]
    Corrupt(&'static str),
}

/// The file form of a pack.
///
/// ```
/// use headstart::pack::{Origin, Pack, codec};
/// let origin = Origin { name: "app".into(), page_shift: 12, ..Origin::default() };
/// let pack = Pack { origin, ..Pack::default() };
/// assert_eq!(codec::decode(&codec::encode(&pack)).expect("what was encoded"), pack);
/// ```
pub fn encode(pack: &Pack) -> Vec<u8> {
    let mut body = Vec::with_capacity(pack.files.len() * 24 + pack.ranges.len() * 8);
    put_origin(&mut body, &pack.origin);
    put(&mut body, pack.file_systems.len() as u64);
    for fs in &pack.file_systems {
        body.push(u8::from(fs.uuid.is_some()));
        body.extend(fs.uuid.unwrap_or_default());
        put_bytes(&mut body, fs.kind.as_bytes());
        put_bytes(&mut body, &fs.source);
    }
    put(&mut body, pack.paths.len() as u64);
    for (i, (parent, name)) in pack.paths.iter().enumerate() {
        put(&mut body, i as u64 - u64::from(parent.0));
        put_bytes(&mut body, name);
    }
    put(&mut body, pack.files.len() as u64);
    let mut last = FIRST;
    for file in &pack.files {
        let (now, before) = (&file.identity, &last.identity);
        put(&mut body, u64::from(file.file_system));
        put_signed(&mut body, i64::from(file.node.0) - i64::from(last.node.0));
        put_signed(&mut body, now.ino.wrapping_sub(before.ino).cast_signed());
        put(&mut body, now.size);
        put_signed(&mut body, now.mtime_ns.wrapping_sub(before.mtime_ns));
        put_signed(&mut body, now.ctime_ns.wrapping_sub(now.mtime_ns));
        body.push(file.changes.0);
        last = *file;
    }
    put(&mut body, pack.ranges.len() as u64);
    let (mut file, mut at) = (0, 0);
    for range in &pack.ranges {
        put_signed(&mut body, i64::from(range.file) - file);
        put(&mut body, range.first);
        put(&mut body, u64::from(range.pages));
        put_signed(&mut body, i64::from(range.at_us) - at);
        body.push(range.how.0);
        body.push(range.history.0);
        (file, at) = (i64::from(range.file), i64::from(range.at_us));
    }
    put(&mut body, pack.metadata.len() as u64);
    let (mut first, mut at) = (0, 0);
    for range in &pack.metadata {
        put(&mut body, u64::from(range.file_system));
        put_signed(&mut body, range.first.wrapping_sub(first).cast_signed());
        put(&mut body, u64::from(range.pages));
        put_signed(&mut body, i64::from(range.at_us) - at);
        body.push(range.history.0);
        (first, at) = (range.first, i64::from(range.at_us));
    }
    with_header(&body)
}

/// Puts the header before a body.
fn with_header(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES + body.len());
    out.extend(MAGIC);
    out.extend(VERSION.to_le_bytes());
    out.extend([0; 6]);
    out.extend((body.len() as u64).to_le_bytes());
    out.extend(CHECKSUM.checksum(body).to_le_bytes());
    let header = CHECKSUM.checksum(&out);
    out.extend(header.to_le_bytes());
    out.extend(body);
    out
}

/// Checks the header and the checksums and returns the body.
fn body(bytes: &[u8]) -> Result<&[u8], PackError> {
    let number = |range: std::ops::Range<usize>| {
        let bytes = bytes.get(range).unwrap_or_default();
        bytes.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte))
    };
    if !bytes.starts_with(MAGIC) {
        return Err(PackError::Magic);
    }
    let Some((header, body)) = bytes.split_at_checked(HEADER_BYTES) else {
        let (expected, actual) = (HEADER_BYTES as u64, bytes.len() as u64);
        return Err(PackError::Length { expected, actual });
    };
    let version = number(8..10) as u16;
    if version != VERSION {
        return Err(PackError::Version(version));
    }
    if u64::from(CHECKSUM.checksum(&header[..HEADER_BYTES - 4])) != number(28..32) {
        return Err(PackError::Checksum);
    }
    if number(16..24) != body.len() as u64 {
        let expected = number(16..24).saturating_add(HEADER_BYTES as u64);
        return Err(PackError::Length { expected, actual: bytes.len() as u64 });
    }
    if u64::from(CHECKSUM.checksum(body)) != number(24..28) {
        return Err(PackError::Checksum);
    }
    Ok(body)
}

/// Reads the file form.
pub fn decode(bytes: &[u8]) -> Result<Pack, PackError> {
    decode_body(body(bytes)?)
}

/// Reads a body whose checksum was right, or that a fuzzer made.
#[doc(hidden)]
pub fn decode_body(body: &[u8]) -> Result<Pack, PackError> {
    let mut c = Cursor(body);
    let origin = get_origin(&mut c)?;
    let file_systems = get_file_systems(&mut c)?;
    let paths = get_paths(&mut c)?;
    let files = get_files(&mut c, file_systems.len(), &paths)?;
    let ranges = get_ranges(&mut c, files.len(), origin.page_shift)?;
    let metadata = get_metadata(&mut c, file_systems.len(), origin.page_shift)?;
    if !c.0.is_empty() {
        return Err(PackError::Corrupt("end"));
    }
    Ok(Pack { origin, file_systems, paths, files, ranges, metadata })
}

fn put_origin(out: &mut Vec<u8>, o: &Origin) {
    put_bytes(out, o.name.as_bytes());
    put_bytes(out, &o.command);
    put_bytes(out, o.kernel.as_bytes());
    out.push(o.page_shift);
    out.push(u8::from(o.has_access_events));
    for number in [u64::from(o.starts), o.learned_at, o.lost_events]
        .into_iter()
        .chain([u64::from(o.buffer_kb), o.duration_us])
        .chain(o.dropped.counts().map(u64::from))
    {
        put(out, number);
    }
}

fn get_origin(c: &mut Cursor<'_>) -> Result<Origin, PackError> {
    let name = c.text()?;
    let command = c.bytes()?.to_vec();
    let kernel = c.text()?;
    let page_shift = c.byte()?;
    if !PAGE_SHIFTS.contains(&page_shift) {
        return Err(PackError::Corrupt("page size"));
    }
    Ok(Origin {
        name,
        command,
        kernel,
        page_shift,
        has_access_events: c.byte()? != 0,
        starts: c.narrow()?,
        learned_at: c.number()?,
        lost_events: c.number()?,
        buffer_kb: c.narrow()?,
        duration_us: c.number()?,
        dropped: Dropped {
            deleted: c.narrow()?,
            unreachable: c.narrow()?,
            not_found: c.narrow()?,
            not_looked_for: c.narrow()?,
            no_permission: c.narrow()?,
            changed: c.narrow()?,
            written: c.narrow()?,
            in_memory: c.narrow()?,
            irregular: c.narrow()?,
        },
    })
}

fn get_file_systems(c: &mut Cursor<'_>) -> Result<Vec<FileSystem>, PackError> {
    let count = c.count(19)?;
    if count > MAX_FILE_SYSTEMS {
        return Err(PackError::Corrupt("count"));
    }
    let mut file_systems = Vec::with_capacity(count);
    for _ in 0..count {
        let has_uuid = c.byte()? != 0;
        let uuid = c.array()?;
        let uuid = has_uuid.then_some(uuid);
        file_systems.push(FileSystem { uuid, kind: c.text()?, source: c.bytes()?.to_vec() });
    }
    Ok(file_systems)
}

fn get_paths(c: &mut Cursor<'_>) -> Result<PathTable, PackError> {
    let nodes = c.count(3)?;
    let mut paths = PathTable::with_capacity(nodes, 0);
    for i in 0..nodes as u64 {
        let parent = i.checked_sub(c.number()?).and_then(|p| u32::try_from(p).ok());
        let name = c.bytes()?;
        parent.and_then(|p| paths.push(NodeId(p), name)).ok_or(PackError::Corrupt("path"))?;
    }
    Ok(paths)
}

fn get_files(
    c: &mut Cursor<'_>,
    file_systems: usize,
    paths: &PathTable,
) -> Result<Vec<File>, PackError> {
    let count = c.count(7)?;
    let mut files = Vec::with_capacity(count);
    let mut last = FIRST;
    for _ in 0..count {
        let file_system = c.narrow()?;
        let node = i64::from(last.node.0).checked_add(c.signed()?);
        let node =
            NodeId(node.and_then(|n| u32::try_from(n).ok()).ok_or(PackError::Corrupt("file"))?);
        if usize::from(file_system) >= file_systems || !paths.contains(node) {
            return Err(PackError::Corrupt("file"));
        }
        let ino = last.identity.ino.wrapping_add_signed(c.signed()?);
        let size = c.number()?;
        let mtime_ns = last.identity.mtime_ns.wrapping_add(c.signed()?);
        let ctime_ns = mtime_ns.wrapping_add(c.signed()?);
        let identity = Identity { ino, size, mtime_ns, ctime_ns };
        last = File { file_system, node, identity, changes: History(c.byte()?) };
        files.push(last);
    }
    Ok(files)
}

fn get_ranges(c: &mut Cursor<'_>, files: usize, page_shift: u8) -> Result<Vec<Range>, PackError> {
    let count = c.count(6)?;
    let mut ranges = Vec::with_capacity(count);
    let (mut file, mut at) = (0i64, 0i64);
    for _ in 0..count {
        file = file.wrapping_add(c.signed()?);
        let (first, pages) = (c.number()?, c.narrow()?);
        at = at.wrapping_add(c.signed()?);
        let range = Range {
            file: u32::try_from(file).map_err(|_| PackError::Corrupt("range"))?,
            first,
            pages,
            at_us: u32::try_from(at).map_err(|_| PackError::Corrupt("time"))?,
            how: How(c.byte()?),
            history: History(c.byte()?),
        };
        if range.file as usize >= files || !in_bounds(first, pages, page_shift) {
            return Err(PackError::Corrupt("range"));
        }
        ranges.push(range);
    }
    Ok(ranges)
}

fn get_metadata(
    c: &mut Cursor<'_>,
    file_systems: usize,
    page_shift: u8,
) -> Result<Vec<MetadataRange>, PackError> {
    let count = c.count(5)?;
    let mut ranges = Vec::with_capacity(count);
    let (mut first, mut at) = (0u64, 0i64);
    for _ in 0..count {
        let file_system = c.narrow()?;
        first = first.wrapping_add_signed(c.signed()?);
        let pages = c.narrow()?;
        at = at.wrapping_add(c.signed()?);
        let at_us = u32::try_from(at).map_err(|_| PackError::Corrupt("time"))?;
        if usize::from(file_system) >= file_systems || !in_bounds(first, pages, page_shift) {
            return Err(PackError::Corrupt("metadata range"));
        }
        ranges.push(MetadataRange {
            file_system,
            first,
            pages,
            at_us,
            history: History(c.byte()?),
        });
    }
    Ok(ranges)
}

/// Whether the range ends within the largest file that the kernel knows.
fn in_bounds(first: u64, pages: u32, page_shift: u8) -> bool {
    let end = first.checked_add(u64::from(pages));
    pages > 0 && end.is_some_and(|end| end <= i64::MAX.cast_unsigned() >> page_shift)
}

#[cfg(test)]
#[path = "codec_tests.rs"]
pub(super) mod tests;

//! What files hold, its checksums, from memory or from the disk, and where it lies. A driver.

use super::extents::placed;
use super::journal::CRC;
use headstart::host::range::ByteRange;
use headstart_sys::fiemap::{self, Extent, Stored};
use rustix::fs::{Advice, Mode, OFlags};
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// Read at once, in bytes.
const CHUNK: usize = 1 << 20;
/// Direct I/O is aligned to this; enough for every device.
const ALIGN: usize = 4096;
/// No folio of a file is larger where pages have 4 KiB.
const LARGEST_FOLIO: u64 = 2 << 20;
/// The least that direct I/O reads, in bytes.
const SECTOR: usize = 512;

/// The CRC-64 of a range of a file, as far as the file goes.
///
/// # Errors
/// It can't be read.
pub fn crc(file: &File, range: ByteRange) -> io::Result<u64> {
    let mut digest = CRC.digest();
    let mut buffer = vec![0; CHUNK.min(usize::try_from(range.length()).unwrap_or(CHUNK)).max(1)];
    let mut at = range.offset;
    while at < range.end {
        let room = usize::try_from(range.end - at).map_or(buffer.len(), |n| n.min(buffer.len()));
        let read = match file.read_at(&mut buffer[..room], at) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        digest.update(&buffer[..read]);
        at += read as u64;
    }
    Ok(digest.finalize())
}

/// Where a range of a file lies.
pub(crate) fn extents_of(file: &File, range: ByteRange) -> io::Result<Vec<Extent>> {
    let pieces = fiemap::pieces_in(file, range.offset, range.length())?;
    let has_place =
        |(_, stored): &&(Extent, Stored)| !matches!(stored, Stored::Later | Stored::Elsewhere);
    Ok(pieces.iter().filter(has_place).map(placed).collect())
}

/// The bytes of a range of a file, as far as the file goes.
///
/// # Errors
/// It can't be read.
pub(crate) fn read_at_most(file: &File, range: ByteRange) -> io::Result<Vec<u8>> {
    let end = file.metadata()?.len().min(range.end);
    let length = usize::try_from(end.saturating_sub(range.offset)).unwrap_or(0);
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, range.offset)?;
    Ok(bytes)
}

/// Has reads from `file` fill folios of one page each, where nothing is cached.
///
/// `EXT4_IOC_MOVE_EXT` swaps in steps: each ends where an extent, a folio of the file or one of the donor does.
/// A folio is dirty after its first step, and the second waits for a commit of the journal
/// (`mext_move_extent`, Linux 6.18): 7 to 20 ms each. A folio of one page has one step.
pub(crate) fn read_in_single_pages(file: &File) {
    // A hint, as the next: without them it takes longer.
    let _ = rustix::fs::fadvise(file, 0, None, Advice::Random);
}

/// Has the kernel let go of the folios that hold a part of a range, as far as no program has them mapped. It lets go
/// of whole folios only, so those that cross an end count, too.
pub(crate) fn drop_folios(file: &File, range: ByteRange) {
    let begin = range.offset - range.offset % LARGEST_FOLIO;
    let end = range.end.checked_next_multiple_of(LARGEST_FOLIO).unwrap_or(range.end);
    let _ = rustix::fs::fadvise(file, begin, NonZeroU64::new(end - begin), Advice::DontNeed);
}

/// The same as [`crc()`], read from the disk itself: past the page cache, so that pages which programs have mapped
/// don't stand for what is on the disk, and stay. Where the file system can't, from the page cache after
/// the kernel has let go of what is not mapped. What is dirty must have been written before.
///
/// # Errors
/// As above.
pub fn crc_on_disk(file: &File, range: ByteRange) -> io::Result<u64> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::NOATIME | OFlags::CLOEXEC;
    let direct = rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from);
    match direct.and_then(|direct| crc_past_cache(&direct.into(), range)) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
        result => return result,
    }
    if let Some(length) = NonZeroU64::new(range.length()) {
        rustix::fs::fadvise(file, range.offset, Some(length), Advice::DontNeed)?;
    }
    crc(file, range)
}

/// The same of a file that is open for direct I/O.
fn crc_past_cache(file: &File, range: ByteRange) -> io::Result<u64> {
    let mut digest = CRC.digest();
    let mut memory = vec![0; CHUNK + ALIGN];
    let skip = memory.as_ptr().align_offset(ALIGN).min(ALIGN);
    let mut at = range.offset;
    while at < range.end {
        let room = usize::try_from(range.end - at).map_or(CHUNK, |n| n.min(CHUNK));
        let buffer = &mut memory[skip..skip + room];
        let read = match file.read_at(buffer, at) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => result?,
        };
        digest.update(&buffer[..read]);
        at += read as u64;
        // Only the end of the file cuts a block.
        if read == 0 || !read.is_multiple_of(SECTOR) {
            break;
        }
    }
    Ok(digest.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_that_of_the_range_as_far_as_the_file_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let bytes: Vec<u8> = (0..3_000_001u32).map(|n| (n % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let file = File::open(&path).unwrap();
        for (offset, end) in [
            (0, 3_000_001),
            (5, 9),
            (4096, 3_002_368),
            (2_999_999, 3_004_096),
            (4_000_000, 5_000_000),
        ] {
            let range = ByteRange { offset, end };
            let part = bytes.get(offset as usize..bytes.len().min(end as usize)).unwrap_or(&[]);
            assert_eq!(crc(&file, range).unwrap(), CRC.checksum(part), "{range:?}");
            assert_eq!(crc_on_disk(&file, range).unwrap(), CRC.checksum(part), "{range:?}");
        }
    }
}

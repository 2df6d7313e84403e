//! Checksums of what files hold, from memory or from the disk. A driver.

use super::journal::CRC;
use headstart::host::range::ByteRange;
use rustix::fs::Advice;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;

/// Read at once, in bytes.
const CHUNK: usize = 1 << 20;

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

/// The same, read from the disk again as far as the kernel lets its pages go: mapped ones stay. What
/// is dirty must have been written before.
///
/// # Errors
/// As above.
pub fn crc_on_disk(file: &File, range: ByteRange) -> io::Result<u64> {
    if let Some(length) = NonZeroU64::new(range.length()) {
        rustix::fs::fadvise(file, range.offset, Some(length), Advice::DontNeed)?;
    }
    crc(file, range)
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
        for (offset, end) in
            [(0, 3_000_001), (5, 9), (2_999_999, 3_004_096), (4_000_000, 5_000_000)]
        {
            let range = ByteRange { offset, end };
            let part = bytes.get(offset as usize..bytes.len().min(end as usize)).unwrap_or(&[]);
            assert_eq!(crc(&file, range).unwrap(), CRC.checksum(part), "{range:?}");
            assert_eq!(crc_on_disk(&file, range).unwrap(), CRC.checksum(part), "{range:?}");
        }
    }
}

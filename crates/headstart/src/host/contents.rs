//! Reads whole files of bounded size. `/dev/zero`, an endless pipe and a file of terabytes are
//! refused. Clippy forbids other functions that read a whole file. The owner of a file is checked
//! elsewhere.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// No file that headstart reads as a whole is larger.
pub const MOST_BYTES: u64 = 256 << 20;
/// Room for files without a size, such as those of /proc. `events/header_page` in tracefs needs one
/// large read: it returns the start of its text at the first read and nothing at the second.
const ROOM: usize = 16 << 10;

/// All bytes of a file.
///
/// # Errors
/// It can't be read, or is larger than [`MOST_BYTES`].
pub fn bytes(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    rest_of(File::open(path)?)
}

/// All of a file, as text.
///
/// # Errors
/// Those of [`bytes`], and where it is not UTF-8.
pub fn text(path: impl AsRef<Path>) -> io::Result<String> {
    let not_utf8 = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8");
    String::from_utf8(bytes(path)?).map_err(not_utf8)
}

/// All bytes that come from a file that is open already.
///
/// # Errors
/// Those of [`bytes`].
pub fn rest_of(file: impl Read) -> io::Result<Vec<u8>> {
    up_to(file, MOST_BYTES)
}

#[allow(clippy::disallowed_methods)] // Here is the limit.
fn up_to(file: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(ROOM);
    // One byte more, to detect a larger file.
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let why = format!("it is larger than {} MiB, the most that is read of a file", most >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_larger_than_the_limit_is_refused_and_what_is_as_large_is_read() {
        let zeros = |n| up_to(io::repeat(0).take(n), 1 << 20);
        assert_eq!(zeros(1 << 20).unwrap().len(), 1 << 20);
        let error = zeros((1 << 20) + 1).unwrap_err();
        assert_eq!(error.to_string(), "it is larger than 1 MiB, the most that is read of a file");
    }

    #[test]
    fn a_file_without_an_end_is_refused_and_those_of_proc_are_read_as_a_whole() {
        let error = bytes("/dev/zero").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert!(text("/proc/self/maps").unwrap().ends_with('\n'));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, b"a\xff").unwrap();
        assert_eq!(bytes(&path).unwrap(), b"a\xff");
        assert_eq!(text(&path).unwrap_err().to_string(), "it is not UTF-8");
    }
}

//! A file as a whole, with what identifies it.

use rustix::fs::{Mode, OFlags, Stat};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// No larger file is read.
const MOST_BYTES: u64 = 4 << 30;

/// A file that was read.
#[derive(Debug)]
pub struct Read {
    /// It is open for reading.
    pub file: File,
    /// As it was before it was read.
    pub stat: Stat,
    /// All bytes.
    pub bytes: Vec<u8>,
}

/// Whether a file begins as an ELF file does.
pub fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    let opened = open(path).ok();
    opened.is_some_and(|(file, _)| file.read_exact_at(&mut magic, 0).is_ok())
        && magic == *b"\x7fELF"
}

/// Opens a regular file.
pub(super) fn open(path: &Path) -> io::Result<(File, Stat)> {
    // A pipe or a device must not keep us waiting.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let stat = rustix::fs::fstat(&file)?;
    if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    Ok((file, stat))
}

/// Reads a regular file, following links.
///
/// # Errors
/// It can't be read, is no regular file, or is larger than 4 GiB.
pub fn read(path: &Path) -> io::Result<Read> {
    let (file, stat) = open(path)?;
    let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
    if size > MOST_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 4 GiB"));
    }
    let mut bytes = vec![0; size as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(Read { file, stat, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, b"\x7fELF.").unwrap();
        assert_eq!(read(&path).unwrap().bytes, b"\x7fELF.");
        assert!(is_elf(&path) && !is_elf(Path::new("/etc/passwd")));
        for path in [Path::new("/dev/zero"), dir.path(), &dir.path().join("none")] {
            assert!(read(path).is_err(), "{}", path.display());
        }
    }
}

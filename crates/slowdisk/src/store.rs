//! The bytes of a device: a private copy of the image in memory, or the image
//! itself. Knows nothing of time.

use headstart::host::memory;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, MemfdFlags, SeekFrom};

use crate::error::{Error, Result};

/// Copied at a time; zeroes of that size become holes.
const CHUNK: usize = 128 << 10;

/// The bytes of a device.
#[derive(Debug)]
pub struct Store {
    file: File,
    len: u64,
}

impl Store {
    /// A copy of the image in memory under `name` (memfd_create(2)): every
    /// start is from the same bytes, and dropping caches does not reach it.
    /// Holes and zeroes take no memory.
    ///
    /// # Errors
    /// When the image cannot be read, is no disk, or is more than memory holds.
    pub fn copy(image: &Path, name: &str) -> Result<Self> {
        let from = File::open(image).map_err(Error::io("open", image))?;
        let len = check(image, &from)?;
        let stored = from.metadata().map_err(Error::io("examine", image))?.blocks() * 512;
        if memory::available().is_some_and(|free| stored > free / 10 * 9) {
            return Err(Error::Refused(format!(
                "{} holds {} MiB, which memory has not left: take a smaller image, or \
                 --keep-writes, which needs no copy",
                image.display(),
                stored >> 20
            )));
        }
        let file = copy(&from, len, name).map_err(Error::io("copy into memory", image))?;
        Ok(Self { file, len })
    }

    /// The image itself; what is written stays.
    ///
    /// # Errors
    /// When it cannot be opened for writing or is no disk.
    pub fn share(image: &Path) -> Result<Self> {
        let file = File::options().read(true).write(true).open(image);
        let file = file.map_err(Error::io("open for writing", image))?;
        let len = check(image, &file)?;
        Ok(Self { file, len })
    }

    /// Size of the device in bytes.
    pub fn size(&self) -> u64 {
        self.len
    }

    /// The file with the bytes, for who serves it without a model.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// Those of pread(2), and the end of the device.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    /// Writes `bytes` from `offset` on.
    ///
    /// # Errors
    /// Those of pwrite(2); a write beyond the end is refused.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.within(offset, bytes.len() as u64)?;
        self.file.write_all_at(bytes, offset)
    }

    /// Makes a range read as zeroes and gives its memory back.
    ///
    /// # Errors
    /// Those of fallocate(2); a range beyond the end is refused.
    pub fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.within(offset, len)?;
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.file, mode, offset, len)?)
    }

    fn within(&self, offset: u64, len: u64) -> io::Result<()> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        inside.then_some(()).ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}

/// The image's size, if it can be a disk.
fn check(image: &Path, file: &File) -> Result<u64> {
    let meta = file.metadata().map_err(Error::io("examine", image))?;
    let refuse = |why| Err(Error::Refused(format!("{} {why}", image.display())));
    if !meta.is_file() {
        return refuse("is not a regular file: give a disk image");
    }
    if meta.len() == 0 || !meta.len().is_multiple_of(4096) {
        return refuse("is not a whole number of 4,096-byte blocks: truncate(1) rounds it up");
    }
    Ok(meta.len())
}

fn copy(from: &File, len: u64, name: &str) -> io::Result<File> {
    let to = File::from(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?);
    to.set_len(len)?;
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    while at < len {
        let data = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            Err(rustix::io::Errno::NXIO) => break,
            data => data?,
        };
        at = data / CHUNK as u64 * CHUNK as u64;
        let hole = rustix::fs::seek(from, SeekFrom::Hole(data))?;
        while at < hole.min(len) {
            let part = &mut buffer[..CHUNK.min((len - at) as usize)];
            from.read_exact_at(part, at)?;
            if part.iter().any(|byte| *byte != 0) {
                to.write_all_at(part, at)?;
            }
            at += part.len() as u64;
        }
    }
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A sparse image with some bytes in the middle and at the end.
    fn image() -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(64 * MIB).unwrap();
        file.as_file().write_all_at(b"middle", 20 * MIB + 300_000).unwrap();
        file.as_file().write_all_at(b"end", 64 * MIB - 3).unwrap();
        file
    }

    #[test]
    fn the_copy_is_equal_and_its_holes_take_no_memory() {
        let image = image();
        let store = Store::copy(image.path(), "test").unwrap();
        let mut copied = vec![1; store.size() as usize];
        store.read(0, &mut copied).unwrap();
        assert!(copied == std::fs::read(image.path()).unwrap());
        assert_eq!(store.file().metadata().unwrap().blocks() * 512, 2 * CHUNK as u64);
    }

    #[test]
    fn a_write_reaches_the_copy_but_not_the_image() {
        let image = image();
        let store = Store::copy(image.path(), "test").unwrap();
        store.write(20 * MIB + 300_000, b"MIDDLE").unwrap();
        let mut read = [0; 6];
        store.read(20 * MIB + 300_000, &mut read).unwrap();
        assert_eq!(&read, b"MIDDLE");
        image.as_file().read_exact_at(&mut read, 20 * MIB + 300_000).unwrap();
        assert_eq!(&read, b"middle");
    }

    #[test]
    fn a_write_to_a_shared_image_stays() {
        let image = image();
        Store::share(image.path()).unwrap().write(0, b"first").unwrap();
        assert!(std::fs::read(image.path()).unwrap().starts_with(b"first"));
    }

    #[test]
    fn a_discarded_range_reads_as_zeroes() {
        let image = image();
        let store = Store::copy(image.path(), "test").unwrap();
        store.discard(20 * MIB, MIB).unwrap();
        let mut read = [1; 6];
        store.read(20 * MIB + 300_000, &mut read).unwrap();
        assert_eq!(read, [0; 6]);
    }

    #[test]
    fn nothing_beyond_the_end_is_touched() {
        let image = image();
        let store = Store::copy(image.path(), "test").unwrap();
        assert!(store.write(64 * MIB - 1, b"xx").is_err());
        assert!(store.write(u64::MAX, b"x").is_err());
        assert!(store.discard(64 * MIB, 4096).is_err());
        assert!(store.read(64 * MIB - 1, &mut [0; 2]).is_err());
        assert_eq!(store.file().metadata().unwrap().len(), 64 * MIB);
    }

    #[test]
    fn what_cannot_be_a_disk_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(Store::copy(file.path(), "x").is_err(), "an empty file");
        file.as_file().set_len(4097).unwrap();
        assert!(Store::copy(file.path(), "x").unwrap_err().to_string().contains("4,096"));
        assert!(Store::copy(Path::new("/"), "x").is_err(), "a directory");
    }
}

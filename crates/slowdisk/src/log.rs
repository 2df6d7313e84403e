//! What a disk was asked to do, in order: a script can make the disk as it is after a power cut at any
//! moment, or see what is read where. Knows nothing of what a cut leaves; `bench/storm/layout.py` does.
//!
//! The file is a sequence of records. Each has a byte that says what it is and two numbers of 8 bytes,
//! little endian:
//!
//! | record | numbers | behind it |
//! |---|---|---|
//! | `W` a write came | offset, length | the bytes |
//! | `D` a discard came, or zeroes | offset, length | |
//! | `F` a flush came | 0, 0 | |
//! | `A` it is about to be answered | which of the records above, from 0; 0 | |
//! | `R` a read came | offset, length | |
//!
//! What was answered before a flush came is on the disk once that flush is answered; all else may be lost.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};

/// The log of a disk.
#[derive(Debug)]
pub struct Log(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    file: File,
    /// Changes so far.
    count: u64,
}

/// A record that can be answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Number(u64);

impl Log {
    /// An empty one.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(Error::io("make", path))?;
        Ok(Self(Mutex::new(Inner { file, count: 0 })))
    }

    /// A write came.
    ///
    /// # Errors
    /// Those of write(2).
    pub fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<Number> {
        self.add(b'W', offset, bytes.len() as u64, bytes)
    }

    /// A discard came.
    ///
    /// # Errors
    /// Those of write(2).
    pub fn discard(&self, offset: u64, length: u64) -> io::Result<Number> {
        self.add(b'D', offset, length, &[])
    }

    /// A flush came.
    ///
    /// # Errors
    /// Those of write(2).
    pub fn flush(&self) -> io::Result<Number> {
        self.add(b'F', 0, 0, &[])
    }

    /// A read came. It changes nothing, so it is not counted and has no answer.
    ///
    /// # Errors
    /// Those of write(2).
    pub fn read(&self, offset: u64, length: u64) -> io::Result<()> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.file.write_all(&record(b'R', offset, length))
    }

    /// A change is about to be answered.
    ///
    /// # Errors
    /// Those of write(2).
    pub fn answer(&self, Number(number): Number) -> io::Result<()> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.file.write_all(&record(b'A', number, 0))
    }

    fn add(&self, kind: u8, offset: u64, length: u64, bytes: &[u8]) -> io::Result<Number> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.file.write_all(&record(kind, offset, length))?;
        inner.file.write_all(bytes)?;
        inner.count += 1;
        Ok(Number(inner.count - 1))
    }
}

fn record(kind: u8, first: u64, second: u64) -> [u8; 17] {
    let mut out = [kind; 17];
    out[1..9].copy_from_slice(&first.to_le_bytes());
    out[9..].copy_from_slice(&second.to_le_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_in_the_file_in_order_and_answers_name_theirs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = Log::create(&path).unwrap();
        log.discard(4096, 512).unwrap();
        log.read(16_384, 4096).unwrap();
        let write = log.write(8192, b"ab").unwrap();
        let flush = log.flush().unwrap();
        log.answer(flush).unwrap();
        log.answer(write).unwrap();
        let expected: Vec<u8> = [
            &record(b'D', 4096, 512)[..],
            &record(b'R', 16_384, 4096),
            &record(b'W', 8192, 2),
            b"ab",
            &record(b'F', 0, 0),
            &record(b'A', 2, 0),
            &record(b'A', 1, 0),
        ]
        .concat();
        assert_eq!(std::fs::read(&path).unwrap(), expected);
        assert_eq!(expected[..17], *b"D\0\x10\0\0\0\0\0\0\0\x02\0\0\0\0\0\0");
    }
}

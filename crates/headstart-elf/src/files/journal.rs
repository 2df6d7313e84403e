//! How repacked files become what they were: a record for each, with the bytes that were changed.
//!
//! Records are in a directory that only its owner can read. The codec is pure.

use crc::{CRC_64_XZ, Crc, Table};
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};

const CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_XZ);
/// The first line of a record; the second one is JSON, and bytes follow.
const MAGIC: &[u8] = b"headstart-elf-undo 1\n";
/// Bytes that are compared at once to find what was changed.
const GRAIN: usize = 64;
/// What the names of records end with.
const EXTENSION: &str = "undo";

/// How a file becomes what it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    head: Head,
    /// What was at the ranges.
    bytes: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Head {
    /// All names of the file, absolute in its system.
    names: Vec<Vec<u8>>,
    old_len: u64,
    new_len: u64,
    /// Offset and length, ascending, of what differs, as far as the old file goes.
    ranges: Vec<(u64, u64)>,
    /// CRC-64 of the new bytes at the ranges, and of what the new file has behind the old one.
    new_crc: u64,
    /// CRC-64 of the old bytes at the ranges.
    old_crc: u64,
    /// Whether the packaged file has another name, by a diversion.
    #[serde(default, skip_serializing_if = "is_false")]
    diverted: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // Serde has it so.
fn is_false(value: &bool) -> bool {
    !*value
}

impl Record {
    /// How `new` becomes `old` again.
    pub fn between(names: &[PathBuf], old: &[u8], new: &[u8]) -> Self {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for (n, chunk) in old.chunks(GRAIN).enumerate() {
            let here = n * GRAIN..n * GRAIN + chunk.len();
            if new.get(here.clone()) == Some(chunk) {
                continue;
            }
            match ranges.last_mut() {
                Some(last) if last.end == here.start => last.end = here.end,
                _ => ranges.push(here),
            }
        }
        let bytes: Vec<u8> =
            ranges.iter().filter_map(|range| old.get(range.clone())).flatten().copied().collect();
        let head = Head {
            names: names.iter().map(|name| name.as_os_str().as_bytes().to_vec()).collect(),
            old_len: old.len() as u64,
            new_len: new.len() as u64,
            new_crc: checksum(new, &ranges, old.len()),
            old_crc: CRC.checksum(&bytes),
            ranges: ranges.iter().map(|range| (range.start as u64, range.len() as u64)).collect(),
            diverted: false,
        };
        Self { head, bytes }
    }

    /// All names of the file, absolute in its system.
    pub fn names(&self) -> Vec<PathBuf> {
        self.head.names.iter().map(|name| PathBuf::from(OsStr::from_bytes(name))).collect()
    }

    /// The same, of a file whose packaged one has a name of its own.
    #[must_use]
    pub fn diverted(mut self) -> Self {
        self.head.diverted = true;
        self
    }

    /// Whether it is one.
    pub fn is_diverted(&self) -> bool {
        self.head.diverted
    }

    /// Whether these bytes are the old file, as far as it was changed.
    pub fn is_old(&self, bytes: &[u8]) -> bool {
        bytes.len() as u64 == self.head.old_len
            && self
                .ranges()
                .is_some_and(|ranges| checksum(bytes, &ranges, bytes.len()) == self.head.old_crc)
    }

    fn ranges(&self) -> Option<Vec<Range<usize>>> {
        let range = |(begin, len): &(u64, u64)| {
            let begin = usize::try_from(*begin).ok()?;
            Some(begin..begin.checked_add(usize::try_from(*len).ok()?)?)
        };
        self.head.ranges.iter().map(range).collect()
    }

    /// The old file, if `now` is the new one.
    pub fn undo(&self, now: &[u8]) -> Option<Vec<u8>> {
        let ranges = self.ranges()?;
        let old_len = usize::try_from(self.head.old_len).ok()?;
        let is_new = now.len() as u64 == self.head.new_len
            && old_len <= now.len()
            && ranges.iter().all(|range| range.end <= old_len)
            && checksum(now, &ranges, old_len) == self.head.new_crc;
        if !is_new {
            return None;
        }
        let mut old = now.get(..old_len)?.to_vec();
        let mut bytes = self.bytes.as_slice();
        for range in ranges {
            let (these, rest) = bytes.split_at_checked(range.len())?;
            old.get_mut(range)?.copy_from_slice(these);
            bytes = rest;
        }
        Some(old)
    }

    /// Whether a file of this size is the new one, as far as it was changed; only that is read.
    ///
    /// # Errors
    /// It can't be read.
    pub fn fits(&self, file: &File, size: u64) -> io::Result<bool> {
        let (Some(mut ranges), Ok(old_len), Ok(new_len)) =
            (self.ranges(), usize::try_from(self.head.old_len), usize::try_from(size))
        else {
            return Ok(false);
        };
        let is_inside = old_len <= new_len && ranges.iter().all(|range| range.end <= old_len);
        if size != self.head.new_len || !is_inside {
            return Ok(false);
        }
        ranges.push(old_len..new_len);
        let mut digest = CRC.digest();
        for range in ranges {
            let mut bytes = vec![0; range.len()];
            file.read_exact_at(&mut bytes, range.start as u64)?;
            digest.update(&bytes);
        }
        Ok(digest.finalize() == self.head.new_crc)
    }

    /// The file form.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Numbers and lists are always JSON.
        let head = serde_json::to_vec(&self.head).unwrap_or_default();
        [MAGIC, &head, b"\n", &self.bytes].concat()
    }

    /// From its file form.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let head: Head = serde_json::from_slice(rest.get(..end)?).ok()?;
        let bytes = rest.get(end + 1..)?.to_vec();
        let total = head.ranges.iter().try_fold(0u64, |sum, (_, len)| sum.checked_add(*len))?;
        let is_whole = total == bytes.len() as u64 && CRC.checksum(&bytes) == head.old_crc;
        is_whole.then_some(Self { head, bytes })
    }
}

/// Of the bytes at ranges, and of all from `rest` on.
fn checksum(bytes: &[u8], ranges: &[Range<usize>], rest: usize) -> u64 {
    let mut digest = CRC.digest();
    for range in ranges {
        digest.update(bytes.get(range.clone()).unwrap_or(&[]));
    }
    digest.update(bytes.get(rest..).unwrap_or(&[]));
    digest.finalize()
}

/// The directory of the records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Journal {
    dir: PathBuf,
}

impl Journal {
    /// That in a directory, which need not be there yet.
    pub fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Where a file's record is.
    fn file(&self, name: &Path) -> PathBuf {
        let number = CRC.checksum(name.as_os_str().as_bytes());
        self.dir.join(format!("{number:016x}.{EXTENSION}"))
    }

    /// Refuses a directory that someone else could have written to.
    fn check(&self) -> io::Result<()> {
        let meta = self.dir.symlink_metadata()?;
        let is_ours = meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw();
        if is_ours && meta.mode() & 0o022 == 0 {
            return Ok(());
        }
        let why = format!("{} is no directory that only its owner may write", self.dir.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }

    /// Keeps a record, under each name of its file.
    ///
    /// # Errors
    /// It can't be written.
    pub fn keep(&self, record: &Record) -> io::Result<()> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        self.check()?;
        let names = record.names();
        let Some((first, others)) = names.split_first() else { return Ok(()) };
        let target = self.file(first);
        let staged = target.with_extension("new");
        let mut file = std::fs::File::create(&staged)?;
        rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        file.write_all(&record.to_bytes())?;
        file.sync_all()?;
        std::fs::rename(&staged, &target)?;
        for name in others {
            let (link, file) = (target.with_extension("new"), self.file(name));
            std::fs::hard_link(&target, &link)?;
            std::fs::rename(&link, &file)?;
            // Where both are the same file already, rename(2) does nothing.
            let _ = std::fs::remove_file(&link);
        }
        std::fs::File::open(&self.dir)?.sync_all()
    }

    /// The record of a file, by one of its names.
    ///
    /// # Errors
    /// It is there, and can't be read or is damaged.
    pub fn find(&self, name: &Path) -> io::Result<Option<Record>> {
        let path = self.file(name);
        let read = match super::read::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read?,
        };
        self.check()?;
        let record = Record::from_bytes(&read.bytes);
        let record = record.filter(|record| record.names().iter().any(|one| one == name));
        record.map(Some).ok_or_else(|| {
            let why = format!("its record {} is damaged", path.display());
            io::Error::new(io::ErrorKind::InvalidData, why)
        })
    }

    /// Forgets the record of a file, under each of its names that has no other one since.
    ///
    /// # Errors
    /// It can't be removed.
    pub fn forget(&self, record: &Record) -> io::Result<()> {
        let names = record.names();
        let is_of_others =
            |name: &PathBuf| matches!(self.find(name), Ok(Some(found)) if found.names() != names);
        for name in names.iter().filter(|name| !is_of_others(name)) {
            match std::fs::remove_file(self.file(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// All records that can be read, by names, and how many can't.
    pub fn all(&self) -> (Vec<Record>, u64) {
        let (mut out, mut damaged) = (Vec::<Record>::new(), 0);
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        for path in paths.filter(|path| path.extension() == Some(OsStr::new(EXTENSION))) {
            let record = super::read::read(&path).ok().filter(|_| self.check().is_ok());
            match record.and_then(|read| Record::from_bytes(&read.bytes)) {
                Some(record) => out.push(record),
                None => damaged += 1,
            }
        }
        out.sort_by(|a, b| a.head.names.cmp(&b.head.names));
        out.dedup_by(|a, b| a.head.names == b.head.names);
        (out, damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_changed_comes_back(
            old in prop::collection::vec(any::<u8>(), 0..2000),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
            tail in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let mut new = old.clone();
            for (at, byte) in changes {
                if !new.is_empty() {
                    let at = at.index(new.len());
                    new[at] = byte;
                }
            }
            new.extend(&tail);
            let record = Record::between(&["/a".into(), "/b".into()], &old, &new);
            let read = Record::from_bytes(&record.to_bytes()).unwrap();
            prop_assert_eq!(&read, &record);
            prop_assert!(read.is_old(&old) && !read.is_diverted());
            prop_assert_eq!(read.is_old(&new), new == old);
            let file = tempfile::tempfile().unwrap();
            for (bytes, is_it) in [(&new, true), (&old, new == old)] {
                file.set_len(0).unwrap();
                file.write_all_at(bytes, 0).unwrap();
                prop_assert_eq!(read.fits(&file, bytes.len() as u64).unwrap(), is_it);
            }
            prop_assert_eq!(read.undo(&new), Some(old));
            let diverted = record.diverted();
            prop_assert!(Record::from_bytes(&diverted.to_bytes()).unwrap().is_diverted());
            new.push(0);
            prop_assert_eq!(read.undo(&new), None);
        }

        #[test]
        fn a_damaged_record_is_refused_or_the_same(at in any::<prop::sample::Index>(), bit in 0u32..8) {
            let record = Record::between(&["/a".into()], &[1; 300], &[2; 400]);
            let mut bytes = record.to_bytes();
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
            if let Some(read) = Record::from_bytes(&bytes) {
                prop_assert!(read != record);
                // Whatever it says, it does not panic.
                let _ = read.undo(&[2; 400]);
            }
        }
    }

    #[test]
    fn a_record_is_found_by_each_name_and_forgotten_under_all() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::at(dir.path().join("elf"));
        let names = [PathBuf::from("/usr/lib/a"), "/usr/lib/b".into()];
        let record = Record::between(&names, b"old", b"new");
        for _ in 0..2 {
            journal.keep(&record).unwrap();
            for name in &names {
                assert_eq!(journal.find(name).unwrap().as_ref(), Some(&record));
            }
        }
        assert_eq!(journal.all(), (vec![record.clone()], 0));
        assert_eq!(journal.find(Path::new("/usr/lib/c")).unwrap(), None);
        journal.forget(&record).unwrap();
        assert_eq!(journal.all(), (vec![], 0));
    }
}

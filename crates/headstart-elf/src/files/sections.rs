//! Reads the section headers of a file and their names, and nothing else of it: some files are
//! large.

use crate::image::sections::Section;
use object::LittleEndian as LE;
use object::elf::{self, FileHeader64, SectionHeader64};
use object::pod;
use object::read::elf::{FileHeader, SectionHeader};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// No larger table is read: 65,279 headers of 64 bytes take less.
const MOST_BYTES: u64 = 8 << 20;

/// The sections of a 64-bit little-endian ELF file that is open; none where it has no headers.
///
/// # Errors
/// It can't be read; `InvalidData` and `UnexpectedEof` where it is no such file.
pub fn read(file: &File) -> io::Result<Vec<Section>> {
    let part = |offset: u64, bytes: u64| {
        if bytes > MOST_BYTES {
            return Err(wrong("a table is too large"));
        }
        let mut part = vec![0; bytes as usize];
        file.read_exact_at(&mut part, offset)?;
        Ok(part)
    };
    let header = part(0, size_of::<FileHeader64<LE>>() as u64)?;
    if header.get(..4) != Some(&elf::ELFMAG)
        || header.get(4..6) != Some(&[elf::ELFCLASS64.0, elf::ELFDATA2LSB.0])
    {
        return Err(wrong("it is no 64-bit little-endian ELF file"));
    }
    let (header, _) = pod::from_bytes::<FileHeader64<LE>>(&header).map_err(|()| cut())?;
    let count = usize::from(header.e_shnum(LE));
    let bytes = (count * size_of::<SectionHeader64<LE>>()) as u64;
    if usize::from(header.e_shentsize(LE)) != size_of::<SectionHeader64<LE>>() {
        return Ok(Vec::new());
    }
    let table = part(header.e_shoff(LE), bytes)?;
    let (table, _) =
        pod::slice_from_bytes::<SectionHeader64<LE>>(&table, count).map_err(|()| cut())?;
    let names = match table.get(usize::from(header.e_shstrndx.get(LE).0)) {
        Some(names) => part(names.sh_offset(LE), names.sh_size(LE))?,
        None => Vec::new(),
    };
    let name = |header: &SectionHeader64<LE>| {
        let name = names.get(header.sh_name(LE) as usize..).unwrap_or_default();
        name.split(|byte| *byte == 0).next().unwrap_or_default()
    };
    Ok(table.iter().map(|header| Section::of(header, name(header))).collect())
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn cut() -> io::Error {
    wrong("its headers are cut")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Image;

    #[test]
    fn the_same_sections_are_found_as_in_the_whole_file() {
        let path = std::env::current_exe().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let sections = read(&File::open(&path).unwrap()).unwrap();
        assert_eq!(sections, Image::parse(&bytes).unwrap().sections);
        assert!(sections.len() > 10);
    }

    #[test]
    fn what_is_no_elf_file_or_damaged_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        file.truncate(100_000);
        for bytes in [&b"#!/bin/sh"[..], &[0; 100], &file[..50], &file] {
            std::fs::write(&path, bytes).unwrap();
            let error = read(&File::open(&path).unwrap()).unwrap_err().kind();
            let kinds = [io::ErrorKind::InvalidData, io::ErrorKind::UnexpectedEof];
            assert!(kinds.contains(&error), "{}: {error}", bytes.len());
        }
    }
}

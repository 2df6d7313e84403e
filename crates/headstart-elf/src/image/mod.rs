//! An ELF file as a loader and a debugger see it: segments, the dynamic section, sections,
//! symbols. A thin layer over the `object` crate that copies what is small and borrows the rest.
//!
//! Only 64-bit little-endian files are read: those of x86-64, aarch64, riscv64 and loongarch64.
//! Offsets and sizes are those of the file and may be wrong; [`Image::at`] and
//! [`Image::file_range`] check them.

pub mod dynamic;
pub mod sections;
pub mod symbols;

use dynamic::Dynamic;
use object::LittleEndian as LE;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use sections::Section;
use std::ops::Range;

/// Why a file is not looked at.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum ImageError {
    /// Something else.
    #[error("it is no ELF file")]
    NotElf,
    /// 32 bits, or big-endian.
    #[error("it is no 64-bit little-endian ELF file")]
    OtherClass,
    /// Offsets that lead out of the file, and the like.
    #[error("it is damaged: {0}")]
    Damaged(String),
}

/// The processor that a file is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Machine {
    /// `EM_X86_64`
    X86_64,
    /// `EM_AARCH64`
    Aarch64,
    /// `EM_RISCV`
    Riscv64,
    /// `EM_LOONGARCH`
    Loongarch64,
    /// Any other.
    Other(u16),
}

impl Machine {
    /// By the number in the header.
    pub fn of(number: u16) -> Self {
        match elf::Machine(number) {
            elf::EM_X86_64 => Self::X86_64,
            elf::EM_AARCH64 => Self::Aarch64,
            elf::EM_RISCV => Self::Riscv64,
            elf::EM_LOONGARCH => Self::Loongarch64,
            other => Self::Other(other.0),
        }
    }
}

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// `ET_EXEC`: a program at a fixed address.
    Fixed,
    /// `ET_DYN`: a shared object, or a program that may be anywhere.
    Shared,
    /// Others, as objects and core dumps.
    Other,
}

/// A program header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// `PT_LOAD` and so on.
    pub kind: u32,
    /// `PF_R`, `PF_W`, `PF_X`.
    pub flags: u32,
    /// In the file, in bytes.
    pub offset: u64,
    /// Where it is in memory, without the load bias.
    pub address: u64,
    /// Bytes in the file.
    pub file_size: u64,
    /// Bytes in memory.
    pub memory_size: u64,
    /// Bytes.
    pub align: u64,
}

impl Segment {
    /// Whether it is loaded.
    pub fn is_load(&self) -> bool {
        self.kind == elf::PT_LOAD.0
    }
    /// Whether it may be written.
    pub fn is_writable(&self) -> bool {
        self.flags & elf::PF_W.0 != 0
    }
    /// Whether it holds code.
    pub fn is_executable(&self) -> bool {
        self.flags & elf::PF_X.0 != 0
    }
    /// Where the addresses with bytes from the file end.
    pub fn file_end(&self) -> u64 {
        self.address.saturating_add(self.file_size)
    }
    /// Whether all of these addresses have bytes from the file.
    fn holds(&self, address: u64, size: u64) -> bool {
        let end = address.checked_add(size);
        self.address <= address && end.is_some_and(|end| end <= self.file_end())
    }
}

/// A file that was read.
#[derive(Clone, Debug)]
pub struct Image<'a> {
    /// All bytes of the file.
    pub data: &'a [u8],
    /// The processor.
    pub machine: Machine,
    /// What it is.
    pub kind: FileKind,
    /// Where the program begins.
    pub entry: u64,
    /// Where the program headers are in the file, and how many bytes they take.
    pub program_headers: Range<u64>,
    /// The program headers.
    pub segments: Vec<Segment>,
    /// The dynamic section, if there is one.
    pub dynamic: Option<Dynamic>,
    /// The section headers; none where they were stripped or are damaged.
    pub sections: Vec<Section>,
    /// The index of the section with the names of sections.
    pub section_names: usize,
    /// Where the section headers are in the file.
    pub section_headers: Range<u64>,
}

impl<'a> Image<'a> {
    /// Reads the headers of a file.
    ///
    /// # Errors
    /// Those of [`ImageError`].
    pub fn parse(data: &'a [u8]) -> Result<Self, ImageError> {
        if !data.starts_with(&elf::ELFMAG) {
            return Err(ImageError::NotElf);
        }
        if data.get(4) != Some(&elf::ELFCLASS64.0) || data.get(5) != Some(&elf::ELFDATA2LSB.0) {
            return Err(ImageError::OtherClass);
        }
        let damaged = |error: object::read::Error| ImageError::Damaged(error.to_string());
        let header = FileHeader64::<LE>::parse(data).map_err(damaged)?;
        let headers = header.program_headers(LE, data).map_err(damaged)?;
        let segments: Vec<Segment> = headers
            .iter()
            .map(|header| Segment {
                kind: header.p_type(LE).0,
                flags: header.p_flags(LE).0,
                offset: header.p_offset(LE),
                address: header.p_vaddr(LE),
                file_size: header.p_filesz(LE),
                memory_size: header.p_memsz(LE),
                align: header.p_align(LE),
            })
            .collect();
        for segment in segments.iter().filter(|segment| segment.is_load()) {
            let end = segment.offset.checked_add(segment.file_size);
            if end.is_none_or(|end| end > data.len() as u64) {
                let what = "a segment ends behind the end of the file";
                return Err(ImageError::Damaged(what.into()));
            }
        }
        let first = header.e_phoff(LE);
        let last = first.saturating_add(size_of_val(headers) as u64);
        let dynamic = segments
            .iter()
            .find(|segment| segment.kind == elf::PT_DYNAMIC.0)
            .map(|segment| Dynamic::parse(data, segment))
            .transpose()?;
        let (sections, section_names, section_headers) = sections::read(header, data);
        Ok(Self {
            data,
            machine: Machine::of(header.e_machine(LE).0),
            kind: match header.e_type(LE) {
                elf::ET_EXEC => FileKind::Fixed,
                elf::ET_DYN => FileKind::Shared,
                _ => FileKind::Other,
            },
            entry: header.e_entry(LE),
            program_headers: first..last,
            segments,
            dynamic,
            sections,
            section_names,
            section_headers,
        })
    }

    /// The segments that are loaded.
    pub fn loads(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|segment| segment.is_load())
    }

    /// Where in the file the bytes of these addresses are, if one loaded segment has all of them.
    pub fn file_range(&self, address: u64, size: u64) -> Option<Range<usize>> {
        let segment = self.loads().find(|segment| segment.holds(address, size))?;
        let begin = usize::try_from(segment.offset + (address - segment.address)).ok()?;
        let end = begin.checked_add(usize::try_from(size).ok()?)?;
        (end <= self.data.len()).then_some(begin..end)
    }

    /// The bytes of these addresses in the file.
    pub fn at(&self, address: u64, size: u64) -> Option<&'a [u8]> {
        self.data.get(self.file_range(address, size)?)
    }

    /// The value of a dynamic entry.
    pub fn tag(&self, tag: u64) -> Option<u64> {
        self.dynamic.as_ref()?.value(tag)
    }

    /// A string of the dynamic string table.
    pub fn dynamic_string(&self, offset: u64) -> Option<&'a [u8]> {
        let table = self.tag(dynamic::STRTAB)?;
        let size = self.tag(dynamic::STRSZ)?;
        let left = size.checked_sub(offset)?;
        let bytes = self.at(table.checked_add(offset)?, left)?;
        bytes.split(|byte| *byte == 0).next().filter(|text| text.len() < bytes.len())
    }

    /// The names of the libraries that it needs (`DT_NEEDED`).
    pub fn needed(&self) -> Vec<&'a [u8]> {
        let entries = self.dynamic.iter().flat_map(|dynamic| &dynamic.entries);
        let names = entries.filter(|(tag, _)| *tag == dynamic::NEEDED);
        names.filter_map(|(_, offset)| self.dynamic_string(*offset)).collect()
    }

    /// The path of the loader (`PT_INTERP`), without its NUL.
    pub fn interpreter(&self) -> Option<&'a [u8]> {
        let segment = self.segments.iter().find(|segment| segment.kind == elf::PT_INTERP.0)?;
        let begin = usize::try_from(segment.offset).ok()?;
        let end = begin.checked_add(usize::try_from(segment.file_size).ok()?)?;
        self.data.get(begin..end)?.split(|byte| *byte == 0).next()
    }

    /// A section by its name.
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_elf_file_of_64_bits_is_refused() {
        assert_eq!(Image::parse(b"#!/bin/sh").unwrap_err(), ImageError::NotElf);
        assert_eq!(Image::parse(b"\x7fELF\x01\x01").unwrap_err(), ImageError::OtherClass);
        assert_eq!(Image::parse(b"\x7fELF\x02\x02").unwrap_err(), ImageError::OtherClass);
        let error = Image::parse(b"\x7fELF\x02\x01").unwrap_err();
        assert!(matches!(error, ImageError::Damaged(_)), "{error}");
    }
}

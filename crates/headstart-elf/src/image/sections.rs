//! Section headers with their names. Loaders need none of them.

use object::LittleEndian as LE;
use object::elf::{FileHeader64, SectionHeader64};
use object::read::elf::{FileHeader, SectionHeader};
use std::ops::Range;

/// A section header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    /// As it is in the file; empty where it can't be read.
    pub name: Vec<u8>,
    /// `SHT_*`
    pub kind: u32,
    /// `SHF_*`
    pub flags: u64,
    /// In memory, without the load bias; 0 where it is not loaded.
    pub address: u64,
    /// In the file.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// Another section.
    pub link: u32,
}

impl Section {
    /// What a header says, with its name.
    pub(crate) fn of(header: &SectionHeader64<LE>, name: &[u8]) -> Self {
        Self {
            name: name.to_vec(),
            kind: header.sh_type(LE).0,
            flags: header.sh_flags(LE).0,
            address: header.sh_addr(LE),
            offset: header.sh_offset(LE),
            size: header.sh_size(LE),
            link: header.sh_link(LE),
        }
    }

    /// Whether it has bytes in the file.
    pub fn is_in_file(&self) -> bool {
        self.kind != object::elf::SHT_NOBITS.0 && self.kind != object::elf::SHT_NULL.0
    }
}

/// The sections, the index of the one with their names, and where their headers are in the
/// file. Nothing where something is wrong with them.
pub(super) fn read(header: &FileHeader64<LE>, data: &[u8]) -> (Vec<Section>, usize, Range<u64>) {
    let Ok(table) = header.sections(LE, data) else { return (Vec::new(), 0, 0..0) };
    let begin = header.e_shoff(LE);
    let name = |header| table.section_name(LE, header).unwrap_or_default();
    let sections: Vec<_> = table.iter().map(|header| Section::of(header, name(header))).collect();
    let bytes = sections.len() as u64 * u64::from(header.e_shentsize(LE));
    let names = header.shstrndx(LE, data).map_or(0, |index| index as usize);
    (sections, names, begin..begin.saturating_add(bytes))
}

//! Which section of an ELF file an offset belongs to. Reads no file.

use headstart_elf::image::sections::Section;
use std::ops::Range;

/// `SHF_ALLOC` and `SHF_TLS`.
const ALLOC: u64 = 2;
const TLS: u64 = 1 << 10;

/// The sections of a file that are in memory, by offset.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sections {
    in_file: Vec<(Range<u64>, String)>,
    /// Those without bytes in the file (`.bss`), at the offset where they would be.
    zeros: Vec<(Range<u64>, String)>,
}

impl Sections {
    /// Of these headers.
    pub fn new(headers: &[Section]) -> Self {
        let mut found = Self::default();
        for section in headers.iter().filter(|section| section.flags & ALLOC != 0) {
            let range = section.offset..section.offset.saturating_add(section.size);
            let name = String::from_utf8_lossy(&section.name).into_owned();
            if section.is_in_file() {
                found.in_file.push((range, name));
            } else if section.flags & TLS == 0 {
                found.zeros.push((range, name));
            }
        }
        found.in_file.sort_by_key(|(range, _)| range.start);
        found
    }

    /// The section with bytes at an offset of the file.
    pub fn at(&self, offset: u64) -> Option<&str> {
        let next = self.in_file.partition_point(|(range, _)| range.start <= offset);
        let (range, name) = self.in_file.get(next.checked_sub(1)?)?;
        range.contains(&offset).then_some(&**name)
    }

    /// Those with bytes in the file: begin, end and name.
    pub fn in_file(&self) -> Vec<(u64, u64, String)> {
        let section = |(range, name): &(Range<u64>, String)| (range.start, range.end, name.clone());
        self.in_file.iter().map(section).collect()
    }

    /// The section without bytes in the file at an offset that may lie behind its end.
    pub fn zeros_at(&self, offset: u64) -> Option<&str> {
        let mut zeros = self.zeros.iter();
        zeros.find(|(range, _)| range.contains(&offset)).map(|(_, name)| &**name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(name: &str, flags: u64, offset: u64, size: u64) -> Section {
        let kind = if name.ends_with("bss") { 8 } else { 1 };
        Section { name: name.into(), kind, flags, address: 0, offset, size, link: 0 }
    }

    #[test]
    fn an_offset_belongs_to_the_section_that_is_in_memory_there() {
        let sections = Sections::new(&[
            section("", 0, 0, 0),
            section(".text", 6, 0x1000, 0x500),
            section(".rodata", 2, 0x2000, 0x100),
            section(".tbss", 0x403, 0x3000, 0x4000),
            section(".data", 3, 0x3000, 0x80),
            section(".bss", 3, 0x3080, 0x5000),
            section(".comment", 0x30, 0x3080, 0x40),
        ]);
        for (offset, name, zeros) in [
            (0, None, None),
            (0x1000, Some(".text"), None),
            (0x14ff, Some(".text"), None),
            (0x1500, None, None),
            (0x2080, Some(".rodata"), None),
            (0x3010, Some(".data"), None),
            (0x3090, None, Some(".bss")),
            (0x8000, None, Some(".bss")),
            (0x8080, None, None),
        ] {
            let found = (sections.at(offset), sections.zeros_at(offset));
            assert_eq!(found, (name, zeros), "{offset:#x}");
        }
        assert_eq!(Sections::default().at(7), None);
    }
}

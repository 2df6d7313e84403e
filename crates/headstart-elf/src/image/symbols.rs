//! Symbols: of the full table where there is one, else those for dynamic linking.

use super::Image;
use object::LittleEndian as LE;
use object::elf::{self, FileHeader64, Sym64};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader, SectionHeader, Sym, SymbolTable};

/// A symbol with an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Symbol<'a> {
    /// As it is in the file.
    pub name: &'a [u8],
    /// Without the load bias.
    pub address: u64,
    /// Bytes; 0 where it is not told.
    pub size: u64,
    /// Whether it is a function (`STT_FUNC`, `STT_GNU_IFUNC`).
    pub is_function: bool,
    /// Whether other files may see it.
    pub is_global: bool,
}

/// All defined symbols with names, by address; of one address, global ones first.
pub fn defined<'a>(image: &Image<'a>) -> Vec<Symbol<'a>> {
    defined_in(image.data)
}

/// The same of a file that may have no more than symbols, as separate debug files do.
pub fn defined_in(data: &[u8]) -> Vec<Symbol<'_>> {
    let Ok(header) = FileHeader64::<LE>::parse(data) else { return Vec::new() };
    let Ok(sections) = header.sections(LE, data) else { return Vec::new() };
    let table = |kind| sections.symbols(LE, data, kind).unwrap_or_default();
    let full = table(elf::SHT_SYMTAB);
    let table = if full.is_empty() { table(elf::SHT_DYNSYM) } else { full };
    let mut symbols: Vec<_> = table.iter().filter_map(|symbol| named(&table, symbol)).collect();
    symbols.sort_by_key(|symbol| (symbol.address, !symbol.is_global));
    symbols
}

fn named<'a>(table: &SymbolTable<'a, FileHeader64<LE>>, symbol: &Sym64<LE>) -> Option<Symbol<'a>> {
    let kind = symbol.st_type();
    let has_address = !matches!(kind, elf::STT_SECTION | elf::STT_FILE | elf::STT_TLS);
    if symbol.is_undefined(LE) || !has_address {
        return None;
    }
    let name = table.symbol_name(LE, symbol).ok().filter(|name| !name.is_empty())?;
    Some(Symbol {
        name,
        address: symbol.st_value(LE),
        size: symbol.st_size(LE),
        is_function: matches!(kind, elf::STT_FUNC | elf::STT_GNU_IFUNC),
        is_global: !symbol.is_local(),
    })
}

/// The functions among [`defined`].
pub fn functions<'a>(image: &Image<'a>) -> Vec<Symbol<'a>> {
    let mut all = defined(image);
    all.retain(|symbol| symbol.is_function);
    all
}

/// The build ID (`NT_GNU_BUILD_ID`), by which separate debug files are found.
pub fn build_id<'a>(image: &Image<'a>) -> Option<&'a [u8]> {
    let data = image.data;
    let header = FileHeader64::<LE>::parse(data).ok()?;
    let segments = header.program_headers(LE, data).ok()?;
    segments.iter().find_map(|segment| in_notes(segment.notes(LE, data).ok()??))
}

/// Bytes as digits.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The build ID by the sections of a file, since debug files have no bytes for their segments.
pub fn build_id_in(data: &[u8]) -> Option<&[u8]> {
    let header = FileHeader64::<LE>::parse(data).ok()?;
    let sections = header.sections(LE, data).ok()?;
    sections.iter().find_map(|section| in_notes(section.notes(LE, data).ok()??))
}

fn in_notes<'a>(mut notes: NoteIterator<'a, FileHeader64<LE>>) -> Option<&'a [u8]> {
    while let Ok(Some(note)) = notes.next() {
        if note.name() == elf::ELF_NOTE_GNU && note.n_type(LE) == elf::NT_GNU_BUILD_ID {
            return Some(note.desc());
        }
    }
    None
}

/// Whether there is a full table of symbols, which strip(1) removes.
pub fn has_full(image: &Image) -> bool {
    image.sections.iter().any(|section| section.kind == elf::SHT_SYMTAB.0 && section.size > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{FileKind, Segment};

    #[test]
    fn this_program_is_read_with_its_symbols() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let image = Image::parse(&bytes).unwrap();
        assert_eq!(image.kind, FileKind::Shared);
        assert!(image.loads().any(Segment::is_executable));
        assert!(image.section(".text").is_some());
        let all = functions(&image);
        let main = all.iter().find(|symbol| symbol.name == b"main").unwrap();
        assert!(image.at(main.address, main.size).is_some());
    }
}

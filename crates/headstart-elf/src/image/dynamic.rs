//! The dynamic section: entries in their order up to the terminating one, and room behind it.

use super::{ImageError, Segment};

/// Tags, as in the gABI and in glibc's `elf.h`.
pub const NULL: u64 = 0;
/// The name of a library that is needed.
pub const NEEDED: u64 = 1;
/// Bytes of the relocations of the procedure linkage table.
pub const PLTRELSZ: u64 = 2;
/// The old hash table of symbols.
pub const HASH: u64 = 4;
/// The string table.
pub const STRTAB: u64 = 5;
/// The symbol table.
pub const SYMTAB: u64 = 6;
/// Relocations with addends.
pub const RELA: u64 = 7;
/// Their bytes.
pub const RELASZ: u64 = 8;
/// Bytes of one.
pub const RELAENT: u64 = 9;
/// Bytes of the string table.
pub const STRSZ: u64 = 10;
/// Bytes of a symbol.
pub const SYMENT: u64 = 11;
/// A function that is called first.
pub const INIT: u64 = 12;
/// The name of the library.
pub const SONAME: u64 = 14;
/// Relocations without addends.
pub const REL: u64 = 17;
/// For debuggers.
pub const DEBUG: u64 = 21;
/// Relocations change read-only segments.
pub const TEXTREL: u64 = 22;
/// Relocations of the procedure linkage table.
pub const JMPREL: u64 = 23;
/// Functions that are called at the start.
pub const INIT_ARRAY: u64 = 25;
/// Bytes of their list.
pub const INIT_ARRAYSZ: u64 = 27;
/// `DF_*`
pub const FLAGS: u64 = 30;
/// Functions that are called before all others.
pub const PREINIT_ARRAY: u64 = 32;
/// Bytes of their list.
pub const PREINIT_ARRAYSZ: u64 = 33;
/// Bytes of the packed relative relocations.
pub const RELRSZ: u64 = 35;
/// Packed relative relocations.
pub const RELR: u64 = 36;
/// Bytes of one of their words.
pub const RELRENT: u64 = 37;
/// The hash table of symbols.
pub const GNU_HASH: u64 = 0x6fff_fef5;
/// Versions of symbols.
pub const VERSYM: u64 = 0x6fff_fff0;
/// How many relative relocations come first.
pub const RELACOUNT: u64 = 0x6fff_fff9;
/// `DF_1_*`
pub const FLAGS_1: u64 = 0x6fff_fffb;
/// Versions that are defined.
pub const VERDEF: u64 = 0x6fff_fffc;
/// How many there are.
pub const VERDEFNUM: u64 = 0x6fff_fffd;
/// Versions that are needed.
pub const VERNEED: u64 = 0x6fff_fffe;
/// Of how many libraries.
pub const VERNEEDNUM: u64 = 0x6fff_ffff;

/// Bytes of an entry.
pub const ENTRY: u64 = 16;

/// The dynamic section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dynamic {
    /// Its offset in the file.
    pub offset: u64,
    /// Its address.
    pub address: u64,
    /// Entries that it has room for, with the terminating one.
    pub slots: u64,
    /// Tags and values, without the terminating one.
    pub entries: Vec<(u64, u64)>,
}

impl Dynamic {
    /// Reads what a `PT_DYNAMIC` segment names.
    pub(super) fn parse(data: &[u8], segment: &Segment) -> Result<Self, ImageError> {
        let damaged = || ImageError::Damaged("its dynamic section is not in the file".into());
        let begin = usize::try_from(segment.offset).map_err(|_| damaged())?;
        let size = usize::try_from(segment.file_size).map_err(|_| damaged())?;
        let bytes = begin.checked_add(size).and_then(|end| data.get(begin..end));
        let (entries, _) = bytes.ok_or_else(damaged)?.as_chunks::<16>();
        let entries = entries.iter().map(|entry| {
            let entry = u128::from_le_bytes(*entry);
            (entry as u64, (entry >> 64) as u64)
        });
        Ok(Self {
            offset: segment.offset,
            address: segment.address,
            slots: segment.file_size / ENTRY,
            entries: entries.take_while(|(tag, _)| *tag != NULL).collect(),
        })
    }

    /// The value of the last entry with this tag: the one that loaders use.
    pub fn value(&self, tag: u64) -> Option<u64> {
        self.entries.iter().rev().find(|(one, _)| *one == tag).map(|(_, value)| *value)
    }

    /// Entries that could be added.
    pub fn spare(&self) -> u64 {
        self.slots.saturating_sub(self.entries.len() as u64 + 1)
    }
}

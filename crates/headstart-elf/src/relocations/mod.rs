//! Dynamic relocations: tables with addends (RELA), their kinds, and the packed form (RELR).
//!
//! Nothing here applies them to a running program; [`crate::repack`] does so on copies.

pub mod kinds;
pub mod relr;

use crate::image::{Image, dynamic};

/// Bytes of an entry of a RELA table.
pub const RELA_ENTRY: u64 = 24;

/// An entry of a RELA table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rela {
    /// The address that is written, without the load bias.
    pub place: u64,
    /// Kind and symbol.
    pub info: u64,
    /// What is added, in two's complement.
    pub addend: u64,
}

impl Rela {
    /// The kind: `R_X86_64_*` and so on.
    pub fn kind(&self) -> u32 {
        self.info as u32
    }

    /// The index of the symbol, 0 for none.
    pub fn symbol(&self) -> u32 {
        (self.info >> 32) as u32
    }

    /// Its file form.
    pub fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.place.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.info.to_le_bytes());
        bytes[16..].copy_from_slice(&self.addend.to_le_bytes());
        bytes
    }
}

/// The entries of a RELA table; an incomplete one at the end is skipped.
pub fn entries(table: &[u8]) -> impl Iterator<Item = Rela> {
    table.as_chunks::<24>().0.iter().map(|entry| {
        let (words, _) = entry.as_chunks::<8>();
        let word = |n: usize| words.get(n).map_or(0, |word| u64::from_le_bytes(*word));
        Rela { place: word(0), info: word(1), addend: word(2) }
    })
}

/// The words of a table of 64-bit words.
pub fn words(table: &[u8]) -> impl Iterator<Item = u64> {
    table.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))
}

/// A word in bytes.
pub fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(word.try_into().ok()?))
}

/// Bytes that a relocation writes: two words for a TLS descriptor, the size of the symbol for a
/// copy, else one word.
pub fn written(image: &Image, entry: &Rela) -> u64 {
    if kinds::writes_two_words(image.machine, entry.kind()) {
        return 16;
    }
    if !kinds::copies(image.machine, entry.kind()) {
        return 8;
    }
    // A symbol has 24 bytes, and its size is the last word.
    let symbol = u64::from(entry.symbol()) * 24;
    let address = image.tag(dynamic::SYMTAB).and_then(|table| table.checked_add(symbol + 16));
    let size = address.and_then(|address| word_at(image.at(address, 8)?, 0));
    // One that can't be read may be of any size.
    size.unwrap_or(u64::MAX).max(8)
}

/// The tables of a file. A table that is not there is empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tables<'a> {
    /// `DT_RELA`
    pub rela: &'a [u8],
    /// `DT_JMPREL`
    pub plt: &'a [u8],
    /// `DT_RELR`
    pub relr: &'a [u8],
}

impl<'a> Tables<'a> {
    /// Those of a file; nothing where a table does not lie in a segment.
    pub fn of(image: &Image<'a>) -> Option<Self> {
        let table = |address, size| match (image.tag(address), image.tag(size)) {
            (Some(address), Some(size)) if size > 0 => image.at(address, size),
            _ => Some(&[][..]),
        };
        Some(Self {
            rela: table(dynamic::RELA, dynamic::RELASZ)?,
            plt: table(dynamic::JMPREL, dynamic::PLTRELSZ)?,
            relr: table(dynamic::RELR, dynamic::RELRSZ)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let entry = Rela { place: 0x1000, info: 5 << 32 | 6, addend: u64::MAX };
        assert_eq!((entry.kind(), entry.symbol()), (6, 5));
        let mut table = entry.to_bytes().to_vec();
        table.extend([1, 2, 3]);
        assert_eq!(entries(&table).collect::<Vec<_>>(), [entry]);
        assert_eq!(word_at(&table, 16), Some(u64::MAX));
        assert_eq!(word_at(&table, usize::MAX), None);
    }
}

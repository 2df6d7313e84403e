//! Reads the relative relocations of an open file, and nothing else of it, for how much packing them
//! would save. Whether the file can be packed, `headstart elf repack` finds out.

use super::sections;
use crate::image::Machine;
use crate::relocations::{entries, kinds, relr};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// No larger table is read, in bytes: that of Chromium has 26 MB.
const MOST_BYTES: u64 = 256 << 20;
/// Where the ELF header has the machine.
const MACHINE_AT: u64 = 18;

/// Relative relocations of a file that are not packed. Sizes are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unpacked {
    /// Their table, with relocations of other kinds.
    pub bytes: u64,
    /// What packing takes from it.
    pub saved: u64,
    /// How many it packs.
    pub packed: u64,
}

/// The relative relocations in the section `.rela.dyn`; `None` where none would be saved.
///
/// # Errors
/// The file can't be read, or is no 64-bit little-endian ELF file.
pub fn unpacked(file: &File) -> io::Result<Option<Unpacked>> {
    let sections = sections::read(file)?;
    let Some(section) = sections.iter().find(|section| section.name == b".rela.dyn") else {
        return Ok(None);
    };
    let mut machine = [0; 2];
    file.read_exact_at(&mut machine, MACHINE_AT)?;
    let Some(relative) = kinds::relative(Machine::of(u16::from_le_bytes(machine))) else {
        return Ok(None);
    };
    if section.size > MOST_BYTES.min(file.metadata()?.len()) {
        return Ok(None);
    }
    let mut table = vec![0; section.size as usize];
    file.read_exact_at(&mut table, section.offset)?;
    Ok(saved(&table, relative))
}

fn saved(table: &[u8], relative: u32) -> Option<Unpacked> {
    let is_even = |place: &u64| place.is_multiple_of(2);
    let relative = entries(table).filter(|entry| entry.info == u64::from(relative));
    let mut places: Vec<u64> = relative.map(|entry| entry.place).filter(is_even).collect();
    places.sort_unstable();
    places.dedup_by(|next, last| next.wrapping_sub(*last) < 8);
    let packed = places.len() as u64;
    let relr = relr::encode(&places).len() as u64 * 8;
    let saved = (packed * 24).checked_sub(relr).filter(|saved| *saved > 0)?;
    Some(Unpacked { bytes: table.len() as u64, saved, packed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relocations::Rela;

    #[test]
    fn of_a_table_the_relative_ones_are_packed() {
        let entry = |place, info| Rela { place, info, addend: 0 }.to_bytes();
        let mut table: Vec<u8> = (0..100).flat_map(|n| entry(0x1000 + 8 * n, 8)).collect();
        // Another kind, an odd address, and one that overlaps.
        for (place, info) in [(0x9000, 1), (0x9001, 8), (0x1004, 8)] {
            table.extend(entry(place, info));
        }
        // An address and two bitmaps.
        let expected = Unpacked { bytes: 103 * 24, saved: 2400 - 24, packed: 100 };
        assert_eq!(saved(&table, 8), Some(expected));
        assert_eq!(saved(&table, 1027), None);
        assert_eq!(saved(&[], 8), None);
    }

    #[test]
    fn a_program_has_a_table_and_a_script_is_none() {
        let own = File::open(std::env::current_exe().unwrap()).unwrap();
        let found = unpacked(&own).unwrap();
        assert!(found.is_none_or(|found| found.saved < found.bytes && found.packed > 0));
        let manifest = File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
        assert!(unpacked(&manifest).is_err());
    }
}

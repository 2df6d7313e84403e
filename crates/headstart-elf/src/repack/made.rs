//! Made-up ELF files for tests. Only compiled for tests.

use super::versions::{Need, Version, hash, to_bytes};
use crate::image::dynamic;
use crate::relocations::Rela;

/// What a file is made of.
#[derive(Clone, Debug)]
pub struct Made {
    /// `EM_X86_64` or `EM_AARCH64`.
    pub machine: u16,
    /// Its table of relocations.
    pub rela: Vec<Rela>,
    /// Words of its data.
    pub words: usize,
    /// Whether addends are at their places too, as GNU ld has them.
    pub in_place: bool,
    /// Entries that its dynamic section has room for.
    pub spare: usize,
    /// Whether version tables are between the strings and the relocations, as GNU ld has them.
    pub versions_behind_strings: bool,
    /// More entries of the dynamic section.
    pub more: Vec<(u64, u64)>,
    /// Bytes behind the end.
    pub trailer: Vec<u8>,
}

impl Default for Made {
    fn default() -> Self {
        Self {
            machine: 62,
            rela: relative(62, 0..400),
            words: 1000,
            in_place: true,
            spare: 4,
            versions_behind_strings: true,
            more: Vec::new(),
            trailer: Vec::new(),
        }
    }
}

/// Where the data begins.
pub const DATA: u64 = 0x10_0000;
/// Bytes at its beginning for the dynamic section.
const DYNAMIC: u64 = 1024;

/// The address of a word of the data.
pub fn word(n: u64) -> u64 {
    DATA + DYNAMIC + n * 8
}

/// Relative relocations of words.
pub fn relative(machine: u16, words: impl IntoIterator<Item = u64>) -> Vec<Rela> {
    let info = if machine == 62 { 8 } else { 1027 };
    words.into_iter().map(|n| Rela { place: word(n), info, addend: 0x40 + n }).collect()
}

/// A section: name, `SHT_*`, address, offset, size.
type Section = (&'static str, u32, u64, u64, u64);

impl Made {
    /// The file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = vec![0; 64 + 4 * 56];
        let mut sections: Vec<Section> = Vec::new();
        let mut strings = vec![0];
        let mut string = |text: &[u8]| {
            let at = strings.len() as u32;
            strings.extend(text);
            strings.push(0);
            at
        };
        let (libc, glibc, soname) =
            (string(b"libc.so.6"), string(b"GLIBC_2.34"), string(b"libm.so"));
        string(b"a_symbol_with_a_name_of_some_length_that_takes_room");
        let needs = [Need {
            version: 1,
            file: libc,
            versions: vec![Version { hash: hash(b"GLIBC_2.34"), flags: 0, index: 2, name: glibc }],
        }];
        let rela: Vec<u8> = self.rela.iter().flat_map(|entry| entry.to_bytes()).collect();
        let versions: Vec<u8> = (0..12u16).flat_map(u16::to_le_bytes).collect();
        let mut at = |out: &mut Vec<u8>, name, kind, bytes: &[u8]| {
            out.resize(out.len().next_multiple_of(8), 0);
            let begin = out.len() as u64;
            out.extend(bytes);
            // The first segment has its offsets as addresses.
            sections.push((name, kind, begin, begin, bytes.len() as u64));
            begin
        };
        let symtab = at(&mut out, ".dynsym", 11, &[0; 24 * 12]);
        let (strtab, versym, verneed);
        if self.versions_behind_strings {
            strtab = at(&mut out, ".dynstr", 3, &strings);
            versym = at(&mut out, ".gnu.version", 0x6fff_ffff, &versions);
            verneed = at(&mut out, ".gnu.version_r", 0x6fff_fffe, &to_bytes(&needs));
        } else {
            versym = at(&mut out, ".gnu.version", 0x6fff_ffff, &versions);
            verneed = at(&mut out, ".gnu.version_r", 0x6fff_fffe, &to_bytes(&needs));
            strtab = at(&mut out, ".dynstr", 3, &strings);
        }
        let table = at(&mut out, ".rela.dyn", 4, &rela);
        let text = at(&mut out, ".rodata", 1, b"what follows the table stays");
        let end_of_first = out.len() as u64;
        let mut entries = vec![
            (dynamic::NEEDED, libc.into()),
            (dynamic::SONAME, soname.into()),
            (dynamic::STRTAB, strtab),
            (dynamic::SYMTAB, symtab),
            (dynamic::STRSZ, strings.len() as u64),
            (dynamic::SYMENT, 24),
            (dynamic::RELA, table),
            (dynamic::RELASZ, rela.len() as u64),
            (dynamic::RELAENT, 24),
            (dynamic::VERSYM, versym),
            (dynamic::VERNEED, verneed),
            (dynamic::VERNEEDNUM, 1),
            (dynamic::RELACOUNT, 1),
        ];
        entries.extend(&self.more);
        let slots = (entries.len() + 1 + self.spare) as u64;
        out.resize(out.len().next_multiple_of(4096), 0);
        let data = out.len() as u64;
        for (tag, value) in &entries {
            out.extend([tag.to_le_bytes(), value.to_le_bytes()].concat());
        }
        let size = DYNAMIC + self.words as u64 * 8;
        out.resize((data + size) as usize, 0);
        for entry in self.rela.iter().filter(|_| self.in_place) {
            let Some(at) = entry.place.checked_sub(DATA).map(|at| (data + at) as usize) else {
                continue;
            };
            if let Some(place) = out.get_mut(at..at + 8) {
                place.copy_from_slice(&entry.addend.to_le_bytes());
            }
        }
        sections.push((".dynamic", 6, DATA, data, slots * 16));
        sections.push((".data", 1, DATA + DYNAMIC, data + DYNAMIC, size - DYNAMIC));
        let _ = text;
        self.headers(&mut out, &mut sections, slots, end_of_first, data, size);
        out.extend(&self.trailer);
        out
    }

    fn headers(
        &self,
        out: &mut Vec<u8>,
        sections: &mut Vec<Section>,
        slots: u64,
        end_of_first: u64,
        data: u64,
        size: u64,
    ) {
        let names_at = out.len() as u64;
        let mut names = vec![0];
        let mut name_of = Vec::new();
        sections.push((".shstrtab", 3, 0, names_at, 0));
        for (name, ..) in sections.iter() {
            name_of.push(names.len() as u32);
            names.extend(name.as_bytes());
            names.push(0);
        }
        if let Some(last) = sections.last_mut() {
            last.4 = names.len() as u64;
        }
        out.extend(&names);
        out.resize(out.len().next_multiple_of(8), 0);
        let headers = out.len() as u64;
        out.extend([0; 64]);
        for ((_, kind, address, offset, size), name) in sections.iter().zip(name_of) {
            out.extend(name.to_le_bytes());
            out.extend(kind.to_le_bytes());
            let flags = u64::from(*address != 0) * 2;
            for word in [flags, *address, *offset, *size, 0, 8, 0] {
                out.extend(word.to_le_bytes());
            }
        }
        let count = sections.len() as u16 + 1;
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(place) = out.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        };
        put(0, b"\x7fELF\x02\x01\x01");
        put(16, &[3, 0]);
        put(18, &self.machine.to_le_bytes());
        put(20, &[1]);
        put(32, &64u64.to_le_bytes());
        put(40, &headers.to_le_bytes());
        for (at, value) in [(52, 64u16), (54, 56), (56, 3), (58, 64), (60, count), (62, count - 1)]
        {
            put(at, &value.to_le_bytes());
        }
        let segments = [
            (1u32, 4u32, 0, 0, end_of_first, 4096),
            (1, 6, data, DATA, size, 4096),
            (2, 6, data, DATA, slots * 16, 8),
        ];
        for (n, (kind, flags, offset, address, size, align)) in segments.into_iter().enumerate() {
            let at = 64 + n * 56;
            put(at, &kind.to_le_bytes());
            put(at + 4, &flags.to_le_bytes());
            for (m, word) in [offset, address, address, size, size, align].into_iter().enumerate() {
                put(at + 8 + m * 8, &word.to_le_bytes());
            }
        }
    }
}

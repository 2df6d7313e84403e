//! The proof that a repacked file is the same program: both files are relocated at a made-up
//! address, as a loader does it, and all bytes compared.
//!
//! It is made of the two files alone and knows nothing of the plan. What it excludes from the
//! comparison are the parts that had to change: the old table, the dynamic section, the place
//! of the section headers, and version tables that were moved. Nothing else may refer to these
//! parts, no relocation may write there, and what they mean is compared instead: entry by entry,
//! relocation by relocation, version by version, section by section.

use super::entries::droppable;
use super::versions::{self, Need};
use crate::image::dynamic::{self, Dynamic};
use crate::image::sections::Section;
use crate::image::{Image, Segment};
use crate::relocations::{Rela, Tables, entries, kinds, relr, word_at, words, written};
use object::elf::SHF_ALLOC;
use std::borrow::Cow;
use std::ops::Range;

/// The made-up load bias. No file has such addresses.
const BIAS: u64 = 0x7f12_3456_0000;

/// What was compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Proof {
    /// Bytes of loaded segments that are the same after relocation.
    pub loaded_bytes: u64,
    /// Bytes outside of them that are the same.
    pub other_bytes: u64,
    /// Relocations that both files have.
    pub relocations: u64,
}

type Checked<T> = Result<T, String>;

/// Proves that `new` loads to what `old` does.
///
/// # Errors
/// The first difference.
pub fn prove(old: &[u8], new: &[u8]) -> Checked<Proof> {
    let parse = |data, which| Image::parse(data).map_err(|error| format!("{which}: {error}"));
    let old = File::new(parse(old, "the old file")?, "the old file")?;
    let new = File::new(parse(new, "the new file")?, "the new file")?;
    if new.image.data.len() < old.image.data.len() || old.image.segments != new.image.segments {
        return Err("the program headers differ".into());
    }
    compare_entries(&old, &new)?;
    compare_strings(&old, &new)?;
    compare_versions(&old, &new)?;
    compare_sections(&old, &new)?;
    let relocations = compare_relocations(&old, &new)?;
    let changed = Changed::between(&old, &new)?;
    changed.are_free(&old, &new)?;
    let loaded_bytes = compare_memory(&old, &new, &changed)?;
    let other_bytes = compare_rest(&old, &new, &changed)?;
    Ok(Proof { loaded_bytes, other_bytes, relocations })
}

/// A file with what is needed of it.
struct File<'a> {
    image: Image<'a>,
    dynamic: Dynamic,
    tables: Tables<'a>,
    relative: u32,
}

impl<'a> File<'a> {
    fn new(image: Image<'a>, which: &str) -> Checked<Self> {
        let lacks = |what: &str| format!("{which} lacks {what}");
        Ok(Self {
            dynamic: image.dynamic.clone().ok_or_else(|| lacks("a dynamic section"))?,
            tables: Tables::of(&image).ok_or_else(|| lacks("a table of relocations"))?,
            relative: kinds::relative(image.machine).ok_or_else(|| lacks("a known processor"))?,
            image,
        })
    }

    fn range(&self, start: u64, size: u64) -> Option<Range<u64>> {
        (size > 0).then(|| start..start.saturating_add(size))
    }

    /// A table by the tags of its address and its size.
    fn table(&self, start: u64, size: u64) -> Option<Range<u64>> {
        self.range(self.image.tag(start)?, self.image.tag(size)?)
    }

    fn is_relative(&self, entry: &Rela) -> bool {
        entry.info == u64::from(self.relative)
    }
}

/// The dynamic sections have the same entries, but for what packing changes.
fn compare_entries(old: &File, new: &File) -> Checked<()> {
    const MAY_DIFFER: [u64; 7] = [
        dynamic::RELA,
        dynamic::RELASZ,
        dynamic::RELACOUNT,
        dynamic::STRTAB,
        dynamic::STRSZ,
        dynamic::VERSYM,
        dynamic::VERNEED,
    ];
    const ADDED: [u64; 3] = [dynamic::RELR, dynamic::RELRSZ, dynamic::RELRENT];
    let mut gone = droppable(&old.dynamic);
    if new.image.tag(dynamic::RELA).is_none() {
        gone.extend([dynamic::RELA, dynamic::RELASZ, dynamic::RELAENT]);
    }
    let mut left = new.dynamic.entries.iter().filter(|(tag, _)| !ADDED.contains(tag)).peekable();
    for (tag, value) in &old.dynamic.entries {
        match left.peek() {
            Some((same, now)) if same == tag && (now == value || MAY_DIFFER.contains(tag)) => {
                left.next();
            }
            _ if gone.contains(tag) => {}
            _ => return Err(format!("the dynamic entry {tag:#x} differs")),
        }
    }
    if let Some((tag, _)) = left.next() {
        return Err(format!("the dynamic entry {tag:#x} is new"));
    }
    if old.dynamic.slots != new.dynamic.slots
        || new.dynamic.entries.len() as u64 >= new.dynamic.slots
    {
        return Err("the dynamic section does not end".into());
    }
    if ADDED.map(|tag| old.image.tag(tag).is_some()).contains(&true)
        || new.image.tag(dynamic::RELRENT) != Some(8)
        || new.dynamic.entries.iter().filter(|(tag, _)| ADDED.contains(tag)).count() != 3
    {
        return Err("the entries of the packed table are wrong".into());
    }
    Ok(())
}

/// Each string of the old file is at the same offset in the new one.
fn compare_strings(old: &File, new: &File) -> Checked<()> {
    let strings = |file: &File| {
        let table = file.table(dynamic::STRTAB, dynamic::STRSZ)?;
        file.image.file_range(table.start, table.end - table.start)
    };
    match (strings(old), strings(new)) {
        (None, None) => Ok(()),
        (Some(before), Some(after)) => {
            let (before, after) = (&old.image.data[before], &new.image.data[after]);
            let same = after.starts_with(before) && after.last() == Some(&0);
            if same { Ok(()) } else { Err("the strings differ".into()) }
        }
        _ => Err("one file has no strings".into()),
    }
}

/// The same versions are needed, but for the one that a packed table needs; and symbols have
/// the same ones.
fn compare_versions(old: &File, new: &File) -> Checked<()> {
    let needs = |file: &File| versions::needs(&file.image);
    let (Some(before), Some(mut after)) = (needs(old), needs(new)) else {
        return Err("the needed versions are damaged".into());
    };
    let is_added = |need: &Need, n: usize| {
        let added =
            need.versions.get(n).map(|one| (new.image.dynamic_string(one.name.into()), one));
        let is_libc = |name: &[u8]| name.starts_with(b"libc.so.");
        new.image.dynamic_string(need.file.into()).is_some_and(is_libc)
            && added.is_some_and(|(name, one)| {
                name == Some(versions::NAME) && one.hash == versions::hash(versions::NAME)
            })
    };
    if before.len() != after.len() {
        return Err("the needed versions differ".into());
    }
    for (before, after) in before.iter().zip(&mut after) {
        if after.versions.len() == before.versions.len() + 1 {
            let last = before.versions.len();
            let index = after.versions.get(last).map_or(0, |one| one.index);
            let is_new = |need: &Need| need.versions.iter().all(|one| one.index != index);
            if !is_added(after, last) || index < 2 || !is_new(before) {
                return Err("a version is needed that was not".into());
            }
            after.versions.pop();
        }
    }
    if before != after {
        return Err("the needed versions differ".into());
    }
    let count = symbol_count(old);
    match (old.image.tag(dynamic::VERSYM), symbol_versions(old, count)) {
        (None, _) => Ok(()),
        // Without section headers nobody knows how long the table is; then it must not move.
        (Some(address), None) if new.image.tag(dynamic::VERSYM) == Some(address) => Ok(()),
        (Some(_), before) if before.is_some() && before == symbol_versions(new, count) => Ok(()),
        _ => Err("the versions of symbols differ".into()),
    }
}

/// The versions of that many symbols.
fn symbol_versions<'a>(file: &File<'a>, count: Option<u64>) -> Option<&'a [u8]> {
    file.image.at(file.image.tag(dynamic::VERSYM)?, count?.checked_mul(2)?)
}

/// How many symbols the dynamic symbol table has, by the section headers.
fn symbol_count(file: &File) -> Option<u64> {
    let at = |tag| file.image.tag(tag);
    let section = |address: u64| {
        file.image.sections.iter().find(|section| section.address == address && section.size > 0)
    };
    let symbols = section(at(dynamic::SYMTAB)?)?.size / 24;
    (section(at(dynamic::VERSYM)?)?.size / 2 == symbols).then_some(symbols)
}

/// The new file has the sections of the old one, where they were unless packing moved them, and
/// one for the packed table.
fn compare_sections(old: &File, new: &File) -> Checked<()> {
    let (before, after) = (&old.image.sections, &new.image.sections);
    if before.is_empty() && after.is_empty() {
        return Ok(());
    }
    let Some((added, after)) = after.split_last() else {
        return Err("the section headers are gone".into());
    };
    let place = |section: &Section| (section.address, section.offset, section.size);
    let same = |before: &Section, after: &Section| {
        before.name == after.name
            && (before.kind, before.flags, before.link) == (after.kind, after.flags, after.link)
    };
    let tags = [dynamic::RELA, dynamic::STRTAB, dynamic::VERSYM, dynamic::VERNEED];
    for (n, (one, now)) in before.iter().zip(after).enumerate() {
        // The dynamic section says the same.
        let follows = |tag: &u64| {
            old.image.tag(*tag) == Some(one.address)
                && (new.image.tag(*tag) == Some(now.address) || now.size == 0)
        };
        let may_move = n == new.image.section_names || tags.iter().any(follows);
        if !same(one, now) || (place(one) != place(now) && !may_move) {
            return Err(format!("section {n} differs"));
        }
    }
    let table = new.table(dynamic::RELR, dynamic::RELRSZ);
    let is_table = table == new.range(added.address, added.size);
    if before.len() != after.len() || added.name != super::sections::NAME || !is_table {
        return Err("the section of the packed table is wrong".into());
    }
    Ok(())
}

/// Both files have the same relocations; returns how many.
fn compare_relocations(old: &File, new: &File) -> Checked<u64> {
    let others = |file: &File<'_>| -> Vec<Rela> {
        entries(file.tables.rela).filter(|entry| !file.is_relative(entry)).collect()
    };
    let others_before = others(old);
    if others_before != others(new) || old.tables.plt != new.tables.plt {
        return Err("the symbolic relocations differ".into());
    }
    let relative = |file: &File| -> Vec<(u64, u64)> {
        let relative = entries(file.tables.rela).filter(|entry| file.is_relative(entry));
        relative.map(|entry| (entry.place, entry.addend)).collect()
    };
    let mut before = relative(old);
    let mut after = relative(new);
    for place in relr::decode(words(new.tables.relr)) {
        let addend = new.image.at(place, 8).and_then(|bytes| word_at(bytes, 0));
        after.push((place, addend.ok_or("a packed relocation is not in the file")?));
    }
    before.sort_unstable();
    after.sort_unstable();
    if before != after {
        return Err("the relative relocations differ".into());
    }
    Ok((before.len() + others_before.len() + entries(old.tables.plt).count()) as u64)
}

/// Parts of the files that are not compared byte by byte.
struct Changed {
    /// Addresses.
    memory: Vec<Range<u64>>,
    /// Offsets in the file.
    file: Vec<Range<u64>>,
}

impl Changed {
    fn between(old: &File, new: &File) -> Checked<Self> {
        let mut memory = Vec::new();
        memory.extend(old.table(dynamic::RELA, dynamic::RELASZ));
        let slots = old.dynamic.slots.saturating_mul(dynamic::ENTRY);
        memory.extend(old.range(old.dynamic.address, slots));
        let is_at = |tag| (old.image.tag(tag), new.image.tag(tag));
        // Strings that grew, into version tables that were moved for that.
        if let (Some(before), Some(after)) = is_at(dynamic::STRTAB)
            && before == after
        {
            let size = |file: &File| file.image.tag(dynamic::STRSZ).unwrap_or(0);
            let grown = size(new).saturating_sub(size(old));
            memory.extend(old.range(before.saturating_add(size(old)), grown));
        }
        let in_file = |range: &Range<u64>| {
            let range = old.image.file_range(range.start, range.end.saturating_sub(range.start));
            let range = range.ok_or("a table that changed is not in the file")?;
            Ok(range.start as u64..range.end as u64)
        };
        let mut file: Vec<_> = memory.iter().map(in_file).collect::<Checked<_>>()?;
        // e_shoff, e_shnum: at fixed places of the ELF header.
        file.extend([40..48, 60..62]);
        for load in old.image.loads() {
            for field in [40u64..48, 60..62] {
                if load.offset <= field.start
                    && field.end <= load.offset.saturating_add(load.file_size)
                {
                    let shift = |offset: u64| load.address.saturating_add(offset - load.offset);
                    memory.push(shift(field.start)..shift(field.end));
                }
            }
        }
        Ok(Self { memory, file })
    }

    /// Nothing refers to these parts but the tables that are there.
    fn are_free(&self, old: &File, new: &File) -> Checked<()> {
        let strings_end = |file: &File| file.table(dynamic::STRTAB, dynamic::STRSZ).map(|t| t.end);
        // The string table, which grows, is not among the tables that must lie apart.
        let reused: Vec<&Range<u64>> =
            self.memory.iter().filter(|range| range.start != old.dynamic.address).collect();
        let meets = |start: u64, size: u64| {
            let end = start.saturating_add(size);
            reused.iter().any(|range| range.start < end && start < range.end)
        };
        let tables =
            [dynamic::RELA, dynamic::RELR, dynamic::STRTAB, dynamic::VERSYM, dynamic::VERNEED];
        for (tag, value) in &new.dynamic.entries {
            if is_address(*tag) && !tables.contains(tag) && meets(*value, 1) {
                return Err(format!("the dynamic entry {tag:#x} points into the old table"));
            }
        }
        let header = |segment: &&Segment| {
            // These describe where the ELF header is too.
            !segment.is_load() && segment.file_size > 0 && segment.offset >= 64
        };
        for segment in old.image.segments.iter().filter(header) {
            let is_relro = segment.kind == object::elf::PT_GNU_RELRO.0;
            if !is_relro && meets(segment.address, segment.file_size) {
                return Err("a segment lies in the old table".into());
            }
        }
        // What is there in the new file lies apart, so that nothing is read as two things.
        let mut tables: Vec<Range<u64>> = [
            new.table(dynamic::RELA, dynamic::RELASZ),
            new.table(dynamic::RELR, dynamic::RELRSZ),
            new.table(dynamic::JMPREL, dynamic::PLTRELSZ),
            new.table(dynamic::STRTAB, dynamic::STRSZ),
            needs_range(new),
            symbol_count(old).and_then(|count| {
                new.range(new.image.tag(dynamic::VERSYM)?, count.checked_mul(2)?)
            }),
            new.range(new.dynamic.address, new.dynamic.slots.saturating_mul(dynamic::ENTRY)),
        ]
        .into_iter()
        .flatten()
        .collect();
        tables.sort_by_key(|range| range.start);
        if tables.windows(2).any(|pair| pair[0].end > pair[1].start) {
            return Err("two tables share bytes".into());
        }
        let is_free = |section: &&Section| {
            let tags = [dynamic::RELA, dynamic::VERSYM, dynamic::VERNEED];
            tags.iter().any(|tag| old.image.tag(*tag) == Some(section.address))
        };
        let loaded = old.image.sections.iter().filter(|section| {
            section.flags & SHF_ALLOC.0 != 0 && section.is_in_file() && section.size > 0
        });
        for section in loaded.filter(|section| !is_free(section)) {
            let is_strings = Some(section.address) == old.image.tag(dynamic::STRTAB)
                && Some(section.address.saturating_add(section.size)) == strings_end(old);
            if meets(section.address, section.size) && !is_strings {
                return Err("a section lies in the old table".into());
            }
        }
        for entry in entries(old.tables.rela).chain(entries(old.tables.plt)) {
            let end = entry.place.saturating_add(written(&old.image, &entry));
            if self.memory.iter().any(|range| range.start < end && entry.place < range.end) {
                return Err("a relocation writes into a table".into());
            }
        }
        Ok(())
    }
}

/// Whether the value of a dynamic entry is an address.
fn is_address(tag: u64) -> bool {
    matches!(tag, 3..=7 | 12 | 13 | 17 | 23 | 25 | 26 | 32 | 36)
        || (0x6fff_fe00..=0x6fff_feff).contains(&tag)
        || matches!(tag, dynamic::VERSYM | dynamic::VERDEF | dynamic::VERNEED)
}

/// The addresses of the version needs as packing writes them; of others not all.
fn needs_range(file: &File) -> Option<Range<u64>> {
    let needs = versions::needs(&file.image).filter(|needs| !needs.is_empty())?;
    file.range(file.image.tag(dynamic::VERNEED)?, versions::to_bytes(&needs).len() as u64)
}

/// A segment as it is after relocation.
fn relocated(file: &File, load: &Segment) -> Checked<Vec<u8>> {
    let bytes =
        file.image.at(load.address, load.file_size).ok_or("a segment is not in the file")?;
    let mut memory = bytes.to_vec();
    let at = |place: u64| usize::try_from(place.checked_sub(load.address)?).ok();
    let mut set = |place: u64, value: &dyn Fn(u64) -> u64| {
        let Some(at) = at(place) else { return };
        let Some(end) = at.checked_add(8) else { return };
        if let Some(word) = memory.get_mut(at..end)
            && let Ok(now) = <[u8; 8]>::try_from(&*word)
        {
            word.copy_from_slice(&value(u64::from_le_bytes(now)).to_le_bytes());
        }
    };
    // glibc applies the packed ones first.
    for place in relr::decode(words(file.tables.relr)) {
        set(place, &|now| now.wrapping_add(BIAS));
    }
    for entry in entries(file.tables.rela).chain(entries(file.tables.plt)) {
        if file.is_relative(&entry) {
            set(entry.place, &|_| entry.addend.wrapping_add(BIAS));
        } else {
            // Whatever the symbol's address is, it is the same for both.
            let value = entry.info.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(entry.addend);
            set(entry.place, &|_| value);
        }
    }
    Ok(memory)
}

/// Compares all loaded bytes after relocation; returns how many there are.
fn compare_memory(old: &File, new: &File, changed: &Changed) -> Checked<u64> {
    let mut compared = 0;
    for load in old.image.loads() {
        let (before, after) = if load.is_writable() {
            (Cow::Owned(relocated(old, load)?), Cow::Owned(relocated(new, load)?))
        } else {
            // Relocations of these stay as they are, and so are the same in both files.
            let at = |image: &Image<'_>| image.file_range(load.address, load.file_size);
            let lacks = "a segment is not in the file";
            let (before, after) = (at(&old.image).ok_or(lacks)?, at(&new.image).ok_or(lacks)?);
            (Cow::Borrowed(&old.image.data[before]), Cow::Borrowed(&new.image.data[after]))
        };
        let all = load.address..load.address.saturating_add(load.file_size);
        for part in without(all, &changed.memory) {
            let at = (part.start - load.address) as usize..(part.end - load.address) as usize;
            if before.get(at.clone()) != after.get(at) {
                return Err(format!(
                    "bytes at {:#x} to {:#x} differ in memory",
                    part.start, part.end
                ));
            }
            compared += part.end - part.start;
        }
    }
    Ok(compared)
}

/// Compares the bytes of the old file that no segment loads; returns how many there are.
fn compare_rest(old: &File, new: &File, changed: &Changed) -> Checked<u64> {
    let loads = old.image.loads();
    let loaded = loads.map(|load| load.offset..load.offset.saturating_add(load.file_size));
    let excluded: Vec<Range<u64>> = loaded.chain(changed.file.iter().cloned()).collect();
    let mut compared = 0;
    for part in without(0..old.image.data.len() as u64, &excluded) {
        let at = part.start as usize..part.end as usize;
        if old.image.data.get(at.clone()) != new.image.data.get(at) {
            let (start, end) = (part.start, part.end);
            return Err(format!("bytes at the offsets {start:#x} to {end:#x} differ"));
        }
        compared += part.end - part.start;
    }
    Ok(compared)
}

/// A range without some others, in pieces.
fn without(all: Range<u64>, others: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut others = others.to_vec();
    others.sort_by_key(|range| range.start);
    let (mut at, mut out) = (all.start, Vec::new());
    for range in others.into_iter().chain(std::iter::once(all.end..all.end)) {
        let stop = range.start.clamp(at, all.end);
        if at < stop {
            out.push(at..stop);
        }
        at = range.end.clamp(stop, all.end);
    }
    out
}

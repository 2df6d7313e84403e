//! What is written where.
//!
//! All that is new goes into the room of the old RELA table, and the section headers behind the
//! end of the file. The string table grows where it is if what follows it is moved, else it is
//! moved as a whole.

use super::entries::{self, Changes};
use super::refuse::Refusal;
use super::sections::{self, Moved, Tail};
use super::select::{Selection, check, select};
use super::{Change, versions};
use crate::PAGE;
use crate::image::dynamic::{self, Dynamic};
use crate::image::{Image, sections::Section};
use crate::relocations::{Tables, relr};
use object::elf::{SHF_ALLOC, SHT_NOBITS};
use std::ops::Range;

/// Where the ELF header has `e_shoff` and `e_shnum`.
const E_SHOFF: usize = 40;
const E_SHNUM: usize = 60;

/// What is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// What it does.
    pub change: Change,
    /// Zeros in the file that need no room on a disk; may be empty.
    pub hole: Range<u64>,
    /// Zeroed first.
    old_table: Range<usize>,
    /// Offsets with what is written there, in this order.
    writes: Vec<(usize, Vec<u8>)>,
    /// Offsets of addends, with them.
    addends: Vec<(usize, u64)>,
    tail: Vec<u8>,
}

impl Plan {
    /// Of a file, if at least `minimum` bytes of its table become free.
    ///
    /// # Errors
    /// The reason why not.
    pub fn of(image: &Image, minimum: u64) -> Result<Self, Refusal> {
        check(image)?;
        sections::check(image)?;
        let outside = Refusal::Unusual("a table of its dynamic section is not in a segment");
        let tables = Tables::of(image).ok_or(outside.clone())?;
        let dynamic = image.dynamic.as_ref().ok_or(Refusal::Static)?;
        let selection = select(image, &tables)?;
        let mut layout = Layout::new(image, dynamic).ok_or(outside)?;
        layout.put_tables(&selection)?;
        layout.put_versions()?;
        layout.finish(&selection, minimum)
    }

    /// The new file.
    pub fn apply(&self, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(data.len() + self.tail.len());
        out.extend_from_slice(data);
        let zero = out.get_mut(self.old_table.clone());
        zero.into_iter().for_each(|bytes| bytes.fill(0));
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(place) = out.get_mut(at..at.saturating_add(bytes.len())) {
                place.copy_from_slice(bytes);
            }
        };
        self.writes.iter().for_each(|(at, bytes)| put(*at, bytes));
        self.addends.iter().for_each(|(at, addend)| put(*at, &addend.to_le_bytes()));
        out.extend_from_slice(&self.tail);
        out
    }
}

/// The addresses of the string table, and the version needs.
type StringsAndNeeds = (Range<u64>, Vec<versions::Need>);

/// A plan in the making.
struct Layout<'i, 'a> {
    image: &'i Image<'a>,
    dynamic: &'i Dynamic,
    /// The old table.
    room: Range<u64>,
    /// The first address of it that is free.
    next: u64,
    /// Addresses, with what goes there.
    puts: Vec<(u64, Vec<u8>)>,
    changes: Changes,
    added: Vec<(u64, u64)>,
    /// Sections that are elsewhere now: by their old addresses.
    moved: Vec<(u64, Range<u64>)>,
    relr: Range<u64>,
    rela_after: u64,
}

impl<'i, 'a> Layout<'i, 'a> {
    fn new(image: &'i Image<'a>, dynamic: &'i Dynamic) -> Option<Self> {
        let (rela, size) = (image.tag(dynamic::RELA)?, image.tag(dynamic::RELASZ)?);
        // Sums of addresses and the sizes of tables stay below the end of all addresses.
        let end = rela.checked_add(size).filter(|end| *end < 1 << 56)?;
        image.file_range(rela, size)?;
        Some(Self {
            image,
            dynamic,
            room: rela..end,
            next: rela,
            puts: Vec::new(),
            changes: Vec::new(),
            added: Vec::new(),
            moved: Vec::new(),
            relr: 0..0,
            rela_after: 0,
        })
    }

    /// Puts something into the room.
    fn put(&mut self, bytes: Vec<u8>, align: u64) -> Result<Range<u64>, Refusal> {
        let begin = self.next.next_multiple_of(align);
        let end = begin + bytes.len() as u64;
        if end > self.room.end {
            return Err(Refusal::DoesNotFit(end - self.room.end));
        }
        self.next = end;
        self.puts.push((begin, bytes));
        Ok(begin..end)
    }

    fn change(&mut self, tag: u64, value: Option<u64>) {
        self.changes.push((tag, value));
    }

    /// What is left of the old table, and the packed one. A string table right before them may
    /// need the first bytes.
    fn put_tables(&mut self, selection: &Selection) -> Result<(), Refusal> {
        if let Some(grown) = self.grown_strings()?
            && grown.start <= self.room.start
        {
            self.next = self.next.max(grown.end);
        }
        let kept: Vec<u8> = selection.kept.iter().flat_map(|entry| entry.to_bytes()).collect();
        self.rela_after = kept.len() as u64;
        if kept.is_empty() {
            for tag in [dynamic::RELA, dynamic::RELASZ, dynamic::RELAENT] {
                self.change(tag, None);
            }
            self.moved.push((self.room.start, self.room.start..self.room.start));
        } else {
            let rela = self.put(kept, 8)?;
            self.change(dynamic::RELA, Some(rela.start));
            self.change(dynamic::RELASZ, Some(rela.end - rela.start));
            self.moved.push((self.room.start, rela));
        }
        let count = selection.relative_first;
        self.change(dynamic::RELACOUNT, (count > 0).then_some(count));
        let places: Vec<u64> = selection.packed.iter().map(|(place, _)| *place).collect();
        let words = relr::encode(&places);
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.relr = self.put(bytes, 8)?;
        self.added.extend([
            (dynamic::RELR, self.relr.start),
            (dynamic::RELRSZ, self.relr.end - self.relr.start),
            (dynamic::RELRENT, 8),
        ]);
        Ok(())
    }

    /// The string table, and the version needs of the file with the one for the packed table,
    /// whose name is behind all strings. Nothing where none is needed.
    fn strings_and_needs(&self) -> Result<Option<StringsAndNeeds>, Refusal> {
        let (Some(begin), Some(size)) =
            (self.image.tag(dynamic::STRTAB), self.image.tag(dynamic::STRSZ))
        else {
            return Ok(None);
        };
        let needs = versions::with_relr(self.image, size)?;
        let outside = Refusal::Unusual("its string table is not in a segment");
        let end = begin.checked_add(size).ok_or(outside.clone())?;
        self.image.file_range(begin, size).ok_or(outside)?;
        Ok(needs.map(|needs| (begin..end, needs)))
    }

    /// The addresses that the string table takes when it grows where it is, if it can.
    fn grown_strings(&self) -> Result<Option<Range<u64>>, Refusal> {
        let Some((strings, _)) = self.strings_and_needs()? else { return Ok(None) };
        let end = strings.end + versions::NAME.len() as u64 + 1;
        Ok(self.can_grow(&strings).then_some(strings.end..end))
    }

    /// Whether what is behind the strings is padding, the old table, or the version tables,
    /// which are moved.
    fn can_grow(&self, strings: &Range<u64>) -> bool {
        let Some(end) = strings.end.checked_add(versions::NAME.len() as u64 + 1) else {
            return false;
        };
        let free = |section: &&Section| {
            let address = Some(section.address);
            section.address == self.room.start
                || address == self.image.tag(dynamic::VERNEED)
                || address == self.image.tag(dynamic::VERSYM)
        };
        let is_loaded =
            |section: &&Section| section.flags & SHF_ALLOC.0 != 0 && section.kind != SHT_NOBITS.0;
        let mut loaded: Vec<_> = self.image.sections.iter().filter(is_loaded).collect();
        loaded.sort_by_key(|section| section.address);
        // The strings must be a section, or the headers tell nothing of what is behind them.
        let is_strings = |section: &&Section| {
            section.address == strings.start && section.size == strings.end - strings.start
        };
        if !loaded.iter().any(is_strings) {
            return false;
        }
        let end_of = |section: &Section| section.address.saturating_add(section.size);
        let behind = loaded.iter().filter(|section| {
            section.address < end && end_of(section) > strings.end && section.size > 0
        });
        if !behind.into_iter().all(free) {
            return false;
        }
        // Between sections there are zeros, and all of it is in the same segment.
        let at = |address, size| self.image.at(address, size);
        let in_segment = at(strings.start, end - strings.start).is_some();
        let is_padding = |address: u64| {
            loaded.iter().any(|section| (section.address..end_of(section)).contains(&address))
                || at(address, 1) == Some(&[0])
        };
        in_segment && (strings.end..end).all(is_padding)
    }

    fn put_versions(&mut self) -> Result<(), Refusal> {
        let Some((strings, needs)) = self.strings_and_needs()? else { return Ok(()) };
        let size = strings.end - strings.start;
        let name = [versions::NAME, &[0]].concat();
        if self.can_grow(&strings) {
            let end = strings.end + name.len() as u64;
            self.moved.push((strings.start, strings.start..end));
            self.change(dynamic::STRSZ, Some(end - strings.start));
            self.move_symbol_versions(strings.end..end)?;
            self.puts.push((strings.end, name));
        } else {
            let old = self.image.at(strings.start, size).unwrap_or(&[]);
            let new = self.put([old, &name].concat(), 1)?;
            self.change(dynamic::STRTAB, Some(new.start));
            self.change(dynamic::STRSZ, Some(new.end - new.start));
            self.moved.push((strings.start, new));
        }
        let needs = self.put(versions::to_bytes(&needs), 8)?;
        if let Some(old) = self.image.tag(dynamic::VERNEED) {
            self.moved.push((old, needs.clone()));
        }
        self.change(dynamic::VERNEED, Some(needs.start));
        Ok(())
    }

    /// Moves the versions of symbols, if the strings grow into them.
    fn move_symbol_versions(&mut self, grown: Range<u64>) -> Result<(), Refusal> {
        let Some(address) = self.image.tag(dynamic::VERSYM) else { return Ok(()) };
        let section = self.image.sections.iter().find(|section| section.address == address);
        let Some(section) = section.filter(|section| {
            section.address < grown.end
                && section.address.saturating_add(section.size) > grown.start
        }) else {
            return Ok(());
        };
        let bytes = self.image.at(address, section.size);
        let bytes =
            bytes.ok_or(Refusal::Unusual("its versions of symbols are not in a segment"))?;
        let new = self.put(bytes.to_vec(), 8)?;
        self.change(dynamic::VERSYM, Some(new.start));
        self.moved.push((address, new));
        Ok(())
    }

    fn finish(self, selection: &Selection, minimum: u64) -> Result<Plan, Refusal> {
        let saved = self.room.end - self.next;
        if saved < minimum.max(1) || selection.packed.is_empty() {
            return Err(Refusal::NoGain { saved });
        }
        let outside = Refusal::Unusual("a table of its dynamic section is not in a segment");
        let offset = |address, size| self.image.file_range(address, size).ok_or(outside.clone());
        let old_table = offset(self.room.start, self.room.end - self.room.start)?;
        let mut writes = Vec::new();
        for (address, bytes) in &self.puts {
            writes.push((offset(*address, bytes.len() as u64)?.start, bytes.clone()));
        }
        let entries = entries::build(self.dynamic, &self.changes, &self.added)?;
        let at = usize::try_from(self.dynamic.offset).map_err(|_| outside.clone())?;
        writes.push((at, entries));
        let mut addends = Vec::with_capacity(selection.packed.len());
        for (place, addend) in &selection.packed {
            addends.push((offset(*place, 8)?.start, *addend));
        }
        let tail = self.tail()?;
        if let Some(tail) = &tail {
            writes.push((E_SHOFF, tail.headers.to_le_bytes().into()));
            writes.push((E_SHNUM, tail.count.to_le_bytes().into()));
        }
        let free = offset(self.next, saved)?.start as u64;
        let hole = free.next_multiple_of(PAGE)..old_table.end as u64 / PAGE * PAGE;
        let change = Change {
            packed: selection.packed.len() as u64,
            relative_kept: selection.relative_kept,
            rela_before: self.room.end - self.room.start,
            rela_after: self.rela_after,
            relr: self.relr.end - self.relr.start,
            saved,
        };
        let hole = if hole.start < hole.end { hole } else { 0..0 };
        let tail = tail.map(|tail| tail.bytes).unwrap_or_default();
        Ok(Plan { change, hole, old_table, writes, addends, tail })
    }

    fn tail(&self) -> Result<Option<Tail>, Refusal> {
        let place = |range: &Range<u64>| {
            // An empty one may be at the end of a segment.
            let offset = self.image.file_range(range.start, range.end - range.start);
            let offset = offset.map_or(0, |offset| offset.start as u64);
            Moved { address: range.start, offset, size: range.end - range.start }
        };
        let moved = |n: usize| {
            let section = self.image.sections.get(n)?;
            if section.flags & SHF_ALLOC.0 == 0 || !section.is_in_file() || section.size == 0 {
                return None;
            }
            let (_, range) = self.moved.iter().find(|(old, _)| *old == section.address)?;
            Some(place(range))
        };
        sections::tail(self.image, moved, place(&self.relr))
    }
}

//! Which relocations are packed: relative ones without a symbol, at aligned places in the file
//! that no other relocation writes to.

use super::refuse::Refusal;
use crate::image::{FileKind, Image, Machine, dynamic};
use crate::relocations::{RELA_ENTRY, Rela, Tables, entries, kinds, written};

/// Bytes that a relocation writes.
const WORD: u64 = 8;

/// The relocations of `DT_RELA`, divided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Selection {
    /// Places and addends, by place.
    pub packed: Vec<(u64, u64)>,
    /// What stays, in its order: some write to the same bytes.
    pub kept: Vec<Rela>,
    /// How many of these are relative.
    pub relative_kept: u64,
    /// How many relative ones are before the first other one (`DT_RELACOUNT`).
    pub relative_first: u64,
}

/// Whether a file can be repacked at all.
pub(super) fn check(image: &Image) -> Result<(), Refusal> {
    if !matches!(image.machine, Machine::X86_64 | Machine::Aarch64) {
        return Err(Refusal::Machine);
    }
    match image.kind {
        FileKind::Fixed => return Err(Refusal::FixedAddress),
        FileKind::Other => return Err(Refusal::NoProgram),
        FileKind::Shared => {}
    }
    let Some(dynamic) = &image.dynamic else { return Err(Refusal::Static) };
    let tag = |tag| dynamic.value(tag);
    let once = |(n, (one, _)): (usize, &(u64, u64))| {
        *one == dynamic::NEEDED || dynamic.entries.iter().skip(n + 1).all(|(other, _)| other != one)
    };
    check_loader(image)?;
    if tag(dynamic::RELR).is_some() {
        return Err(Refusal::AlreadyPacked);
    }
    let (Some(rela), Some(size)) = (tag(dynamic::RELA), tag(dynamic::RELASZ)) else {
        return Err(Refusal::NoRela);
    };
    let unusual = |is: bool, what| if is { Err(Refusal::Unusual(what)) } else { Ok(()) };
    if let Some(plt) = tag(dynamic::JMPREL)
        && plt.checked_sub(rela).is_some_and(|distance| distance < size)
    {
        return Err(Refusal::SharedTables);
    }
    let is_whole = tag(dynamic::RELAENT) == Some(RELA_ENTRY) && size.is_multiple_of(RELA_ENTRY);
    unusual(!is_whole, "its table of relocations has entries of another size")?;
    unusual(tag(dynamic::REL).is_some(), "it has relocations without addends too (DT_REL)")?;
    unusual(!dynamic.entries.iter().enumerate().all(once), "its dynamic section has a tag twice")?;
    // DT_GNU_PRELINKED, DT_CHECKSUM.
    let is_prelinked = tag(0x6fff_fdf5).is_some() || tag(0x6fff_fdf8).is_some();
    unusual(is_prelinked, "it is prelinked; undo that first with prelink --undo")?;
    // DT_AARCH64_MEMTAG_*: what is at a place in the file has a meaning then.
    let has_tags = image.machine == Machine::Aarch64
        && dynamic.entries.iter().any(|(tag, _)| (0x7000_0009..=0x7000_000f).contains(tag));
    unusual(has_tags, "its globals have memory tags")?;
    let loads: Vec<_> = image.loads().collect();
    let are_apart = loads.windows(2).all(|pair| {
        let end = pair[0].address.checked_add(pair[0].memory_size.max(pair[0].file_size));
        end.is_some_and(|end| end <= pair[1].address)
    });
    unusual(!are_apart, "its segments are not in the order of their addresses")
}

/// A file that relocates itself knows only the tables that its own code reads.
fn check_loader(image: &Image) -> Result<(), Refusal> {
    let soname = image.tag(dynamic::SONAME).and_then(|name| image.dynamic_string(name));
    let needs_nothing = image.tag(dynamic::NEEDED).is_none();
    let is_loader = |name: &[u8]| {
        name.starts_with(b"ld-")
            || name.starts_with(b"ld.")
            || name.starts_with(b"ld64.")
            || name.starts_with(b"libc.musl-")
            || (name == b"libc.so" && needs_nothing)
    };
    if soname.is_some_and(is_loader) {
        return Err(Refusal::Loader);
    }
    if image.interpreter().is_none() && needs_nothing && soname.is_none() {
        return Err(Refusal::StaticPie);
    }
    Ok(())
}

/// Divides the relocations of a file that passed [`check`].
pub(super) fn select(image: &Image, tables: &Tables) -> Result<Selection, Refusal> {
    let relative = kinds::relative(image.machine).ok_or(Refusal::Machine)?;
    let writable: Vec<_> = image.loads().filter(|load| load.is_writable()).copied().collect();
    let is_in_file = |place: u64| {
        let end = place.checked_add(WORD);
        writable
            .iter()
            .any(|load| load.address <= place && end.is_some_and(|end| end <= load.file_end()))
    };
    let is_relative = |entry: &Rela| entry.info == u64::from(relative);
    // Of all relocations: where they write, and which of DT_RELA it is.
    let mut writes: Vec<(u64, u64, usize)> = Vec::new();
    for (n, entry) in entries(tables.rela).chain(entries(tables.plt)).enumerate() {
        let end = entry.place.checked_add(written(image, &entry));
        let end = end.ok_or(Refusal::Unusual("a relocation is at the end of all addresses"))?;
        writes.push((entry.place, end, n));
    }
    // Nearly always sorted already.
    writes.sort();
    let mut is_alone = vec![true; writes.len()];
    let mut reach = 0;
    let mut last = None;
    for (place, end, n) in writes {
        if place < reach {
            // It writes where an earlier one does, be it only in part.
            is_alone[n] = false;
            if let Some(last) = last {
                is_alone[last] = false;
            }
        }
        if end > reach {
            reach = end;
            last = Some(n);
        }
    }
    let mut out =
        Selection { packed: Vec::new(), kept: Vec::new(), relative_kept: 0, relative_first: 0 };
    for (entry, is_alone) in entries(tables.rela).zip(is_alone) {
        let is_aligned = entry.place.is_multiple_of(WORD);
        if is_relative(&entry) && is_alone && is_aligned && is_in_file(entry.place) {
            out.packed.push((entry.place, entry.addend));
        } else {
            out.relative_kept += u64::from(is_relative(&entry));
            out.kept.push(entry);
        }
    }
    out.relative_first = out.kept.iter().take_while(|entry| is_relative(entry)).count() as u64;
    out.packed.sort_unstable();
    Ok(out)
}

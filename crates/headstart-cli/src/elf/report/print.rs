//! `headstart elf report` as text.

use super::{Item, Symbols};
use crate::output::{self, Align, Table, counted, grouped, size};
use headstart_elf::files::debug::By;
use headstart_elf::report::layout::{HashStyle, LargeFolios};
use std::io::{self, Write};

/// Initializers that are shown of a file.
const INITIALIZERS: usize = 20;

/// All about one file.
pub fn one(item: &Item, out: &mut dyn Write) -> io::Result<()> {
    let report = &item.report;
    let counts = &report.relocations;
    writeln!(out, "{}, {}", output::shown(&item.path), size(report.size))?;
    writeln!(out, "\nRelocations")?;
    for kind in &counts.kinds {
        writeln!(out, "  {:>12}  {}", grouped(kind.count), kind.kind)?;
    }
    let tables =
        [("RELA", counts.rela_bytes), ("PLT", counts.plt_bytes), ("RELR", counts.relr_bytes)];
    for (name, bytes) in tables.into_iter().filter(|(_, bytes)| *bytes > 0) {
        let share = 100.0 * bytes as f64 / report.size.max(1) as f64;
        writeln!(out, "  {name}: {}, {share:.1} % of the file", size(bytes))?;
    }
    if counts.relative > 0 {
        writeln!(out, "  relative ones packed (DT_RELR): {}", size(counts.as_relr_bytes))?;
    }
    writeln!(out, "  pages they write: {}", counts.pages_written)?;
    match (&report.packing.repack, &report.packing.not_repacked) {
        (Some(change), _) => writeln!(out, "  elf repack would save {}", size(change.saved))?,
        (None, Some(why)) => writeln!(out, "  elf repack would skip it: {why}")?,
        (None, None) => {}
    }
    initializers(item, out)?;
    layout(item, out)?;
    if !report.advice.is_empty() {
        writeln!(out, "\nAdvice")?;
    }
    for advice in &report.advice {
        writeln!(out, "- {}", advice.finding)?;
        for (with, flags) in &advice.fixes {
            writeln!(out, "    {with}: {flags}")?;
        }
    }
    Ok(())
}

fn initializers(item: &Item, out: &mut dyn Write) -> io::Result<()> {
    let all = &item.report.initializers;
    writeln!(out, "\nBefore main: {}", counted(all.len() as u64, "initializer"))?;
    match &item.symbols {
        Symbols::Debug(path, by) => {
            let by = match by {
                By::BuildId => "build ID",
                By::DebugLink => ".gnu_debuglink",
            };
            writeln!(out, "  symbols: {} (by {by})", output::shown(path))?;
        }
        Symbols::Stripped(Some(path)) if all.iter().any(|one| one.name.is_none()) => {
            writeln!(out, "  symbols: stripped; there is no {}", output::shown(path))?;
        }
        Symbols::Own | Symbols::Stripped(_) => {}
    }
    for (n, one) in all.iter().take(INITIALIZERS).enumerate() {
        let name = one
            .name
            .as_deref()
            .map_or_else(|| "?".to_owned(), |name| output::name(name.as_bytes()));
        writeln!(out, "  {:>4}  {:#x}  {name}", n + 1, one.address)?;
    }
    match all.len().checked_sub(INITIALIZERS) {
        Some(more @ 1..) => writeln!(out, "  and {more} more; --json has all"),
        _ => Ok(()),
    }
}

fn layout(item: &Item, out: &mut dyn Write) -> io::Result<()> {
    let layout = &item.report.layout;
    writeln!(out, "\nSegments")?;
    let mut table = Table::new([
        ("", Align::Left),
        ("OFFSET", Align::Right),
        ("ADDRESS", Align::Right),
        ("FILE", Align::Right),
        ("MEMORY", Align::Right),
        ("ALIGN", Align::Right),
        ("CONGRUENT", Align::Right),
    ]);
    for segment in &layout.segments {
        table.row([
            format!("  {}", segment.flags),
            format!("{:#x}", segment.offset),
            format!("{:#x}", segment.address),
            size(segment.file_size),
            size(segment.memory_size),
            size(segment.align),
            size(segment.congruent),
        ]);
    }
    table.write(out)?;
    let folios = match layout.large_folios {
        LargeFolios::Small => "there is no whole 2 MiB of it",
        LargeFolios::Possible => "possible",
        LargeFolios::NotCongruent => "no: addresses and offsets differ modulo 2 MiB",
        LargeFolios::NotAligned => "hardly ever: the load address is no multiple of 2 MiB",
    };
    writeln!(out, "  code in large folios: {folios}")?;
    let hash = match layout.hash {
        HashStyle::None => "none",
        HashStyle::Sysv => "sysv",
        HashStyle::Gnu => "gnu",
        HashStyle::Both => "sysv and gnu",
    };
    let (bss, tail) = (size(layout.bss_bytes), size(layout.bss_tail_bytes));
    writeln!(out, "  .bss: {bss}, of which {tail} in the last page of the data")?;
    writeln!(out, "  room in the dynamic section: {}", layout.spare_dynamic_entries)?;
    writeln!(out, "  hash tables: {hash}; libraries needed: {}", layout.needed)
}

/// A line for each file, the first `top`; all if that is 0. `learned` are the bytes that a start
/// reads, if a pack tells.
pub fn table(items: &[Item], top: usize, learned: u64, out: &mut dyn Write) -> io::Result<()> {
    let shown = if top == 0 { items.len() } else { top };
    let mut table = Table::new([
        ("SAVES", Align::Right),
        ("RELATIVE", Align::Right),
        ("RELA", Align::Right),
        ("PACKED", Align::Right),
        ("% OF FILE", Align::Right),
        ("READ", Align::Right),
        ("PAGES", Align::Right),
        ("INIT", Align::Right),
        ("FOLIOS", Align::Left),
        ("FILE", Align::Left),
    ]);
    for item in items.iter().take(shown) {
        let (report, counts) = (&item.report, &item.report.relocations);
        let folios = match report.layout.large_folios {
            LargeFolios::Small => "",
            LargeFolios::Possible => "yes",
            LargeFolios::NotCongruent | LargeFolios::NotAligned => "no",
        };
        table.row([
            if report.saved() > 0 { size(report.saved()) } else { "-".into() },
            (counts.relative + counts.packed).to_string(),
            size(counts.rela_bytes),
            size(counts.relr_bytes + counts.as_relr_bytes),
            format!("{:.1}", 100.0 * counts.rela_bytes as f64 / report.size.max(1) as f64),
            item.read.map_or_else(|| "-".into(), |(_, part)| size(part)),
            counts.pages_written.to_string(),
            report.initializers.len().to_string(),
            folios.into(),
            output::shown(&item.path),
        ]);
    }
    table.write(out)?;
    if items.len() > shown {
        writeln!(out, "and {} more; --top 0 shows all", items.len() - shown)?;
    }
    let sum = |part: fn(&Item) -> u64| size(items.iter().map(part).sum());
    let files = counted(items.len() as u64, "file");
    let rela = sum(|item| item.report.relocations.rela_bytes);
    writeln!(
        out,
        "{files}: {rela} of relocations; packing saves {}",
        sum(|item| item.report.saved())
    )?;
    if learned > 0 {
        let read: u64 = items.iter().filter_map(|item| item.read).map(|(_, part)| part).sum();
        let share = 100.0 * read as f64 / learned as f64;
        let (read, learned) = (size(read), size(learned));
        writeln!(out, "The start reads {learned}, of which {read} ({share:.1} %) are relocations")?;
    }
    Ok(())
}

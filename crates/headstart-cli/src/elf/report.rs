//! `headstart elf report`: what ELF files cost at the start of a program.

mod print;

use super::settings::found;
use crate::exit::ExitStatus;
use crate::output::{self, JsonPath, causes};
use crate::packs::by_name;
use crate::replay::named_pack;
use anyhow::Context;
use headstart::host::range::ByteRange;
use headstart::pack::Pack;
use headstart_elf::files::debug::{self, By};
use headstart_elf::files::read;
use headstart_elf::image::{Image, symbols};
use headstart_elf::report::{Report, initializers};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The arguments of `headstart elf report`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Of one file: relocations by kind, what their tables take and would take packed (DT_RELR), the \
pages they write, what runs before main in order, segments and whether the kernel can map their \
code by large folios, and what to do with which linker. Of several, of a directory, or of what a \
pack has: a table, sorted by what packing would save. Of a pack or a program that was learned \
also which part of what the start reads are relocations.

Read are 64-bit little-endian files. Initializers of a file that was stripped get their names from \
its debug file, if it is installed (by build ID below /usr/lib/debug, or by .gnu_debuglink), which \
is named then; not those of directories and packs.

Exit status: 0 done; 1 some files could not be read.")]
pub struct ReportArgs {
    /// Programs and libraries, directories, packs, and names of programs that were learned
    #[arg(required = true, value_name = "FILE|DIR|PACK|PROGRAM")]
    paths: Vec<PathBuf>,

    /// Show this many files of a table, and all with 0
    #[arg(long, value_name = "N", default_value_t = 40)]
    top: usize,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// A file with its report.
pub(super) struct Item {
    pub path: PathBuf,
    pub report: Report,
    /// Where a pack tells: bytes that the start reads of the file, and of its relocations.
    pub read: Option<(u64, u64)>,
    /// Where names of functions come from.
    pub symbols: Symbols,
}

/// Where names of functions come from.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Symbols {
    /// The file.
    Own,
    /// Only what other files may see of it; its debug file would be here.
    Stripped(Option<PathBuf>),
    /// Its debug file.
    Debug(PathBuf, By),
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    files: Vec<DocumentFile<'a>>,
    errors: &'a [String],
}

#[derive(Serialize)]
struct DocumentFile<'a> {
    #[serde(flatten)]
    path: JsonPath,
    /// Bytes that the start reads of it, by the pack.
    read_bytes: Option<u64>,
    /// Bytes of these that are its relocations.
    read_relocation_bytes: Option<u64>,
    /// The debug file that names functions, and what named that.
    debug_file: Option<JsonPath>,
    debug_file_by: Option<By>,
    #[serde(flatten)]
    report: &'a Report,
}

impl<'a> DocumentFile<'a> {
    fn of(item: &'a Item) -> Self {
        let debug = match &item.symbols {
            Symbols::Debug(path, by) => Some((path.as_path(), *by)),
            Symbols::Own | Symbols::Stripped(_) => None,
        };
        Self {
            debug_file: debug.map(|(path, _)| path.into()),
            debug_file_by: debug.map(|(_, by)| by),
            path: item.path.as_path().into(),
            read_bytes: item.read.map(|(all, _)| all),
            read_relocation_bytes: item.read.map(|(_, part)| part),
            report: &item.report,
        }
    }
}

/// Runs the verb.
pub fn run(args: &ReportArgs) -> anyhow::Result<ExitStatus> {
    let (mut items, mut errors, mut learned) = (Vec::new(), Vec::new(), 0);
    for path in &args.paths {
        match pack_of(path)? {
            Some(pack) => {
                learned += pack.data_bytes();
                of_pack(&pack, &mut items);
            }
            None => of_files(path, &mut items, &mut errors)?,
        }
    }
    items.sort_by_key(|item| std::cmp::Reverse(item.report.saved()));
    if args.json {
        output::print_json(&Document {
            schema: "headstart/elf-report/1",
            files: items.iter().map(DocumentFile::of).collect(),
            errors: &errors,
        })?;
    } else {
        output::print(|out| match items.as_slice() {
            [only] if learned == 0 => print::one(only, out),
            _ => print::table(&items, args.top, learned, out),
        })?;
    }
    errors.iter().for_each(output::message);
    Ok(if errors.is_empty() { ExitStatus::Done } else { ExitStatus::Failed })
}

/// The pack that a path is, or that the program of this name has.
fn pack_of(path: &Path) -> anyhow::Result<Option<Pack>> {
    if path.is_dir() || (path.exists() && path.extension() != Some("pack".as_ref())) {
        return Ok(None);
    }
    let path = by_name(path)?;
    Ok(Some(named_pack(&path)?))
}

fn of_files(path: &Path, items: &mut Vec<Item>, errors: &mut Vec<String>) -> anyhow::Result<()> {
    let is_dir = path.is_dir();
    let (groups, problems) = found(&[path.to_owned()]);
    errors.extend(problems);
    for names in groups {
        let Some(name) = names.into_iter().next() else { continue };
        let item = item(&name, None, !is_dir).with_context(|| output::shown(&name));
        match item {
            Ok(item) => items.push(item),
            // Those of other classes are not what was requested in a directory.
            Err(error) if is_dir && error.is::<headstart_elf::image::ImageError>() => {}
            Err(error) => errors.push(causes(error.as_ref())),
        }
    }
    Ok(())
}

/// The report of a file; names of its initializers also by its debug file, if `is_one`.
fn item(path: &Path, ranges: Option<&[ByteRange]>, is_one: bool) -> anyhow::Result<Item> {
    let read = read::read(path)?;
    let image = Image::parse(&read.bytes)?;
    let mut report = Report::of(&image);
    let mut source = Symbols::Own;
    if is_one && !symbols::has_full(&image) {
        let dir = Path::new(debug::DEBUG_FILES);
        source = match debug::find(&image, path, dir) {
            Some(debug) => {
                initializers::name(&mut report.initializers, &debug.bytes);
                Symbols::Debug(debug.path, debug.by)
            }
            None => {
                let id = symbols::build_id(&image);
                Symbols::Stripped(id.and_then(|id| debug::by_build_id(dir, id)))
            }
        };
    }
    let shares = ranges.map(|ranges| {
        let all = ranges.iter().map(|range| range.length()).sum();
        let (begin, length) = report.relocations.rela_at.unwrap_or_default();
        let end = begin.saturating_add(length);
        let common = |range: &ByteRange| {
            let to = range.offset.saturating_add(range.length()).min(end);
            to.saturating_sub(range.offset.max(begin))
        };
        (all, ranges.iter().map(common).sum())
    });
    Ok(Item { path: path.to_owned(), report, read: shares, symbols: source })
}

/// The ELF files of a pack that are still there.
fn of_pack(pack: &Pack, items: &mut Vec<Item>) {
    let mut ranges = vec![Vec::new(); pack.files.len()];
    for range in &pack.ranges {
        if let Some(list) = ranges.get_mut(range.file as usize) {
            list.push(range.page_range().bytes(pack.page_size()));
        }
    }
    for (file, ranges) in pack.files.iter().zip(ranges) {
        let path = pack.paths.path(file.node);
        if read::is_elf(&path) {
            // What is no longer there, or of another class, costs nothing that is known.
            items.extend(item(&path, Some(&ranges), false).ok());
        }
    }
}

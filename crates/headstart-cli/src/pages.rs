//! `headstart pages`: which pages of files are in the page cache.

use headstart::host::range::{ByteRange, PageRange};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use headstart::cache::error::Error;
use headstart::cache::residency::{Residency, page_size, resident_ranges};
use headstart::cache::walk::{Found, walk};
use headstart::cache::{list, open};
use serde::Serialize;

use crate::exit::ExitStatus;
use crate::map;
use crate::output::{self, Align, JsonPath, Table};

/// Characters of the map beside each file.
const SMALL_MAP: u64 = 24;
/// Lines of the map of a single file, at most.
const MAP_LINES: u64 = 8;

/// The arguments of `headstart pages`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
In maps, # is a part of the file that is in the page cache, . one that is not, \
+ one that is in part. A map of many pages has one character for several; the \
map of a single file says how many.

For files that you neither own nor may write, the kernel reports nothing, and a \
question mark is shown.

Exit status: 0 all files were looked at; 1 some could not be; 4 for some the \
kernel does not report it.")]
pub struct PagesArgs {
    /// Files, and directories, of which all regular files on the same file
    /// system are looked at. Links are followed only where named here
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,

    /// Print `name offset:length,offset:length` in bytes for each file with cached pages: a list
    /// for `replay`, with absolute names. In names, invisible characters, and a space at either
    /// end, are written as \ and three octal digits, as in \012
    #[arg(long, conflicts_with_all = ["json", "bytes", "total"])]
    list: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Print sizes as numbers of bytes
    #[arg(long)]
    bytes: bool,

    /// Add a line with the sum of all files
    #[arg(long)]
    total: bool,
}

/// One file that was looked at.
struct View {
    path: PathBuf,
    len: u64,
    residency: Residency,
}

impl View {
    fn of(path: PathBuf) -> Result<Self, Error> {
        let file = open::open(&path)?;
        match resident_ranges(&file.file, file.len) {
            Ok(residency) => Ok(Self { path, len: file.len, residency }),
            Err(source) => Err(Error::Io { what: "look at the cached pages of", path, source }),
        }
    }

    fn pages(&self) -> u64 {
        self.len.div_ceil(page_size())
    }

    fn runs(&self) -> &[PageRange] {
        match &self.residency {
            Residency::Known(runs) => runs,
            Residency::Untrusted => &[],
        }
    }
}

/// Runs the verb.
pub fn run(args: PagesArgs) -> anyhow::Result<ExitStatus> {
    let mut found = walk(&args.paths);
    let mut errors = std::mem::take(&mut found.errors);
    let mut views = Vec::new();
    for path in std::mem::take(&mut found.files) {
        match View::of(path) {
            Ok(view) => views.push(view),
            // Found below a directory, and gone since; walking tells of names that are not there.
            Err(e) if e.is_gone() => {}
            Err(e) => errors.push(e),
        }
    }
    let hidden = views.iter().filter(|view| view.residency == Residency::Untrusted).count();

    if args.json {
        output::print_json(&Document::new(&views, &found, &errors))?;
    } else if args.list {
        output::print(|out| views.iter().try_for_each(|view| write_list_line(out, view)))?;
    } else {
        output::print(|out| write_table(out, &views, &args))?;
    }
    for error in &errors {
        output::error(error);
    }
    say_skipped(&found);
    if hidden > 0 {
        output::message(format_args!(
            "The kernel does not report cached pages of {}: you neither own nor may write them; use root",
            output::counted(hidden as u64, "file"),
        ));
    }
    Ok(match (errors.is_empty(), hidden) {
        (false, _) => ExitStatus::Failed,
        (true, 0) => ExitStatus::Done,
        (true, _) => ExitStatus::PermissionMissing,
    })
}

/// One line of `--list`; none for a file without cached pages.
fn write_list_line(out: &mut dyn Write, view: &View) -> io::Result<()> {
    if view.runs().is_empty() {
        return Ok(());
    }
    let path = std::path::absolute(&view.path)?;
    out.write_all(&list::line(path.as_os_str().as_bytes(), &in_bytes(view.runs())))?;
    out.write_all(b"\n")
}

/// Runs of pages as ranges of bytes, whole pages also at the file's end.
fn in_bytes(runs: &[PageRange]) -> Vec<ByteRange> {
    runs.iter().map(|run| run.bytes(page_size())).collect()
}

fn write_table(out: &mut dyn Write, views: &[View], args: &PagesArgs) -> io::Result<()> {
    let bytes = |pages: u64| {
        let bytes = pages * page_size();
        if args.bytes { bytes.to_string() } else { output::size(bytes) }
    };
    let numbers = |cached: Option<u64>, pages: u64| match cached {
        Some(cached) => {
            [cached.to_string(), pages.to_string(), output::percent(cached, pages), bytes(cached)]
        }
        None => ["?".into(), pages.to_string(), "?".into(), "?".into()],
    };
    let mut table = Table::new([
        ("PAGES", Align::Right),
        ("OF", Align::Right),
        ("%", Align::Right),
        ("CACHED", Align::Right),
        ("MAP", Align::Left),
        ("FILE", Align::Left),
    ]);
    for view in views {
        let [cached, of, percent, size] = numbers(view.residency.pages(), view.pages());
        let map = match &view.residency {
            Residency::Known(runs) => map::draw(runs, view.pages(), SMALL_MAP).characters,
            Residency::Untrusted => "not reported by the kernel".into(),
        };
        table.row([cached, of, percent, size, map, output::shown(&view.path)]);
    }
    if args.total {
        let total = Total::of(views);
        let [cached, of, percent, size] = numbers(Some(total.cached), total.pages);
        table.row([cached, of, percent, size, String::new(), "total".into()]);
    }
    table.write(out)?;
    match views {
        [only] if matches!(only.residency, Residency::Known(_)) => write_map(out, only),
        _ => Ok(()),
    }
}

/// The map of a single file, in lines as wide as the terminal.
fn write_map(out: &mut dyn Write, view: &View) -> io::Result<()> {
    let width = output::terminal_width();
    let map = map::draw(view.runs(), view.pages(), MAP_LINES * width as u64);
    if map.scale == 0 {
        return Ok(());
    }
    let pages = output::counted(map.scale, "page");
    writeln!(out, "\n{pages} ({}) a character:", output::size(map.scale * page_size()))?;
    for line in map.characters.as_bytes().chunks(width) {
        out.write_all(line)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

fn say_skipped(found: &Found) {
    if found.special > 0 {
        let what = output::counted(found.special, "special file");
        output::message(format_args!("Skipped {what} (pipes, sockets, devices)"));
    }
    if found.mounts > 0 {
        let what = match found.mounts {
            1 => "a directory".to_owned(),
            count => format!("{count} directories"),
        };
        output::message(format_args!(
            "Did not enter {what} of another file system; name what is to be looked at"
        ));
    }
}

/// The JSON document.
#[derive(Serialize)]
struct Document {
    schema: &'static str,
    /// Bytes.
    page_size: u64,
    files: Vec<DocumentFile>,
    total: Total,
    skipped: Skipped,
    errors: Vec<String>,
}

#[derive(Serialize)]
struct DocumentFile {
    #[serde(flatten)]
    path: JsonPath,
    /// Bytes.
    size: u64,
    pages: u64,
    /// Null when the kernel does not report it.
    cached: Option<u64>,
    /// Offset and length in bytes; null when the kernel does not report it.
    ranges: Option<Vec<[u64; 2]>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
struct Total {
    files: u64,
    /// Pages of the files of which the cached pages are known.
    pages: u64,
    cached: u64,
    /// Files of which they are not known.
    unknown: u64,
}

impl Total {
    fn of(views: &[View]) -> Self {
        let mut total = Self { files: views.len() as u64, pages: 0, cached: 0, unknown: 0 };
        for view in views {
            match view.residency.pages() {
                Some(cached) => {
                    total.cached += cached;
                    total.pages += view.pages();
                }
                None => total.unknown += 1,
            }
        }
        total
    }
}

#[derive(Serialize)]
struct Skipped {
    links: u64,
    special: u64,
    mounts: u64,
}

impl Document {
    fn new(views: &[View], found: &Found, errors: &[Error]) -> Self {
        let file = |view: &View| {
            let known = matches!(view.residency, Residency::Known(_));
            let range = |range: &ByteRange| [range.offset, range.length()];
            DocumentFile {
                path: view.path.as_path().into(),
                size: view.len,
                pages: view.pages(),
                cached: view.residency.pages(),
                ranges: known.then(|| in_bytes(view.runs()).iter().map(range).collect()),
            }
        };
        Self {
            schema: "headstart/pages/1",
            page_size: page_size(),
            files: views.iter().map(file).collect(),
            total: Total::of(views),
            skipped: Skipped { links: found.links, special: found.special, mounts: found.mounts },
            errors: errors.iter().map(|error| output::causes(error)).collect(),
        }
    }
}

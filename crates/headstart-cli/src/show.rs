//! `headstart show`: the content of a pack.

mod by_file;
mod dump;
mod json;
mod last_run;

use crate::exit::ExitStatus;
use crate::output::{self, Align, Table, counted, size};
use crate::packs::by_name;
use crate::replay::named_pack;
use by_file::{View, history};
use headstart::cache::list;
use headstart::host::usage::How;
use headstart::pack::changing::changes_often;
use headstart::pack::{History, Pack, format_uuid};
use std::io::{self, Write};
use std::path::PathBuf;

/// The arguments of `headstart show`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The table has a line for each file in the order of first touches: when that was \
(in packs of boots without what they waited for a disk), how many ranges and bytes \
of it are in the pack, how they were touched, and in which of the last eight starts \
(1 touched, . not, the last start first). \
Files that every start changes, such as journals, are marked as changing; they are prefetched \
whatever their identity.

--last-run draws bars over the time of the start: pages that were resident or \
in flight (ready), that the program requested before the replay (late), and \
that were not in the pack (missing), at their first touch; prefetched pages, when they were \
requested, and the wasted ones of them; and pages that the program itself read and did not \
touch. The files below are those with the most late, missing and wasted pages.")]
pub struct ShowArgs {
    /// The pack, as a file or as the name of a program that has one
    pack: PathBuf,

    /// Draw a map of each file: @ begins a range, # continues it, . is not in the pack
    #[arg(long)]
    dump: bool,

    /// Print a list that `headstart replay` reads
    #[arg(long, conflicts_with = "dump")]
    list: bool,

    /// Print one JSON document
    #[arg(long, conflicts_with_all = ["dump", "list"])]
    json: bool,

    /// Draw the classification of the last learned start's pages: late, missing, wasted
    #[arg(long, conflicts_with_all = ["dump", "list"])]
    last_run: bool,

    /// Write that as a picture to this file: a page (.html), an image (.svg) or data (.json)
    #[arg(long, value_name = "FILE", requires = "last_run", conflicts_with = "json")]
    picture: Option<PathBuf>,

    /// Replace that file even if it is not an earlier result
    #[arg(long, requires = "picture")]
    force: bool,
}

/// Shows a pack.
pub fn run(args: ShowArgs) -> anyhow::Result<ExitStatus> {
    let args = ShowArgs { pack: by_name(&args.pack)?, ..args };
    let pack = named_pack(&args.pack)?;
    if args.last_run {
        last_run::run(
            &args.pack,
            &pack,
            args.picture.as_deref().map(|path| (path, args.force)),
            args.json,
        )?;
        return Ok(ExitStatus::Done);
    }
    let view = View::new(&pack);
    if args.json {
        json::print(&args.pack, &view)?;
    } else if args.list {
        output::print(|out| print_list(&view, out))?;
    } else if args.dump {
        let width = output::terminal_width();
        output::print(|out| dump::print(&view, width, out))?;
    } else {
        output::print(|out| print_table(&args, &view, out))?;
    }
    Ok(ExitStatus::Done)
}

fn print_list(view: &View<'_>, out: &mut dyn Write) -> io::Result<()> {
    let page = view.pack.page_size();
    for file in 0..view.pack.files.len() {
        let parts: Vec<_> = view.ranges_of(file).map(|r| r.page_range().bytes(page)).collect();
        let path = view.path(file);
        out.write_all(&list::line(path.as_os_str().as_encoded_bytes(), &parts))?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

fn print_table(args: &ShowArgs, view: &View<'_>, out: &mut dyn Write) -> io::Result<()> {
    print_head(args, view.pack, out)?;
    if view.pack.files.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let mut table = Table::new([
        ("MS", Align::Right),
        ("RANGES", Align::Right),
        ("IN PACK", Align::Right),
        ("SIZE", Align::Right),
        ("TOUCHED", Align::Left),
        ("HISTORY", Align::Left),
        ("INODE", Align::Right),
        ("FILE", Align::Left),
    ]);
    for (i, file) in view.pack.files.iter().enumerate() {
        let first = view.ranges_of(i).map(|r| r.at_us).min().unwrap_or(0);
        let how = view.ranges_of(i).fold(How::default(), |how, r| how | r.how);
        let changing = changes_often(file.changes).then_some("changing");
        let touched = view.ranges_of(i).map(|r| r.history).fold(History::default(), History::union);
        table.row([
            format!("{:.1}", f64::from(first) / 1000.0),
            view.ranges[i].len().to_string(),
            size(view.bytes_of(i)),
            size(file.identity.size),
            how.words().into_iter().chain(changing).collect::<Vec<_>>().join(","),
            history(touched, view.pack.origin.starts),
            file.identity.ino.to_string(),
            output::shown(&view.path(i)),
        ]);
    }
    table.write(out)
}

fn print_head(args: &ShowArgs, pack: &Pack, out: &mut dyn Write) -> io::Result<()> {
    let o = &pack.origin;
    let words: Vec<String> = o.command.split(|b| *b == 0).map(output::name).collect();
    let learned = output::time(o.learned_at);
    writeln!(out, "pack      {}", output::shown(&args.pack))?;
    writeln!(out, "program   {}: {}", output::harmless(&o.name), words.join(" "))?;
    writeln!(
        out,
        "learned   {}, the last at {learned} in {:.2} s on Linux {}",
        counted(o.starts.into(), "start"),
        o.duration_us as f64 / 1e6,
        output::harmless(&o.kernel)
    )?;
    let events = if o.has_access_events {
        "accesses and page-cache additions"
    } else {
        "page-cache additions only (this kernel reports no accesses), so readahead pages are included"
    };
    let lost = match o.lost_events {
        0 => "none lost".to_owned(),
        n => format!("{} LOST", counted(n, "event")),
    };
    writeln!(out, "events    {events}; {lost}")?;
    writeln!(
        out,
        "files     {}, {}, {}",
        pack.files.len(),
        counted(pack.ranges.len() as u64, "range"),
        size(pack.data_bytes())
    )?;
    let changing = pack.files.iter().filter(|file| changes_often(file.changes)).count();
    if changing > 0 {
        writeln!(out, "changing  {} at each start", counted(changing as u64, "file"))?;
    }
    writeln!(
        out,
        "metadata  {}, {}",
        counted(pack.metadata.len() as u64, "range"),
        size(pack.metadata_bytes())
    )?;
    for fs in &pack.file_systems {
        let uuid = fs.uuid.as_ref().map_or_else(|| "no UUID".to_owned(), format_uuid);
        let source = output::name(&fs.source);
        writeln!(out, "on        {} {uuid} (was {source})", output::harmless(&fs.kind))?;
    }
    let skipped: Vec<String> =
        o.dropped.reasons().map(|(count, why)| format!("{count} {why}")).collect();
    if !skipped.is_empty() {
        writeln!(out, "skipped   {}", skipped.join(", "))?;
    }
    Ok(())
}

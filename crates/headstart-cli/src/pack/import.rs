//! `headstart pack import`: makes a pack of what other tools recorded. `headstart-import` reads their
//! files; here their names are looked up on this machine.

mod find;

use crate::exit::ExitStatus;
use crate::output::{self, counted, grouped};
use anyhow::{Context, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use find::Finder;
use headstart::host::contents;
use headstart::pack::merge::{Rule, merge};
use headstart::pack::{Origin, Pack, store};
use headstart::profile::seen::now_ns;
use headstart_import::accesses::{Accesses, Lacks};
use headstart_import::detect::{Format, detect};
use headstart_import::error::ImportError;
use headstart_import::{build, import};
use std::path::{Path, PathBuf};

/// Names of missing files that are printed.
const NAMED: usize = 10;

/// The arguments of `headstart pack import`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Formats, found by the content of each file: logs of strace -f and fatrace, trace.dat of trace-cmd \
(versions 6 and 7), perf.data, lists `name offset:length,offset:length` or of names only, packs of \
ureadahead, Android's prefetch records and compiled iorap traces. doc/import.md tells what is taken \
of each. Several files become one pack.

Which file a name or inode is, and its size and times, are those of this machine now. Files that are \
missing are counted and named; exit status 1 if none is found.")]
pub struct ImportArgs {
    /// What other tools recorded
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Where to write the pack
    #[arg(short, long, value_name = "PACK")]
    output: PathBuf,

    /// The format of the files [default: by their content]
    #[arg(long, value_name = "FORMAT", value_parser = format_parser())]
    format: Option<Format>,

    /// Look files up below this directory, as in the root of a container or a mounted image
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,

    /// Print the names of all files that are missing
    #[arg(short, long)]
    verbose: bool,
}

fn format_parser() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::ALL.map(|(name, _)| name)).try_map(|wanted| {
        let found = Format::ALL.into_iter().find(|(name, _)| *name == wanted);
        found.map(|(_, format)| format).ok_or("no format")
    })
}

/// Imports.
pub fn run(args: &ImportArgs) -> anyhow::Result<ExitStatus> {
    let mut all: Option<Pack> = None;
    let mut missing = Vec::new();
    for file in &args.files {
        let (format, accesses) = read(file, args.format)
            .with_context(|| format!("Can't import {}", output::shown(file)))?;
        let mut finder = Finder::new(&args.root, &accesses)?;
        let pack = build::pack(&accesses, origin(&args.output), |name| finder.find(name));
        say(file, format, &accesses, &finder);
        missing.append(&mut finder.missing);
        all = Some(match all {
            Some(all) if all.origin.page_shift != pack.origin.page_shift => {
                bail!("{} is of a machine with another page size", output::shown(file))
            }
            Some(all) => merge(&all, &pack, Rule::Union),
            None => pack,
        });
    }
    say_missing(&mut missing, args.verbose);
    let pack = all.context("There is no file to import")?;
    if pack.files.is_empty() {
        bail!("No file that was recorded is on this machine; --root names where they are");
    }
    let bytes = store::lock(&args.output)?.write(&pack)?;
    output::message(format_args!(
        "wrote {}: {}, {} to prefetch, {} on disk",
        output::shown(&args.output),
        counted(pack.files.len() as u64, "file"),
        output::size(pack.data_bytes()),
        output::size(bytes)
    ));
    Ok(ExitStatus::Done)
}

fn read(file: &Path, format: Option<Format>) -> anyhow::Result<(Format, Accesses)> {
    let bytes = contents::bytes(file)?;
    let format = format.or_else(|| detect(&bytes)).ok_or(ImportError::Unknown)?;
    let page_size = rustix::param::page_size() as u64;
    Ok((format, import(&bytes, format, page_size)?))
}

fn origin(output: &Path) -> Origin {
    let uname = rustix::system::uname();
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    Origin {
        name: output
            .file_stem()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default(),
        kernel: format!("{} {}", text(uname.release()), text(uname.machine())),
        learned_at: u64::try_from(now_ns() / 1_000_000_000).unwrap_or(0),
        ..Origin::default()
    }
}

/// What was read of a file, and what it lacks.
fn say(file: &Path, format: Format, accesses: &Accesses, finder: &Finder) {
    let Lacks { not_understood, of_unknown_files, only_opened, lost, other_traces, coarse } =
        &accesses.lacks;
    let found = finder.found;
    let mut parts = vec![format!("{}, {} on this machine", format.name(), counted(found, "file"))];
    for (count, what) in [
        (*lost, "events were lost when it was recorded"),
        (*not_understood, "lines or records were not understood"),
        (
            *of_unknown_files,
            "accesses are to descriptors that were not seen to be opened, as pipes are",
        ),
        (*only_opened, "files were only opened"),
        (*other_traces, "traces of other instances were not read"),
        (finder.irregular, "names are no regular files"),
        (finder.in_memory, "files are always in memory"),
    ] {
        if count > 0 {
            parts.push(format!("{} {what}", grouped(count)));
        }
    }
    parts.extend(coarse.map(str::to_owned));
    parts.extend(finder.assumed.clone());
    output::message(format_args!("{}: {}", output::shown(file), parts.join("; ")));
}

fn say_missing(missing: &mut Vec<String>, all: bool) {
    missing.sort_unstable();
    missing.dedup();
    if missing.is_empty() {
        return;
    }
    let shown = if all { missing.len() } else { missing.len().min(NAMED) };
    let rest = missing.len() - shown;
    let more =
        if rest > 0 { format!(" and {} more (-v)", grouped(rest as u64)) } else { String::new() };
    output::message(format_args!(
        "{} missing here: {}{more}",
        counted(missing.len() as u64, "file"),
        missing[..shown].join(", ")
    ));
}

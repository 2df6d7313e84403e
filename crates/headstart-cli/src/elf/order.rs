//! `headstart elf order`: in which order a start calls the functions of a program, and order
//! files for linkers.

mod print;

use crate::args;
use crate::exit::ExitStatus;
use crate::output;
use crate::parent::{IgnoredSignals, status_in_shell};
use crate::results::{self, ResultKind};
use anyhow::{Context, bail};
use headstart::host::contents;
use headstart_elf::order::document::{Document, FileOrder, parse};
use headstart_elf::order::follow::{self, FollowError, Options, Recorder};
use headstart_elf::order::merge;
use headstart_elf::order::write::{self, Format};
use headstart_sys::exec;
use headstart_sys::process::Change;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The arguments of `headstart elf order`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Each function of the program, and of programs that it starts, has a breakpoint that goes away at \
its first call; the program runs as without headstart otherwise. Symbols are needed: in the file, \
or in its debug file, if it is installed (by build ID below /usr/lib/debug, or by .gnu_debuglink).

The table says what the code that is called takes now, and what it would take in the order of first \
calls: 4 KiB pages, windows of 64 KiB that a page fault maps, windows of 128 KiB that it reads, \
and the span from the first to the last such page.

Functions that all runs called come first, in the order of their first calls, then those of all runs \
but one, and so on. The program must be compiled with -ffunction-sections (rustc does so), and is linked \
again with the order file:

  lld     -fuse-ld=lld -Wl,--symbol-ordering-file=FILE -Wl,--no-warn-symbol-ordering
  gold    -fuse-ld=gold -Wl,--section-ordering-file=FILE
  GNU ld  -Wl,--section-ordering-file=FILE (2.43 and later)
  BOLT    llvm-bolt PROGRAM -reorder-functions=user -function-order=FILE -o OUT, of a program that \
was linked with -Wl,--emit-relocs

Exit status: 0 done, unless CMD has another; 1 it failed; 4 this user may not trace CMD; 5 another CPU \
than x86-64.")]
pub struct OrderArgs {
    /// Run the program so many times
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,

    /// Add the runs of such a document (--json) [without CMD: only those]
    #[arg(long, value_name = "DOC")]
    from: Vec<PathBuf>,

    /// Look at shared libraries too; takes a moment at each system call
    #[arg(long)]
    libraries: bool,

    /// Look at the first calls of this time only
    #[arg(long = "for", value_name = "TIME", value_parser = args::duration)]
    duration: Option<Duration>,

    /// Drop functions that a smaller share of the runs called
    #[arg(long, value_name = "SHARE", default_value = DEFAULT_SHARE, value_parser = args::percent)]
    at_least: f64,

    /// Which file the order files are for: its path or name [default: the program itself]
    #[arg(long, value_name = "FILE")]
    of: Option<PathBuf>,

    /// Write the order for lld to this file (--symbol-ordering-file)
    #[arg(long, value_name = "FILE")]
    lld: Option<PathBuf>,

    /// Write the order for gold to this file (--section-ordering-file)
    #[arg(long, value_name = "FILE")]
    gold: Option<PathBuf>,

    /// Write the order for GNU ld 2.43 and later to this file (--section-ordering-file)
    #[arg(long, value_name = "FILE")]
    gnu_ld: Option<PathBuf>,

    /// Write the order for BOLT to this file (-function-order)
    #[arg(long, value_name = "FILE")]
    bolt: Option<PathBuf>,

    /// Write all first calls to this file as one JSON document
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Replace these files even if they are not earlier results; those for gold and BOLT have no
    /// mark of an earlier result
    #[arg(long)]
    force: bool,

    /// Print no table
    #[arg(short, long)]
    quiet: bool,

    /// The program and its arguments
    #[arg(required_unless_present = "from", trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Said where no order is known.
const NOTHING: &str = "No first call of a function was seen";

/// [`merge::DEFAULT_SHARE`] as it is written.
const DEFAULT_SHARE: &str = "10%";

impl OrderArgs {
    /// Order files that are to be written.
    fn order_files(&self) -> impl Iterator<Item = (&Path, Format)> {
        let all = [
            (&self.lld, Format::Lld),
            (&self.gold, Format::Gold),
            (&self.gnu_ld, Format::GnuLd),
            (&self.bolt, Format::Bolt),
        ];
        all.into_iter().filter_map(|(path, format)| Some((path.as_deref()?, format)))
    }
}

/// Runs the verb.
pub fn run(args: OrderArgs) -> anyhow::Result<ExitStatus> {
    // Before the program runs, which may take long.
    if let Some(path) = &args.json {
        results::check(path, ResultKind::Json, args.force)?;
    }
    for (path, format) in args.order_files() {
        results::check(path, ResultKind::Order(format), args.force)?;
    }
    let saved = args.from.iter().map(|path| read(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut status = ExitStatus::Done;
    let mut recorded = None;
    if !args.command.is_empty() {
        let mut recorder = Recorder::default();
        match record(&args, &mut recorder) {
            Ok(change) => status = ExitStatus::Program(status_in_shell(change)),
            Err(error) => return refused(&args.command, error),
        }
        if recorder.is_empty() {
            // It could not be executed, and has said why.
            return Ok(status);
        }
        for skipped in recorder.skipped() {
            output::message(format_args!("{}: {}", output::shown(&skipped.path), skipped.why));
        }
        let words = args.command.iter().map(|word| word.to_string_lossy().into_owned());
        recorded = Some(recorder.document(words.collect()));
    }
    // The program that was run now is the first file.
    let document = merge::documents(recorded.into_iter().chain(saved))
        .filter(|document| !document.files.is_empty());
    let Some(document) = document else {
        let has_outputs = args.json.is_some() || args.order_files().next().is_some();
        if args.command.is_empty() || has_outputs {
            bail!(NOTHING);
        }
        output::message(NOTHING);
        return Ok(status);
    };
    if let Some(path) = &args.json {
        results::write(path, &output::json_text(&document)?, ResultKind::Json, args.force)?;
    }
    let chosen = chosen(&document, args.of.as_deref())?;
    let order = merge::order(chosen, args.at_least);
    for (path, format) in args.order_files() {
        let text = write::text(&order.functions, format);
        results::write(path, &text, ResultKind::Order(format), args.force)?;
    }
    if !args.quiet {
        let table = print::table(&document, args.at_least, chosen);
        if args.command.is_empty() {
            output::print(|out| out.write_all(&table))?;
        } else {
            // Standard output is the program's.
            for line in String::from_utf8_lossy(&table).lines() {
                output::message(line);
            }
        }
    }
    Ok(status)
}

/// Runs the program as often as wanted; how it ended at last.
fn record(args: &OrderArgs, recorder: &mut Recorder) -> Result<Change, FollowError> {
    let options = Options { libraries: args.libraries, limit: args.duration };
    let mut last = Change::Exited(0);
    for _ in 0..args.runs {
        // What the terminal sends is for the program, as for time(1).
        let start = || {
            let failure = exec::exec(&args.command);
            let name = args.command.first().map(PathBuf::from).unwrap_or_default();
            output::message(format_args!("Can't run {}: {failure}", output::shown(&name)));
            exec::status_of_failure(&failure)
        };
        let mut ignored = None;
        last = follow::run(recorder, options, start, || ignored = Some(IgnoredSignals::begin()))?;
        drop(ignored);
        recorder.end_run();
        // One that the user stopped is not begun again.
        if matches!(last, Change::Killed(_)) {
            break;
        }
    }
    Ok(last)
}

/// Why the program was not run, with the exit status that says so.
fn refused(command: &[OsString], error: FollowError) -> anyhow::Result<ExitStatus> {
    let status = match error {
        FollowError::Traced(_) | FollowError::NotAllowed(_) | FollowError::Privileged(_) => {
            ExitStatus::PermissionMissing
        }
        FollowError::Machine => ExitStatus::KernelFeatureMissing,
        FollowError::Other(_) => ExitStatus::Failed,
    };
    let name = command.first().map(PathBuf::from).unwrap_or_default();
    output::message(format_args!("{} did not run: {error}", output::shown(&name)));
    Ok(status)
}

fn read(path: &Path) -> anyhow::Result<Document> {
    let bytes =
        contents::bytes(path).with_context(|| format!("Can't read {}", output::shown(path)))?;
    parse(&bytes).with_context(|| output::shown(path))
}

/// The file that is wanted, by its path or the last part of it.
fn chosen<'a>(document: &'a Document, of: Option<&Path>) -> anyhow::Result<&'a FileOrder> {
    let Some(of) = of else {
        return document.files.first().context(NOTHING);
    };
    let is_it = |file: &&FileOrder| {
        let path = file.path.to_path();
        path == of || path.file_name() == Some(of.as_os_str())
    };
    let found: Vec<&FileOrder> = document.files.iter().filter(is_it).collect();
    match found[..] {
        [file] => Ok(file),
        [] => {
            let all: Vec<String> = document.files.iter().map(|file| file.path.shown()).collect();
            bail!("--of {}: it is none of {}", output::shown(of), all.join(", "))
        }
        _ => {
            let all = found.iter().map(|file| format!("{} ({})", file.path.shown(), file.build_id));
            let all = all.collect::<Vec<_>>().join(", ");
            bail!("--of {}: it is more than one of {all}", output::shown(of))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_the_share_that_is_the_default() {
        assert_eq!(args::percent(DEFAULT_SHARE), Ok(merge::DEFAULT_SHARE));
    }
}

//! `headstart elf order`: in which order a start calls the functions of a program, and order
//! files for linkers.

mod print;

use crate::args;
use crate::exit::ExitStatus;
use crate::output;
use crate::parent::status_in_shell;
use anyhow::{Context, anyhow, bail};
use headstart::host::contents;
use headstart_elf::order::document::{Document, FileOrder, parse};
use headstart_elf::order::follow::{self, FollowError, Options, Recorder};
use headstart_elf::order::merge::{self, DEFAULT_SHARE};
use headstart_elf::order::write::{self, Format};
use headstart_sys::process::Change;
use headstart_sys::{exec, signals};
use rustix::process::Signal;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The arguments of `headstart elf order`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Each function of the program, and of programs that it starts, has a breakpoint that goes away at \
its first call; the program runs as without headstart otherwise. Symbols are needed: in the file, \
or in a debug file below /usr/lib/debug/.build-id. The exit status is the program's.

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
was linked with -Wl,--emit-relocs")]
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
    #[arg(long, value_name = "SHARE", default_value_t = format!("{}%", DEFAULT_SHARE * 100.0),
          value_parser = share)]
    at_least: String,

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

    /// Print no table
    #[arg(short, long)]
    quiet: bool,

    /// The program and its arguments
    #[arg(required_unless_present = "from", trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Said where no order is known.
const NOTHING: &str = "No first call of a function was seen";

/// Checks a share of the command line.
fn share(text: &str) -> Result<String, String> {
    args::percent(text).map(|_| text.to_owned())
}

/// Runs the verb.
pub fn run(args: OrderArgs) -> anyhow::Result<ExitStatus> {
    let share = args::percent(&args.at_least).map_err(|error| anyhow!(error))?;
    // Before the program runs, which may take long.
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
        let outputs = [&args.json, &args.lld, &args.gold, &args.gnu_ld, &args.bolt];
        if args.command.is_empty() || outputs.iter().any(|output| output.is_some()) {
            bail!(NOTHING);
        }
        output::message(NOTHING);
        return Ok(status);
    };
    if let Some(path) = &args.json {
        write_file(path, &output::json_text(&document)?)?;
    }
    let chosen = chosen(&document, args.of.as_deref())?;
    let order = merge::order(chosen, share);
    let formats = [
        (&args.lld, Format::Lld),
        (&args.gold, Format::Gold),
        (&args.gnu_ld, Format::GnuLd),
        (&args.bolt, Format::Bolt),
    ];
    for (path, format) in formats {
        if let Some(path) = path {
            write_file(path, &write::text(&order.functions, format))?;
        }
    }
    if !args.quiet {
        let table = print::table(&document, share, chosen);
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
        last = follow::run(recorder, options, start, || {
            for signal in [Signal::INT, Signal::QUIT] {
                signals::ignore(signal.as_raw());
            }
        })?;
        for signal in [Signal::INT, Signal::QUIT] {
            signals::obey(signal.as_raw());
        }
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

fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("Can't write {}", output::shown(path)))
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

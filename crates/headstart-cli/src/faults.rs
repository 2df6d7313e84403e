//! `headstart faults`: the page faults of a program and of all that it starts.

mod advise;
mod cells;
mod devices;
mod facts;
mod files;
mod from_file;
mod picture;
mod print;
mod print_waits;
mod program;
mod recorded;
mod running;
mod silent;

use crate::args;
use crate::exit::ExitStatus;
use crate::output;
use crate::picture as pictures;
use crate::results::{self, ResultKind};
use advise::Advised;
use anyhow::bail;
use files::{Source, is_stdout};
use headstart_advice::rules;
use headstart_faults::capture::{Captured, Over, files as sections, names};
use headstart_faults::cost;
use headstart_faults::document::{About, Cost, Document};
use headstart_faults::tables::Tables;
use headstart_faults::waits::sums::Sums;
use headstart_view::build;
use recorded::{Recorded, Wanted};
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The arguments of `headstart faults`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Each page fault of the program and of all that it starts is recorded with its place and its time, \
by software events of the kernel (perf_event_open). The tables sum them by place (file, segment, ELF \
section; or memory), process and thread. A major fault started I/O, or had to be tried again; a minor \
one may have waited for I/O that was in flight.

Advice follows where a rule finds at least 2 % of the time, each with its figures, the gain and how it is \
computed, and the command that does it.

With a trace.dat file of trace-cmd or a perf.data file instead of a command, the page faults in it \
are counted: calls of handle_mm_fault in the function graph and additions to the page cache, or the \
software events of perf.

Users other than root record their own programs if kernel.perf_event_paranoid is at most 2; faults \
of the kernel itself, as read(2) makes in the memory that it fills, are missing then.

With --waits the wall time is divided into CPU time, the run queue, and waits by kind and file; what \
nothing explains is a row of its own.

The program runs as without headstart: its tables are printed on standard error. With --pid they \
are printed on standard output, unless that is the file of --json or --csv.

Exit status: 0 it was recorded, unless CMD has another; 1 it failed; 4 this user may not record it; \
5 the kernel has no perf events.")]
pub struct FaultsArgs {
    /// Record a running process, all its threads, and what they start, until it ends or a
    /// signal (Ctrl-C) or --for ends the recording
    #[arg(long, value_name = "PID", conflicts_with = "command",
          value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<i32>,

    /// Record for this time at most; the program goes on
    #[arg(long = "for", value_name = "TIME", value_parser = args::duration)]
    duration: Option<Duration>,

    /// Write all figures to this file as one JSON document (-: standard output)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write each fault to this file as a row of CSV (-: standard output)
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Write the faults to this file as a profile for the Firefox Profiler, with a marker for each
    #[arg(long, value_name = "FILE")]
    firefox: Option<PathBuf>,

    /// Write the faults to this file as a trace for Perfetto, with a slice for each
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,

    /// Write the time of faults to this file as folded stacks of process, thread, file, segment and
    /// section, for flame graphs (-: standard output)
    #[arg(long, value_name = "FILE")]
    folded: Option<PathBuf>,

    /// Write a picture to this file: a page to look around in (.html), an image (.svg) or data
    /// (.json); with --waits also of system calls and block devices; may be given several times
    #[arg(long, value_name = "FILE")]
    picture: Vec<PathBuf>,

    /// Also record which faults map a huge page; it takes a little longer
    #[arg(long)]
    huge: bool,

    /// Also record what threads waited for, by kind and file, and the requests of disks; needs root
    #[arg(long)]
    waits: bool,

    /// Replace files of results even if they are not earlier results
    #[arg(long)]
    force: bool,

    /// Say whether the advice in this earlier document (--json) came true
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,

    /// Print all rows of the tables, and all advice
    #[arg(short, long)]
    verbose: bool,

    /// Print no tables
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,

    /// The program and its arguments, or a trace.dat or perf.data file
    #[arg(required_unless_present = "pid", trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl FaultsArgs {
    /// The files of results.
    fn results(&self) -> impl Iterator<Item = (&Path, ResultKind)> {
        let files = [
            (&self.json, ResultKind::Json),
            (&self.csv, ResultKind::FaultsCsv),
            (&self.firefox, ResultKind::Firefox),
            (&self.perfetto, ResultKind::Perfetto),
            (&self.folded, ResultKind::Folded),
        ];
        files.into_iter().filter_map(|(file, kind)| Some((file.as_deref()?, kind)))
    }
}

/// Runs the verb.
pub fn run(args: FaultsArgs) -> anyhow::Result<ExitStatus> {
    let (printed, files): (Vec<_>, Vec<_>) = args.results().partition(|(file, _)| is_stdout(file));
    if printed.len() > 1 {
        bail!("Only one result can be written to standard output: give the others a file");
    }
    if printed.iter().any(|(_, kind)| *kind == ResultKind::Perfetto) {
        bail!("A trace for Perfetto is not text: give --perfetto a file");
    }
    for (file, kind) in files {
        results::check(file, kind, args.force)?;
    }
    args.picture.iter().try_for_each(|path| pictures::check(path, args.force))?;
    if let Some(file) = from_file::recording(&args.command) {
        return from_file::run(&args, file);
    }
    let before = args.before.as_deref().map(advise::earlier_document).transpose()?;
    let wanted = Wanted { huge: args.huge, waits: args.waits };
    let (status, recorded) = match args.pid {
        Some(pid) => (ExitStatus::Done, running::record(pid, args.duration, wanted)?),
        None => program::record(&args.command, args.duration, wanted)?,
    };
    let is_told = tell(&args, recorded, before, args.pid.is_some() && printed.is_empty());
    // With a program, the status is the program's.
    Ok(if args.pid.is_some() && !is_told { ExitStatus::Failed } else { status })
}

/// Writes files and prints tables, each whatever happens to the others; whether all was done.
fn tell(args: &FaultsArgs, recorded: Recorded, before: Option<Value>, on_stdout: bool) -> bool {
    let Recorded { captured, recorder, pid, over, began, usage, recorder_us, root } = recorded;
    let mut decoded = captured.decode(recorder);
    let silent = silent::of(&decoded.recording);
    if let Err(error) = names::find(&mut decoded.recording, &silent) {
        output::message(format_args!("Some files have no name: {error}"));
    }
    let recording = &decoded.recording;
    if args.pid.is_none() && recording.executed.is_none() {
        // Else it could not be executed, and has said why.
        if over != Over::Process {
            output::message("The recording ended before the program was executed");
        }
        return true;
    }
    let (sections, files_unread) = sections::sections_of(recording, &root, &silent);
    let tables = Tables::of(recording, &sections);
    let sums = recording.waits.as_ref().map(|waits| Sums::of(recording, waits, pid));
    let start = recording.executed.unwrap_or(began);
    let end = match over {
        Over::Process => recording.ended.unwrap_or(captured.until),
        _ => captured.until,
    };
    // A thread goes on for a moment after the record of its exit, until it leaves its CPU.
    let main_ns = sums.as_ref().map_or(0, |sums| sums.main.total_ns());
    let main_ns = if over == Over::Process && args.pid.is_none() { main_ns } else { 0 };
    let wall_ns = end.saturating_sub(start).max(main_ns);
    let command = args.command.iter().map(|word| word.to_string_lossy().into_owned());
    let about = About {
        command: args.pid.is_none().then(|| command.collect()),
        pid,
        wall_ns,
        usage,
        access: captured.access,
        counted: captured.counted,
        found: decoded.found,
        cost: Cost {
            records: decoded.records,
            bytes: captured.bytes() as u64,
            undecoded: decoded.undecoded,
            ns_per_fault: if args.quiet && args.json.is_none() { None } else { cost(&captured) },
            recorder_us,
        },
        is_full: over == Over::Full,
        threads_missed: recording.early_threads.len() as u64,
        files_unread,
    };
    let is_wanted = !args.quiet || args.json.is_some();
    let facts = || {
        let looked = facts::Looked { root: &root, silent: &silent };
        facts::gather(&args.command, about.wall_ns, recording, &tables, sums.as_ref(), looked)
    };
    let advice = if is_wanted { rules::advise(&facts()) } else { Vec::new() };
    let document = Document::new(&about, recording, &tables, sums.as_ref());
    let (document, checked) = Advised::new(document, &advice, before.as_ref());
    let source =
        Source { about: &about, recording, sections: &sections, document: &document, start };
    let written = args.results().map(|(file, kind)| source.write(file, kind, args.force));
    let written = std::iter::once(checked).chain(written);
    let mut errors: Vec<_> = written.filter_map(Result::err).collect();
    let drawn = (!args.picture.is_empty()).then(|| {
        let title = picture::title(about.command.as_deref(), pid);
        let recorded = picture::Recorded {
            recording,
            sections: &sections,
            tables: &tables,
            start,
            wall_ns: about.wall_ns,
            title: &title,
            page_size: rustix::param::page_size() as u64,
        };
        let accesses = picture::accesses(recorded);
        let devices = picture::devices(recording, start, &devices::name);
        let drawn = build::recording::picture(&accesses, &devices);
        args.picture.iter().try_for_each(|file| pictures::write(file, &drawn, args.force))
    });
    errors.extend(drawn.and_then(Result::err));
    let shown = (!args.quiet).then(|| {
        let mut text = print::text(&about, recording, &tables, sums.as_ref(), args.verbose)?;
        text += &advise::text(&advice, args.verbose);
        text += &document
            .earlier
            .as_ref()
            .map(|found| advise::outcome(found, args.verbose))
            .unwrap_or_default();
        if on_stdout {
            return output::print(|out| out.write_all(text.as_bytes()));
        }
        text.lines().for_each(output::message);
        Ok(())
    });
    errors.extend(shown.and_then(Result::err));
    errors.retain(|error| !error.is::<output::ReaderGone>());
    errors.iter().for_each(|error| output::message(format_args!("{error:#}")));
    errors.is_empty()
}

/// What recording adds to a fault, in ns. Another measurement would say the same of what this user may.
fn cost(captured: &Captured) -> Option<u64> {
    match cost::ns_per_fault(captured.access) {
        Ok(ns) => Some(ns),
        Err(error) => {
            output::message(format_args!("The cost of recording could not be measured: {error}"));
            None
        }
    }
}

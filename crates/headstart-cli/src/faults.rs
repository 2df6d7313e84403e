//! `headstart faults`: the page faults of a program and of all that it starts.

mod print;
mod program;
mod recorded;
mod running;

use crate::args;
use crate::exit::ExitStatus;
use crate::output;
use crate::results::{self, ResultKind};
use anyhow::Context;
use headstart_faults::capture::{Over, files};
use headstart_faults::document::{About, Cost, Document};
use headstart_faults::recording::Recording;
use headstart_faults::tables::{SectionsOf, Tables};
use headstart_faults::{cost, csv};
use recorded::Recorded;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The arguments of `headstart faults`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Each page fault of the program and of all that it starts is recorded with its place and its time, \
by software events of the kernel (perf_event_open). The tables sum them by place (file, segment, ELF \
section; or memory), process and thread. A minor fault needs no I/O of its own, but may wait for I/O \
that is in flight.

Users other than root record their own programs if kernel.perf_event_paranoid is at most 2; faults \
of the kernel itself, as read(2) makes in the memory that it fills, are missing then.

The program runs as without headstart: its tables are printed on standard error. With --pid they \
are printed on standard output.

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

    /// Also record which faults map a huge page; it takes a little longer
    #[arg(long)]
    huge: bool,

    /// Replace files of results even if they are not earlier results
    #[arg(long)]
    force: bool,

    /// Print all rows of the tables
    #[arg(short, long)]
    verbose: bool,

    /// Print no tables
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,

    /// The program and its arguments
    #[arg(required_unless_present = "pid", trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the verb.
pub fn run(args: FaultsArgs) -> anyhow::Result<ExitStatus> {
    for (file, kind) in [(&args.json, ResultKind::Json), (&args.csv, ResultKind::FaultsCsv)] {
        if let Some(file) = file.as_deref().filter(|file| !is_stdout(file)) {
            results::check(file, kind, args.force)?;
        }
    }
    let (status, recorded) = match args.pid {
        Some(pid) => (ExitStatus::Done, running::record(pid, args.duration, args.huge)?),
        None => program::record(&args.command, args.duration, args.huge)?,
    };
    let told = tell(&args, recorded);
    if args.pid.is_some() {
        told?;
    } else if let Err(error) = told {
        // The status is the program's.
        output::message(format_args!("{error:#}"));
    }
    Ok(status)
}

/// Writes files and prints tables.
fn tell(args: &FaultsArgs, recorded: Recorded) -> anyhow::Result<()> {
    let Recorded { captured, recorder, pid, over, began, ended, usage, recorder_us, threads, root } =
        recorded;
    // Another measurement would say the same of what this user may.
    let ns_per_fault = match cost::ns_per_fault(captured.access) {
        Ok(ns) => Some(ns),
        Err(error) => {
            output::message(format_args!("The cost of recording could not be measured: {error}"));
            None
        }
    };
    let (recording, records, undecoded) = captured.recording(recorder);
    if args.pid.is_none() && recording.executed.is_none() {
        // It could not be executed, and has said why.
        return Ok(());
    }
    let sections = files::sections_of(&recording, &root);
    let tables = Tables::of(&recording, &sections);
    let begin = recording.executed.unwrap_or(began);
    let end = match over {
        Over::Process => recording.ended.unwrap_or(ended),
        _ => ended,
    };
    let missed = threads.iter();
    let missed = missed.filter(|tid| recording.threads.iter().all(|thread| thread.tid != **tid));
    let command = args.command.iter().map(|word| word.to_string_lossy().into_owned());
    let about = About {
        command: args.pid.is_none().then(|| command.collect()),
        pid,
        wall_ns: end.saturating_sub(begin),
        usage,
        access: captured.access,
        counted: captured.counted,
        cost: Cost {
            records,
            bytes: captured.bytes() as u64,
            undecoded,
            ns_per_fault,
            recorder_us,
        },
        is_full: over == Over::Full,
        threads_missed: missed.count() as u64,
    };
    if let Some(file) = &args.json {
        let text = output::json_text(&Document::new(&about, &recording, &tables))? + "\n";
        if is_stdout(file) {
            output::print(|out| out.write_all(text.as_bytes()))?;
        } else {
            results::write(file, &text, ResultKind::Json, args.force)?;
        }
    }
    if let Some(file) = &args.csv {
        write_csv(file, &recording, &sections, begin, args.force)?;
    }
    if !args.quiet {
        let text = print::text(&about, &recording, &tables, args.verbose)?;
        if args.pid.is_some() {
            output::print(|out| out.write_all(text.as_bytes()))?;
        } else {
            // Standard output is the program's.
            text.lines().for_each(output::message);
        }
    }
    Ok(())
}

fn is_stdout(file: &Path) -> bool {
    file == Path::new("-")
}

/// Rows that are written at once, in bytes.
const PIECE: usize = 1 << 20;

fn write_csv(
    path: &Path,
    recording: &Recording,
    sections: &SectionsOf,
    begin: u64,
    force: bool,
) -> anyhow::Result<()> {
    let rows = |out: &mut dyn Write| -> io::Result<()> {
        let mut text = String::new();
        for fault in &recording.faults {
            csv::row(&mut text, recording, sections, begin, fault);
            if text.len() >= PIECE {
                out.write_all(text.as_bytes())?;
                text.clear();
            }
        }
        out.write_all(text.as_bytes())
    };
    if is_stdout(path) {
        return output::print(|out| {
            out.write_all(csv::HEADER.as_bytes())?;
            rows(out)
        });
    }
    results::write(path, csv::HEADER, ResultKind::FaultsCsv, force)?;
    let file = OpenOptions::new().append(true).open(path);
    file.and_then(|mut file| rows(&mut file))
        .with_context(|| format!("Can't write {}", output::shown(path)))
}

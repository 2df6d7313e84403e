//! `headstart record`: learns a start without prefetching.

use crate::exit::ExitStatus;
use crate::output;
use crate::parent;
use crate::results::{self, ResultKind};
use crate::start_options::{StartArgs, StartOptions, Summary};
use crate::until::{RecordingWindow, Until};
use anyhow::Context;
use headstart::host::contents;
use headstart::host::mounts::MountTable;
use headstart::launch::listing::{Kept, Listing, Output};
use headstart::pack::EarlierNames;
use headstart::profile::accesses::rows::{Format, Style};
use headstart::profile::seen::{Decoded, Seen};
use headstart::trace::file::Capture;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the names of a raw trace may be searched.
const NAMES_LIMIT: Duration = Duration::from_secs(30);

/// The arguments of `headstart record`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Recording needs root. If there is a pack, the start is merged into it: the history of each \
range says whether this start touched it, and ranges that four starts in a row did not touch are \
forgotten. A start of which events were lost never replaces a clean pack. The exit status is \
the program's.")]
pub struct RecordArgs {
    /// What ends the recording (at the latest --for) [default of --for with time: 10s]
    #[arg(long, value_enum, default_value_t = Until::Exit)]
    until: Until,

    /// Record all processes of the machine, not only the program
    #[arg(long)]
    system: bool,

    /// Record accessed pages without fault-around pages (uses ptrace; slows each system
    /// call)
    #[arg(long, conflicts_with = "system")]
    exact: bool,

    /// Also keep the raw trace in this file
    #[arg(long, value_name = "FILE")]
    trace_out: Option<PathBuf>,

    /// List the accesses of the start in this file (-: standard output): time, process, file, offset,
    /// length, and how
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,

    /// The format of the list [default: csv if its name ends so, or text]
    #[arg(long, value_name = "FORMAT", requires = "events")]
    events_format: Option<EventsFormat>,

    /// List consecutive accesses of a thread to the same file as one
    #[arg(long, requires = "events")]
    group: bool,

    /// List the accesses of this raw trace (--trace-out) instead of recording a start; files have the
    /// names that they have now
    #[arg(long, value_name = "TRACE", requires = "events", conflicts_with = "command")]
    from: Option<PathBuf>,

    /// Keep the trace buffer of each CPU at this size, even if events are lost: for tests
    #[arg(long, value_name = "KIB", hide = true,
          value_parser = clap::value_parser!(u32).range(1..=32768))]
    buffer_kb: Option<u32>,

    /// Print no summary
    #[arg(short, long)]
    quiet: bool,

    /// Print the details below the run summary
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,

    #[command(flatten)]
    start: StartArgs,

    /// The program and its arguments
    #[arg(required_unless_present = "from", trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// The formats of the list of accesses.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum EventsFormat {
    /// Columns for people.
    Text,
    /// CSV.
    Csv,
}

/// Records a start.
pub fn run(args: RecordArgs) -> anyhow::Result<ExitStatus> {
    let summary = (!args.quiet).then(|| Summary::of(args.verbose.into()));
    let events = args.events.as_deref().map(|file| listing(&args, file)).transpose()?;
    let force = args.start.force();
    if let Some(Listing { to: Output::Path(path), style }) = &events {
        results::check(path, ResultKind::Accesses(style.format), force)?;
    }
    if let (Some(trace), Some(listing)) = (&args.from, &events) {
        list(trace, listing, force)?;
        return Ok(ExitStatus::Done);
    }
    let options = StartOptions::new(args.command, args.start, Instant::now(), summary);
    parent::start(StartOptions {
        must_learn: true,
        window: RecordingWindow { until: args.until, ..options.window },
        system: args.system,
        exact: args.exact,
        buffer_kb: args.buffer_kb,
        trace_out: args.trace_out,
        events,
        ..options
    })
}

/// The list that is wanted in this file.
fn listing(args: &RecordArgs, file: &Path) -> anyhow::Result<Listing> {
    let is_csv = match args.events_format {
        Some(format) => format == EventsFormat::Csv,
        None => file.extension().is_some_and(|extension| extension == "csv"),
    };
    let format = if is_csv { Format::Csv } else { Format::Text };
    let to = if file == Path::new("-") {
        // The helper writes it, when the program has ended.
        let stdout = io::stdout().as_fd().try_clone_to_owned();
        Output::Open(Arc::new(stdout.context("Can't write to standard output")?.into()))
    } else {
        Output::Path(file.into())
    };
    Ok(Listing { to, style: Style { format, group: args.group } })
}

/// Lists the accesses of a raw trace.
fn list(trace: &Path, listing: &Listing, force: bool) -> anyhow::Result<()> {
    let read = || -> anyhow::Result<(Seen, Capture)> {
        let capture = Capture::from_bytes(&contents::bytes(trace)?)?;
        let mounts = MountTable::read()?;
        let earlier = EarlierNames::default();
        let decoded = Decoded::of_kept(&capture)?;
        let mut seen = decoded.named(&mounts, &earlier, Some(&[]), NAMES_LIMIT);
        seen.remove_file(&std::env::current_exe()?);
        Ok((seen, capture))
    };
    let (seen, capture) = read().with_context(|| format!("Can't list {}", output::shown(trace)))?;
    // The kernel has forgotten its processes, or others have their numbers.
    let kept = Kept { capture, processes: HashMap::new() };
    match listing.write(&seen, &kept, force) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(output::ReaderGone.into()),
        written => written.context("Can't write the list of accesses"),
    }
}

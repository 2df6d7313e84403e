//! `headstart record`: learns a start without prefetching.

use crate::exit::ExitStatus;
use crate::parent;
use crate::start_options::{StartArgs, StartOptions, Summary};
use crate::until::{RecordingWindow, Until};
use std::path::PathBuf;
use std::time::Instant;

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
}

/// Records a start.
pub fn run(args: RecordArgs) -> anyhow::Result<ExitStatus> {
    let summary = (!args.quiet).then(|| Summary::of(args.verbose.into()));
    let options = StartOptions::new(args.start, Instant::now(), summary);
    parent::start(StartOptions {
        must_learn: true,
        window: RecordingWindow { until: args.until, ..options.window },
        system: args.system,
        exact: args.exact,
        buffer_kb: args.buffer_kb,
        trace_out: args.trace_out,
        ..options
    })
}

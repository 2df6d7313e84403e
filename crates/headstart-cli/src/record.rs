//! `headstart record`: learns a start without prefetching.

use crate::exit::ExitStatus;
use crate::parent;
use crate::session::{Session, StartArgs, Summary};
use crate::until::{Span, Until};
use std::path::PathBuf;
use std::time::Instant;

/// The arguments of `headstart record`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Recording needs root. The start joins the pack if there is one: pages that it \
touched get a mark in their history, others are forgotten after four starts. A \
start of which events were lost never replaces a clean pack. The exit status is \
the program's.")]
pub struct RecordArgs {
    /// What ends the start, if it comes before the time of --for [for `time` 10 s]
    #[arg(long, value_enum, default_value_t = Until::Exit)]
    until: Until,

    /// Record everything that the machine does meanwhile, not only the program
    #[arg(long)]
    system: bool,

    /// See which pages the program looks at, and not which are mapped with them: packs
    /// of programs with large libraries get smaller. Takes a moment at each of its system calls
    #[arg(long, conflicts_with = "system")]
    exact: bool,

    /// Also keep the raw trace in this file
    #[arg(long, value_name = "FILE")]
    trace_out: Option<PathBuf>,

    /// Keep the trace buffer of each CPU at this size, whatever is lost: for
    /// traces with losses
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
    let session = Session::new(args.start, Instant::now(), summary);
    parent::start(Session {
        must_learn: true,
        span: Span { until: args.until, ..session.span },
        system: args.system,
        exact: args.exact,
        buffer_kb: args.buffer_kb,
        trace_out: args.trace_out,
        ..session
    })
}

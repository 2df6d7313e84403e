//! `headstart run`: this process becomes the program, and a helper process prefetches what the
//! program's starts touch and learns from this start.
//!
//! The program starts whatever happens here.

use crate::args;
use crate::exit::ExitStatus;
use crate::parent;
use crate::start_options::{ReportOptions, StartArgs, StartOptions, Summary};
use headstart::launch::learn::DEFAULT_KEEP;
use headstart::launch::policy::Bounds;
use headstart::launch::prepare::PrefetchOptions;
use std::ffi::OsString;
use std::time::{Duration, Instant};

/// The longest delay of exec, until the first pages are requested.
pub const DEFAULT_MAX_DELAY: &str = "5ms";

/// The arguments of `headstart run`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
headstart becomes the program (exec): process, descriptors, environment, signals and exit \
status are the program's own. The exit status is 127 when it was not found and 126 when it \
can't be executed. A helper process, which is no child of the program, prefetches and learns, \
and prints nothing.

With -v or --json, headstart stays as a plain parent, as time(1) does: it waits for the program \
and for the helper, and prints the run summary. The exit status is 128 + n then when \
signal n killed the program.

The first process of a PID namespace, as of a container, ends the helper with it: such a start \
is learned when it has hardly read anything for two seconds, or after the time of --for. With -v \
it is learned at its end.

A pack is looked for in $HEADSTART_PACKS if that is set, else in \
$XDG_STATE_HOME/headstart/packs and /var/lib/headstart/shared, for root in \
/var/lib/headstart/packs, and in /usr/lib/headstart/packs. Learning needs root; \
without it the program's pack is prefetched as it is, if root has shared it.")]
pub struct RunArgs {
    /// Do not learn from this start
    #[arg(long)]
    no_learn: bool,

    /// Do not prefetch
    #[arg(long)]
    no_replay: bool,

    /// Prefetch and learn even if no benefit is expected here
    #[arg(long, conflicts_with = "no_replay")]
    always: bool,

    /// Forget what this many starts in a row did not touch
    #[arg(long, value_name = "STARTS", default_value_t = DEFAULT_KEEP,
          value_parser = clap::value_parser!(u32).range(1..=8))]
    forget_after: u32,

    /// Prefetch at most this much [default and limit: half of the available
    /// memory, or three quarters of what the control group leaves, whichever is less]
    #[arg(long, value_name = "BYTES", value_parser = args::bytes)]
    budget: Option<u64>,

    /// Start the program at the latest after this time, even if the pages that it
    /// needs first have not been requested; setting up the trace may take longer
    #[arg(long, value_name = "TIME", default_value = DEFAULT_MAX_DELAY, value_parser = args::duration)]
    max_delay: Duration,

    /// Threads that prefetch [default: by the device model]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// When the program has ended, put the densely mapped parts of its big files into
    /// large folios, in the background: later hot starts have fewer page faults
    #[arg(long)]
    large_folios: bool,

    /// Stay as the program's parent, and print the run summary at its end, one line; twice: also
    /// its details
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,

    #[command(flatten)]
    start: StartArgs,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the program.
pub fn run(args: RunArgs) -> anyhow::Result<ExitStatus> {
    let began = Instant::now();
    let RunArgs { budget, threads, always, max_delay, .. } = args;
    let learn = !args.no_learn;
    let bounds = Bounds { budget, threads };
    let prefetch =
        (!args.no_replay).then_some(PrefetchOptions { bounds, always, log: args.start.waits });
    let summary = args.verbose.checked_sub(1).map(Summary::of);
    let options = StartOptions::new(args.command, args.start, began, summary);
    parent::start(StartOptions {
        prefetch,
        learn,
        max_delay,
        keep: args.forget_after,
        large_folios: args.large_folios,
        report: options.report.filter(ReportOptions::is_wanted),
        ..options
    })
}

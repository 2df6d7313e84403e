//! `headstart run`: the main job. Reads ahead what the program's starts touch,
//! starts it at once, and learns from this start.
//!
//! The program starts whatever happens here; what could not be done is said in
//! one line on stderr.

use crate::args;
use crate::exit::ExitStatus;
use crate::learning::DEFAULT_KEEP;
use crate::prepare::{Ahead, Preparation};
use crate::session::{Session, StartArgs};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a program is held back at most until its first pages were asked
/// for.
pub const DEFAULT_HOLD: &str = "5ms";

/// The arguments of `headstart run`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The program's stdin, environment, signals and exit status are its own. The exit \
status is the program's (128 + n when signal n killed it), 127 when it was not \
found and 126 when it can't be executed.

A pack is looked for in $HEADSTART_PACKS if that is set, else in \
$XDG_STATE_HOME/headstart/packs and /var/lib/headstart/shared, for root in \
/var/lib/headstart/packs, and in /usr/lib/headstart/packs. Learning needs root; \
without it the program's pack is read ahead as it is, if root has shared it.")]
pub struct RunArgs {
    /// Use and update this pack instead of the program's own
    #[arg(long, value_name = "FILE", conflicts_with = "name")]
    pack: Option<PathBuf>,

    /// Do not learn from this start
    #[arg(long)]
    no_learn: bool,

    /// Do not read ahead
    #[arg(long)]
    no_replay: bool,

    /// Read ahead and learn even if it is not worth it here
    #[arg(long, conflicts_with = "no_replay")]
    always: bool,

    /// Forget what this many starts in a row did not touch
    #[arg(long, value_name = "STARTS", default_value_t = DEFAULT_KEEP,
          value_parser = clap::value_parser!(u32).range(1..=8))]
    keep: u32,

    /// Read ahead at most this much [default and limit: half of the available
    /// memory, or three quarters of what the control group leaves, whichever is less]
    #[arg(long, value_name = "BYTES", value_parser = args::bytes)]
    budget: Option<u64>,

    /// Start the program at the latest after this time, even if the pages that it
    /// needs first have not been asked for; recording may take longer
    #[arg(long, value_name = "TIME", default_value = DEFAULT_HOLD, value_parser = args::duration)]
    hold: Duration,

    /// Threads that read ahead [default: as suits the device]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// When the program has ended, put the parts of its big files that are mapped
    /// densely into large folios, in the background: later starts from memory have
    /// fewer page faults
    #[arg(long)]
    large_folios: bool,

    #[command(flatten)]
    start: StartArgs,
}

/// Runs the program.
pub fn run(args: RunArgs) -> anyhow::Result<ExitStatus> {
    let began = Instant::now();
    let mut session = Session::new(args.start, began);
    session.learn = !args.no_learn;
    session.hold = args.hold;
    let RunArgs { budget, threads, always, hold, .. } = args;
    let learn = session.learn;
    let replay = (!args.no_replay).then_some(Ahead { budget, threads, always, learn, began, hold });
    let preparation = Preparation::beside(session.wanted(args.pack, replay));
    session.settings.keep = args.keep;
    session.large_folios = args.large_folios;
    session.go(preparation)
}

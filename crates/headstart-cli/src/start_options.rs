//! The options of a start: what `run` and `record` share. It does nothing.

use crate::args;
use crate::until::{RecordingWindow, Until};
use headstart::launch::learn::DEFAULT_KEEP;
use headstart::launch::listing::Listing;
use headstart::launch::prepare::PrefetchOptions;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The arguments that `run` and `record` share.
#[derive(clap::Args, Debug)]
pub struct StartArgs {
    /// Use this pack instead of the program's own
    #[arg(long, value_name = "FILE", conflicts_with = "name")]
    pack: Option<PathBuf>,

    /// Name the pack like this, instead of by the program's command
    #[arg(long)]
    name: Option<String>,

    /// Record for this time at most [default: after 10 s until two seconds without I/O, and 5 min
    /// at most]
    #[arg(long = "for", value_name = "TIME", value_parser = args::duration)]
    duration: Option<Duration>,

    /// Share the pack with other users: a copy without the command and without files that
    /// they may not read
    #[arg(long, conflicts_with = "pack")]
    share: bool,

    /// Do not walk file systems to resolve inodes to paths
    #[arg(long)]
    no_walk: bool,

    /// Also record what the program waits for, by cause and file, for the run summary and for `show
    /// --last-run`; needs root
    #[arg(long)]
    pub waits: bool,

    /// Write all figures to this file as one JSON document
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Replace result files, such as that of --json, even if they are not earlier results; a pack
    /// replaces only packs
    #[arg(long)]
    force: bool,
}

impl StartArgs {
    /// Whether files of results may replace any file.
    pub fn force(&self) -> bool {
        self.force
    }
}

/// How much is printed at the end of a start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Summary {
    /// One line.
    Verdict,
    /// A second line with details.
    Details,
}

impl Summary {
    /// By the number of `-v` beyond the one for the verdict.
    pub fn of(more: u8) -> Self {
        if more == 0 { Self::Verdict } else { Self::Details }
    }
}

/// How the user gets the run summary.
#[derive(Clone, Debug, Default)]
pub struct ReportOptions {
    /// The summary to print, if any.
    pub summary: Option<Summary>,
    /// The file for all figures.
    pub json: Option<PathBuf>,
}

impl ReportOptions {
    /// Whether there is anything to report.
    pub fn is_wanted(&self) -> bool {
        self.summary.is_some() || self.json.is_some()
    }
}

/// What the user wants of a start.
#[derive(Clone, Debug)]
pub struct StartOptions {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// When this process began.
    pub began: Instant,
    /// The program's name, if the user gave one.
    pub name: Option<String>,
    /// The pack, if it is not the program's own.
    pub pack: Option<PathBuf>,
    /// How the pack is prefetched, if it is.
    pub prefetch: Option<PrefetchOptions>,
    /// Starts after whose absence a range is dropped.
    pub keep: u32,
    /// Whether file systems may be walked for names.
    pub walk: bool,
    /// Whether it is recorded what the program waits for.
    pub waits: bool,
    /// Whether other users get a copy of the pack.
    pub share: bool,
    /// Where the raw trace is kept, if it is.
    pub trace_out: Option<PathBuf>,
    /// Where the accesses are listed, if they are.
    pub events: Option<Listing>,
    /// Whether files of results may replace any file.
    pub force: bool,
    /// When the recording is over.
    pub window: RecordingWindow,
    /// The longest delay of exec, until the first pages are requested.
    pub max_delay: Duration,
    /// Whether the whole machine is recorded.
    pub system: bool,
    /// Whether it is recorded without fault-around.
    pub exact: bool,
    /// The fixed size of each CPU's trace buffer, in KiB, if given.
    pub buffer_kb: Option<u32>,
    /// Whether this start is learned.
    pub learn: bool,
    /// Whether the program waits until it is recorded, however long that takes.
    pub must_learn: bool,
    /// Whether the program's big files are put into large folios after its end.
    pub large_folios: bool,
    /// What is reported. With `None`, this process becomes the program.
    pub report: Option<ReportOptions>,
}

impl StartOptions {
    /// The options in `args` for a command, for a process that `began` then.
    pub fn new(
        command: Vec<OsString>,
        args: StartArgs,
        began: Instant,
        summary: Option<Summary>,
    ) -> Self {
        Self {
            command,
            began,
            name: args.name,
            pack: args.pack,
            prefetch: None,
            keep: DEFAULT_KEEP,
            walk: !args.no_walk,
            waits: args.waits,
            share: args.share,
            trace_out: None,
            events: None,
            force: args.force,
            window: RecordingWindow { until: Until::Exit, limit: args.duration },
            max_delay: Duration::ZERO,
            system: false,
            exact: false,
            buffer_kb: None,
            learn: true,
            must_learn: false,
            large_folios: false,
            report: Some(ReportOptions { summary, json: args.json }),
        }
    }
}

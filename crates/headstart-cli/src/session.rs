//! One start of a program through us, as the command line describes it: what `run` and
//! `record` share. Says what is wanted, and does nothing.

use crate::args;
use crate::until::{Span, Until};
use headstart::launch::learn::DEFAULT_KEEP;
use headstart::launch::prepare::Ahead;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The arguments that `run` and `record` share.
#[derive(clap::Args, Debug)]
pub struct StartArgs {
    /// Use this pack instead of the program's own
    #[arg(long, value_name = "FILE", conflicts_with = "name")]
    pack: Option<PathBuf>,

    /// Keep the program under this name instead of one made from its command
    #[arg(long)]
    name: Option<String>,

    /// The start is over after this time at the latest [default: after 10 s, when reading has
    /// died down, and after 5 min at the latest]
    #[arg(long = "for", value_name = "TIME", value_parser = args::duration)]
    duration: Option<Duration>,

    /// Let other users replay what is learned: they get a copy of the pack without the
    /// command and without files that they may not read
    #[arg(long)]
    share: bool,

    /// Do not search a file system for the names of files that nothing else
    /// tells
    #[arg(long)]
    no_walk: bool,

    /// Write all figures to this file as one JSON document
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// How much is printed at the end of a start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Summary {
    /// One line.
    Verdict,
    /// Another with its details.
    Details,
}

impl Summary {
    /// What so many `-v` beyond the one for the verdict ask for.
    pub fn of(more: u8) -> Self {
        if more == 0 { Self::Verdict } else { Self::Details }
    }
}

/// How the user is told what became of a start.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The summary that is printed, if one is.
    pub summary: Option<Summary>,
    /// Where all figures go.
    pub json: Option<PathBuf>,
}

impl Report {
    /// Whether there is anything to tell.
    pub fn is_wanted(&self) -> bool {
        self.summary.is_some() || self.json.is_some()
    }
}

/// A start, as it is wanted.
#[derive(Clone, Debug)]
pub struct Session {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// When this process began.
    pub began: Instant,
    /// The program's name, if the user gave one.
    pub name: Option<String>,
    /// The pack, if it is not the program's own.
    pub pack: Option<PathBuf>,
    /// How the pack is prefetched, if it is.
    pub replay: Option<Ahead>,
    /// Starts after whose absence a range is dropped.
    pub keep: u32,
    /// Whether file systems may be walked for names.
    pub walk: bool,
    /// Whether other users get a copy of the pack.
    pub share: bool,
    /// Where the raw trace is kept, if it is.
    pub trace_out: Option<PathBuf>,
    /// When the start is over.
    pub span: Span,
    /// How long the program is held back at most until its first pages were
    /// asked for.
    pub max_delay: Duration,
    /// Whether the whole machine is recorded.
    pub system: bool,
    /// Whether each page is to show by itself.
    pub exact: bool,
    /// A trace buffer of one CPU that is kept at this size, in KiB.
    pub buffer_kb: Option<u32>,
    /// Whether this start is learned.
    pub learn: bool,
    /// Whether the program waits for that as long as it takes.
    pub must_learn: bool,
    /// Whether the program's big files are put into large folios after its end.
    pub large_folios: bool,
    /// How the user is told. Where nobody is to be, this process becomes the program.
    pub report: Option<Report>,
}

impl Session {
    /// A start as `args` describe it, in a process that `began` then. `summary`: what is
    /// printed at its end.
    pub fn new(args: StartArgs, began: Instant, summary: Option<Summary>) -> Self {
        Self {
            command: args.command,
            began,
            name: args.name,
            pack: args.pack,
            replay: None,
            keep: DEFAULT_KEEP,
            walk: !args.no_walk,
            share: args.share,
            trace_out: None,
            span: Span { until: Until::Exit, limit: args.duration },
            max_delay: Duration::ZERO,
            system: false,
            exact: false,
            buffer_kb: None,
            learn: true,
            must_learn: false,
            large_folios: false,
            report: Some(Report { summary, json: args.json }),
        }
    }
}

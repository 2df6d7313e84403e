//! The arguments of `headstart bench`, and what follows from them alone.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use headstart_bench::arm::{CacheState, Peer};
use headstart_bench::stats::sequential::{LEAST, Rule};

use super::cool::Cooling;
use super::ready::Ready;
use super::rounds::Length;
use crate::args;

/// The arguments of `headstart bench`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
States: cold, all caches dropped; selective, only the program's files dropped; \
prefetched, cold with its pack prefetched as by headstart run; hot, with all pages resident \
from an earlier start. Each round runs all states once in random order. The floor reads the \
same pages with the fastest read strategy found, while nothing else runs.

Nothing is learned in measured rounds. A program without a pack is learned first, \
with two cold starts and two that are prefetched, in a pack that is only kept \
where --pack says so. For the lower bound in touch order four hot starts are traced before the \
rounds. Cold starts need root, or a command that prepares them.

Exit status: 0 measured; 1 a start or something else failed, or it was interrupted; \
3 the condition of --assert does not hold; 4 a permission is missing.")]
pub struct BenchArgs {
    /// Rounds to measure, or at least to measure with --until-ci
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub runs: u32,

    /// Continue until the 95 % interval of every median is this narrow (± half of
    /// its width, as a share of the median), such as 3%
    #[arg(long, value_name = "PERCENT", value_parser = args::percent)]
    pub until_ci: Option<f64>,

    /// Rounds to measure at most with --until-ci
    #[arg(long, value_name = "N", default_value_t = 100, requires = "until_ci")]
    pub max_runs: u32,

    /// Begin no round after this time, learning included
    #[arg(long, value_name = "TIME", value_parser = args::duration)]
    pub time_limit: Option<Duration>,

    /// Rounds beforehand that are not measured
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub warmup: u32,

    /// What to measure: cold, selective, prefetched, hot [default: all; without
    /// selective where --cold-cmd is given, without cold where not permitted]
    #[arg(long, value_name = "STATE,…", value_delimiter = ',')]
    pub states: Vec<CacheState>,

    /// Prefetch this pack; if it does not exist, it is learned and kept there
    #[arg(long, value_name = "FILE")]
    pub pack: Option<PathBuf>,

    /// Do not search for the fastest read strategy
    #[arg(long)]
    pub no_floor: bool,

    /// Compare with another command: NAME=CMD runs before the cold program,
    /// NAME&=CMD in parallel with it, NAME:=CMD instead of it, cold and hot
    #[arg(long, value_name = "NAME=CMD")]
    pub against: Vec<Peer>,

    /// A start ends when this holds, and the program is killed: line:TEXT, port:NUMBER,
    /// file:PATH, dbus:NAME, notify [default: when the program ends]
    #[arg(long, value_name = "CONDITION")]
    pub ready: Option<Ready>,

    /// How long a start may take
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = args::duration)]
    pub timeout: Duration,

    /// Prepare cold starts with this command, such as `umount /x && mount /x`, instead of
    /// dropping all caches
    #[arg(long, value_name = "CMD")]
    pub cold_cmd: Option<String>,

    /// Run this before each start, and before the caches are dropped
    #[arg(long, value_name = "CMD")]
    pub prepare: Option<String>,

    /// After the measured starts, record what some of each state wait for, by cause; needs root
    #[arg(long)]
    pub waits: bool,

    /// Ignore differences below this
    #[arg(long, value_name = "PERCENT", default_value = "2%", value_parser = args::percent)]
    pub min_difference: f64,

    /// Accept any exit status of the program
    #[arg(short, long)]
    pub ignore_failure: bool,

    /// Show what the programs print, on standard error
    #[arg(long)]
    pub show_output: bool,

    /// Print one JSON document, which hyperfine's scripts read, too
    #[arg(long)]
    pub json: bool,

    /// Write that document to a file
    #[arg(long, value_name = "FILE")]
    pub export_json: Option<PathBuf>,

    /// Write the report to a file, as Markdown
    #[arg(long, value_name = "FILE")]
    pub export_markdown: Option<PathBuf>,

    /// Write a picture of the runs to this file: a page (.html), an image (.svg) or data (.json)
    #[arg(long, value_name = "FILE")]
    pub picture: Option<PathBuf>,

    /// Replace these files even if they are not earlier results
    #[arg(long)]
    pub force: bool,

    /// Exit with status 3 unless this holds
    #[arg(long, value_enum, value_name = "WHAT")]
    pub assert: Option<Assertion>,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// What a benchmark may have to show.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Assertion {
    /// Prefetching makes the start faster
    Helps,
    /// Prefetching does not make the start slower
    Harmless,
}

impl BenchArgs {
    /// How cold starts are prepared.
    pub fn cooling(&self, is_root: bool) -> Cooling {
        match &self.cold_cmd {
            Some(command) => Cooling::Command(command.clone()),
            None if is_root => Cooling::DropCaches,
            None => Cooling::Evict,
        }
    }

    /// The states to measure. Where a command prepares cold starts, these leave
    /// the rest of the system alone anyway.
    pub fn chosen_states(&self, cooling: &Cooling) -> Vec<CacheState> {
        match cooling {
            _ if !self.states.is_empty() => self.states.clone(),
            Cooling::DropCaches => CacheState::ALL.to_vec(),
            Cooling::Command(_) => vec![CacheState::Cold, CacheState::Prefetched, CacheState::Hot],
            Cooling::Evict => vec![CacheState::Selective, CacheState::Prefetched, CacheState::Hot],
        }
    }

    /// How many rounds there are, for a benchmark that `began` then.
    pub fn length(&self, began: Instant) -> Length {
        let least = self.runs as usize;
        Length {
            warm_up: self.warmup as usize,
            least,
            precision: self.until_ci.map(|precision| Rule {
                precision,
                least: least.max(LEAST),
                most: (self.max_runs as usize).max(least),
            }),
            deadline: self.time_limit.and_then(|limit| began.checked_add(limit)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: BenchArgs,
    }

    fn parsed(words: &[&str]) -> BenchArgs {
        Line::parse_from(["bench"].iter().chain(words).chain(&["--", "true"])).args
    }

    #[test]
    fn states_are_those_requested_or_those_that_can_be_prepared() {
        use CacheState::{Cold, Hot, Prefetched, Selective};
        let states = |words: &[&str], is_root| {
            let args = parsed(words);
            args.chosen_states(&args.cooling(is_root))
        };
        assert_eq!(states(&[], true), [Cold, Selective, Prefetched, Hot]);
        assert_eq!(states(&[], false), [Selective, Prefetched, Hot]);
        assert_eq!(states(&["--cold-cmd", "x"], false), [Cold, Prefetched, Hot]);
        assert_eq!(states(&["--states", "hot,cold"], false), [Hot, Cold]);
    }

    #[test]
    fn a_precision_has_a_least_and_a_most_number_of_rounds() {
        assert!(parsed(&["--runs", "3"]).length(Instant::now()).precision.is_none());
        let length =
            parsed(&["--runs", "3", "--until-ci", "5%", "--max-runs", "40"]).length(Instant::now());
        let rule = length.precision.unwrap();
        assert_eq!((length.least, rule.least, rule.most), (3, 10, 40));
        let rule = parsed(&["--runs", "200", "--until-ci", "5%"])
            .length(Instant::now())
            .precision
            .unwrap();
        assert_eq!((rule.least, rule.most), (200, 200));
    }
}

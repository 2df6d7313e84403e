//! `headstart boot bench`: how long boots take, of a machine that a command boots, or from this
//! machine's history.

mod print;
mod rounds;

use crate::exit::ExitStatus;
use crate::results::{self, ResultKind};
use crate::{args, output};
use anyhow::bail;
use headstart::boot::machine::Machine;
use headstart_bench::boots::{BootArm, Metric, bootperf, metrics, of_history};
use rounds::{BootCommand, Measured, measure};
use serde::Serialize;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The name of the arm of the command at the end.
const BASE: &str = "base";

/// The arguments of `headstart boot bench`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Each command boots a machine once, waits for it, and prints how long that took: a line \
{\"seconds\": 5.2}, or a number alone; members seconds_NAME are figures of their own. The \
last such line counts. Each round runs all commands once in random order, and the others \
are compared with the first, round by round.

--history uses the boots that `boot status` lists. They were not made in rounds, so \
they are not compared.")]
pub struct BenchArgs {
    /// Rounds to measure
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,

    /// A command to compare with, for a shell
    #[arg(long, value_name = "NAME=CMD", value_parser = named)]
    arm: Vec<(String, String)>,

    /// Use this machine's recorded boots instead
    #[arg(long, conflicts_with_all = ["arm", "command"])]
    history: bool,

    /// How long a boot may take
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = args::duration)]
    timeout: Duration,

    /// Ignore differences below this
    #[arg(long, value_name = "PERCENT", default_value = "2%", value_parser = args::percent)]
    min_difference: f64,

    /// Repeat the order of an earlier benchmark
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Use the history of the image below this directory
    #[arg(long, value_name = "DIR", default_value = "/", requires = "history")]
    root: PathBuf,

    /// Write the figures to a file in the shape of ChromeOS's boot performance tests
    #[arg(long, value_name = "FILE")]
    bootperf: Option<PathBuf>,

    /// Replace that file even if it is not an earlier result
    #[arg(long, requires = "bootperf")]
    force: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// The command that boots a machine, and its arguments
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// The JSON document.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    version: &'static str,
    /// Decides the order of the arms; none for a history.
    seed: Option<u64>,
    rounds: usize,
    interrupted: bool,
    arms: &'a [BootArm],
    metrics: &'a [Metric],
}

/// Measures, or reads the history.
pub fn run(args: &BenchArgs) -> anyhow::Result<ExitStatus> {
    if let Some(path) = &args.bootperf {
        results::check(path, ResultKind::Bootperf, args.force)?;
    }
    let (seed, measured) = match args.history {
        true => (None, recorded(args)?),
        false => {
            let seed = args.seed.unwrap_or_else(|| {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                // Short enough to be typed.
                now.as_nanos() as u64 % 1_000_000
            });
            (Some(seed), measure(&arms(args)?, args.runs as usize, seed, args.timeout)?)
        }
    };
    let mut metrics = metrics(&measured.arms, args.min_difference);
    if args.history {
        metrics.iter_mut().for_each(|metric| metric.comparisons.clear());
    }
    let write_file = |path: &PathBuf| {
        let text = output::json_text(&bootperf(&measured.arms))?;
        results::write(path, &(text + "\n"), ResultKind::Bootperf, args.force)
    };
    // Files first: a reader of standard output that leaves must not cost them. Nor must a file
    // that can't be written cost hours: all is printed.
    let written = args.bootperf.as_ref().map_or(Ok(()), write_file);
    if args.json {
        output::print_json(&Document {
            schema: "headstart/boot-bench/1",
            version: env!("CARGO_PKG_VERSION"),
            seed,
            rounds: measured.rounds,
            interrupted: measured.interrupted,
            arms: &measured.arms,
            metrics: &metrics,
        })?;
    } else {
        let text = print::text(&measured, &metrics);
        output::print(|out| out.write_all(text.as_bytes()))?;
    }
    written?;
    let failed = measured.arms.iter().flat_map(|arm| &arm.boots).any(|b| b.failure.is_some());
    Ok(if failed || measured.interrupted { ExitStatus::Failed } else { ExitStatus::Done })
}

fn recorded(args: &BenchArgs) -> anyhow::Result<Measured> {
    let arms = of_history(&Machine::at(&args.root).records());
    if arms.is_empty() {
        bail!("No boot was recorded yet: run `headstart boot enable`, then boot once");
    }
    let rounds = arms.iter().map(|arm| arm.boots.len()).max().unwrap_or(0);
    Ok(Measured { arms, rounds, interrupted: false })
}

/// The commands, first the one at the end of the command line.
fn arms(args: &BenchArgs) -> anyhow::Result<Vec<BootCommand>> {
    let base = (!args.command.is_empty()).then(|| BootCommand::words(BASE, &args.command));
    let arms = args.arm.iter().map(|(name, command)| BootCommand::shell(name, command));
    let arms: Vec<BootCommand> = base.into_iter().chain(arms).collect();
    if arms.is_empty() {
        bail!(
            "Give a command that boots a machine and prints how many seconds that took, or \
             --history for the recorded boots of this one"
        );
    }
    for (i, arm) in arms.iter().enumerate() {
        if arms[..i].iter().any(|other| other.name == arm.name) {
            bail!("Two commands are called {:?}; name each otherwise", arm.name);
        }
    }
    Ok(arms)
}

/// Parses `NAME=CMD`.
fn named(text: &str) -> Result<(String, String), String> {
    match text.split_once('=').map(|(name, command)| (name.trim(), command.trim())) {
        Some((name, command)) if !name.is_empty() && !command.is_empty() => {
            Ok((name.to_owned(), command.to_owned()))
        }
        _ => Err(format!("{text:?} names no command; write NAME=CMD")),
    }
}

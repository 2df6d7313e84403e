//! `headstart bench`: starts a program cold, prefetched and hot in random order, and reports how
//! much prefetching helps and how near it comes to the possible.

mod args;
mod cool;
mod disks;
mod floor;
mod json;
mod learn;
mod measure;
mod pack;
mod print;
mod ready;
mod rounds;
mod start;
mod waits;

use headstart::host::{contents, reclaim};
use std::cell::{Cell, RefCell};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use headstart_bench::arm::{CacheState, Peer, PeerMode, arms};
use headstart_bench::machine::{Machine, Ticks};
use headstart_bench::report::{Report, report};
use headstart_bench::stats::Interval;
use headstart_bench::stats::summary::summarise;
use headstart_bench::stats::verdict::Verdict;
use headstart_sys::interrupt::Interrupt;
use headstart_view::build::runs;
use headstart_view::picture::Picture;

pub use args::BenchArgs;

use crate::exit::ExitStatus;
use crate::output;
use crate::picture;
use crate::results::{self, ResultKind};
use args::Assertion;
use cool::{Cooler, Cooling};
use disks::Disks;
use json::{Document, FloorFigures, Setup};
use measure::Bench;
use ready::Ready;
use rounds::{Measured, Stopped, progress};
use start::{Starter, our_children};

/// Runs the verb.
pub fn run(args: BenchArgs) -> anyhow::Result<ExitStatus> {
    let began = Instant::now();
    let interrupt = Interrupt::catch().context("Can't watch for signals")?;
    Starter::adopt_orphans()?;
    let is_root = rustix::process::geteuid().is_root();
    let cooling = args.cooling(is_root);
    let states = args.chosen_states(&cooling);
    if cooling == Cooling::Evict && states.contains(&CacheState::Cold) {
        output::message(
            "Cold starts need root; use sudo, give a command that prepares them (--cold-cmd), or \
             measure selectively cold ones: --states selective,prefetched,hot",
        );
        return Ok(ExitStatus::PermissionMissing);
    }
    for (path, kind) in
        [(&args.export_json, ResultKind::Json), (&args.export_markdown, ResultKind::Markdown)]
    {
        path.iter().try_for_each(|path| results::check(path, kind, args.force))?;
    }
    args.picture.iter().try_for_each(|path| picture::check(path, args.force))?;
    let has = |state| states.contains(&state);
    let compares =
        has(CacheState::Prefetched) && (has(CacheState::Cold) || has(CacheState::Selective));
    if args.assert.is_some() && !compares {
        bail!(
            "--assert needs starts with prefetching and without: --states cold,prefetched, or \
             selective,prefetched"
        );
    }
    let mut bench = Bench {
        words: args.command.clone(),
        starter: Starter {
            ready: args.ready.clone().unwrap_or(Ready::End),
            timeout: args.timeout,
            show_output: args.show_output,
            any_status: args.ignore_failure,
            interrupt,
            others: RefCell::new(our_children()),
        },
        cooler: Cooler::new(cooling.clone()),
        disks: Disks::of_command(&args.command)?,
        prepare: args.prepare.clone(),
        peers: args.against.clone(),
        pack: None,
        floor: None,
        records_waits: Cell::new(false),
    };
    check_names(&args)?;
    announce(&cooling, &states, &args.against, is_root);
    let ahead = states.contains(&CacheState::Prefetched);
    let mut pack = None;
    if ahead || states.contains(&CacheState::Selective) {
        pack = pack::prepare(&mut bench, args.pack.as_deref(), &states)?;
        if pack.is_none() {
            output::message(
                "This program has no pack, and learning one needs root: sudo headstart record -- \
                 CMD, or give one (--pack)",
            );
            return Ok(ExitStatus::PermissionMissing);
        }
    }
    let mut floor = None;
    if ahead && !args.no_floor {
        let report = |n| progress(&format!("looking for the floor: strategy {}", n + 1));
        let (search, found) = floor::search(&bench, report)?;
        floor = found.as_ref().map(|found| FloorFigures { strategy: found.strategy, search });
        bench.floor = found;
    }
    let bounded = bench.floor.is_some() && has(CacheState::Hot);
    let (of_start, hot_starts) = bounded.then(|| pack::start_progress(&bench)).transpose()?.unzip();
    let arms = arms(&states, &bench.peers, bench.floor.is_some());
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let read = |path: &str| contents::text(path).ok();
    let mut machine = Machine::examine(&bench.disks.names()?, read);
    let (before, measuring) = (ticks(), Instant::now());
    let measured = rounds::measure(&bench, &arms, args.length(began), seed)?;
    machine.others = others_since(before, measuring);
    machine.proactive_reclaim = reclaim::proactive().unwrap_or_default();
    let waits = match (args.waits, measured.stopped) {
        (false, _) | (_, Stopped::Interrupted | Stopped::Failed) => Vec::new(),
        (true, _) => waits::measure(&bench, &states).unwrap_or_else(|error| {
            output::message(format_args!("What the starts waited for is not known: {error:#}"));
            Vec::new()
        }),
    };
    if measured.rounds == 0 {
        bail!("Interrupted before a round was measured");
    }

    let setup = Setup {
        command: args.command.iter().map(|w| w.to_string_lossy().into_owned()).collect(),
        ready: bench.starter.ready.to_string(),
        cold: match &cooling {
            Cooling::DropCaches => "drop_caches=3".into(),
            Cooling::Command(command) => command.clone(),
            Cooling::Evict => "evicting the pack's files".into(),
        },
        min_difference: args.min_difference,
        pack: pack.as_ref().map(|pack| pack.figures.clone()),
        floor,
        machine,
        hot_starts,
        waits,
        peers: bench.peers.clone(),
    };
    let mut found = report(
        &arms,
        &bench.peers,
        &measured.runs,
        &of_start.unwrap_or_default(),
        args.min_difference,
    );
    found.warnings.extend(setup.machine.warnings());
    publish(&args, &setup, &measured, &found)?;
    Ok(status(&args, &measured, &found))
}

fn check_names(args: &BenchArgs) -> anyhow::Result<()> {
    for (i, peer) in args.against.iter().enumerate() {
        if args.against[..i].iter().any(|other| other.name == peer.name) {
            bail!("Two commands to compare with are called {:?}; name each otherwise", peer.name);
        }
        if peer.how == PeerMode::Instead && args.ready.is_some() {
            output::message(format_args!("{} has to meet the same --ready condition", peer.name));
        }
    }
    Ok(())
}

/// Says what the benchmark does to this machine.
fn announce(cooling: &Cooling, states: &[CacheState], peers: &[Peer], is_root: bool) {
    if arms(states, peers, false).iter().any(|arm| arm.begins_cold()) {
        cooling.announcement().into_iter().for_each(output::message);
    }
    if is_root && states.contains(&CacheState::Selective) {
        output::message(
            "before each selectively cold start all unused names and inodes of this machine are \
             dropped (drop_caches=2)",
        );
    }
}

fn ticks() -> Option<Ticks> {
    let stat = contents::text("/proc/stat").ok()?;
    Ticks::parse(&stat, &contents::bytes("/proc/self/stat").ok()?)
}

fn others_since(before: Option<Ticks>, began: Instant) -> Option<headstart_bench::machine::Others> {
    let per_second = rustix::param::clock_ticks_per_second();
    Some(ticks()?.others_since(before?, began.elapsed().as_secs_f64(), per_second))
}

/// Prints the result and writes the files that were requested.
fn publish(
    args: &BenchArgs,
    setup: &Setup,
    measured: &Measured,
    found: &Report,
) -> anyhow::Result<()> {
    let document = Document::new(setup, measured, found);
    let write_files = || {
        if let Some(path) = &args.export_json {
            let json = output::json_text(&document)?;
            results::write(path, &(json + "\n"), ResultKind::Json, args.force)?;
        }
        if let Some(path) = &args.export_markdown {
            let report = print::markdown(setup, measured, found);
            results::write(path, &report, ResultKind::Markdown, args.force)?;
        }
        if let Some(path) = &args.picture {
            picture::write(path, &runs_of(setup, measured), args.force)?;
        }
        Ok(())
    };
    // Files first: a reader of standard output that leaves must not cost them. Nor must a file
    // that can't be written cost hours: all is printed.
    let written = write_files();
    let printed = if args.json {
        output::print_json(&document)
    } else {
        output::print(|out| out.write_all(print::text(setup, measured, found).as_bytes()))
    };
    written.and(printed)
}

fn runs_of(setup: &Setup, measured: &Measured) -> Picture {
    let millis: Vec<Vec<f64>> = measured
        .runs
        .iter()
        .map(|arm| arm.times().iter().map(|seconds| 1000.0 * seconds).collect())
        .collect();
    let states: Vec<runs::State<'_>> = measured
        .runs
        .iter()
        .zip(&millis)
        .map(|(arm, millis)| runs::State { name: &arm.name, millis, interval: interval(millis) })
        .collect();
    runs::picture(&json::title(setup), &states)
}

fn interval(millis: &[f64]) -> Option<runs::Interval> {
    let of_median = summarise(millis)?.median_interval?;
    let Interval { low, high, confidence } = of_median;
    Some(runs::Interval { low, high, confidence, is_confident: of_median.is_confident() })
}

fn status(args: &BenchArgs, measured: &Measured, found: &Report) -> ExitStatus {
    let failed = measured.runs.iter().flat_map(|arm| &arm.runs).any(|run| run.failure.is_some());
    if failed || matches!(measured.stopped, Stopped::Interrupted | Stopped::Failed) {
        return ExitStatus::Failed;
    }
    let verdict = found.verdict();
    let holds = match args.assert {
        None => true,
        Some(Assertion::Helps) => matches!(verdict, Some(Verdict::Helps { .. })),
        Some(Assertion::Harmless) => {
            matches!(verdict, Some(Verdict::Helps { .. } | Verdict::NoDifferenceBiggerThan { .. }))
        }
    };
    if holds { ExitStatus::Done } else { ExitStatus::Negative }
}

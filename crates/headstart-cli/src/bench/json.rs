//! The result of a benchmark as one JSON document: our form, which contains hyperfine's, so that
//! scripts for either read it.

use headstart_bench::arm::{Arm, Peer};
use headstart_bench::document::SCHEMA;
use headstart_bench::hyperfine;
use headstart_bench::machine::Machine;
use headstart_bench::report::{ArmReport, Report};
use headstart_bench::run::{ArmRuns, Run};
use headstart_bench::stats::summary::Summary;
use serde::Serialize;
use std::collections::BTreeMap;

use super::pack::PackFigures;
use super::rounds::{Measured, Stopped};
use super::waits::StateWaits;

/// The fastest read strategy for the pack.
#[derive(Clone, Serialize, Debug)]
pub struct FloorFigures {
    /// The read strategy.
    pub strategy: headstart::replay::strategy::ReadStrategy,
    /// All that were tried.
    #[serde(flatten)]
    pub search: headstart_bench::floor::Search,
}

/// What is known of a benchmark beside its runs.
#[derive(Debug)]
pub struct Setup {
    /// The program.
    pub command: Vec<String>,
    /// When a start is over.
    pub ready: String,
    /// How cold starts were prepared.
    pub cold: String,
    /// Differences below this share don't matter.
    pub min_difference: f64,
    /// The pack.
    pub pack: Option<PackFigures>,
    /// The floor.
    pub floor: Option<FloorFigures>,
    /// The machine.
    pub machine: Machine,
    /// Traced hot starts that tell when a start needs what; 0 if the last learned start tells it, and none
    /// without a lower bound in touch order.
    pub hot_starts: Option<usize>,
    /// What starts of each state waited for, if that was recorded.
    pub waits: Vec<StateWaits>,
    /// What the program was compared with.
    pub peers: Vec<Peer>,
}

/// The document.
#[derive(Serialize)]
pub struct Document<'a> {
    schema: &'static str,
    version: &'static str,
    /// For the scripts of hyperfine.
    results: Vec<hyperfine::Command>,
    command: &'a [String],
    ready: &'a str,
    cold: &'a str,
    rounds: usize,
    stopped: Stopped,
    /// The warm-up rounds and what came before them are not in it.
    elapsed_s: f64,
    min_difference: f64,
    machine: &'a Machine,
    pack: &'a Option<PackFigures>,
    floor: &'a Option<FloorFigures>,
    peers: &'a [Peer],
    arms: Vec<DocumentArm<'a>>,
    comparisons: &'a [headstart_bench::report::Comparison],
    limit: &'a Option<headstart_bench::report::Limit>,
    hot_starts: Option<usize>,
    io_parts: &'a [headstart_bench::report::IoPart],
    #[serde(skip_serializing_if = "<[StateWaits]>::is_empty")]
    waits: &'a [StateWaits],
    warnings: &'a [String],
}

#[derive(Serialize)]
struct DocumentArm<'a> {
    name: &'a str,
    #[serde(flatten)]
    arm: Arm,
    counters: &'a BTreeMap<&'static str, Summary>,
    runs: &'a [Run],
}

impl<'a> Document<'a> {
    /// The document of a benchmark.
    pub fn new(setup: &'a Setup, measured: &'a Measured, report: &'a Report) -> Self {
        let arms = measured.arms.iter().zip(&measured.runs).zip(&report.arms);
        Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            results: hyperfine_results(setup, measured, report),
            command: &setup.command,
            ready: &setup.ready,
            cold: &setup.cold,
            rounds: measured.rounds,
            stopped: measured.stopped,
            elapsed_s: measured.elapsed.as_secs_f64(),
            min_difference: setup.min_difference,
            machine: &setup.machine,
            pack: &setup.pack,
            floor: &setup.floor,
            peers: &setup.peers,
            arms: arms
                .map(|((arm, runs), summary)| DocumentArm {
                    name: &runs.name,
                    arm: *arm,
                    counters: &summary.counters,
                    runs: &runs.runs,
                })
                .collect(),
            comparisons: &report.comparisons,
            limit: &report.limit,
            hot_starts: setup.hot_starts,
            io_parts: &report.io_parts,
            waits: &setup.waits,
            warnings: &report.warnings,
        }
    }
}

/// What hyperfine would have written of the same runs. Its scripts expect a
/// number for every run, so failed ones are skipped, and so is the floor, which
/// is no command.
fn hyperfine_results(
    setup: &Setup,
    measured: &Measured,
    report: &Report,
) -> Vec<hyperfine::Command> {
    let command = |runs: &ArmRuns, summary: &ArmReport| {
        let good: Vec<&Run> = runs.runs.iter().filter(|run| run.failure.is_none()).collect();
        let times: Vec<f64> = good.iter().filter_map(|run| run.wall_s).collect();
        let codes: Vec<Option<i32>> = good.iter().map(|run| run.exit_code).collect();
        let mean = |counter: &str| summary.counters.get(counter).map(|s| s.mean);
        // It becomes a label in pictures.
        let line = format!("{}: {}", runs.name, short(&setup.command, 40));
        hyperfine::Command {
            user: mean("user_s"),
            system: mean("system_s"),
            parameters: [("state".to_owned(), runs.name.clone().into())].into(),
            ..hyperfine::Command::new(&line, &times, &codes)
        }
    };
    let arms = measured.arms.iter().zip(measured.runs.iter().zip(&report.arms));
    arms.filter(|(arm, _)| **arm != Arm::Floor).map(|(_, (r, s))| command(r, s)).collect()
}

/// What was measured, in a line that is not too long.
pub fn title(setup: &Setup) -> String {
    format!("Starts of {}", short(&setup.command, 90))
}

/// A command line of so many characters at most.
fn short(command: &[String], longest: usize) -> String {
    let command = command.join(" ");
    match command.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", &command[..end]),
        None => command,
    }
}

//! Runs the rounds: the order of the arms, the progress, and the end.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::bail;
use headstart_bench::arm::Arm;
use headstart_bench::design::{Design, enough};
use headstart_bench::run::{ArmRuns, Run};
use headstart_bench::stats::sequential::Rule;
use serde::Serialize;

use super::measure::Bench;
use crate::output;

/// How many rounds there are.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// Rounds that are not measured.
    pub warm_up: usize,
    /// Rounds at least.
    pub least: usize,
    /// Goes on until this is met, where it is given.
    pub precision: Option<Rule>,
    /// No round begins after this.
    pub deadline: Option<Instant>,
}

/// Why no further round was made.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Stopped {
    /// It was the last one requested.
    Rounds,
    /// The medians were precise enough, or the most rounds were made.
    PreciseOrCap,
    /// The time was over.
    TimeLimit,
    /// Somebody interrupted it.
    Interrupted,
    /// Something went wrong that is not the program's.
    Failed,
}

/// All runs.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The arms.
    pub arms: Vec<Arm>,
    /// Their runs, in the same order.
    pub runs: Vec<ArmRuns>,
    /// Rounds that were completed.
    pub rounds: usize,
    /// Why there are no more.
    pub stopped: Stopped,
    /// How long the measured rounds took.
    pub elapsed: Duration,
}

/// Measures the arms. What fails in the first round ends it with an error; later on, a failed
/// run of the program is one without a time, and of all else the rounds before are kept.
pub fn measure(bench: &Bench, arms: &[Arm], length: Length, seed: u64) -> anyhow::Result<Measured> {
    let name = |arm: &Arm| arm.name(&bench.peers);
    let mut measured = Measured {
        arms: arms.to_vec(),
        runs: arms.iter().map(|arm| ArmRuns { name: name(arm), runs: Vec::new() }).collect(),
        rounds: 0,
        stopped: Stopped::Interrupted,
        elapsed: Duration::ZERO,
    };
    let mut design = Design::new(seed, arms);
    let skipped = |at: usize| {
        if at < length.warm_up {
            "warm-up".into()
        } else {
            format!("round {}", at - length.warm_up + 1)
        }
    };
    for at in 0..length.warm_up {
        let Some(runs) = round(bench, arms, &mut design, |arm| {
            progress(&format!("{}: {}", skipped(at), name(arm)));
        })?
        else {
            return Ok(measured);
        };
        refuse_failures(&runs, arms, bench)?;
    }
    let measuring = Instant::now();
    loop {
        let at = length.warm_up + measured.rounds;
        let left = time_left(&measured, length.least, measuring.elapsed());
        let started = |arm: &Arm| {
            progress(&format!("{} of {}: {}{left}", skipped(at), length.least, name(arm)));
        };
        let runs = match round(bench, arms, &mut design, started) {
            Ok(Some(runs)) => runs,
            Ok(None) => break,
            Err(error) if measured.rounds > 0 => {
                output::message(format_args!("{error:#}; the rounds before are kept"));
                measured.stopped = Stopped::Failed;
                break;
            }
            Err(error) => return Err(error),
        };
        if at == 0 {
            refuse_failures(&runs, arms, bench)?;
        }
        measured.rounds += 1;
        for (index, run) in runs {
            measured.runs[index].runs.push(Run { round: measured.rounds, ..run });
        }
        measured.elapsed = measuring.elapsed();
        if let Some(why) = is_enough(&measured, &length, Instant::now()) {
            measured.stopped = why;
            break;
        }
    }
    progress("");
    Ok(measured)
}

/// Every arm once, with its index; `None` after an interrupt.
fn round(
    bench: &Bench,
    arms: &[Arm],
    design: &mut Design,
    started: impl Fn(&Arm),
) -> anyhow::Result<Option<Vec<(usize, Run)>>> {
    let mut runs = Vec::new();
    for (place, index) in design.next().unwrap_or_default().into_iter().enumerate() {
        started(&arms[index]);
        if bench.starter.interrupt.came() {
            return Ok(None);
        }
        // A command that is interrupted with us fails; that is no error then.
        let run = match bench.measure(arms[index]) {
            Err(_) if bench.starter.interrupt.came() => None,
            run => run?,
        };
        let Some(run) = run else { return Ok(None) };
        runs.push((index, Run { place: place + 1, ..run }));
    }
    Ok(Some(runs))
}

fn refuse_failures(runs: &[(usize, Run)], arms: &[Arm], bench: &Bench) -> anyhow::Result<()> {
    let failed = runs.iter().find_map(|(index, run)| Some((index, run.failure.as_ref()?)));
    match failed {
        Some((index, why)) => {
            bail!("The first start failed ({}): {why}", arms[*index].name(&bench.peers))
        }
        None => Ok(()),
    }
}

fn is_enough(measured: &Measured, length: &Length, now: Instant) -> Option<Stopped> {
    if measured.rounds >= length.least {
        match &length.precision {
            None => return Some(Stopped::Rounds),
            Some(rule) => {
                let times: Vec<Vec<f64>> = measured.runs.iter().map(ArmRuns::times).collect();
                if enough(rule, &times) {
                    return Some(Stopped::PreciseOrCap);
                }
            }
        }
    }
    length.deadline.filter(|deadline| now >= *deadline).map(|_| Stopped::TimeLimit)
}

/// `; about 2m left`, once a round is over.
fn time_left(measured: &Measured, least: usize, elapsed: Duration) -> String {
    let done = measured.rounds as f64;
    if done == 0.0 || measured.rounds >= least {
        return String::new();
    }
    let left = elapsed.as_secs_f64() / done * (least as f64 - done);
    let left = Duration::from_secs(left.ceil() as u64);
    format!("; about {} left", humantime::format_duration(left))
}

/// A line on a terminal that the next one replaces.
pub fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        output::progress(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(rounds: usize) -> Measured {
        let runs = (0..rounds).map(|_| Run { wall_s: Some(1.0), ..Run::default() }).collect();
        Measured {
            arms: vec![Arm::Floor],
            runs: vec![ArmRuns { name: "floor".into(), runs }],
            rounds,
            stopped: Stopped::Interrupted,
            elapsed: Duration::ZERO,
        }
    }

    #[test]
    fn it_ends_by_rounds_by_precision_or_by_time() {
        let now = Instant::now();
        let fixed = Length { warm_up: 1, least: 20, precision: None, deadline: None };
        assert_eq!(is_enough(&after(19), &fixed, now), None);
        assert_eq!(is_enough(&after(20), &fixed, now), Some(Stopped::Rounds));
        let rule = Rule { precision: 0.03, least: 20, most: 100 };
        let precise = Length { precision: Some(rule), ..fixed };
        assert_eq!(is_enough(&after(19), &precise, now), None);
        assert_eq!(is_enough(&after(20), &precise, now), Some(Stopped::PreciseOrCap));
        let hasty = Length { deadline: Some(now), ..fixed };
        assert_eq!(is_enough(&after(3), &hasty, now), Some(Stopped::TimeLimit));
    }

    #[test]
    fn the_time_left_is_reported_once_there_is_something_to_go_by() {
        assert_eq!(time_left(&after(0), 20, Duration::from_secs(9)), "");
        assert_eq!(time_left(&after(5), 20, Duration::from_secs(10)), "; about 30s left");
        assert_eq!(time_left(&after(25), 20, Duration::from_secs(10)), "");
    }
}

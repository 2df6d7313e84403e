//! The report of a benchmark: a summary of each arm, comparisons with a verdict, how near a
//! prefetched start comes to the possible, and what makes the figures doubtful.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::arm::{Arm, CacheState, Peer, PeerMode};
use crate::run::{ArmRuns, COUNTERS};
use crate::stats::hot::{Bound, ColdAndHot, Progress, improvement, ratio_in_order, ratio_to_ideal};
use crate::stats::paired::{Location, PairedRatio, location, ratio};
use crate::stats::quality;
use crate::stats::summary::{Summary, summarise};
use crate::stats::verdict::Verdict;
use headstart::outcome::counts::PageCounts;

/// A difference is only called when it is this unlikely to be chance. A
/// benchmark makes several comparisons and is often repeated until it says what
/// was hoped for; with the 5 % of its intervals a program compared with itself
/// would too often be called different. It takes eight rounds to get there.
pub const CALLED_P: f64 = 0.01;

/// A run that read less than this share of what its arm's runs usually read
/// found its files in memory.
const WARM_SHARE: f64 = 0.5;
/// Hot starts that read more than this share of what cold ones read were not
/// hot.
const STILL_READS_SHARE: f64 = 0.05;

/// A whole benchmark in figures.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Report {
    /// Each arm, in the order of the arms.
    pub arms: Vec<ArmReport>,
    /// Pairs of arms; that which says whether prefetching helps comes first.
    pub comparisons: Vec<Comparison>,
    /// How near to the possible a prefetched start is.
    pub limit: Option<Limit>,
    /// The I/O part of the start that is left.
    pub io_parts: Vec<IoPart>,
    /// What makes the figures doubtful, and what to do.
    pub warnings: Vec<String>,
}

/// One arm.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct ArmReport {
    /// Its name.
    pub name: String,
    /// Each counter that it has values of.
    pub counters: BTreeMap<&'static str, Summary>,
}

impl ArmReport {
    /// The times in seconds.
    pub fn time(&self) -> Option<&Summary> {
        self.counters.get("time_s")
    }
}

/// One arm against another.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Comparison {
    /// The arm.
    pub arm: String,
    /// What it is compared with.
    pub with: String,
    /// The time of `arm` ÷ that of `with`, over the rounds.
    pub ratio: Option<PairedRatio>,
    /// What that means.
    pub verdict: Verdict,
}

/// A prefetched start against the best possible: a hot start or the time the
/// device needs, whichever takes longer.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Limit {
    /// Which of them it is.
    pub bound: Bound,
    /// How many times that the prefetched start took.
    pub ratio: PairedRatio,
    /// How many times the lower bound in touch order; `None` without a
    /// floor.
    pub in_order: Option<PairedRatio>,
}

/// What a start takes longer than a hot one: its I/O. After a 2011 study of
/// Firefox's start-up, (cold2 − hot2) − (cold1 − hot1).
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct IoPart {
    /// The arm that changes it.
    pub arm: String,
    /// By how much, in seconds; below 0 when it got smaller.
    pub change_s: Location,
    /// What is left of it, as a share; `None` where cold starts take hardly
    /// longer than hot ones.
    pub left: Option<Location>,
}

/// How well the pages prefetched met those that a start used, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Debug)]
pub struct Accuracy {
    /// Bytes of files in the pack.
    pub planned: u64,
    /// Of these, used and there in time.
    pub used: u64,
    /// Of these, used, but the start asked first.
    pub late: u64,
    /// Of these, never used.
    pub wasted: u64,
    /// Used, not in the pack, and not in memory either.
    pub missing: u64,
}

impl Accuracy {
    /// From the outcome of a traced start and the pages that its pack had.
    pub fn of(outcome: &PageCounts, planned_pages: u64, page_size: u64) -> Self {
        let used =
            planned_pages.saturating_sub(outcome.late_pages).saturating_sub(outcome.wasted_pages);
        Self {
            planned: planned_pages * page_size,
            used: used * page_size,
            late: outcome.late_pages * page_size,
            wasted: outcome.wasted_pages * page_size,
            missing: outcome.missing_pages * page_size,
        }
    }
}

/// Sums up the runs of the arms. `progress` tells when the start needs what.
/// Differences below `min_difference` (0.02 for 2 %) don't matter.
pub fn report(
    arms: &[Arm],
    peers: &[Peer],
    runs: &[ArmRuns],
    progress: &[Progress],
    min_difference: f64,
) -> Report {
    let table = Table { arms, peers, runs };
    Report {
        arms: runs.iter().map(summarised).collect(),
        comparisons: table.comparisons(min_difference),
        limit: table.limit(progress),
        io_parts: table.io_parts(),
        warnings: table.warnings(),
    }
}

impl Report {
    /// Whether prefetching helps a start that is cold otherwise; `None` when that was not
    /// measured.
    pub fn verdict(&self) -> Option<&Verdict> {
        let bases = [CacheState::Cold, CacheState::Selective].map(CacheState::name);
        let ahead = |c: &&Comparison| {
            c.arm == CacheState::Prefetched.name() && bases.contains(&c.with.as_str())
        };
        self.comparisons.iter().find(ahead).map(|comparison| &comparison.verdict)
    }
}

fn summarised(arm: &ArmRuns) -> ArmReport {
    let counters = COUNTERS
        .iter()
        .filter_map(|(name, counter)| Some((*name, summarise(&arm.values(*counter))?)))
        .collect();
    ArmReport { name: arm.name.clone(), counters }
}

/// The arms with their runs.
struct Table<'a> {
    arms: &'a [Arm],
    peers: &'a [Peer],
    runs: &'a [ArmRuns],
}

impl Table<'_> {
    fn find(&self, arm: Arm) -> Option<&ArmRuns> {
        self.runs.get(self.arms.iter().position(|a| *a == arm)?)
    }

    fn state(&self, state: CacheState) -> Option<&ArmRuns> {
        self.find(Arm::Program { state })
    }

    fn times(&self, arm: Arm) -> Vec<f64> {
        self.find(arm).map(ArmRuns::times).unwrap_or_default()
    }

    /// What starts that begin cold are compared with.
    fn base(&self) -> Option<&ArmRuns> {
        self.state(CacheState::Cold).or_else(|| self.state(CacheState::Selective))
    }

    fn comparisons(&self, min_difference: f64) -> Vec<Comparison> {
        let mut pairs: Vec<(Option<&ArmRuns>, Option<&ArmRuns>)> = Vec::new();
        let (base, ahead) = (self.base(), self.state(CacheState::Prefetched));
        pairs.push((ahead, base));
        for (peer, Peer { how, .. }) in self.peers.iter().enumerate() {
            if *how == PeerMode::Instead {
                for state in [CacheState::Cold, CacheState::Hot] {
                    pairs.push((self.find(Arm::Other { peer, state }), self.state(state)));
                }
                continue;
            }
            let helped = self.find(Arm::Helped { peer });
            pairs.extend([(helped, base), (ahead, helped)]);
        }
        pairs.extend(
            [CacheState::Selective, CacheState::Hot].map(|state| (self.state(state), base)),
        );
        pairs
            .into_iter()
            .filter_map(|(arm, with)| Some((arm?, with?)))
            .filter(|(arm, with)| arm.name != with.name)
            .map(|(arm, with)| {
                let name = |runs: &ArmRuns| runs.name.clone();
                compared((name(arm), &arm.times()), (name(with), &with.times()), min_difference)
            })
            .collect()
    }

    fn limit(&self, progress: &[Progress]) -> Option<Limit> {
        let ahead = self.state(CacheState::Prefetched)?.times();
        let hot = self.times(Arm::Program { state: CacheState::Hot });
        let floor = self.times(Arm::Floor);
        let (bound, ratio) = ratio_to_ideal(&ahead, &hot, &floor)?;
        let in_order = ratio_in_order(&ahead, &hot, &floor, progress);
        Some(Limit { bound, ratio, in_order })
    }

    fn io_parts(&self) -> Vec<IoPart> {
        let (Some(cold), Some(hot)) = (self.base(), self.state(CacheState::Hot)) else {
            return Vec::new();
        };
        let (cold, hot) = (cold.times(), hot.times());
        let mut changed: Vec<(&ArmRuns, Vec<f64>)> = Vec::new();
        changed.extend(self.state(CacheState::Prefetched).map(|arm| (arm, hot.clone())));
        for peer in 0..self.peers.len() {
            changed.extend(self.find(Arm::Helped { peer }).map(|arm| (arm, hot.clone())));
            let other = |state| self.find(Arm::Other { peer, state });
            let both = other(CacheState::Cold).zip(other(CacheState::Hot));
            changed.extend(both.map(|(cold, hot)| (cold, hot.times())));
        }
        let before = ColdAndHot { cold: &cold, hot: &hot };
        let part = |(arm, own_hot): (&ArmRuns, Vec<f64>)| {
            let times = arm.times();
            let after = ColdAndHot { cold: &times, hot: &own_hot };
            Some(IoPart {
                arm: arm.name.clone(),
                change_s: improvement(before, after)?,
                left: share_left(before, after),
            })
        };
        changed.into_iter().filter_map(part).collect()
    }

    fn warnings(&self) -> Vec<String> {
        // The same of several arms is said once.
        let mut found: Vec<(Vec<&str>, String)> = Vec::new();
        for (kind, arm) in self.arms.iter().zip(self.runs) {
            let mut warn = |text: String| match found.iter_mut().find(|(_, said)| *said == text) {
                Some((names, _)) => names.push(&arm.name),
                None => found.push((vec![&arm.name], text)),
            };
            if let Some(why) = arm.runs.iter().find_map(|run| run.failure.as_ref()) {
                warn(format!("The first run that failed: {why}"));
            }
            quality::check(&arm.times()).iter().for_each(|warning| warn(warning.to_string()));
            if kind.begins_cold() {
                warm_runs(arm).into_iter().for_each(&mut warn);
            }
            incomplete(arm).into_iter().for_each(&mut warn);
            cut_short(arm).into_iter().for_each(&mut warn);
            left_behind(arm).into_iter().for_each(warn);
        }
        let said = found.into_iter().map(|(names, text)| format!("{}: {text}", names.join(", ")));
        said.chain(self.hot_still_reads()).collect()
    }

    fn hot_still_reads(&self) -> Option<String> {
        let read = |arm: Option<&ArmRuns>| {
            Some(summarise(&arm?.values(|run| run.read_bytes.map(|bytes| bytes as f64)))?.median)
        };
        let (cold, hot) = (read(self.base())?, read(self.state(CacheState::Hot))?);
        (cold > 0.0 && hot > STILL_READS_SHARE * cold).then(|| {
            format!(
                "hot: Hot starts read {:.0} KiB, where cold ones read {:.0}. Something pushes \
                 their files out of memory, or uses the same disk: free memory, stop it.",
                hot / 1024.0,
                cold / 1024.0
            )
        })
    }
}

/// The times of an arm against those of another, round by round. Differences below
/// `min_difference` (0.02 for 2 %) don't matter.
pub fn compared(
    (arm, times): (String, &[f64]),
    (with, those): (String, &[f64]),
    min_difference: f64,
) -> Comparison {
    let ratio = ratio(those, times);
    let verdict = judge(ratio.as_ref(), min_difference);
    Comparison { arm, with, ratio, verdict }
}

/// A verdict that is not given lightly: see [`CALLED_P`].
fn judge(ratio: Option<&PairedRatio>, min_difference: f64) -> Verdict {
    match (Verdict::of(ratio, min_difference), ratio) {
        (Verdict::Helps { .. } | Verdict::Hurts { .. }, Some(ratio)) if ratio.p > CALLED_P => {
            Verdict::Unresolved { between: Some(ratio.interval) }
        }
        (verdict, _) => verdict,
    }
}

/// What the second leaves of the first's I/O part in each round. `None` when
/// there is none for certain.
fn share_left(first: ColdAndHot, second: ColdAndHot) -> Option<Location> {
    let part = |arms: ColdAndHot| -> Vec<f64> {
        arms.cold.iter().zip(arms.hot).map(|(cold, hot)| cold - hot).collect()
    };
    let (first, second) = (part(first), part(second));
    let is_certain = location(&first)?.interval.low > 0.0;
    let shares: Vec<f64> =
        second.iter().zip(&first).map(|(second, first)| second / first).collect();
    location(&shares).filter(|_| is_certain)
}

/// Runs that were to be cold and read next to nothing.
fn warm_runs(arm: &ArmRuns) -> Option<String> {
    let read = arm.values(|run| run.read_bytes.map(|bytes| bytes as f64));
    let usual = summarise(&read)?.median;
    let warm: Vec<usize> = (0..read.len())
        .filter(|&i| read[i] < WARM_SHARE * usual)
        .map(|i| arm.runs[i].round)
        .collect();
    let (first, others) = warm.split_first()?;
    Some(format!(
        "{} not cold: round {first}{} read less than half of the usual {:.1} MiB. Another process \
         or mount namespace held the files; run nothing in parallel.",
        if others.is_empty() { "One run was" } else { "Some runs were" },
        if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) },
        usual / f64::from(1 << 20),
    ))
}

/// Replays that did not prefetch the whole pack.
fn incomplete(arm: &ArmRuns) -> Option<String> {
    let skipped = arm.runs.iter().filter_map(|run| run.prefetch).map(|a| a.files_skipped);
    let most = skipped.max().filter(|most| *most > 0)?;
    Some(format!(
        "{most} of the pack's files were not prefetched: they changed, are gone or may not be \
         read. Learn the program again."
    ))
}

/// Replays that ended for want of memory.
fn cut_short(arm: &ArmRuns) -> Option<String> {
    let reasons: Vec<_> =
        arm.runs.iter().filter_map(|run| run.prefetch.and_then(|a| a.stopped)).collect();
    let why = reasons.first()?;
    Some(format!(
        "{} of {} replays ended early: {why}. Free memory, or give its control group more.",
        reasons.len(),
        arm.runs.len()
    ))
}

/// Processes that went on when the start was over.
fn left_behind(arm: &ArmRuns) -> Option<String> {
    let most = arm.runs.iter().map(|run| run.left_behind).max().filter(|most| *most > 0)?;
    Some(format!(
        "The program left up to {most} {} running, ended before the next start. If the start is \
         not over when the program ends, say when it is: --ready.",
        if most == 1 { "process" } else { "processes" }
    ))
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;

//! The result of a benchmark as text: a table, and what it means in words.

use headstart_bench::arm::{CacheState, PeerMode};
use headstart_bench::report::{Accuracy, ArmReport, Comparison, IoPart, Limit, Report};
use headstart_bench::stats::Interval;
use headstart_bench::stats::hot::Bound;
use headstart_bench::stats::paired::PairedRatio;
use headstart_bench::stats::summary::Summary;
use headstart_view::table::Table;
use headstart_view::units::{decimals_for, grouped};

use super::json::Setup;
use super::rounds::{Measured, Stopped};
use super::waits::{self, StateWaits};
use crate::output;

/// The table of the arms.
pub fn table(report: &Report) -> Table {
    let mut table = Table::new()
        .words("state")
        .numbers("n")
        .numbers("median ms")
        .numbers("95 % interval")
        .numbers("mean ms")
        .numbers("spread")
        .numbers("major faults")
        .numbers("minor faults")
        .numbers("MiB read")
        .numbers("requests");
    for arm in &report.arms {
        table.row(row(arm));
    }
    table
}

fn row(arm: &ArmReport) -> Vec<String> {
    let median = |counter: &str| arm.counters.get(counter).map(|s| s.median);
    let count = |counter: &str| median(counter).map_or_else(none, |n| grouped(n, 0));
    let Some(time) = arm.time() else { return vec![arm.name.clone(), "0".into()] };
    let decimals = decimals(time);
    let ms = |seconds: f64| grouped(1000.0 * seconds, decimals);
    vec![
        arm.name.clone(),
        time.n.to_string(),
        ms(time.median),
        time.median_interval.map_or_else(none, |interval| {
            let sure = confidence(&interval);
            format!("{} to {}{sure}", ms(interval.low), ms(interval.high))
        }),
        ms(time.mean),
        time.stddev.map_or_else(none, |sd| format!("{:.1} %", 100.0 * sd / time.mean)),
        count("major_faults"),
        count("minor_faults"),
        median("read_bytes")
            .map_or_else(none, |bytes| format!("{:.1}", bytes / f64::from(1 << 20))),
        count("read_requests"),
    ]
}

fn none() -> String {
    "–".into()
}

/// As many digits as distinguish the ends of the interval.
fn decimals(time: &Summary) -> usize {
    let width = time.median_interval.map_or(time.median / 10.0, |i| i.high - i.low);
    decimals_for(1000.0 * width)
}

/// What an interval of few runs has to admit.
fn confidence(interval: &Interval) -> String {
    let only = (100.0 * interval.confidence).floor();
    if interval.is_confident() { String::new() } else { format!(" (only {only} %)") }
}

/// What the benchmark says, line by line; the verdicts first.
pub fn lines(setup: &Setup, report: &Report) -> Vec<String> {
    let helpers: Vec<&str> = setup
        .peers
        .iter()
        .filter(|peer| peer.how != PeerMode::Instead)
        .map(|peer| peer.name.as_str())
        .chain([CacheState::Prefetched.name()])
        .collect();
    let line = |found| comparison(found, &helpers);
    let mut lines: Vec<String> = report.comparisons.iter().map(line).collect();
    lines.extend(report.io_parts.iter().filter_map(io_part));
    lines.extend(report.limit.as_ref().map(limit));
    lines.extend(report.limit.as_ref().and_then(|limit| limit.in_order.as_ref()).map(in_order));
    if let Some(floor) = &setup.floor {
        lines.push(format!("The floor reads the same pages in {}.", floor.strategy));
    }
    if let Some(pack) = &setup.pack {
        lines.push(format!(
            "The pack has {} of {} and {} of metadata, learned from {}.",
            output::size(pack.data_bytes),
            output::counted(pack.files as u64, "file"),
            output::size(pack.metadata_bytes),
            output::counted(pack.starts.into(), "start")
        ));
        lines.extend(pack.accuracy.as_ref().map(accuracy));
    }
    lines
}

/// Only what is done to a start helps it or hurts it; a state or another program
/// is just faster or slower.
fn comparison(found: &Comparison, helpers: &[&str]) -> String {
    let verdict = found.verdict.to_string();
    let verdict = match verdict.split_once(": ") {
        Some(("helps" | "hurts", factor)) if !helpers.contains(&found.arm.as_str()) => factor,
        _ => &verdict,
    };
    let p = found.ratio.as_ref().map_or_else(String::new, |ratio| format!(" ({})", chance(ratio)));
    format!("{} against {}: {verdict}{p}", found.arm, found.with)
}

fn chance(ratio: &PairedRatio) -> String {
    let p = if ratio.p < 0.001 { "p < 0.001".into() } else { format!("p = {:.3}", ratio.p) };
    format!("{}, {p}", output::counted(ratio.pairs as u64, "round"))
}

fn io_part(found: &IoPart) -> Option<String> {
    let left = found.left.as_ref()?;
    let percent = |share: f64| format!("{:.0}", 100.0 * share);
    let ms = |seconds: f64| grouped(1000.0 * seconds, 0);
    let change = &found.change_s;
    Some(format!(
        "I/O part of the start (cold − hot), {}: {} % left [{}, {}]{}, a change of \
         {} ms [{}, {}]{}",
        found.arm,
        percent(left.estimate),
        percent(left.interval.low),
        percent(left.interval.high),
        confidence(&left.interval),
        ms(change.estimate),
        ms(change.interval.low),
        ms(change.interval.high),
        confidence(&change.interval)
    ))
}

fn limit(found: &Limit) -> String {
    let PairedRatio { ratio, interval, .. } = &found.ratio;
    let bound = match found.bound {
        Bound::Hot => "the hot start",
        Bound::Floor => "the floor",
    };
    format!(
        "prefetched ÷ max(hot, floor) = {ratio:.2} [{:.2}, {:.2}]{}; {bound} is the larger one",
        interval.low,
        interval.high,
        confidence(interval)
    )
}

fn in_order(PairedRatio { ratio, interval, .. }: &PairedRatio) -> String {
    format!(
        "prefetched ÷ lower bound in touch order = {ratio:.2} [{:.2}, {:.2}]{}",
        interval.low,
        interval.high,
        confidence(interval)
    )
}

fn accuracy(found: &Accuracy) -> String {
    let size = output::size;
    format!(
        "A traced start touched {} of the {} prefetched, {} of it late; {} was wasted, {} was \
         missing.",
        size(found.used + found.late),
        size(found.planned),
        size(found.late),
        size(found.wasted),
        size(found.missing)
    )
}

/// The line above the table.
pub fn head(setup: &Setup, measured: &Measured) -> String {
    let rounds = output::counted(measured.rounds as u64, "round");
    let ended = match measured.stopped {
        Stopped::Rounds | Stopped::PreciseOrCap => "",
        Stopped::TimeLimit => " (stopped by the time limit)",
        Stopped::Interrupted => " (interrupted)",
        Stopped::Failed => " (it failed then)",
    };
    let took = std::time::Duration::from_secs(measured.elapsed.as_secs_f64().round() as u64);
    format!(
        "{}\n{rounds}{ended} in {}, until {}; cold by {}",
        output::harmless(super::json::title(setup)),
        humantime::format_duration(took),
        setup.ready,
        setup.cold
    )
}

/// The whole report as text.
pub fn text(setup: &Setup, measured: &Measured, report: &Report) -> String {
    let mut out = format!("{}\n\n{}\n", head(setup, measured), table(report).text());
    for line in lines(setup, report) {
        out += &output::harmless(&line);
        out.push('\n');
    }
    for warning in &report.warnings {
        out += &format!("! {}\n", output::harmless(warning));
    }
    if let Some(first) = setup.waits.first() {
        out += &format!("\n{}\n{}", waits_title(first), waits::table(&setup.waits).text());
    }
    out
}

/// The whole report as Markdown.
pub fn markdown(setup: &Setup, measured: &Measured, report: &Report) -> String {
    let mut out = format!("{}\n\n{}\n", head(setup, measured), table(report).markdown());
    for line in lines(setup, report).iter().chain(&report.warnings) {
        out += &format!("- {}\n", output::harmless(line));
    }
    if let Some(first) = setup.waits.first() {
        out += &format!("\n{}\n\n{}", waits_title(first), waits::table(&setup.waits).markdown());
    }
    out
}

fn waits_title(waits: &StateWaits) -> String {
    let starts = output::counted(waits.starts as u64, "more start");
    format!(
        "Where the time went, in the middle one of {starts} of each state with its waits recorded:"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_bench::stats::verdict::{Factor, Verdict};

    #[test]
    fn only_help_helps() {
        let by = Factor { times: 4.0, low: 3.0, high: 5.0 };
        let line = |arm: &str, verdict| {
            let found = Comparison { arm: arm.into(), with: "cold".into(), ratio: None, verdict };
            comparison(&found, &["prefetched", "vmtouch"])
        };
        for (arm, verdict, text) in [
            ("prefetched", Verdict::Helps { by }, "prefetched against cold: helps: 4.0 × faster"),
            ("vmtouch", Verdict::Hurts { by }, "vmtouch against cold: hurts: 4.0 × slower"),
            ("hot", Verdict::Helps { by }, "hot against cold: 4.0 × faster [3.0, 5.0]"),
            ("hot", Verdict::Unresolved { between: None }, "hot against cold: unresolved: too few"),
        ] {
            let found = line(arm, verdict);
            assert!(found.starts_with(text), "{found}");
        }
    }

    #[test]
    fn an_interval_of_few_runs_says_how_sure_it_is() {
        let interval = |confidence| Interval { low: 1.0, high: 2.0, confidence };
        assert_eq!(confidence(&interval(0.951)), "");
        assert_eq!(confidence(&interval(0.756)), " (only 75 %)");
    }
}

//! Boots as text: a table for each figure, and what it means in words.

use super::rounds::Measured;
use crate::output;
use headstart_bench::boots::Metric;
use headstart_bench::stats::summary::Summary;
use headstart_view::table::Table;
use headstart_view::units::{decimals_for, grouped};

/// All of it.
pub fn text(measured: &Measured, metrics: &[Metric]) -> String {
    let mut out = String::new();
    for metric in metrics {
        if !out.is_empty() {
            out.push('\n');
        }
        out += &format!("{}\n", output::harmless(&metric.name));
        let mut table = Table::new()
            .words("boots")
            .numbers("n")
            .numbers("median s")
            .numbers("95 % interval")
            .numbers("shortest to longest");
        for arm in &metric.arms {
            table.row(row(&arm.name, &arm.summary));
        }
        out += &table.text();
        for found in &metric.comparisons {
            let rounds = found.ratio.as_ref().map_or_else(String::new, |ratio| {
                format!(" ({}, p = {:.3})", output::counted(ratio.pairs as u64, "round"), ratio.p)
            });
            let (arm, with) = (output::harmless(&found.arm), output::harmless(&found.with));
            out += &format!("{arm} against {with}: {}{rounds}\n", found.verdict);
        }
    }
    let boots = measured.arms.iter().flat_map(|arm| arm.boots.iter().map(move |b| (arm, b)));
    let failed: Vec<_> = boots.filter_map(|(arm, b)| Some((arm, b, b.failure.as_ref()?))).collect();
    if let Some((arm, boot, why)) = failed.first() {
        out += &format!(
            "{} failed; the first in round {} of {}: {}\n",
            output::counted(failed.len() as u64, "boot"),
            boot.round,
            output::harmless(&arm.name),
            output::harmless(why)
        );
    }
    if measured.interrupted {
        out += &format!("It was interrupted after {} rounds.\n", measured.rounds);
    }
    out
}

fn row(name: &str, summary: &Summary) -> Vec<String> {
    let width = summary.median_interval.map_or(0.0, |interval| interval.high - interval.low);
    let decimals = decimals_for(width).clamp(2, 4);
    let seconds = |value| grouped(value, decimals);
    let interval = summary.median_interval.map_or("–".to_owned(), |interval| {
        let only = (100.0 * interval.confidence).floor();
        let sure =
            if interval.is_confident() { String::new() } else { format!(" (only {only} %)") };
        format!("{} to {}{sure}", seconds(interval.low), seconds(interval.high))
    });
    vec![
        output::harmless(name),
        summary.n.to_string(),
        seconds(summary.median),
        interval,
        format!("{} to {}", seconds(summary.min), seconds(summary.max)),
    ]
}

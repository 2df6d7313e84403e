//! `headstart compare`: which counters of two result files differ.

use headstart::host::contents;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use headstart_bench::compare::{Comparison, Reason, Row, Skipped, compare};
use headstart_bench::document::{Results, io_part_change, read};
use headstart_bench::stats::unpaired::Shift;
use headstart_view::table::Table;
use headstart_view::units::grouped;
use serde::Serialize;

use crate::exit::ExitStatus;
use crate::output::{self, JsonPath};

/// The arguments of `headstart compare`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The files are results of headstart bench (--json), of hyperfine (--export-json), \
or an object of lists of numbers by name. Welch's t-test compares each counter \
that both have; the p values are adjusted for the number of counters (Benjamini \
and Hochberg), and those with the largest |t| come first. Two files were measured \
at two times: what the machine did differently meanwhile counts as a difference \
too. Measure both in one benchmark where that matters (bench --against NAME:=CMD).")]
pub struct CompareArgs {
    /// The first result
    first: PathBuf,

    /// The second result
    second: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    first: JsonPath,
    second: JsonPath,
    #[serde(flatten)]
    comparison: &'a Comparison,
    /// (cold2 − hot2) − (cold1 − hot1), in seconds.
    io_part_change_s: Option<&'a Shift>,
}

/// Runs the verb.
pub fn run(args: CompareArgs) -> anyhow::Result<ExitStatus> {
    let (first, second) = (results(&args.first)?, results(&args.second)?);
    let found = compare(&first.counters, &second.counters);
    let io_part = io_part_change(&first, &second);
    if found.rows.is_empty() {
        if found.skipped.iter().any(|skipped| skipped.reason == Reason::TooFewValues) {
            bail!("No counter has two values in both files; measure more rounds");
        }
        let why = found.skipped.first().map(ToString::to_string);
        bail!(
            "The two files have no counter in common{}",
            why.map_or_else(String::new, |why| format!(" ({why})"))
        );
    }
    if args.json {
        output::print_json(&Document {
            schema: "headstart/compare/1",
            first: args.first.as_path().into(),
            second: args.second.as_path().into(),
            comparison: &found,
            io_part_change_s: io_part.as_ref(),
        })?;
    } else {
        let text = text(&found, io_part.as_ref());
        output::print(|out| out.write_all(text.as_bytes()))?;
    }
    Ok(ExitStatus::Done)
}

fn results(path: &Path) -> anyhow::Result<Results> {
    let bytes =
        contents::bytes(path).with_context(|| format!("Can't read {}", output::shown(path)))?;
    read(&bytes).with_context(|| format!("Can't compare {}", output::shown(path)))
}

fn text(found: &Comparison, io_part: Option<&Shift>) -> String {
    let mut table = Table::new()
        .words("counter")
        .numbers("n")
        .numbers("first")
        .numbers("second")
        .numbers("change")
        .numbers("t")
        .numbers("p adjusted")
        .numbers("second ÷ first")
        .words("");
    for row in &found.rows {
        table.row(cells(row));
    }
    let mut out = table.text();
    if let Some(change) = io_part {
        let ms = |seconds: f64| grouped(1000.0 * seconds, 1);
        out += &format!(
            "\nI/O part of the start, (cold2 − hot2) − (cold1 − hot1): {} ms [{} to {}]\n",
            ms(change.estimate),
            ms(change.interval.low),
            ms(change.interval.high)
        );
    }
    // A state that only one file has lacks all its counters: one line for all.
    let mut reasons: Vec<(Reason, Vec<&str>)> = Vec::new();
    for Skipped { counter, reason } in &found.skipped {
        match reasons.iter_mut().find(|(other, _)| other == reason) {
            Some((_, counters)) => counters.push(counter),
            None => reasons.push((*reason, vec![counter])),
        }
    }
    for (reason, counters) in reasons {
        let counters = output::harmless(counters.join(", "));
        out += &format!("not compared, {reason}: {counters}\n");
    }
    out
}

fn cells(row: &Row) -> Vec<String> {
    let (first, second) = (row.first.mean, row.second.mean);
    let change = 100.0 * (second / first - 1.0);
    vec![
        row.counter.clone(),
        format!("{}+{}", row.first.n, row.second.n),
        number(first),
        number(second),
        if change.is_finite() { format!("{change:+.1} %") } else { "–".into() },
        if row.welch.t.is_finite() { format!("{:.1}", row.welch.t) } else { "∞".into() },
        if row.p_adjusted < 0.001 { "< 0.001".into() } else { format!("{:.3}", row.p_adjusted) },
        row.ratio.as_ref().map_or_else(
            || "–".into(),
            |ratio| {
                let Shift { estimate, interval, .. } = ratio;
                format!("{estimate:.3} [{:.3}, {:.3}]", interval.low, interval.high)
            },
        ),
        if row.differs() { "differs".into() } else { String::new() },
    ]
}

/// Four digits, or all before the point.
fn number(x: f64) -> String {
    let digits = x.abs().log10().floor();
    let decimals = if digits.is_finite() { (3.0 - digits).clamp(0.0, 9.0) as usize } else { 0 };
    grouped(x, decimals)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_bench::compare::ResultSet;

    #[test]
    fn a_counter_that_moved_is_marked_and_one_that_is_missing_is_named() {
        let set = |list: &[(&str, [f64; 4])]| -> ResultSet {
            list.iter().map(|(name, values)| ((*name).to_owned(), values.to_vec())).collect()
        };
        let first = set(&[
            ("faults", [100.0, 101.0, 99.0, 100.0]),
            ("time_s", [0.1, 0.11, 0.1, 0.12]),
            ("old", [1.0; 4]),
            ("older", [1.0; 4]),
        ]);
        let second =
            set(&[("faults", [300.0, 301.0, 299.0, 300.0]), ("time_s", [0.1, 0.12, 0.1, 0.11])]);
        let shift = Shift {
            n_a: 4,
            n_b: 4,
            estimate: -0.25,
            interval: headstart_bench::stats::Interval { low: -0.3, high: -0.2, confidence: 0.95 },
            exact: true,
        };
        let text = text(&compare(&first, &second), Some(&shift));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("faults") && lines[1].ends_with("differs"), "{text}");
        assert!(lines[1].contains("+200.0 %"), "{text}");
        assert!(lines[2].starts_with("time_s") && !lines[2].ends_with("differs"), "{text}");
        assert!(text.contains("-250.0 ms [-300.0 to -200.0]"), "{text}");
        assert!(text.contains("not compared, only the first set has it: old, older\n"), "{text}");
    }

    #[test]
    fn numbers_keep_four_digits() {
        for (x, text) in
            [(0.0, "0"), (1234567.0, "1,234,567"), (12.3456, "12.35"), (0.00123, "0.001230")]
        {
            assert_eq!(number(x), text);
        }
    }
}

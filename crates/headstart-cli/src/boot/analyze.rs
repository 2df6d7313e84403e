//! `headstart boot analyze`: what a recorded boot did when, and where it waited.

use crate::exit::ExitStatus;
use crate::output::{self, Align, Table};
use crate::picture;
use anyhow::bail;
use headstart::boot::analysis::Analysis;
use headstart::boot::bins::Row;
use headstart::boot::machine::Machine;
use headstart::host::error::causes;
use headstart_view::build;
use headstart_view::text_boot::{summary, title};
use serde::Serialize;
use std::cmp::Reverse;
use std::io::{self, Write};
use std::path::PathBuf;

/// Units and idle times that are named on a terminal.
const NAMED: usize = 10;
/// Width of what stands before a line over time.
const LABEL: usize = 12;

/// The arguments of `headstart boot analyze`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
It draws a recorded boot: its phases, systemd's units, what was prefetched and what the boot \
read itself, what was late, missing or wasted, and the times without I/O. Seconds count from \
the kernel's start. The picture has the axis of systemd-analyze plot. Files that were \
written in that boot are not shown.")]
pub struct AnalyzeArgs {
    /// The boot, by its number in `boot status` [default: the last]
    number: Option<u64>,

    /// Write a picture to this file: a page with tables (.html), an image (.svg) or data (.json)
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,

    /// Replace that file even if it is not an earlier result
    #[arg(long)]
    force: bool,

    /// Use the image below this directory
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The JSON document.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    analysis: &'a Analysis,
}

/// Shows it.
pub fn run(args: &AnalyzeArgs) -> anyhow::Result<ExitStatus> {
    let analysis = look(&Machine::at(&args.root), args.number)?;
    // Files first: a reader of standard output that leaves must not cost them.
    if let Some(path) = &args.picture {
        picture::write(path, &build::boot::picture(&analysis), args.force)?;
    }
    if args.json {
        output::print_json(&Document { schema: "headstart/boot-analyze/2", analysis: &analysis })?;
    } else if args.picture.is_none() {
        output::print(|out| text(out, &analysis, output::terminal_width()))?;
    }
    Ok(ExitStatus::Done)
}

/// A recorded boot, or the last.
///
/// # Errors
/// It is not in the history.
pub fn look(machine: &Machine, number: Option<u64>) -> anyhow::Result<Analysis> {
    let mut boots = machine.boots();
    let numbers: Vec<String> = boots.iter().map(|(number, _)| number.to_string()).collect();
    let wanted = boots.iter().position(|(n, _)| number.is_none_or(|number| number == *n));
    let (number, boot) = match (wanted, number) {
        (Some(index), _) => boots.swap_remove(index),
        (None, Some(number)) if !boots.is_empty() => {
            bail!("There is no boot {number} in the history; there are {}", numbers.join(", "))
        }
        _ => bail!("No boot was recorded yet: run `headstart boot enable`, then boot once"),
    };
    let timeline = machine.timeline(number).unwrap_or_else(|error| {
        output::message(causes(&error));
        None
    });
    Ok(Analysis::of(number, boot, timeline))
}

fn text(out: &mut dyn Write, boot: &Analysis, width: usize) -> io::Result<()> {
    writeln!(out, "{}", title(boot))?;
    writeln!(out, "{}\n", summary(boot))?;
    phases(out, boot)?;
    if boot.timeline.is_some() {
        writeln!(out)?;
        over_time(out, boot, width.saturating_sub(LABEL).clamp(20, 200))?;
        idle(out, boot)?;
        units(out, boot)?;
    }
    for problem in &boot.boot.problems {
        writeln!(out, "\n{}", output::harmless(problem))?;
    }
    Ok(())
}

fn phases(out: &mut dyn Write, boot: &Analysis) -> io::Result<()> {
    let mut table = Table::new([
        ("PHASE", Align::Left),
        ("BEGINS", Align::Right),
        ("ENDS", Align::Right),
        ("PREFETCHED", Align::Right),
        ("TOUCHED", Align::Right),
        ("READY", Align::Right),
        ("LATE", Align::Right),
        ("MISSING", Align::Right),
        ("WASTED", Align::Right),
    ]);
    let at = |ms: Option<f64>| ms.map_or("-".into(), |ms| format!("{:.3} s", ms / 1000.0));
    for phase in &boot.boot.phases {
        let outcome = &phase.outcome;
        table.row([
            output::harmless(&phase.name),
            at(phase.begin_ms),
            at(phase.end_ms),
            output::size(phase.prefetched_bytes),
            outcome.touched_pages.to_string(),
            format!("{:.1} %", outcome.ready_share() * 100.0),
            outcome.late_pages.to_string(),
            outcome.missing_pages.to_string(),
            outcome.wasted_pages.to_string(),
        ]);
    }
    table.write(out)
}

/// What came in as lines of bars, each as high as its own share of the highest of those
/// that are drawn to one scale.
fn over_time(out: &mut dyn Write, boot: &Analysis, width: usize) -> io::Result<()> {
    let row = |row| columns(boot, row, width);
    let (ahead, demand) = (row(Row::Prefetched), row(Row::Demand));
    let (late, missing, wasted) = (row(Row::Late), row(Row::Missing), row(Row::Wasted));
    let highest = |rows: &[&Vec<u64>]| rows.iter().flat_map(|r| r.iter().copied()).max();
    let brought = highest(&[&ahead, &demand, &wasted]);
    let waited = highest(&[&late, &missing]);
    for (name, row, most) in [
        ("prefetched", &ahead, brought),
        ("wasted", &wasted, brought),
        ("by itself", &demand, brought),
        ("late", &late, waited),
        ("missing", &missing, waited),
    ] {
        let line = bars(row, most.unwrap_or(0));
        writeln!(out, "{}", format!("{name:<LABEL$}{line}").trim_end())?;
    }
    let end = format!("{:.2} s", boot.end_us as f64 / 1e6);
    let room = width.saturating_sub(3 + end.len());
    writeln!(out, "{:LABEL$}0 s{:room$}{end}", "", "")
}

/// Bytes of each of `width` parts of the boot.
fn columns(boot: &Analysis, row: Row, width: usize) -> Vec<u64> {
    let mut columns = vec![0u64; width];
    let Some(timeline) = &boot.timeline else { return columns };
    let end = u128::from(boot.end_us.max(1));
    for (bin, bytes) in timeline.bins.row(row).iter().enumerate() {
        let at = u128::from(timeline.bins.at_us(bin)) * width as u128 / end;
        let column = usize::try_from(at).ok().and_then(|at| columns.get_mut(at));
        // What came behind the last phase is not a part of the boot.
        if let Some(column) = column {
            *column = column.saturating_add(*bytes);
        }
    }
    columns
}

/// A line of bars; every value above 0 is visible.
fn bars(row: &[u64], most: u64) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let bar = |bytes: &u64| match bytes {
        0 => ' ',
        _ => BARS[((*bytes as f64 / most as f64 * 8.0).ceil() as usize).clamp(1, 8) - 1],
    };
    row.iter().map(bar).collect()
}

fn idle(out: &mut dyn Write, boot: &Analysis) -> io::Result<()> {
    if boot.idle.is_empty() {
        return Ok(());
    }
    let mut gaps = boot.idle.clone();
    gaps.sort_by_key(|gap| Reverse(gap.to_us - gap.from_us));
    let named = gaps.iter().take(NAMED).map(|gap| {
        let ms = (gap.to_us - gap.from_us) as f64 / 1e3;
        format!("{ms:.0} ms from {:.2} s", gap.from_us as f64 / 1e6)
    });
    writeln!(
        out,
        "\nNothing came into memory for {:.2} s; longest: {}",
        boot.idle_us() as f64 / 1e6,
        named.collect::<Vec<_>>().join(", ")
    )
}

fn units(out: &mut dyn Write, boot: &Analysis) -> io::Result<()> {
    let slowest = boot.slowest();
    if slowest.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nThe units that took longest:")?;
    let mut table =
        Table::new([("TOOK", Align::Right), ("FROM", Align::Right), ("UNIT", Align::Left)]);
    for (unit, took) in slowest.iter().take(NAMED) {
        let from = unit.began().unwrap_or(0) as f64 / 1e6;
        table.row([
            format!("{:.0} ms", *took as f64 / 1e3),
            format!("{from:.3} s"),
            output::harmless(&unit.name),
        ]);
    }
    table.write(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_high_as_their_share_and_the_least_is_seen() {
        assert_eq!(bars(&[0, 1, 500, 1000], 1000), " ▁▄█");
        assert_eq!(bars(&[0, 0], 0), "  ");
    }
}

//! `headstart compare`: which counters of two sets of results differ.

mod pictures;

use headstart::host::contents;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use headstart_bench::compare::{Comparison, Reason, Row, Skipped, Unlisted, compare};
use headstart_bench::document::{io_part_change, read};
use headstart_bench::side::{Side, align};
use headstart_bench::stats::unpaired::{Shift, smallest_p};
use headstart_view::table::Table;
use headstart_view::units::grouped;
use serde::Serialize;

use crate::exit::ExitStatus;
use crate::output::{self, JsonPath, counted};
use crate::picture;

/// The arguments of `headstart compare`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The files are results of headstart bench (--json), recordings of page faults (headstart faults \
--json), results of hyperfine (--export-json), or an object of lists of numbers by name. Of a \
directory all files that end in .json are taken. Two files or directories are compared with each \
other; more than one on a side are joined: headstart compare a1.json a2.json --with b1.json b2.json.

Of recordings all figures are compared: totals, each file by segment and section, processes, threads. \
Each side needs two recordings, and better ten.

With --picture the recordings of median length are drawn, before and after on the same axes. Pictures \
of each side are needed for that (headstart faults --picture FILE.json), as further files or in the \
directory; without results, one of each side is enough.

Welch's t-test compares each counter that both have; the p values are adjusted for the number of \
counters (Benjamini and Hochberg), and those with the largest |t| come first. Two files were \
measured at two times: what the machine did differently meanwhile counts as a difference \
too. Measure both in one benchmark where that matters (bench --against NAME:=CMD), or record in \
turn.")]
pub struct CompareArgs {
    /// Two results, or those of the first side
    #[arg(required = true, value_name = "FILE|DIR")]
    first: Vec<PathBuf>,

    /// Those of the second side
    #[arg(long = "with", value_name = "FILE|DIR", num_args = 1..)]
    second: Vec<PathBuf>,

    /// List this many counters, and all with 0; 50 if not given, and 1,000 with --json
    #[arg(long, value_name = "N")]
    top: Option<usize>,

    /// Draw a recording of each side on the same axes to this file: a page to look around in (.html),
    /// an image (.svg) or data (.json)
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,

    /// Replace the file even if it is no earlier picture
    #[arg(long, requires = "picture")]
    force: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    first: DocumentSide<'a>,
    second: DocumentSide<'a>,
    #[serde(flatten)]
    comparison: &'a Comparison,
    /// (cold2 − hot2) − (cold1 − hot1), in seconds.
    io_part_change_s: Option<&'a Shift>,
}

#[derive(Serialize)]
struct DocumentSide<'a> {
    files: Vec<JsonPath>,
    /// Recordings of page faults.
    recordings: usize,
    /// Of which some faults were lost.
    not_whole: usize,
    /// What was recorded.
    commands: Vec<&'a String>,
}

impl<'a> DocumentSide<'a> {
    fn new(files: &[PathBuf], side: &'a Side) -> Self {
        Self {
            files: files.iter().map(|file| file.as_path().into()).collect(),
            recordings: side.recordings,
            not_whole: side.not_whole,
            commands: side.commands.iter().collect(),
        }
    }
}

/// Runs the verb.
pub fn run(args: CompareArgs) -> anyhow::Result<ExitStatus> {
    let (first, second) = match (args.first.as_slice(), args.second.as_slice()) {
        ([first, second], []) => (files(&[first])?, files(&[second])?),
        (_, []) => bail!("Give two results, or two sets of them: headstart compare A… --with B…"),
        (first, second) => (files(first)?, files(second)?),
    };
    if let Some(file) = &args.picture {
        picture::check(file, args.force)?;
    }
    let ((drawn_first, first), (drawn_second, second)) =
        (pictures::split(first), pictures::split(second));
    let drawn = match &args.picture {
        Some(file) => pictures::draw(&drawn_first, &drawn_second, file, args.force)?,
        None => {
            pictures::mention(drawn_first.len() + drawn_second.len());
            String::new()
        }
    };
    if args.picture.is_some() && !args.json && first.is_empty() && second.is_empty() {
        output::print(|out| out.write_all(drawn.as_bytes()))?;
        return Ok(ExitStatus::Done);
    }
    let (mut a, mut b) = (side(&first)?, side(&second)?);
    if a.recordings + b.recordings > 0 {
        check(&a, &b)?;
    }
    let skipped = align(&mut a, &mut b);
    let most = match args.top {
        Some(0) => usize::MAX,
        Some(most) => most,
        None => {
            if args.json {
                1000
            } else {
                50
            }
        }
    };
    let mut found = compare(&a.counters, &b.counters, most);
    found.skipped.extend(skipped);
    let io_part = io_part_change(&a.io_part_s, &b.io_part_s);
    if found.rows.is_empty() {
        if found.skipped.iter().any(|skipped| skipped.reason == Reason::TooFewValues) {
            bail!("No counter has two values on both sides; measure more rounds");
        }
        let why = found.skipped.first().map(ToString::to_string);
        bail!(
            "The two sides have no counter in common{}",
            why.map_or_else(String::new, |why| format!(" ({why})"))
        );
    }
    if args.json {
        output::print_json(&Document {
            schema: "headstart/compare/2",
            first: DocumentSide::new(&first, &a),
            second: DocumentSide::new(&second, &b),
            comparison: &found,
            io_part_change_s: io_part.as_ref(),
        })?;
    } else {
        let text = text(&found, io_part.as_ref()) + &of_recordings(&a, &b) + &drawn;
        output::print(|out| out.write_all(text.as_bytes()))?;
    }
    Ok(ExitStatus::Done)
}

/// The files that are meant: of a directory those that end in `.json`.
fn files(named: &[impl AsRef<Path>]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in named.iter().map(AsRef::as_ref) {
        if !path.is_dir() {
            files.push(path.to_owned());
            continue;
        }
        let unreadable = || format!("Can't read {}", output::shown(path));
        let begin = files.len();
        for entry in path.read_dir().with_context(unreadable)? {
            let file = entry.with_context(unreadable)?.path();
            if file.extension() == Some("json".as_ref()) {
                files.push(file);
            }
        }
        if files.len() == begin {
            bail!("No file in {} ends in .json", output::shown(path));
        }
        files[begin..].sort();
    }
    Ok(files)
}

fn side(files: &[PathBuf]) -> anyhow::Result<Side> {
    let mut side = Side::default();
    for path in files {
        let name = output::shown(path);
        let bytes = contents::bytes(path).with_context(|| format!("Can't read {name}"))?;
        side.add(read(&bytes).with_context(|| format!("Can't compare {name}"))?);
    }
    Ok(side)
}

/// Says what is to know of recordings before they are compared.
fn check(first: &Side, second: &Side) -> anyhow::Result<()> {
    for (side, name) in [(first, "first"), (second, "second")] {
        if side.recordings < 2 {
            let has = counted(side.recordings as u64, "recording");
            bail!(
                "Each side needs two recordings or more, since one doesn't tell what changes by \
                 chance: the {name} side has {has}"
            );
        }
        if side.commands.len() > 1 {
            let commands: Vec<_> = side.commands.iter().map(output::harmless).collect();
            let commands = commands.join("; ");
            output::message(format_args!("The {name} side is of several commands: {commands}"));
        }
        if side.not_whole > 0 {
            let lack = counted(side.not_whole as u64, "recording");
            output::message(format_args!("On the {name} side {lack} lost some faults"));
        }
    }
    Ok(())
}

/// A note on what the number of recordings allows.
fn of_recordings(first: &Side, second: &Side) -> String {
    let (n, m) = (first.recordings, second.recordings);
    let least = smallest_p(n, m);
    if n == 0 || least < 0.001 {
        return String::new();
    }
    format!(
        "with {n}+{m} recordings, a counter that is constant on both sides has p ≥ {least:.3}; take \
         7 or more of each\n"
    )
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
    let Unlisted { counters, differ } = found.unlisted;
    if counters > 0 {
        let (counters, differ) =
            (counted(counters as u64, "more counter"), output::grouped(differ as u64));
        out += &format!("{counters}, of which {differ} differ (--top 0 lists all)\n");
    }
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
        let text = text(&compare(&first, &second, 50), Some(&shift));
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

//! The tables of `headstart faults` as text.

use crate::output::{Align, Table, counted, grouped, name, size};
use headstart_faults::document::{About, Usage, lost_faults, memory_name};
use headstart_faults::recording::Recording;
use headstart_faults::tables::{Place, Row, Spread, Sum, Tables};
use headstart_view::table::Table as Columns;
use std::io::{self, Write};

/// Rows of a table, unless all are wanted.
const ROWS: usize = 25;

/// All tables and notes.
pub fn text(
    about: &About,
    recording: &Recording,
    tables: &Tables,
    all: bool,
) -> io::Result<String> {
    let mut out = Vec::new();
    let rows = if all { usize::MAX } else { ROWS };
    total(about, tables).write(&mut out)?;
    writeln!(out)?;
    places(about, recording, tables, rows, &mut out)?;
    writeln!(out)?;
    owners(recording, tables, rows, &mut out)?;
    writeln!(out)?;
    for note in notes(about, recording, tables) {
        writeln!(out, "{note}")?;
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn total(about: &About, tables: &Tables) -> Table<7> {
    let mut table = Table::new([
        ("FAULTS", Align::Left),
        ("COUNT", Align::Right),
        ("TIME", Align::Right),
        ("OF WALL", Align::Right),
        ("MEDIAN", Align::Right),
        ("99 %", Align::Right),
        ("LONGEST", Align::Right),
    ]);
    let kinds =
        [("minor", tables.total.minor, tables.minor), ("major", tables.total.major, tables.major)];
    for (kind, Sum { count, time_ns }, Spread { median_ns, p99_ns, max_ns }) in kinds {
        let spread = if count == 0 {
            ["", "", ""].map(str::to_owned)
        } else {
            [median_ns, p99_ns, max_ns].map(time)
        };
        let [median, p99, longest] = spread;
        table.row([
            kind.into(),
            grouped(count),
            time(time_ns),
            share(time_ns, about.wall_ns),
            median,
            p99,
            longest,
        ]);
    }
    table
}

fn places(
    about: &About,
    recording: &Recording,
    tables: &Tables,
    rows: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let huge = about.access.huge;
    let mut table =
        Columns::new().numbers("MINOR").numbers("TIME").numbers("MAJOR").numbers("TIME");
    table = table.numbers("COPIED");
    if huge {
        table = table.numbers("HUGE");
    }
    table = table.words("SEGMENT").words("SECTION").words("FILE");
    for (place, row) in tables.places.iter().take(rows) {
        let (segment, section, file) = match place {
            Place::File { name: number, segment, section } => {
                (segment.name(), section.clone(), name(recording.name(*number)))
            }
            other => ("", String::new(), memory_name(recording, other).unwrap_or_default()),
        };
        let mut cells = counts(row).to_vec();
        cells.push(some(row.copied));
        cells.extend(huge.then(|| some(row.huge)));
        cells.extend([segment.into(), section, file]);
        table.row(cells);
    }
    out.write_all(table.text().as_bytes())?;
    more(tables.places.iter().skip(rows).map(|(_, row)| row), "place", out)
}

/// Processes, each with its threads if there is more than one.
fn owners(
    recording: &Recording,
    tables: &Tables,
    rows: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut table = Table::new([
        ("MINOR", Align::Right),
        ("TIME", Align::Right),
        ("MAJOR", Align::Right),
        ("TIME", Align::Right),
        ("PROCESS", Align::Right),
        ("THREAD", Align::Right),
        ("NAME", Align::Left),
    ]);
    let mut add = |row: &Row, pid: i32, tid: Option<i32>, of: u32| {
        let [minor, minor_time, major, major_time] = counts(row);
        let (tid, name) =
            (tid.map_or_else(String::new, |tid| tid.to_string()), name(recording.name(of)));
        table.row([minor, minor_time, major, major_time, pid.to_string(), tid, name]);
    };
    let mut left = rows;
    for (number, row) in tables.processes.iter().take(rows) {
        let Some(process) = recording.processes.get(*number as usize) else { continue };
        add(row, process.pid, None, process.name);
        let threads = tables.threads.iter().filter_map(|(at, row)| {
            let thread = recording.threads.get(*at as usize)?;
            (thread.process == *number).then_some((thread, row))
        });
        let threads: Vec<_> = threads.collect();
        if threads.len() > 1 {
            for (thread, row) in threads.iter().take(left) {
                add(row, process.pid, Some(thread.tid), thread.name);
            }
            left = left.saturating_sub(threads.len());
        }
    }
    table.write(out)?;
    more(tables.processes.iter().skip(rows).map(|(_, row)| row), "process", out)
}

/// A line for the rows that are not shown.
fn more<'a>(
    rows: impl Iterator<Item = &'a Row>,
    noun: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let rows: Vec<&Row> = rows.collect();
    if rows.is_empty() {
        return Ok(());
    }
    let faults = rows.iter().map(|row| row.minor.count + row.major.count).sum();
    let time = time(rows.iter().map(|row| row.time_ns()).sum());
    let plural = if noun == "process" { "processes" } else { "places" };
    let noun = if rows.len() == 1 { noun } else { plural };
    let faults = counted(faults, "fault");
    writeln!(out, "{} more {noun}: {faults}, {time} (-v shows all)", rows.len())
}

fn counts(row: &Row) -> [String; 4] {
    let of = |sum: Sum| {
        let time = if sum.count == 0 { String::new() } else { time(sum.time_ns) };
        [some(sum.count), time]
    };
    let ([minor, minor_time], [major, major_time]) = (of(row.minor), of(row.major));
    [minor, minor_time, major, major_time]
}

/// A number; nothing for 0.
fn some(count: u64) -> String {
    if count == 0 { String::new() } else { grouped(count) }
}

/// What the tables don't say, and what they lack.
fn notes(about: &About, recording: &Recording, tables: &Tables) -> Vec<String> {
    let Row { copied, zero_page, huge, unended, .. } = tables.total;
    let mut first = format!(
        "{} wall time; {} copied on write, {} replaced the zero page",
        time(about.wall_ns),
        grouped(copied),
        grouped(zero_page),
    );
    if about.access.huge {
        first += &format!(", {} mapped a huge page", grouped(huge));
    }
    let mut notes = vec![first];
    if !about.access.page_sizes {
        notes.push(
            "This kernel does not report what was mapped (it needs Linux 5.11): copies, the zero \
             page and huge pages are not known"
                .to_owned(),
        );
    }
    if unended > 0 {
        let faults = counted(unended, "fault");
        notes.push(format!("{faults} did not end: in a signal, or after the recording"));
    }
    if about.access.user_only {
        notes.push(
            "Faults of the kernel itself, as read(2) makes in memory that it fills, are missing: \
             they need root, CAP_PERFMON or kernel.perf_event_paranoid=1"
                .to_owned(),
        );
    }
    if let Some(usage) = about.usage {
        notes.push(accounted(about, usage, recording, tables));
    }
    let lost = lost_faults(about, recording);
    if lost > 0 || recording.lost > 0 {
        notes.push(format!(
            "{} faults were lost ({} records), because the recorder got too little CPU time or may lock too \
             little memory (kernel.perf_event_mlock_kb)",
            grouped(lost),
            grouped(recording.lost),
        ));
    }
    if about.threads_missed > 0 {
        let threads = counted(about.threads_missed, "thread");
        notes.push(format!("{threads} began while headstart attached, and may be missing"));
    }
    if about.cost.undecoded > 0 {
        let records = counted(about.cost.undecoded, "record");
        notes.push(format!("{records} could not be decoded"));
    }
    notes.push(cost(about));
    notes
}

/// How the faults that were recorded compare with those that the kernel accounts.
fn accounted(about: &About, usage: Usage, recording: &Recording, tables: &Tables) -> String {
    let unlisted = recording.unlisted;
    let lost = lost_faults(about, recording);
    let recorded = tables.total.minor.count
        + tables.total.major.count
        + unlisted.minor_before
        + unlisted.major_before
        + unlisted.minor_ends
        + unlisted.major_ends
        + lost;
    let accounted = usage.minor + usage.major;
    let mut text = format!(
        "getrusage: {} minor and {} major faults",
        grouped(usage.minor),
        grouped(usage.major)
    );
    let before = unlisted.minor_before + unlisted.major_before;
    if before > 0 {
        text += &format!(", {} of them before the program was executed", grouped(before));
    }
    if let Some(more @ 1..) = accounted.checked_sub(recorded) {
        let programs = counted(recording.executions, "program");
        let kernel = if about.access.user_only { ", of the kernel itself," } else { "" };
        text += &format!(
            ", {} without an event, as for the arguments of execve(2) ({programs}){kernel} and for \
             memory that is populated or pinned",
            grouped(more)
        );
    }
    text
}

fn cost(about: &About) -> String {
    let cost = &about.cost;
    let mut text = format!(
        "recording: {} records, {}, {} of CPU time of the recorder",
        grouped(cost.records),
        size(cost.bytes),
        time(cost.recorder_us.saturating_mul(1000)),
    );
    if let Some(ns) = cost.ns_per_fault {
        let all = time(ns.saturating_mul(about.counted.begun));
        text += &format!(", {} a fault (measured now), {all} for all", time(ns));
    }
    text
}

/// A time in ns for people.
fn time(ns: u64) -> String {
    let ns = ns as f64;
    match ns {
        0.0..1e6 => format!("{:.1} µs", ns / 1e3),
        1e6..1e9 => format!("{:.1} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

/// A part in per cent.
fn share(part: u64, whole: u64) -> String {
    if whole == 0 { String::new() } else { format!("{:.1} %", 100.0 * part as f64 / whole as f64) }
}

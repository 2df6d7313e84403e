//! The tables of `headstart faults` as text.

use super::cells::{of_wall, some, time};
use super::print_waits;
use crate::output::{Align, Table, counted, grouped, name, size};
use headstart_faults::document::{About, Usage, memory_name};
use headstart_faults::recording::{Recording, Thread};
use headstart_faults::tables::{Place, Row, Spread, Sum, Tables};
use headstart_faults::waits::sums::Sums;
use headstart_view::table::Table as Columns;
use std::collections::HashMap;
use std::io::{self, Write};

/// Rows of a table, unless all are wanted.
pub const ROWS: usize = 25;

/// All tables and notes.
pub fn text(
    about: &About,
    recording: &Recording,
    tables: &Tables,
    waits: Option<&Sums>,
    all: bool,
) -> io::Result<String> {
    let mut out = Vec::new();
    let rows = if all { usize::MAX } else { ROWS };
    if let Some((sums, waits)) = waits.zip(recording.waits.as_ref()) {
        write!(out, "{}", print_waits::text(recording, waits, sums, rows))?;
    }
    total(about, tables).write(&mut out)?;
    writeln!(out)?;
    places(about.access.huge, recording, tables, rows, &mut out)?;
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
            of_wall(time_ns, about.wall_ns),
            median,
            p99,
            longest,
        ]);
    }
    table
}

/// Places with their faults, the longest time first.
pub fn places(
    huge: bool,
    recording: &Recording,
    tables: &Tables,
    rows: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
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
    more(tables.places.iter().skip(rows).map(|(_, row)| row), "place", "places", out)
}

/// Processes, each with its threads if there is more than one.
pub fn owners(
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
    let mut threads_of: HashMap<u32, Vec<(&Thread, &Row)>> = HashMap::new();
    for (at, row) in &tables.threads {
        if let Some(thread) = recording.threads.get(*at as usize) {
            threads_of.entry(thread.process).or_default().push((thread, row));
        }
    }
    let (mut left, mut hidden) = (rows, Vec::new());
    for (number, row) in tables.processes.iter().take(rows) {
        let Some(process) = recording.processes.get(*number as usize) else { continue };
        add(row, process.pid, None, process.name);
        let threads = threads_of.remove(number).filter(|threads| threads.len() > 1);
        for (thread, row) in threads.unwrap_or_default() {
            if left > 0 {
                add(row, process.pid, Some(thread.tid), thread.name);
                left -= 1;
            } else {
                hidden.push(row);
            }
        }
    }
    table.write(out)?;
    more(hidden, "thread", "threads", out)?;
    let processes = tables.processes.iter().skip(rows).map(|(_, row)| row);
    more(processes, "process", "processes", out)
}

/// A line for the rows that are not shown.
fn more<'a>(
    rows: impl IntoIterator<Item = &'a Row>,
    one: &str,
    many: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (mut count, mut faults, mut ns) = (0u64, 0u64, 0u64);
    for row in rows {
        count += 1;
        faults += row.minor.count + row.major.count;
        ns = ns.saturating_add(row.time_ns());
    }
    if count == 0 {
        return Ok(());
    }
    let noun = if count == 1 { one } else { many };
    let (faults, time) = (counted(faults, "fault"), time(ns));
    writeln!(out, "{count} more {noun}: {faults}, {time} (-v shows all)")
}

fn counts(row: &Row) -> [String; 4] {
    let of = |sum: Sum| {
        let time = if sum.count == 0 { String::new() } else { time(sum.time_ns) };
        [some(sum.count), time]
    };
    let ([minor, minor_time], [major, major_time]) = (of(row.minor), of(row.major));
    [minor, minor_time, major, major_time]
}

/// What the tables don't say, and what they lack.
fn notes(about: &About, recording: &Recording, tables: &Tables) -> Vec<String> {
    let Row { copied, zero_page, huge, unended, end_lost, .. } = tables.total;
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
    let mut note = |count: u64, noun: &str, rest: &str| {
        if count > 0 {
            notes.push(counted(count, noun) + rest);
        }
    };
    note(unended, "fault", " did not end: in a signal, or after the recording");
    note(end_lost, "fault", " may have ended in records that were lost, and have no latency");
    note(recording.unlisted.early, "fault", " began while headstart attached, and are not listed");
    let ends = recording.unlisted.minor_ends + recording.unlisted.major_ends;
    note(ends, "end", " of faults whose begin has no record");
    note(about.threads_missed, "thread", " began while headstart attached, and may lack faults");
    note(recording.privileged, "program", " gained privileges; the kernel ended their recording");
    note(
        about.files_unread,
        "file",
        " with code can't be read at the path that the process had, or another is there now: the \
         sections are not known",
    );
    note(about.cost.undecoded, "record", " could not be decoded");
    if about.lost_faults() > 0 || about.lost_ends() > 0 || recording.lost > 0 {
        notes.push(format!(
            "{} faults and {} ends of faults were lost ({} records), because the recorder got too little \
             CPU time or may lock too little memory (kernel.perf_event_mlock_kb)",
            grouped(about.lost_faults()),
            grouped(about.lost_ends()),
            grouped(recording.lost),
        ));
    }
    if !about.access.page_sizes {
        notes.push(
            "This kernel does not report what was mapped (it needs Linux 5.11): copies, the zero \
             page and huge pages are not known"
                .to_owned(),
        );
    }
    if about.access.user_only {
        notes.push(
            "Faults of the kernel itself, as read(2) makes in memory that it fills, are missing: \
             they need root, CAP_PERFMON or kernel.perf_event_paranoid=1"
                .to_owned(),
        );
    }
    match about.usage {
        Some(usage) => notes.push(accounted(about, usage, recording)),
        None if about.command.is_some() => notes.push(
            "getrusage is not compared: it counts until the end of the program, and from its \
             execution only if the faults before are known"
                .to_owned(),
        ),
        None => {}
    }
    notes.push(cost(about));
    notes
}

/// How the faults that the kernel counted compare with those that it accounts.
fn accounted(about: &About, usage: Usage, recording: &Recording) -> String {
    let unlisted = recording.unlisted;
    let mut text = format!(
        "getrusage: {} minor and {} major faults",
        grouped(usage.minor),
        grouped(usage.major)
    );
    let before = unlisted.minor_before + unlisted.major_before;
    if before > 0 {
        text += &format!(", {} of them before the program was executed", grouped(before));
    }
    match about.without_event() {
        Some(more) if more > 0 => {
            let programs = counted(recording.executions, "program");
            let kernel = if about.access.user_only { ", of the kernel itself," } else { "" };
            let gained =
                if recording.privileged > 0 { ", of programs that gained privileges," } else { "" };
            text += &format!(
                ", {} without an event, as for the arguments of execve(2) ({programs}){kernel}{gained} \
                 and for memory that is populated or pinned",
                grouped(more.unsigned_abs())
            );
        }
        Some(less) if less < 0 => {
            let less = grouped(less.unsigned_abs());
            text += &format!(
                "; it lacks {less}, as those of processes that their parent has not waited for"
            );
        }
        _ => {}
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

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_faults::capture::{Access, Counted};
    use headstart_faults::document::Cost;
    use headstart_faults::recording::{Process, Unlisted};

    fn about() -> About {
        About {
            command: None,
            pid: 1,
            wall_ns: 1,
            usage: Some(Usage { minor: 100, major: 0 }),
            access: Access { user_only: false, page_sizes: true, huge: false },
            counted: Counted { begun: 90, minor: 90, major: 0 },
            found: Counted { begun: 88, minor: 87, major: 0 },
            cost: Cost { undecoded: 1, ..Cost::default() },
            is_full: false,
            threads_missed: 2,
            files_unread: 1,
        }
    }

    #[test]
    fn threads_that_are_not_shown_are_counted_and_no_sum_overflows() {
        let thread = |tid| Thread { tid, process: 0, name: 0 };
        let recording = Recording {
            names: vec![b"x".to_vec()],
            processes: vec![Process { pid: 1, name: 0 }],
            threads: (0..4).map(thread).collect(),
            ..Recording::default()
        };
        let row = Row { minor: Sum { count: 1, time_ns: u64::MAX }, ..Row::default() };
        let tables = Tables {
            processes: vec![(0, row)],
            threads: (0..4).map(|at| (at, row)).collect(),
            ..Tables::default()
        };
        let mut out = Vec::new();
        owners(&recording, &tables, 2, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(text.contains("\n2 more threads: 2 faults, "), "{text}");
    }

    #[test]
    fn all_that_is_missing_is_said() {
        let unlisted = Unlisted { early: 3, minor_ends: 1, minor_before: 5, ..Unlisted::default() };
        let recording = Recording {
            unlisted,
            privileged: 1,
            lost: u64::MAX,
            executions: 1,
            ..Recording::default()
        };
        let total = Row { unended: 1, end_lost: 2, ..Row::default() };
        let tables = Tables { total, ..Tables::default() };
        let text = notes(&about(), &recording, &tables).join("\n");
        for part in [
            "1 fault did not end",
            "2 faults may have ended in records that were lost",
            "3 faults began while headstart attached",
            "1 end of faults whose begin has no record",
            "2 threads began while headstart attached",
            "1 program gained privileges",
            "1 file with code",
            "1 record could not be decoded",
            "2 faults and 3 ends of faults were lost (18,446,744,073,709,551,615 records)",
            "5 of them before the program was executed, 10 without an event",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let usage = Some(Usage { minor: 80, major: 0 });
        let text = notes(&About { usage, ..about() }, &recording, &tables).join("\n");
        assert!(text.contains("it lacks 10, as those of processes"), "{text}");
        let command = Some(vec!["x".to_owned()]);
        let text =
            notes(&About { usage: None, command, ..about() }, &recording, &tables).join("\n");
        assert!(text.contains("getrusage is not compared"), "{text}");
    }
}

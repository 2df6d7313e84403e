//! The tables of `headstart faults --waits` as text.

use super::cells::{of_wall, some, time};
use super::devices;
use crate::output::{counted, grouped, name, percent, size};
use headstart_faults::recording::Recording;
use headstart_faults::waits::document::name_of;
use headstart_faults::waits::sums::{Account, Cause, Device, PathSums, Sum, Sums};
use headstart_faults::waits::{Kind, Waits};
use headstart_view::table::Table;
use std::collections::BTreeMap;

/// Where the time went, by kind, by cause and by device.
pub fn text(recording: &Recording, waits: &Waits, sums: &Sums, rows: usize) -> String {
    let mut tables = vec![path(recording, waits, &sums.path), parts(sums)];
    tables.push(causes(recording, waits, sums, rows));
    tables.extend((!sums.devices.is_empty()).then(|| devices(sums)));
    if sums.threads.len() > 1 {
        tables.push(threads(recording, sums, rows));
    }
    let notes = notes(recording, waits, sums);
    tables.extend((!notes.is_empty()).then(|| notes.join("\n") + "\n"));
    tables.join("\n") + "\n"
}

/// What a kind of waits is for people.
fn label(kind: Kind) -> &'static str {
    match kind {
        Kind::Fault => "page faults",
        Kind::Read => "read",
        Kind::Write => "write",
        Kind::Open => "open",
        Kind::Lookup => "look-up of names",
        Kind::Directory => "directories",
        Kind::Map => "mmap, munmap",
        Kind::Execute => "execve",
        Kind::Sync => "fsync",
        Kind::Readahead => "readahead",
        Kind::Stream => "pipes, sockets, terminals",
        Kind::Poll => "poll, epoll",
        Kind::Thread => "other threads (futex)",
        Kind::Timer => "sleep",
        Kind::Child => "other processes",
        Kind::Signal => "signals",
        Kind::Call => "other system calls",
        Kind::RunQueue => "run queue",
        Kind::Unexplained => "unexplained",
    }
}

/// A part of the time to the end: its label, its time, and what it was for.
struct Part {
    label: &'static str,
    ns: u64,
    of: Vec<(String, u64)>,
}

impl Part {
    /// The waits of a kind. Threads of one name that ran instead are one.
    fn of_kind(recording: &Recording, waits: &Waits, path: &PathSums, kind: Kind) -> Self {
        let mut of: BTreeMap<String, u64> = BTreeMap::new();
        for (cause, sum) in path.causes.iter().filter(|(cause, _)| cause.kind == kind) {
            let runner = cause.runner.and_then(|at| waits.runners.get(at as usize));
            let name = match runner {
                Some(who) => name(recording.name(who.name)),
                None => what(recording, waits, cause),
            };
            *of.entry(name).or_default() += sum.time_ns;
        }
        let ns = of.values().sum();
        let mut of: Vec<_> = of.into_iter().collect();
        of.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        Self { label: label(kind), ns, of }
    }
}

/// Where the time to the end of the process went, each kind with what took most of it.
fn path(recording: &Recording, waits: &Waits, path: &PathSums) -> String {
    let program = |(program, ns): &(u32, u64)| (name(recording.name(*program)), *ns);
    let of = path.cpu.iter().map(program).collect();
    let mut parts = vec![Part { label: "CPU", ns: path.cpu_ns(), of }];
    parts.extend(Kind::ALL.map(|kind| Part::of_kind(recording, waits, path, kind)));
    parts.retain(|part| part.ns > 0);
    parts.sort_by_key(|part| std::cmp::Reverse(part.ns));
    let mut table =
        Table::new().numbers("TIME").numbers("OF IT").words("TO THE END OF THE PROGRAM");
    table = table.words("MOST OF IT");
    for Part { label, ns, of } in parts {
        table.row([time(ns), of_wall(ns, path.total_ns), label.to_owned(), most_of(&of)]);
    }
    let all = match path.elsewhere_ns {
        0 => String::new(),
        ns => format!("{} of it in other threads, which it waited for", time(ns)),
    };
    table.row([time(path.total_ns), of_wall(path.total_ns, path.total_ns), "all".into(), all]);
    table.text()
}

/// The first few of what a time was for, and how much more there is.
fn most_of(of: &[(String, u64)]) -> String {
    const MOST: usize = 3;
    let told = |(what, ns): &(String, u64)| match &what[..] {
        "" => format!("not known {}", time(*ns)),
        what => format!("{what} {}", time(*ns)),
    };
    // Without a name nothing is known that the label does not say.
    if of.iter().all(|(what, _)| what.is_empty()) {
        return String::new();
    }
    let mut parts: Vec<_> = of.iter().take(MOST).map(told).collect();
    let more = of.get(MOST..).unwrap_or_default();
    if !more.is_empty() {
        let ns = more.iter().map(|(_, ns)| ns).sum();
        parts.push(format!("{} more {}", more.len(), time(ns)));
    }
    parts.join(", ")
}

fn parts(sums: &Sums) -> String {
    let is_single = sums.main == sums.all;
    let mut table = Table::new().words("WALL TIME").numbers("MAIN THREAD").numbers("OF IT");
    table = table.numbers("COUNT").numbers("LONGEST");
    if !is_single {
        table = table.numbers("ALL THREADS");
    }
    let all_of = |ns: u64| (!is_single).then(|| some_time(ns));
    let (main, all) = (&sums.main, &sums.all);
    let total = main.total_ns();
    let mut row = |label: &str, ns: u64, sum: Option<&Sum>, all: u64| {
        let count = sum.map_or_else(String::new, |sum| some(sum.count));
        let longest = sum.map_or_else(String::new, |sum| some_time(sum.longest_ns));
        let mut cells = vec![label.to_owned(), some_time(ns), of_wall(ns, total), count, longest];
        cells.extend(all_of(all));
        table.row(cells);
    };
    row("CPU: own code", main.user_ns, None, all.user_ns);
    row("CPU: system calls", main.calls_ns, None, all.calls_ns);
    row("CPU: page faults", main.faults_ns, None, all.faults_ns);
    for kind in Kind::ALL {
        let of = |account: &Account| account.waits.get(&kind).copied();
        let always = matches!(kind, Kind::RunQueue | Kind::Unexplained);
        if let Some(in_all) = of(all).or(always.then(Sum::default)) {
            let in_main = of(main).unwrap_or_default();
            let label = match kind {
                Kind::RunQueue | Kind::Unexplained => label(kind).to_owned(),
                _ => format!("wait: {}", label(kind)),
            };
            row(&label, in_main.time_ns, Some(&in_main), in_all.time_ns);
        }
    }
    if all.unkept_ns > 0 {
        row("waits that were not kept", main.unkept_ns, None, all.unkept_ns);
    }
    row("all", total, None, all.total_ns());
    table.text()
}

fn causes(recording: &Recording, waits: &Waits, sums: &Sums, rows: usize) -> String {
    let mut table = Table::new().numbers("MAIN THREAD").numbers("COUNT").numbers("LONGEST");
    table = table.numbers("ALL THREADS").words("WAIT").words("FOR");
    let is_told = |(cause, _, _): &&(Cause, Sum, Sum)| cause.kind != Kind::RunQueue;
    for (cause, main, all) in sums.causes.iter().filter(is_told).take(rows) {
        table.row([
            some_time(main.time_ns),
            some(main.count),
            some_time(main.longest_ns),
            some_time(all.time_ns),
            label(cause.kind).to_owned(),
            what(recording, waits, cause),
        ]);
    }
    let mut text = table.text();
    let rest = sums.causes.iter().filter(is_told).skip(rows);
    let (count, ns) = rest
        .fold((0u64, 0u64), |(count, ns), (_, _, all)| (count + 1, ns.saturating_add(all.time_ns)));
    if count > 0 {
        text += &format!("{}: {} (-v shows all)\n", counted(count, "more cause"), time(ns));
    }
    text
}

fn what(recording: &Recording, waits: &Waits, cause: &Cause) -> String {
    match name_of(recording, waits, cause) {
        (Some(path), _) => name(&path),
        (None, other) => other,
    }
}

fn devices(sums: &Sums) -> String {
    let mut table = Table::new().words("DEVICE").numbers("READS").numbers("BYTES");
    table = table.numbers("WRITES").numbers("BYTES").numbers("BUSY").numbers("OF WALL");
    table = table.numbers("IN FLIGHT").numbers("A REQUEST").numbers("IDLE").numbers("GAPS");
    table = table.numbers("LONGEST");
    for (device, row) in &sums.devices {
        let Device { reads, read_bytes, writes, written_bytes, .. } = *row;
        let ended = (reads + writes + row.others).saturating_sub(row.unended);
        table.row([
            devices::name(*device),
            some(reads),
            some_size(read_bytes),
            some(writes),
            some_size(written_bytes),
            time(row.busy_ns),
            of_wall(row.busy_ns, sums.main.total_ns()),
            format!("{:.1}", row.mean_depth()),
            row.requests_ns.checked_div(ended).map_or_else(String::new, time),
            some_time(row.idle_ns),
            some(row.gaps),
            some_time(row.longest_idle_ns),
        ]);
    }
    table.text()
}

fn threads(recording: &Recording, sums: &Sums, rows: usize) -> String {
    let mut table = Table::new().numbers("TIME").numbers("CPU").numbers("RUN QUEUE");
    table = table.numbers("WAITS").numbers("UNEXPLAINED").numbers("PROCESS").numbers("THREAD");
    table = table.words("NAME");
    for (number, account) in sums.threads.iter().take(rows) {
        let Some(thread) = recording.threads.get(*number as usize) else { continue };
        let pid = recording.processes.get(thread.process as usize).map_or(0, |owner| owner.pid);
        let [queue, unexplained] =
            [Kind::RunQueue, Kind::Unexplained].map(|kind| account.wait_ns(kind));
        let waits = account
            .total_ns()
            .saturating_sub(account.cpu_ns())
            .saturating_sub(queue)
            .saturating_sub(unexplained);
        table.row([
            time(account.total_ns()),
            time(account.cpu_ns()),
            some_time(queue),
            some_time(waits),
            some_time(unexplained),
            pid.to_string(),
            thread.tid.to_string(),
            name(recording.name(thread.name)),
        ]);
    }
    let mut text = table.text();
    if let more @ 1.. = sums.threads.len().saturating_sub(rows) as u64 {
        text += &format!("{} (-v shows all)\n", counted(more, "more thread"));
    }
    text
}

/// What the tables lack.
fn notes(recording: &Recording, waits: &Waits, sums: &Sums) -> Vec<String> {
    let mut notes = Vec::new();
    let unrecorded = waits.unrecorded;
    let mut note = |count: u64, noun: &str, rest: &str| {
        if count > 0 {
            notes.push(counted(count, noun) + rest);
        }
    };
    let (calls, kept) = (unrecorded.calls_32_bit, unrecorded.waits);
    note(calls, "system call", " of 32-bit programs: what they waited for is not known");
    note(unrecorded.call_ends, "end", " of system calls whose start has no record");
    note(unrecorded.completions, "end", " of requests of devices whose start has no record");
    note(kept, "wait", " were not kept, since there were too many; their time is a row of its own");
    let is_unnamed =
        |cause: &Cause| matches!(cause.kind, Kind::Open | Kind::Lookup) && cause.file.is_none();
    if sums.causes.iter().any(|(cause, ..)| is_unnamed(cause)) {
        notes.push(
            "the kernel reports no names that open(2), stat(2) and the like look up; a file is named if it \
             is then read or mapped"
                .into(),
        );
    }
    if let all @ 1.. = waits.requests.len() as u64 {
        let own = waits.requests.iter().filter(|request| request.thread.is_some()).count() as u64;
        notes.push(format!(
            "devices: requests of all programs; {} of {} were made by threads recorded here",
            grouped(own),
            grouped(all)
        ));
    }
    let unexplained = sums.main.wait_ns(Kind::Unexplained);
    if unexplained > 0 && recording.lost > 0 {
        notes.push(format!(
            "{} % of the time of the main thread is unexplained, also because {} were lost",
            percent(unexplained, sums.main.total_ns()),
            counted(recording.lost, "record"),
        ));
    }
    notes
}

fn some_time(ns: u64) -> String {
    if ns == 0 { String::new() } else { time(ns) }
}

fn some_size(bytes: u64) -> String {
    if bytes == 0 { String::new() } else { size(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart::host::id::Dev;
    use headstart_faults::recording::{Process, Thread};
    use headstart_faults::waits::{File, Life, Operation, Request, Wait};

    fn recorded() -> (Recording, Waits) {
        let recording = Recording {
            names: vec![b"/lib/a.so".to_vec(), b"make".to_vec()],
            processes: vec![Process { pid: 7, name: 1 }],
            threads: vec![Thread { tid: 7, process: 0, name: 1 }],
            ..Recording::default()
        };
        let wait = |start, end, kind, file| Wait {
            thread: 0,
            start,
            end,
            kind,
            file,
            offset: None,
            call: None,
            runner: None,
            waker: None,
        };
        let request = Request::new(5, Dev::new(4000, 1), 8, 4096, Operation::Read, false);
        let waits = Waits {
            lives: vec![Life { user_ns: 2_000_000, end: 9_000_000, ..Life::default() }],
            files: vec![File { id: None, name: Some(0) }],
            waits: vec![
                wait(0, 4_000_000, Kind::Fault, Some(0)),
                wait(4_000_000, 5_000_000, Kind::Lookup, None),
                wait(5_000_000, 7_000_000, Kind::RunQueue, None),
            ],
            requests: vec![
                Request { complete: Some(1_000_005), thread: Some(0), ..request },
                Request { issue: 2_000_000, ..request },
            ],
            ..Waits::default()
        };
        (recording, waits)
    }

    #[test]
    fn the_parts_are_the_time_and_each_file_device_and_gap_of_knowledge_is_told() {
        let (recording, waits) = recorded();
        let sums = Sums::of(&recording, &waits, 7);
        let text = text(&recording, &waits, &sums, 10);
        let words = |begin: &str| {
            let line = text.lines().find(|line| line.starts_with(begin));
            line.unwrap_or_else(|| panic!("{begin} in {text}"))[begin.len()..]
                .split_whitespace()
                .collect::<Vec<_>>()
        };
        assert_eq!(words("CPU: own code"), ["2.0", "ms", "22.2", "%"]);
        assert_eq!(words("wait: page faults")[..4], ["4.0", "ms", "44.4", "%"]);
        assert_eq!(words("run queue  ")[..4], ["2.0", "ms", "22.2", "%"]);
        assert_eq!(words("all"), ["9.0", "ms", "100.0", "%"]);
        assert!(text.contains("page faults       /lib/a.so"), "{text}");
        assert_eq!(words("4000:1")[..3], ["2", "8.0", "KiB"]);
        assert!(text.contains("1 of 2 were made by threads recorded here"), "{text}");
        assert!(text.contains("no names that open(2), stat(2)"), "{text}");
        assert!(!text.contains("PROCESS"), "a single thread has no table: {text}");
    }

    #[test]
    fn what_is_missing_is_counted_and_what_is_known_has_no_note() {
        let (mut recording, mut waits) = recorded();
        waits.waits.remove(1);
        waits.requests.clear();
        let shown = |recording: &Recording, waits: &Waits| {
            notes(recording, waits, &Sums::of(recording, waits, 7)).join("\n")
        };
        assert!(!shown(&recording, &waits).contains("stat(2)"));
        waits.unrecorded.calls_32_bit = 3;
        waits.waits[0].kind = Kind::Unexplained;
        recording.lost = 5;
        let text = shown(&recording, &waits);
        assert!(text.contains("3 system calls of 32-bit programs"), "{text}");
        assert!(text.contains("also because 5 records were lost"), "{text}");
    }
}

//! `headstart faults FILE`: page faults that trace-cmd or perf recorded.

use super::cells::time;
use super::print::{self, ROWS};
use super::silent;
use super::{FaultsArgs, is_stdout};
use crate::exit::ExitStatus;
use crate::output::{self, Align, JsonPath, Table, counted, grouped};
use crate::results::{self, ResultKind};
use crate::servers;
use anyhow::{Context, bail};
use headstart::host::contents;
use headstart::host::id::InodeId;
use headstart::host::mounts::MountTable;
use headstart::profile::resolve::{ResolveOptions, resolve};
use headstart_faults::capture::files;
use headstart_faults::tables::Tables;
use headstart_import::perf_data::faults::{PerfFaults, count as count_perf};
use headstart_import::perf_data::is_perf;
use headstart_import::trace_dat::faults::{FaultCounts, Sum, count as count_trace};
use headstart_import::trace_dat::is_trace;
use serde::Serialize;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes that tell what a file is.
const BEGIN: u64 = 16;
/// How long names of inodes are looked up.
const PATIENCE: Duration = Duration::from_secs(2);

/// The file of trace-cmd or perf that stands in the place of a command.
pub fn recording(command: &[OsString]) -> Option<&Path> {
    let [file] = command else { return None };
    let is_file = std::fs::metadata(file).is_ok_and(|found| found.is_file());
    let opened = is_file.then(|| File::open(file).ok()).flatten()?;
    let begin = contents::rest_of(opened.take(BEGIN)).ok()?;
    (is_trace(&begin) || is_perf(&begin)).then_some(Path::new(file))
}

/// Counts and prints.
pub fn run(args: &FaultsArgs, file: &Path) -> anyhow::Result<ExitStatus> {
    let is_other = |(_, kind): (&Path, ResultKind)| kind != ResultKind::Json;
    let records = args.duration.is_some() || args.huge || args.waits || args.before.is_some();
    if records || !args.picture.is_empty() || args.results().any(is_other) {
        bail!("Of a file only --json, --force, --verbose and --quiet can be used");
    }
    let shown = || format!("Can't count the page faults in {}", output::shown(file));
    let bytes = contents::bytes(file).with_context(shown)?;
    let rows = if args.verbose { usize::MAX } else { ROWS };
    let (text, document) = if is_trace(&bytes) {
        let counts = count_trace(&bytes).with_context(shown)?;
        // Only files that are shown need names.
        let most = if args.json.is_some() { usize::MAX } else { rows };
        let names = names(counts.files.iter().take(most).map(|(id, _)| *id).collect())?;
        (trace_text(&counts, &names, rows)?, trace_document(file, &counts, &names))
    } else {
        let faults = count_perf(&bytes).with_context(shown)?;
        (perf_text(&faults, rows)?, perf_document(file, &faults))
    };
    let is_on_stdout = args.json.as_deref().is_some_and(is_stdout);
    if let Some(json) = args.json.as_deref() {
        let document = output::json_text(&document)? + "\n";
        if is_on_stdout {
            output::print(|out| out.write_all(document.as_bytes()))?;
        } else {
            results::write(json, &document, ResultKind::Json, args.force)?;
        }
    }
    if !args.quiet && is_on_stdout {
        text.lines().for_each(output::message);
    } else if !args.quiet {
        output::print(|out| out.write_all(text.as_bytes()))?;
    }
    Ok(ExitStatus::Done)
}

type Names = HashMap<InodeId, PathBuf>;

/// Paths of inodes, where this machine has them.
fn names(ids: Vec<InodeId>) -> anyhow::Result<Names> {
    let mounts = MountTable::read()?;
    let silent = servers::silent(&mounts, ids.iter().flat_map(|id| mounts.servers_of(id.dev)));
    let waits = |id: &InodeId| mounts.servers_of(id.dev).iter().any(|dev| silent.contains(dev));
    let ids: Vec<_> = ids.into_iter().filter(|id| !waits(id)).collect();
    let deadline = Some(Instant::now() + PATIENCE);
    let found =
        resolve(&ids, &ResolveOptions { deadline, walk: false, ..ResolveOptions::new(&mounts) });
    Ok(found.files.into_iter().map(|(id, file)| (id, file.path)).collect())
}

fn shown(id: InodeId, names: &Names) -> String {
    names
        .get(&id)
        .map_or_else(|| format!("inode {} of {}", id.ino, id.dev), |path| output::shown(path))
}

/// The figures of the counter first, each on a line as it prints them.
fn trace_text(counts: &FaultCounts, names: &Names, rows: usize) -> io::Result<String> {
    let mut out = Vec::new();
    let FaultCounts { faults, mappings, mapped_pages, kinds, .. } = counts;
    writeln!(out, "page faults:        {}", grouped(faults.count))?;
    writeln!(out, "page fault time:    {:.6} s", faults.time_ns as f64 / 1e9)?;
    let pages = counted(*mapped_pages, "page");
    writeln!(out, "file mapping count: {} ({pages})\n", grouped(*mappings))?;
    let mut table = sums("FAULTS");
    sum_row(&mut table, "that brought pages in", kinds.reads);
    sum_row(&mut table, "that did not", kinds.hits);
    for (power, sum) in counts.latencies.iter().enumerate().filter(|(_, sum)| sum.count > 0) {
        let below = time(1000u64.checked_shl(power as u32).unwrap_or(u64::MAX));
        sum_row(&mut table, &format!("of less than {below}"), *sum);
    }
    table.write(&mut out)?;
    writeln!(out)?;
    let mut table = Table::new([
        ("READS", Align::Right),
        ("TIME", Align::Right),
        ("OTHERS", Align::Right),
        ("TIME", Align::Right),
        ("THREAD", Align::Right),
        ("NAME", Align::Left),
    ]);
    for (tid, name, kinds) in counts.threads.iter().take(rows) {
        table.row([
            grouped(kinds.reads.count),
            time(kinds.reads.time_ns),
            grouped(kinds.hits.count),
            time(kinds.hits.time_ns),
            tid.to_string(),
            output::name(name),
        ]);
    }
    table.write(&mut out)?;
    more(counts.threads.len(), rows, "thread", &mut out)?;
    writeln!(out)?;
    let mut table = Table::new([
        ("FAULTS", Align::Right),
        ("TIME", Align::Right),
        ("PAGES", Align::Right),
        ("OTHER PAGES", Align::Right),
        ("FILE", Align::Left),
    ]);
    for (id, sum) in counts.files.iter().take(rows) {
        table.row([
            grouped(sum.faults.count),
            time(sum.faults.time_ns),
            grouped(sum.by_faults),
            grouped(sum.otherwise),
            shown(*id, names),
        ]);
    }
    table.write(&mut out)?;
    more(counts.files.len(), rows, "file", &mut out)?;
    writeln!(out)?;
    for note in trace_notes(counts) {
        writeln!(out, "{note}")?;
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn sums(heading: &str) -> Table<4> {
    Table::new([
        (heading, Align::Left),
        ("COUNT", Align::Right),
        ("TIME", Align::Right),
        ("LONGEST", Align::Right),
    ])
}

fn sum_row(table: &mut Table<4>, name: &str, sum: Sum) {
    table.row([name.to_owned(), grouped(sum.count), time(sum.time_ns), time(sum.max_ns)]);
}

fn more(all: usize, shown: usize, noun: &str, out: &mut dyn Write) -> io::Result<()> {
    match all.saturating_sub(shown) {
        0 => Ok(()),
        left => writeln!(out, "{} more (-v shows all)", counted(left as u64, noun)),
    }
}

fn trace_notes(counts: &FaultCounts) -> Vec<String> {
    let mut notes =
        vec![format!("trace.dat version {}, {}", counts.version, time(counts.duration_ns))];
    let mut note = |is_so: bool, text: String| notes.extend(is_so.then_some(text));
    let known = if counts.has_symbols {
        "no call of handle_mm_fault is in the file"
    } else {
        "the file does not tell where handle_mm_fault is"
    };
    note(
        counts.faults.count + counts.unended == 0,
        format!(
            "{known}: record as root with trace-cmd record -p function_graph -l handle_mm_fault \
             -e mm_filemap_add_to_page_cache CMD"
        ),
    );
    let clock = counts.odd_clock.as_deref().unwrap_or_default();
    note(
        !clock.is_empty(),
        format!(
            "the clock of the trace is {clock}, which does not count ns: times are in its units"
        ),
    );
    note(!counts.has_mappings, "the file has no mm_filemap_add_to_page_cache events".into());
    for (count, text) in [
        (counts.unended, "calls did not return within the trace"),
        (counts.unbegun, "calls began before the trace, or their begin is lost"),
        (counts.lost, "events were lost when it was recorded"),
        (counts.broken, "pages of the trace are damaged"),
        (counts.others, "traces of other instances were not read"),
    ] {
        note(count > 0, format!("{} {text}", grouped(count)));
    }
    notes
}

fn perf_text(faults: &PerfFaults, rows: usize) -> io::Result<String> {
    let mut out = Vec::new();
    for (name, count) in [
        ("page faults:  ", faults.begun),
        ("minor faults: ", faults.minor),
        ("major faults: ", faults.major),
    ] {
        writeln!(out, "{name}{}", grouped(count))?;
    }
    writeln!(out)?;
    let (tables, unread) = perf_tables(faults);
    print::places(false, &faults.recording, &tables, rows, &mut out)?;
    writeln!(out)?;
    print::owners(&faults.recording, &tables, rows, &mut out)?;
    writeln!(out)?;
    writeln!(out, "perf.data, {}", time(faults.duration_ns))?;
    for (is_so, text) in [
        (
            !faults.has_latencies,
            "page-faults, minor-faults and major-faults together tell how long a fault takes, \
             and which are major",
        ),
        (!faults.has_addresses, "the file has no addresses: perf record -d records them"),
        (faults.is_sampled, "a sample stands for several faults: perf record -c 1 records each"),
    ] {
        if is_so {
            writeln!(out, "{text}")?;
        }
    }
    for (count, text) in [
        (faults.lost, "events were lost when it was recorded"),
        (faults.skipped, "records were not understood"),
        (unread, "files with code have no sections here: other files are at their paths now"),
    ] {
        if count > 0 {
            writeln!(out, "{} {text}", grouped(count))?;
        }
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// The tables, and how many files with code can't be read.
fn perf_tables(faults: &PerfFaults) -> (Tables, u64) {
    match files::root(Path::new("/")) {
        Ok(root) => {
            let silent = silent::of(&faults.recording);
            let (sections, unread) = files::sections_of(&faults.recording, &root, &silent);
            (Tables::of(&faults.recording, &sections), unread)
        }
        Err(_) => (Tables::of(&faults.recording, &HashMap::new()), 0),
    }
}

/// What both kinds of files tell.
#[derive(Serialize)]
struct Document {
    schema: &'static str,
    #[serde(flatten)]
    path: JsonPath,
    duration_ns: u64,
    page_faults: u64,
    page_fault_time_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    major_faults: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_mappings: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mapped_pages: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    threads: Vec<ThreadRow>,
    files: Vec<FileRow>,
    lost_events: u64,
}

#[derive(Serialize)]
struct ThreadRow {
    tid: i32,
    name: String,
    faults: u64,
    time_ns: u64,
    reads: u64,
    reads_time_ns: u64,
}

#[derive(Serialize)]
struct FileRow {
    name: String,
    faults: u64,
    time_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pages_by_faults: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    other_pages: Option<u64>,
}

const SCHEMA: &str = "headstart/faults-file/1";

fn trace_document(file: &Path, counts: &FaultCounts, names: &Names) -> Document {
    let threads = counts.threads.iter().map(|(tid, name, kinds)| ThreadRow {
        tid: *tid,
        name: output::name(name),
        faults: kinds.reads.count + kinds.hits.count,
        time_ns: kinds.time_ns(),
        reads: kinds.reads.count,
        reads_time_ns: kinds.reads.time_ns,
    });
    let files = counts.files.iter().map(|(id, sum)| FileRow {
        name: shown(*id, names),
        faults: sum.faults.count,
        time_ns: sum.faults.time_ns,
        pages_by_faults: Some(sum.by_faults),
        other_pages: Some(sum.otherwise),
    });
    Document {
        schema: SCHEMA,
        path: file.into(),
        duration_ns: counts.duration_ns,
        page_faults: counts.faults.count,
        page_fault_time_ns: Some(counts.faults.time_ns),
        major_faults: None,
        file_mappings: Some(counts.mappings),
        mapped_pages: Some(counts.mapped_pages),
        threads: threads.collect(),
        files: files.collect(),
        lost_events: counts.lost,
    }
}

fn perf_document(file: &Path, faults: &PerfFaults) -> Document {
    let mut files: HashMap<u32, (u64, u64)> = HashMap::new();
    for fault in &faults.recording.faults {
        if let Some(mapping) = faults.recording.mapping(fault.mapping) {
            let (count, time) = files.entry(mapping.name).or_default();
            *count += 1;
            *time = time.saturating_add(fault.latency);
        }
    }
    let row = |(name, (faults_here, time_ns)): (u32, (u64, u64))| FileRow {
        name: output::name(faults.recording.name(name)),
        faults: faults_here,
        time_ns,
        pages_by_faults: None,
        other_pages: None,
    };
    let mut files: Vec<_> = files.into_iter().map(row).collect();
    files.sort_by(|a, b| (b.time_ns, b.faults, &a.name).cmp(&(a.time_ns, a.faults, &b.name)));
    let latencies = faults.recording.faults.iter().map(|fault| fault.latency);
    let time = latencies.fold(0, u64::saturating_add);
    Document {
        schema: SCHEMA,
        path: file.into(),
        duration_ns: faults.duration_ns,
        page_faults: faults.begun.max(faults.minor.saturating_add(faults.major)),
        page_fault_time_ns: faults.has_latencies.then_some(time),
        major_faults: Some(faults.major),
        file_mappings: None,
        mapped_pages: None,
        threads: Vec::new(),
        files,
        lost_events: faults.lost,
    }
}

//! Page faults in a file of trace-cmd: calls of `handle_mm_fault` in the function graph, and what
//! they brought into the page cache. The first three figures are those of Steven Rostedt's
//! `cnt-page-faults`; the others say what is behind them.

use super::events::{Events, TraceEvent};
use super::layout::TraceDat;
use crate::accesses::MOST_TIMES;
use crate::error::ImportError;
use headstart::host::id::InodeId;
use headstart::trace::EventKind;
use std::collections::HashMap;

/// What an entry of a table takes in memory, and what tables may take in any case.
const ENTRY_BYTES: usize = 128;
const SMALL: usize = 1 << 16;

/// Faults, and the time in them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sum {
    /// How many.
    pub count: u64,
    /// In ns.
    pub time_ns: u64,
    /// The longest, in ns.
    pub max_ns: u64,
}

impl Sum {
    fn add(&mut self, ns: u64) {
        self.count += 1;
        self.time_ns = self.time_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }
}

/// What a thread's faults were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kinds {
    /// Those that brought no page into the page cache.
    pub hits: Sum,
    /// Those that did, and so began to read.
    pub reads: Sum,
}

impl Kinds {
    /// Time in all of them, in ns.
    pub fn time_ns(&self) -> u64 {
        self.hits.time_ns.saturating_add(self.reads.time_ns)
    }
}

/// What was brought in of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileSum {
    /// Pages brought in by faults.
    pub by_faults: u64,
    /// By anything else: read(2), readahead, other threads.
    pub otherwise: u64,
    /// The faults that began with this file.
    pub faults: Sum,
}

/// What a file of trace-cmd tells of page faults.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FaultCounts {
    /// Of which version it is.
    pub version: u32,
    /// Returns from `handle_mm_fault`, and the time in the calls.
    pub faults: Sum,
    /// Additions to the page cache (`mm_filemap_add_to_page_cache`).
    pub mappings: u64,
    /// Their pages: a large folio is one addition.
    pub mapped_pages: u64,
    /// The faults by what they did.
    pub kinds: Kinds,
    /// By thread, the longest time first, with their names where the file has them.
    pub threads: Vec<(i32, Vec<u8>, Kinds)>,
    /// By file, the longest time first, then the most pages.
    pub files: Vec<(InodeId, FileSum)>,
    /// Faults of this many ns or more, in powers of two from 1 µs on: how many took less than each
    /// and not less than the one before, and their time.
    pub latencies: Vec<Sum>,
    /// Calls without their return, as at the end of the trace.
    pub unended: u64,
    /// Returns without a call, whose additions are not known.
    pub unbegun: u64,
    /// From the first event to the last, in ns.
    pub duration_ns: u64,
    /// Events that were lost.
    pub lost: u64,
    /// Damaged pages of the trace.
    pub broken: u64,
    /// Traces of other instances, which are not read.
    pub others: u64,
    /// The clock of the trace, if it does not count ns: then times are in its units.
    pub odd_clock: Option<String>,
    /// Whether the file tells where `handle_mm_fault` is; without it no call is known to be one.
    pub has_symbols: bool,
    /// Whether it describes additions to the page cache.
    pub has_mappings: bool,
}

/// A fault that has begun.
#[derive(Clone, Copy, Debug)]
struct Begun {
    time: u64,
    /// The first file of which it brought a page in.
    file: Option<InodeId>,
}

/// Counts the faults in a file.
///
/// # Errors
/// The file is damaged.
pub fn count(bytes: &[u8]) -> Result<FaultCounts, ImportError> {
    let trace = TraceDat::parse(bytes)?;
    let mut events = Events::of(&trace)?;
    let mut out = FaultCounts {
        version: trace.version,
        has_symbols: trace.description.fault_function.is_some(),
        has_mappings: events.knows(EventKind::Insert),
        others: trace.others,
        odd_clock: trace.odd_clock.clone(),
        ..FaultCounts::default()
    };
    let is_fault = |function: u64| {
        let place = trace.description.fault_function.as_ref();
        place.is_some_and(|place| place.contains(&function))
    };
    let kept = trace.description.kept_bytes();
    let most = SMALL + (MOST_TIMES as usize * bytes.len()).saturating_sub(kept);
    let mut begun: HashMap<i32, Begun> = HashMap::new();
    let mut threads: HashMap<i32, Kinds> = HashMap::new();
    let mut files: HashMap<InodeId, FileSum> = HashMap::new();
    let (mut first, mut last) = (None, 0);
    for event in &mut events {
        let time = match event {
            TraceEvent::Page(event) => event.time,
            TraceEvent::Enters { time, .. } | TraceEvent::Leaves { time, .. } => time,
        };
        first.get_or_insert(time);
        last = time.max(last);
        match event {
            TraceEvent::Page(event) if event.kind == EventKind::Insert => {
                out.mappings += 1;
                out.mapped_pages = out.mapped_pages.saturating_add(event.pages.count());
                let file = files.entry(event.id).or_default();
                if let Some(begun) = begun.get_mut(&event.tid) {
                    begun.file.get_or_insert(event.id);
                    file.by_faults = file.by_faults.saturating_add(event.pages.count());
                } else {
                    file.otherwise = file.otherwise.saturating_add(event.pages.count());
                }
            }
            TraceEvent::Enters { tid, function, time } if is_fault(function) => {
                let before = begun.insert(tid, Begun { time, file: None });
                out.unended += u64::from(before.is_some());
            }
            TraceEvent::Leaves { tid, function, time, took } if is_fault(function) => {
                let begun = begun.remove(&tid);
                out.unbegun += u64::from(begun.is_none());
                let since = begun.map_or(time, |begun| begun.time);
                let took = took.unwrap_or_else(|| time.saturating_sub(since));
                let file = begun.and_then(|begun| begun.file);
                out.faults.add(took);
                bucket(&mut out.latencies, took).add(took);
                for kinds in [&mut out.kinds, threads.entry(tid).or_default()] {
                    let sum = if file.is_some() { &mut kinds.reads } else { &mut kinds.hits };
                    sum.add(took);
                }
                if let Some(file) = file {
                    files.entry(file).or_default().faults.add(took);
                }
            }
            _ => {}
        }
        let entries = begun.len() + threads.len() + files.len();
        if entries * ENTRY_BYTES > most {
            return Err(ImportError::TooMuch(MOST_TIMES));
        }
    }
    out.unended += begun.len() as u64;
    out.duration_ns = last.saturating_sub(first.unwrap_or(last));
    out.lost = trace.lost.max(events.lost());
    out.broken = events.broken();
    let named = trace.description.named_threads().filter(|(tid, _)| threads.contains_key(tid));
    let names: HashMap<i32, &[u8]> = named.collect();
    let name = |tid| names.get(&tid).map(|name| name.to_vec()).unwrap_or_default();
    out.threads = threads.into_iter().map(|(tid, kinds)| (tid, name(tid), kinds)).collect();
    out.threads.sort_by_key(|(tid, _, kinds)| (std::cmp::Reverse(kinds.time_ns()), *tid));
    out.files = files.into_iter().collect();
    out.files.sort_by_key(|(id, sum)| {
        let pages = sum.by_faults.saturating_add(sum.otherwise);
        (std::cmp::Reverse((sum.faults.time_ns, pages)), *id)
    });
    Ok(out)
}

/// The sum of faults that take about as long: the first of those below 1 µs.
fn bucket(latencies: &mut Vec<Sum>, ns: u64) -> &mut Sum {
    let at = (ns / 1000).checked_ilog2().map_or(0, |power| power as usize + 1);
    if latencies.len() <= at {
        latencies.resize(at + 1, Sum::default());
    }
    &mut latencies[at]
}

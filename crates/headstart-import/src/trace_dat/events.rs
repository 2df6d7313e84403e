//! The events of all CPUs in the order of time.

use super::chunks::Chunks;
use super::layout::TraceDat;
use crate::error::ImportError;
use headstart::trace::decode::Decoder;
use headstart::trace::format::{EventFormat, Field, FormatError, PageHeader};
use headstart::trace::format::{parse_event, parse_page_header};
use headstart::trace::page::{Lost, records};
use headstart::trace::{Event, EventKind};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What the unpacked chunks of all CPUs may take, for each byte of the file and in any case.
const MOST_TIMES: usize = 4;
const SMALL: usize = 1 << 18;

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TraceEvent {
    /// Of the page cache.
    Page(Event),
    /// A thread calls a function.
    Enters { tid: i32, function: u64, time: u64 },
    /// It returns from one; how long that took, in ns, if the event tells.
    Leaves { tid: i32, function: u64, time: u64, took: Option<u64> },
}

impl TraceEvent {
    fn at(self, time: u64) -> Timed {
        Timed { time, event: self }
    }
}

#[derive(Clone, Copy, Debug)]
struct Timed {
    time: u64,
    event: TraceEvent,
}

/// The fields of an event of the function graph.
#[derive(Clone, Debug)]
struct Graph {
    id: u16,
    kind: Field,
    tid: Field,
    function: Field,
    /// Of a return: when the function was called, and when it returned.
    times: Option<(Field, Field)>,
    returns: bool,
}

/// What is left of one CPU.
#[derive(Debug)]
struct Cpu<'a> {
    chunks: Chunks<'a>,
    chunk: Cow<'a, [u8]>,
    at: usize,
    events: VecDeque<Timed>,
}

/// The events of a file.
#[derive(Debug)]
pub(super) struct Events<'a> {
    header: PageHeader,
    page_size: usize,
    decoder: Option<Decoder>,
    graphs: Vec<Graph>,
    cpus: Vec<Cpu<'a>>,
    next: BinaryHeap<Reverse<(u64, usize)>>,
    /// What chunks may take.
    limit: usize,
    unpacked: usize,
    lost: u64,
    broken: u64,
}

impl<'a> Events<'a> {
    /// Those of a file.
    pub(super) fn of(trace: &TraceDat<'a>) -> Result<Self, ImportError> {
        let unknown = |error: FormatError| ImportError::Unsupported(error.to_string());
        let description = &trace.description;
        let header = parse_page_header(&description.header_page).map_err(unknown)?;
        let formats = || description.formats.iter().map(String::as_str);
        let decoder = match Decoder::new(&description.header_page, formats(), trace.page_size) {
            Ok(decoder) => Some(decoder),
            // There are only events of functions.
            Err(FormatError::Missing("common_type")) => None,
            Err(error) => return Err(unknown(error)),
        };
        let graphs = formats().filter_map(|text| graph(&parse_event(text).ok()?)).collect();
        let page_size = usize::try_from(trace.page_size).unwrap_or(0);
        if !(512..=1 << 20).contains(&page_size) {
            let text = format!("Pages of the trace have {page_size} bytes, as no kernel has");
            return Err(ImportError::Unsupported(text));
        }
        let cpu = |chunks: &Chunks<'a>| Cpu {
            chunks: chunks.clone(),
            chunk: Cow::default(),
            at: 0,
            events: VecDeque::new(),
        };
        let mut out = Self {
            header,
            page_size,
            decoder,
            graphs,
            cpus: trace.cpus.iter().map(cpu).collect(),
            next: BinaryHeap::new(),
            limit: SMALL + trace.bytes.saturating_mul(MOST_TIMES),
            unpacked: 0,
            lost: 0,
            broken: 0,
        };
        for at in 0..out.cpus.len() {
            out.line_up(at);
        }
        Ok(out)
    }

    /// Whether the file describes events of this kind.
    pub(super) fn knows(&self, kind: EventKind) -> bool {
        self.decoder.as_ref().is_some_and(|decoder| decoder.knows(kind))
    }

    /// Events that were lost before pages that were read.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Pages and chunks that are damaged.
    pub(super) fn broken(&self) -> u64 {
        self.broken
    }

    /// Decodes pages of a CPU until there is an event, and enters that.
    fn line_up(&mut self, number: usize) {
        let Some(cpu) = self.cpus.get_mut(number) else { return };
        while cpu.events.is_empty() {
            let rest = cpu.chunk.get(cpu.at..).unwrap_or_default();
            if rest.is_empty() {
                self.unpacked -= cpu.unpacked();
                cpu.chunk = Cow::default();
                cpu.at = 0;
                match cpu.chunks.next(self.limit.saturating_sub(self.unpacked)) {
                    None => return,
                    Some(Ok(chunk)) => {
                        cpu.chunk = chunk;
                        self.unpacked += cpu.unpacked();
                    }
                    Some(Err(_)) => self.broken += 1,
                }
                continue;
            }
            let page = &rest[..rest.len().min(self.page_size)];
            cpu.at += page.len();
            let (decoder, graphs, events) = (&self.decoder, &self.graphs, &mut cpu.events);
            let end = records(page, &self.header, |time, data| {
                let known = decoder.as_ref().and_then(|decoder| decoder.record(time, data));
                let event = known.map(TraceEvent::Page).or_else(|| of_graph(graphs, time, data));
                events.extend(event.map(|event| event.at(time)));
            });
            match end {
                Ok(Lost::None) => {}
                Ok(Lost::Unknown) => self.lost = self.lost.saturating_add(1),
                Ok(Lost::Count(lost)) => self.lost = self.lost.saturating_add(lost),
                Err(_) => self.broken += 1,
            }
        }
        self.next.extend(cpu.events.front().map(|event| Reverse((event.time, number))));
    }
}

impl Cpu<'_> {
    /// The memory of its chunk, if that was unpacked.
    fn unpacked(&self) -> usize {
        if matches!(self.chunk, Cow::Owned(_)) { self.chunk.len() } else { 0 }
    }
}

impl Iterator for Events<'_> {
    type Item = TraceEvent;

    fn next(&mut self) -> Option<Self::Item> {
        let Reverse((_, number)) = self.next.pop()?;
        let event = self.cpus.get_mut(number)?.events.pop_front()?;
        self.line_up(number);
        Some(event.event)
    }
}

fn graph(format: &EventFormat) -> Option<Graph> {
    let returns = match &format.name[..] {
        "funcgraph_entry" | "funcgraph_retaddr_entry" => false,
        "funcgraph_exit" => true,
        _ => return None,
    };
    let field = |name| format.field(name).cloned();
    Some(Graph {
        id: format.id,
        kind: field("common_type")?,
        tid: field("common_pid")?,
        function: field("func")?,
        times: field("calltime").zip(field("rettime")),
        returns,
    })
}

fn of_graph(graphs: &[Graph], time: u64, data: &[u8]) -> Option<TraceEvent> {
    let is_it = |graph: &&Graph| graph.kind.read(data) == Some(graph.id.into());
    let graph = graphs.iter().find(is_it)?;
    let tid = graph.tid.read(data)? as u32 as i32;
    let function = graph.function.read(data)?;
    if !graph.returns {
        return Some(TraceEvent::Enters { tid, function, time });
    }
    let took = graph
        .times
        .as_ref()
        .and_then(|(call, back)| back.read(data)?.checked_sub(call.read(data)?));
    Some(TraceEvent::Leaves { tid, function, time, took })
}

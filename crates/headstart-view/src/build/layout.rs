//! Which lanes and ranges the accesses of recordings have. The recordings have places with equal
//! numbers, so that they are drawn on the same axes.

use super::accesses::{Access, Accesses, kind};
use crate::picture::{Axis, Band, Column, Frame, MOST, Marks, Table, Text, Unit};
use crate::units::{amount, grouped};
use std::collections::{HashMap, HashSet};

/// Lanes with a name of their own; further ones share the last.
const LANES: usize = 4000;
/// Subjects of a view.
pub(super) const SUBJECTS: usize = 400;
/// Rows of the table.
const ROWS: usize = 30;
/// Times are kept in units of so many ns.
const TIME_SCALE: u64 = 100;

/// No page is larger.
const LARGEST_PAGE: u64 = 1 << 34;

/// The columns.
pub(super) mod column {
    pub const TIME: usize = 0;
    pub const TOOK: usize = 1;
    pub const PLACE: usize = 2;
    pub const OFFSET: usize = 3;
    pub const KIND: usize = 4;
    pub const OWNER: usize = 5;
    pub const PART: usize = 6;
    pub const DIRECTION: usize = 7;
}

/// Something with accesses: a place or a mapping.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// Its number in the recordings; `None` for all that share the last lane.
    pub number: Option<u32>,
    pub first_ns: u64,
    pub low: u64,
    /// Behind its last page.
    pub high: u64,
    pub count: u64,
    pub waited: u64,
    pub took_ns: u64,
    pub backwards: u64,
    /// How many places or mappings share its lane.
    pub joined: u64,
}

/// Where all is.
#[derive(Debug)]
pub(super) struct Layout {
    /// In the order of first accesses, as the lanes are.
    pub places: Vec<Seen>,
    /// Likewise.
    pub parts: Vec<Seen>,
    place_lanes: HashMap<u32, u64>,
    part_lanes: HashMap<u32, u64>,
    /// The end of all.
    pub end_ns: u64,
    page: u64,
    skipped: u64,
}

impl Layout {
    pub fn of(all: &[&Accesses]) -> Self {
        let page = all.first().map_or(1, |first| first.page_size.clamp(1, LARGEST_PAGE));
        let (mut places, mut parts) = (HashMap::new(), HashMap::new());
        let mut end_ns = all.iter().map(|one| one.length_ns).max().unwrap_or(0);
        let mut skipped = 0;
        for accesses in all {
            let mut last = HashMap::new();
            for event in &accesses.events {
                let Some(event) = &bounded(accesses, event) else {
                    skipped += 1;
                    continue;
                };
                end_ns = end_ns.max(event.time_ns.saturating_add(event.latency_ns));
                let backwards = is_backwards(&mut last, event, page);
                for (number, seen) in [(event.place, &mut places), (event.part, &mut parts)] {
                    seen.entry(number)
                        .or_insert_with(|| Seen::at(number, event))
                        .add(event, backwards, page);
                }
            }
        }
        let (places, place_lanes) = lanes(places);
        let (parts, part_lanes) = lanes(parts);
        Self { places, parts, place_lanes, part_lanes, end_ns, page, skipped }
    }

    /// The rows of a recording.
    pub fn frame(&self, accesses: &Accesses) -> Frame {
        let known: Vec<Access> =
            accesses.events.iter().filter_map(|event| bounded(accesses, event)).collect();
        let values = |of: &dyn Fn(&Access) -> u64| known.iter().map(of).collect::<Vec<u64>>();
        let mut last = HashMap::new();
        let directions = known
            .iter()
            .map(|event| kind::direction(is_backwards(&mut last, event, self.page), event.how))
            .collect();
        let lane =
            |lanes: &HashMap<u32, u64>, number: u32| lanes.get(&number).copied().unwrap_or(0);
        let name = |seen: &Seen, named: &dyn Fn(usize) -> Option<Text>| {
            let own = seen.number.and_then(|number| named(number as usize));
            own.unwrap_or_else(|| "all others".into())
        };
        let place = |at: usize| accesses.places.get(at).map(|place| (&place.name).into());
        let part = |at: usize| accesses.parts.get(at).map(Text::from);
        let names = |seen: &[Seen], named: &dyn Fn(usize) -> Option<Text>| {
            seen.iter().map(|seen| name(seen, named)).collect::<Vec<_>>()
        };
        Frame::new(vec![
            Column::numbers(
                "at",
                Unit::Ns,
                TIME_SCALE,
                values(&|event| event.time_ns / TIME_SCALE),
            ),
            Column::numbers("took", Unit::Ns, 1, values(&|event| event.latency_ns)),
            Column::labels(
                "file",
                names(&self.places, &place),
                values(&|event| lane(&self.place_lanes, event.place)),
            ),
            Column::numbers(
                "offset",
                Unit::Bytes,
                self.page,
                values(&|event| event.offset / self.page),
            ),
            Column {
                unit: Unit::Kind,
                ..Column::numbers("", Unit::Count, 1, values(&|event| kind::of(event.how)))
            },
            Column::labels(
                "thread",
                accesses.owners.iter().map(Text::from).collect(),
                values(&|event| u64::from(event.owner)),
            ),
            Column::labels(
                "mapping",
                names(&self.parts, &part),
                values(&|event| lane(&self.part_lanes, event.part)),
            ),
            Column { unit: Unit::Kind, ..Column::numbers("", Unit::Count, 1, directions) },
        ])
    }

    /// The time of all.
    pub fn time(&self) -> Axis {
        Axis::new("time from the start", Unit::Ns, 0.0, self.end_ns as f64)
    }

    /// Marks over time.
    pub fn marks(&self, frame: usize, y: usize, only: Option<(usize, u64)>) -> Marks {
        let (x, length) = (Some(column::TIME), Some(column::TOOK));
        Marks { frame, x, length, y, kind: column::KIND, only }
    }

    /// Those that took longest, each with its lane.
    pub fn longest(seen: &[Seen]) -> Vec<(u64, &Seen)> {
        let mut order = by_time(seen);
        order.truncate(SUBJECTS);
        order
    }

    /// How many there are.
    pub fn count(seen: &[Seen]) -> u64 {
        seen.iter().map(|one| one.joined).sum()
    }

    /// How many of those with this name [`Self::longest`] has, if not all.
    pub fn cut_in_words(seen: &[Seen], name: &str) -> String {
        let all = Self::count(seen);
        match all > SUBJECTS as u64 {
            true => format!(
                " Of {} {name}, the {SUBJECTS} that took longest can be shown.",
                grouped(all as f64, 0)
            ),
            false => String::new(),
        }
    }

    /// The places that took longest, as figures.
    pub fn table(&self, accesses: &Accesses) -> Table {
        let name = |seen: &Seen| {
            accesses.places.get(seen.number? as usize).map(|place| Text::from(&place.name))
        };
        let row = |(_, seen): (u64, &Seen)| {
            let time = amount(Unit::Ns, seen.took_ns as f64);
            let counts = [seen.count, seen.waited].map(|n| grouped(n as f64, 0));
            let cells = [counts[0].clone(), counts[1].clone(), time];
            [name(seen).unwrap_or_default()].into_iter().chain(cells.map(Text::from)).collect()
        };
        let rows = by_time(&self.places).into_iter().map(row);
        let head = ["file", &accesses.called, "waited", "time"];
        let mut table = Table::new("Files, those that took longest first", &head, rows, ROWS);
        let unnamed = self.places.iter().filter(|one| one.number.is_none());
        table.skipped += unnamed.map(|one| one.joined).sum::<u64>();
        table
    }

    /// What is not drawn.
    pub fn skipped_in_words(&self, called: &str) -> Option<Text> {
        let number = grouped(self.skipped as f64, 0);
        (self.skipped > 0)
            .then(|| format!("{number} {called} have no place and are not drawn.").into())
    }
}

impl Seen {
    fn at(number: u32, event: &Access) -> Self {
        Self {
            number: Some(number),
            first_ns: event.time_ns,
            low: event.offset,
            high: event.offset,
            count: 0,
            waited: 0,
            took_ns: 0,
            backwards: 0,
            joined: 1,
        }
    }

    fn add(&mut self, event: &Access, backwards: bool, page: u64) {
        let begin = event.offset / page * page;
        self.first_ns = self.first_ns.min(event.time_ns);
        self.low = self.low.min(begin);
        self.high = self.high.max(begin.saturating_add(page));
        self.count += 1;
        self.waited += u64::from(event.how.is_wait());
        self.backwards += u64::from(backwards);
        self.took_ns = self.took_ns.saturating_add(event.latency_ns);
    }

    /// Its range from `low` on.
    pub fn axis(&self, low: u64) -> Axis {
        Axis::new("offset", Unit::Bytes, low as f64, self.high as f64)
    }

    /// In words.
    pub fn summary(&self, called: &str) -> String {
        format!(
            "{} {called}, {} of them waited; {} in all",
            grouped(self.count as f64, 0),
            grouped(self.waited as f64, 0),
            amount(Unit::Ns, self.took_ns as f64)
        )
    }
}

/// The parts of a place that lie within an axis.
pub(super) fn bands(bands: &[(u64, u64, String)], axis: &Axis) -> Vec<Band> {
    let mut sorted: Vec<_> = bands.iter().collect();
    sorted.sort_by_key(|(from, ..)| *from);
    let mut end = axis.low;
    let mut out = Vec::new();
    for (from, to, name) in sorted {
        let (from, to) = ((*from as f64).max(end), (*to as f64).min(axis.high));
        if from < to {
            out.push(Band { from, to, name: name.into(), kind: None });
            end = to;
        }
    }
    out
}

/// An access whose numbers name something, with times and offsets that a picture can have.
fn bounded(accesses: &Accesses, event: &Access) -> Option<Access> {
    let is_in = |number: u32, length: usize| (number as usize) < length;
    let is_known = is_in(event.place, accesses.places.len())
        && is_in(event.part, accesses.parts.len())
        && is_in(event.owner, accesses.owners.len());
    let time_ns = event.time_ns.min(MOST);
    is_known.then_some(Access {
        time_ns,
        latency_ns: event.latency_ns.min(MOST - time_ns),
        offset: event.offset.min(MOST - LARGEST_PAGE),
        ..*event
    })
}

/// Whether an access is before the last one of the same mapping.
fn is_backwards(last: &mut HashMap<u32, u64>, event: &Access, page: u64) -> bool {
    let here = event.offset / page;
    last.insert(event.part, here).is_some_and(|before| here < before)
}

/// Those with a name of their own by the time that they took, each with its lane.
fn by_time(seen: &[Seen]) -> Vec<(u64, &Seen)> {
    let mut order: Vec<_> = (0..).zip(seen).filter(|(_, one)| one.number.is_some()).collect();
    order.sort_by_key(|(_, one)| std::cmp::Reverse((one.took_ns, one.count)));
    order
}

/// Those that are there in the order of their first accesses, and the lanes of all. If these are too
/// many, those that took least share the last one.
fn lanes(seen: HashMap<u32, Seen>) -> (Vec<Seen>, HashMap<u32, u64>) {
    let mut all: Vec<Seen> = seen.into_values().collect();
    all.sort_by_key(|seen| (seen.first_ns, seen.number));
    let others: HashSet<u64> = by_time(&all).into_iter().skip(LANES).map(|(at, _)| at).collect();
    let (mut kept, mut numbers) = (Vec::new(), HashMap::new());
    let mut joined: Option<Seen> = None;
    let last = (all.len() - others.len()) as u64;
    for (at, seen) in (0..).zip(all) {
        let Some(number) = seen.number else { continue };
        if !others.contains(&at) {
            numbers.insert(number, kept.len() as u64);
            kept.push(seen);
            continue;
        }
        numbers.insert(number, last);
        match &mut joined {
            Some(joined) => joined.joined += 1,
            None => joined = Some(Seen { number: None, ..seen }),
        }
    }
    kept.extend(joined);
    (kept, numbers)
}

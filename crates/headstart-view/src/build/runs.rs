//! Runs of a benchmark: every run over its number, and the spread of each state.
//!
//! The runs show what a summary hides (drift, a slow first run, two modes); the spread shows what
//! runs hide.

use crate::picture::{
    Axis, Band, Colour, Column, Flow, Frame, Kind, Lanes, Mark, Marks, Panel, Picture, Series,
    Subject, Table, Text, Unit, View, Y,
};
use crate::units::{amount, decimals_for, grouped};

/// The runs of one state (cold, prefetched, hot …).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct State<'a> {
    /// Its name.
    pub name: &'a str,
    /// The duration of every run in milliseconds, in the order of the rounds;
    /// NaN where a run failed.
    pub millis: &'a [f64],
    /// An interval of the median of these, in milliseconds, where there is one.
    pub interval: Option<Interval>,
}

/// An interval that holds the true median with some confidence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// How often such an interval holds it: 0.95 for 95 %.
    pub confidence: f64,
    /// Whether that is as much as was requested.
    pub is_confident: bool,
}

/// Wider spans than this factor are drawn on a logarithmic scale.
const LOG_FROM: f64 = 20.0;
/// Smaller values are noise of a start time, and would be drawn decades away.
const LOG_TO_NS: f64 = 1.0;
const NS: f64 = 1e6;

/// Kinds before those of the states.
const RANGE: u64 = 0;
const INTERVAL: u64 = 1;
const HALF: u64 = 2;
const STATES: usize = 3;

fn kinds(states: &[State]) -> Vec<Kind> {
    use Colour::{Amber, Blue, Green, Grey, Pink, Red, Sky};
    let looks = [
        (Red, Mark::Dot),
        (Blue, Mark::Up),
        (Green, Mark::Down),
        (Amber, Mark::Dot),
        (Pink, Mark::Up),
        (Sky, Mark::Down),
    ];
    let state =
        |(state, (colour, mark)): (&State, (Colour, Mark))| Kind::new(state.name, colour, mark);
    [
        Kind::new("shortest to longest", Grey, Mark::Outline),
        Kind::new("95 % interval of the median", Sky, Mark::Hatched),
        Kind::new("middle half", Blue, Mark::Plain),
    ]
    .into_iter()
    .chain(states.iter().zip(looks.into_iter().cycle()).map(state))
    .collect()
}

/// The picture of a benchmark.
pub fn picture(title: &str, states: &[State]) -> Picture {
    let durations = durations(states);
    let (runs, spread) = (by_number(states, &durations), by_state(&durations));
    let medians: Vec<String> = states.iter().map(|state| in_words(state)).collect();
    Picture {
        title: title.into(),
        summary: vec![format!("Medians: {}.", medians.join("; ")).into()],
        kinds: kinds(states),
        frames: vec![run_rows(states), spread_rows(states)],
        views: vec![runs, spread],
        tables: vec![table(states)],
    }
}

fn is_time(ms: &f64) -> bool {
    ms.is_finite() && *ms >= 0.0
}

/// The durations in ascending order.
fn times(state: &State) -> Vec<f64> {
    let mut times: Vec<f64> = state.millis.iter().copied().filter(is_time).collect();
    times.sort_by(f64::total_cmp);
    times
}

/// An axis for all of the durations. It begins at 0 unless they lie so close together that this
/// would hide how they differ.
fn durations(states: &[State]) -> Axis {
    let all: Vec<f64> = states.iter().flat_map(times).map(ns).map(|ns| ns as f64).collect();
    let min = all.iter().copied().fold(f64::INFINITY, f64::min);
    let max = all.iter().copied().fold(0.0, f64::max);
    let axis = |low, high| Axis::new("duration", Unit::Ns, low, high);
    if min >= LOG_TO_NS && max / min > LOG_FROM {
        let pad = (max / min).powf(0.04);
        return Axis { log: true, ..axis(min / pad, max * pad) };
    }
    let low =
        if min > 0.6 * max && min < max { min - 0.3 * (max - min).max(0.02 * max) } else { 0.0 };
    axis(low, max + 0.06 * (max - low))
}

fn ns(ms: f64) -> u64 {
    // So long that none is longer; an axis ends a little behind its last value.
    ((ms * NS).round() as u64).min(crate::picture::MOST / 4)
}

fn columns(states: &[State], rows: &[[u64; 5]]) -> Frame {
    let values = |at: usize| rows.iter().map(|row| row[at]).collect::<Vec<u64>>();
    Frame::new(vec![
        Column::numbers("run", Unit::Count, 1, values(0)),
        Column::numbers("duration", Unit::Ns, 1, values(1)),
        Column::labels("state", states.iter().map(|state| state.name.into()).collect(), values(2)),
        Column { unit: Unit::Kind, ..Column::numbers("", Unit::Count, 1, values(3)) },
        Column::numbers("to the end", Unit::Ns, 1, values(4)),
    ])
}

/// Number, duration, state, kind, width.
fn each_run(states: &[State]) -> Vec<[u64; 5]> {
    let of_state = |(number, state): (u64, &State)| {
        let millis = state.millis.to_vec();
        let runs = (1..).zip(millis).filter(|(_, ms)| is_time(ms));
        runs.map(move |(run, ms)| [run, ns(ms), number, STATES as u64 + number, 0])
            .collect::<Vec<_>>()
    };
    (0..).zip(states).flat_map(of_state).collect()
}

fn run_rows(states: &[State]) -> Frame {
    let mut rows = each_run(states);
    rows.sort_unstable();
    columns(states, &rows)
}

fn spread_rows(states: &[State]) -> Frame {
    let mut rows = each_run(states);
    for (number, state) in (0..).zip(states) {
        let times = times(state);
        let at = |share| quantile(&times, share).unwrap_or(0.0);
        let bar = |low: f64, high: f64, kind| {
            [0, ns(low), number, kind, ns(high) - ns(low).min(ns(high))]
        };
        if let (Some(first), Some(last)) = (times.first(), times.last()) {
            rows.push(bar(*first, *last, RANGE));
        }
        // Of fewer than five runs a box would show nothing but the runs.
        if times.len() >= 5 {
            rows.push(bar(at(0.25), at(0.75), HALF));
        }
        rows.extend(interval(state).map(|interval| bar(interval.low, interval.high, INTERVAL)));
    }
    rows.sort_unstable_by_key(|row| (row[1], row[3]));
    columns(states, &rows)
}

fn by_number(states: &[State], durations: &Axis) -> View {
    let rounds = states.iter().map(|state| state.millis.len()).max().unwrap_or(0);
    let title = if durations.log { "duration, logarithmic scale" } else { "duration" };
    let mut panel = Panel::new(title, Y::Value(durations.clone()));
    panel.marks = Some(Marks { frame: 0, x: Some(0), length: None, y: 1, kind: 3, only: None });
    let kept = |state: &State| interval(state).filter(|i| i.low < i.high);
    let band = |(number, state): (usize, &State)| {
        let Interval { low, high, .. } = kept(state)?;
        let (from, to) = (ns(low) as f64, ns(high) as f64);
        Some(Band { from, to, name: "".into(), kind: Some(STATES + number) })
    };
    panel.bands = states.iter().enumerate().filter_map(band).collect();
    let line = |(number, state): (usize, &State)| {
        let times = times(state);
        let median = ns(quantile(&times, 0.5)?) as f64;
        let total = amount(Unit::Ns, median).into();
        Some(Series { kind: STATES + number, total, values: vec![median; rounds] })
    };
    let series: Vec<Series> = states.iter().enumerate().filter_map(line).collect();
    panel.flow = Some(Flow { from: 0.5, width: 1.0, stacked: false, series });
    View {
        title: "Runs".into(),
        help:
            "A mark is a run. A line is the median of a state, the area around it the interval in \
               which the median lies."
                .into(),
        x: Axis::new("run", Unit::Count, 0.0, rounds as f64 + 1.0),
        subjects: vec![Subject {
            name: "".into(),
            summary: "".into(),
            x_high: None,
            panels: vec![panel],
        }],
    }
}

fn by_state(durations: &Axis) -> View {
    let mut panel = Panel::new("", Y::Lanes(Lanes { frame: 1, column: 2, all: true }));
    panel.marks = Some(Marks { frame: 1, x: Some(1), length: Some(4), y: 2, kind: 3, only: None });
    View {
        title: "Spread".into(),
        help: "Each state from its shortest to its longest run, with the middle half, the interval of \
               the median, and the runs."
            .into(),
        x: durations.clone(),
        subjects: vec![Subject { name: "".into(), summary: "".into(), x_high: None, panels: vec![panel] }],
    }
}

/// The interval of the median, when there are enough runs for one.
fn interval(state: &State) -> Option<Interval> {
    state.interval.filter(|interval| interval.is_confident)
}

fn in_words(state: &State) -> String {
    match quantile(&times(state), 0.5) {
        Some(median) => format!("{} {}", state.name, amount(Unit::Ns, median * NS)),
        None => format!("{} –", state.name),
    }
}

fn table(states: &[State]) -> Table {
    let rows = states.iter().map(|state| {
        let cells = cells(state);
        [state.name.to_owned()].into_iter().chain(cells).map(Text::from).collect()
    });
    let head = ["state", "runs", "median, ms", "95 % interval, ms", "shortest to longest, ms"];
    Table::new("Figures", &head, rows, usize::MAX)
}

fn cells(state: &State) -> [String; 4] {
    let (all, times) = (state.millis.len(), times(state));
    let (Some(min), Some(max), Some(median)) = (times.first(), times.last(), quantile(&times, 0.5))
    else {
        return [format!("0 of {all}"), "–".into(), "–".into(), "–".into()];
    };
    let n = times.len();
    let runs = if n == all { n.to_string() } else { format!("{n} of {all}") };
    let decimals = state
        .interval
        .map_or(decimals_for(median), |interval| decimals_for(interval.high - interval.low));
    let ms = |value| grouped(value, decimals);
    let interval = state.interval.map_or("–".to_owned(), |interval| {
        let ends = format!("{} to {}", ms(interval.low), ms(interval.high));
        let only = (100.0 * interval.confidence).floor();
        if interval.is_confident { ends } else { format!("{ends} (only {only} %)") }
    });
    [runs, ms(median), interval, format!("{} to {}", ms(*min), ms(*max))]
}

/// The value below which a share of the ascending values lies, between
/// adjacent values in proportion (Hyndman and Fan's type 7).
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let at = share * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(low + at.fract() * (high - low))
}

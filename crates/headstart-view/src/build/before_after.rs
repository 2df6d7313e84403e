//! Two recordings on the same axes: before and after a change.

use super::accesses::{Accesses, Place, kinds};
use super::flow;
use super::layout::{Layout, Seen, bands, column};
use crate::picture::{
    Colour, Flow, Kind, Lanes, Mark, Panel, Picture, Series, Subject, Text, Unit, View, Y,
};
use crate::units::{amount, grouped};
use std::collections::HashMap;

/// Intervals of the time waited.
const BINS: usize = 400;

/// The picture of both.
pub fn picture(before: &Accesses, after: &Accesses) -> Picture {
    let (before, after) = same_places(before, after);
    let both = [&before, &after];
    let layout = Layout::of(&both);
    let mut picture = Picture {
        title: format!("{}: before and after", before.title).into(),
        summary: vec![compared(&before, &after).into()],
        kinds: kinds(),
        frames: both.iter().map(|one| layout.frame(one)).collect(),
        views: Vec::new(),
        tables: Vec::new(),
    };
    let first = picture.kinds.len();
    picture.kinds.extend([
        Kind::new("before", Colour::Amber, Mark::Outline),
        Kind::new("after", Colour::Blue, Mark::Plain),
    ]);
    picture
        .summary
        .extend(before.summary.iter().map(|words| Text::from(format!("Before: {words}"))));
    picture.summary.extend(after.summary.iter().map(|words| Text::from(format!("After: {words}"))));
    picture.summary.extend(layout.skipped_in_words(&before.called));
    picture.views = vec![all(&both, &layout, first), each(&both, &layout)];
    picture
}

/// Both with the same numbers for places of the same name.
fn same_places(before: &Accesses, after: &Accesses) -> (Accesses, Accesses) {
    let (mut before, mut after) = (before.clone(), after.clone());
    let mut numbers: HashMap<String, u32> = HashMap::new();
    let mut places: Vec<Place> = Vec::new();
    for one in [&mut before, &mut after] {
        let own = std::mem::take(&mut one.places);
        let to: Vec<u32> = own
            .into_iter()
            .map(|place| {
                *numbers.entry(place.name.clone()).or_insert_with(|| {
                    places.push(place);
                    places.len() as u32 - 1
                })
            })
            .collect();
        for event in &mut one.events {
            event.place = to.get(event.place as usize).copied().unwrap_or(u32::MAX);
        }
    }
    (before.places, after.places) = (places.clone(), places);
    (before, after)
}

fn compared(before: &Accesses, after: &Accesses) -> String {
    let waited = |one: &Accesses| {
        let waits = one.events.iter().filter(|event| event.how.is_wait());
        waits.fold(0u64, |sum, event| sum.saturating_add(event.latency_ns))
    };
    let time = |ns: u64| amount(Unit::Ns, ns as f64);
    format!(
        "{} before, {} after; {} and {} of it waited, by all threads; {} and {} {}.",
        time(before.length_ns),
        time(after.length_ns),
        time(waited(before)),
        time(waited(after)),
        grouped(before.events.len() as f64, 0),
        grouped(after.events.len() as f64, 0),
        before.called
    )
}

fn all(both: &[&Accesses; 2], layout: &Layout, first: usize) -> View {
    let mut panels = vec![waits(both, layout, first)];
    for (frame, title) in ["before", "after"].into_iter().enumerate() {
        let lanes = Lanes { frame, column: column::PLACE, all: true };
        let mut panel = Panel::new(title, Y::Lanes(lanes));
        panel.marks = Some(layout.marks(frame, column::PLACE, None));
        panels.push(panel);
    }
    View {
        title: "Before and after".into(),
        help:
            "Both recordings have the same time axis and the same lanes of files. The lines at the \
               top are the time waited up to then, by all threads."
                .into(),
        x: layout.time(),
        subjects: vec![Subject { name: "".into(), summary: "".into(), x_high: None, panels }],
    }
}

/// The time waited up to each time.
fn waits(both: &[&Accesses; 2], layout: &Layout, first: usize) -> Panel {
    let width = (layout.end_ns as f64 / BINS as f64).max(1.0);
    let series: Vec<Series> = both
        .iter()
        .enumerate()
        .map(|(number, one)| {
            let mut values = vec![0.0; BINS];
            for event in one.events.iter().filter(|event| event.how.is_wait()) {
                let end = event.time_ns.saturating_add(event.latency_ns);
                values[((end as f64 / width) as usize).min(BINS - 1)] += event.latency_ns as f64;
            }
            let mut sum = 0.0;
            values.iter_mut().for_each(|value| {
                sum += *value;
                *value = sum;
            });
            let total = amount(Unit::Ns, sum).into();
            Series { kind: first + number, total, values }
        })
        .collect();
    let flow = Flow { from: 0.0, width, stacked: false, series };
    flow::panel("time waited up to then, by all threads", Unit::Ns, flow)
}

fn each(both: &[&Accesses; 2], layout: &Layout) -> View {
    let subject = |(lane, seen): (u64, &Seen)| {
        let place = both[0].places.get(seen.number? as usize)?;
        let axis = seen.axis(0);
        let panels = [("before", 0), ("after", 1)].map(|(title, frame)| {
            let mut panel = Panel::new(title, Y::Value(axis.clone()));
            panel.bands = bands(&place.bands, &axis);
            panel.marks = Some(layout.marks(frame, column::OFFSET, Some((column::PLACE, lane))));
            panel
        });
        let summary = format!("in both: {}", seen.summary(&both[0].called)).into();
        Some(Subject { name: (&place.name).into(), summary, x_high: None, panels: panels.into() })
    };
    View {
        title: "One file".into(),
        help: format!(
            "Offset against time, before and after, on the same axes. High, striped, red bars waited \
               for the disk.{}",
            Layout::cut_in_words(&layout.places, "files")
        )
        .into(),
        x: layout.time(),
        subjects: Layout::longest(&layout.places).into_iter().filter_map(subject).collect(),
    }
}

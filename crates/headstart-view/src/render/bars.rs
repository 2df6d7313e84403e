//! Values over an axis, and named parts of an axis, in an image.

use super::place::{Place, fill};
use super::xml::{Escaped, Px, put, shortened, text};
use crate::picture::{Flow, Panel, Picture, Span};

/// The least width of an interval that is drawn, in pixels.
const STEP: f64 = 1.2;
/// So many parts of the horizontal axis have their own names, and so wide ones, in pixels.
const NAMED: usize = 40;
const WIDE: f64 = 12.0;

/// A line of horizontal steps, with a command only where its height changes.
#[derive(Default)]
struct Line {
    d: String,
    y: Option<String>,
}

impl Line {
    /// From one place to another at a height.
    fn step(&mut self, from: f64, to: f64, y: f64) {
        let y = Px(y).to_string();
        let x = Px(to.round());
        match &self.y {
            None => put(&mut self.d, format_args!("M{} {y}H{x}", Px(from.round()))),
            // The last command goes on.
            Some(last) if *last == y => {
                let known = self.d.rfind('H').unwrap_or(0);
                self.d.truncate(known);
                put(&mut self.d, format_args!("H{x}"));
            }
            Some(_) => put(&mut self.d, format_args!("V{y}H{x}")),
        }
        self.y = Some(y);
    }
}

/// Parts of the horizontal axis. Where they are many, short ones that touch each other are one, without a name.
pub(super) fn spans(out: &mut String, panel: &Panel, place: &Place) {
    let (top, height) = (Px(place.top), Px(place.bottom - place.top));
    let style = "fill:var(--muted);fill-opacity:.16";
    let mut joined: Vec<(f64, f64)> = Vec::new();
    for Span { from, to, name } in &panel.spans {
        let (from, to) = (place.x.pixel(*from), place.x.pixel(*to));
        if panel.spans.len() <= NAMED || to - from >= WIDE {
            let (at, width, name) = (Px(from), Px((to - from).max(0.5)), Escaped(name.as_str()));
            put(
                out,
                format_args!(
                    "<rect style=\"{style}\" x=\"{at}\" y=\"{top}\" width=\"{width}\" \
                     height=\"{height}\"><title>{name}</title></rect>\n"
                ),
            );
            continue;
        }
        let (from, to) = (from.round(), to.round());
        match joined.last_mut() {
            Some(last) if (last.0..=last.1).contains(&from) => last.1 = last.1.max(to),
            _ => joined.push((from, to)),
        }
    }
    // What is shorter than a pixel is not seen.
    let seen = joined.into_iter().filter(|(from, to)| to > from);
    let d: String = seen
        .map(|(from, to)| format!("M{} {top}H{}v{height}H{}z", Px(from), Px(to), Px(from)))
        .collect();
    if !d.is_empty() {
        put(out, format_args!("<path style=\"{style}\" d=\"{d}\"/>\n"));
    }
}

/// Parts of the vertical axis.
pub(super) fn bands(out: &mut String, picture: &Picture, panel: &Panel, place: &Place) {
    let mut last = f64::INFINITY;
    for (number, band) in panel.bands.iter().enumerate() {
        let (Some(bottom), Some(top)) = (place.y(band.from), place.y(band.to)) else { continue };
        let kind = band.kind.and_then(|kind| picture.kinds.get(kind));
        let style = match kind {
            Some(kind) => format!("fill:var(--{});fill-opacity:.15", kind.colour.name()),
            None if number % 2 == 0 => "fill:var(--muted);fill-opacity:.10".into(),
            None => "fill:none".into(),
        };
        put(
            out,
            format_args!(
                "<rect style=\"{style}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>{}</title></rect>\n",
                Px(place.left),
                Px(top),
                Px(place.right - place.left),
                Px((bottom - top).max(0.3)),
                Escaped(band.name.as_str())
            ),
        );
        let middle = (top + bottom) / 2.0 + 4.0;
        if last - middle >= 12.0 && bottom - top >= 3.0 {
            text(out, place.right + 6.0, middle, "m", &shortened(band.name.as_str(), 20));
            last = middle;
        }
    }
}

/// Values, in intervals that are joined so that each can be seen.
pub(super) fn flow(out: &mut String, picture: &Picture, flow: &Flow, place: &Place) {
    let Some(y) = place.y else { return };
    let count = flow.series.iter().map(|series| series.values.len()).max().unwrap_or(0);
    let at = |interval: usize| place.x.pixel(flow.from + flow.width * interval as f64);
    let pixels = (at(count) - at(0)).max(1.0);
    let joined = ((count as f64 * STEP * place.coarse / pixels).ceil() as usize).max(1);
    let mut below = vec![0.0; count.div_ceil(joined)];
    for series in &flow.series {
        let Some(kind) = picture.kinds.get(series.kind) else { continue };
        if flow.stacked && series.values.iter().all(|value| *value <= 0.0) {
            continue;
        }
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let mut line = Line::default();
        let mut floor = Vec::new();
        for (number, values) in series.values.chunks(joined).enumerate() {
            let (left, right) = (at(number * joined), at(number * joined + values.len()));
            if !flow.stacked {
                // What a sum has come to is seen at the end of an interval.
                line.step(left, right, y.pixel(values.last().copied().unwrap_or(0.0)));
                continue;
            }
            let value = mean(values).max(0.0);
            let from = y.pixel(below[number]);
            below[number] += value;
            // What is there is seen, however little it is.
            let to = y.pixel(below[number]).min(from - if value > 0.0 { 0.8 } else { 0.0 });
            line.step(left, right, to.max(place.top));
            floor.push((left, right, from));
        }
        for (left, right, from) in floor.into_iter().rev() {
            line.step(right, left, from);
        }
        let path = line.d;
        let style = if flow.stacked {
            fill(kind).split(";stroke").next().unwrap_or_default().to_owned()
        } else {
            format!("fill:none;stroke:var(--{});stroke-width:2", kind.colour.name())
        };
        let name = Escaped(kind.name.as_str());
        put(
            out,
            format_args!(
                "<path shape-rendering=\"crispEdges\" style=\"{style}\" d=\"{path}\"><title>{name}</title></path>\n"
            ),
        );
    }
}

//! Values over an axis, and named parts of an axis, in an image.

use super::place::{Place, fill};
use super::xml::{Escaped, Px, put, shortened, text};
use crate::picture::{Flow, Panel, Picture};

/// The least width of an interval that is drawn, in pixels.
const STEP: f64 = 1.2;

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
    let joined = ((count as f64 * STEP / pixels).ceil() as usize).max(1);
    let mut below = vec![0.0; count.div_ceil(joined)];
    for series in &flow.series {
        let Some(kind) = picture.kinds.get(series.kind) else { continue };
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let mut path = String::new();
        for (number, values) in series.values.chunks(joined).enumerate() {
            let (left, right) = (at(number * joined), at(number * joined + values.len()));
            if !flow.stacked {
                // What a sum has come to is seen at the end of an interval.
                let value = y.pixel(values.last().copied().unwrap_or(0.0));
                let command = if path.is_empty() { 'M' } else { 'L' };
                path += &format!("{command}{} {}L{} {}", Px(left), Px(value), Px(right), Px(value));
                continue;
            }
            let value = mean(values);
            if value <= 0.0 {
                continue;
            }
            let from = y.pixel(below[number]);
            below[number] += value;
            // What is there is seen, however little it is.
            let to = y.pixel(below[number]).min(from - 0.8).max(place.top);
            let (left, right) = (Px(left), Px(right.max(left + 1.0)));
            path += &format!("M{left} {}H{right}V{}H{left}z", Px(from), Px(to));
        }
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

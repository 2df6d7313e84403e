//! A picture as one image: all views below each other, each of its first subjects.

use super::place::{Place, fill};
use super::xml::{Escaped, Px, colours, fitting, line, put, shortened, text, wrapped};
use super::{bars, marks};
use crate::picture::{Axis, Kind, Lanes, Mark, Panel, Picture, Subject, Text, View, Y};
use crate::scale::Scale;
use std::collections::BTreeSet;

/// How all of them begin.
pub const BEGIN: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"headstart-picture\"";

const WIDTH: f64 = 1120.0;
const LEFT: f64 = 210.0;
const RIGHT: f64 = WIDTH - 150.0;
/// Subjects of a view that are drawn.
const SUBJECTS: usize = 3;
/// Height of a lane that can have a name.
const LANE: f64 = 15.0;
/// The most lanes with names, and the height of more of them.
const NAMED: usize = 60;
/// Characters in a line of words.
const LINE: usize = 150;

const STYLE: &str = r#"
.headstart-picture text{font:12px system-ui,"Segoe UI","DejaVu Sans",sans-serif;font-variant-numeric:tabular-nums;fill:var(--ink)}
.headstart-picture .t{font-size:17px;font-weight:600}.headstart-picture .h{font-size:14px;font-weight:600}
.headstart-picture .m{fill:var(--muted)}.headstart-picture .mid{text-anchor:middle}.headstart-picture .end{text-anchor:end}
.headstart-picture .bg{fill:var(--ground)}.headstart-picture .shade{fill:var(--shade)}
.headstart-picture .grid{stroke:var(--grid)}.headstart-picture .line{stroke:var(--muted)}
"#;

/// An image has about so many bytes, so that it can lie beside a document: where it would have more, it is
/// drawn coarser, up to the last step.
const MOST_BYTES: usize = 60_000;
const STEPS: [f64; 5] = [1.0, 1.5, 2.0, 3.0, 4.0];

/// What is drawn, and how much coarser than with full detail.
#[derive(Clone, Copy)]
struct Drawing<'a> {
    picture: &'a Picture,
    coarse: f64,
}

/// The picture, as an SVG file's text.
pub fn svg(picture: &Picture) -> String {
    let mut image = String::new();
    for coarse in STEPS {
        image = image_of(Drawing { picture, coarse });
        if image.len() <= MOST_BYTES {
            break;
        }
    }
    image
}

fn image_of(drawing: Drawing) -> String {
    let picture = drawing.picture;
    let mut body = String::new();
    let mut y = 34.0;
    text(&mut body, 24.0, y, "t", &shortened(picture.title.as_str(), 110));
    for words in &picture.summary {
        y = paragraph(&mut body, y + 6.0, words);
    }
    for shown in &picture.views {
        y = view(&mut body, drawing, shown, y + 40.0);
    }
    let height = y + 24.0;
    let (width, height) = (Px(WIDTH), Px(height));
    let mut out = format!(
        "{BEGIN} role=\"img\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <title>{}</title>\n<style>\n{}{STYLE}</style>\n<defs>",
        Escaped(picture.title.as_str()),
        colours(".headstart-picture", "--"),
    );
    for kind in picture.kinds.iter().filter(|kind| kind.mark == Mark::Hatched) {
        pattern(&mut out, kind);
    }
    put(
        &mut out,
        format_args!("</defs>\n<rect class=\"bg\" width=\"{width}\" height=\"{height}\"/>\n"),
    );
    out.push_str(&body);
    out.push_str("</svg>\n");
    out
}

fn paragraph(out: &mut String, y: f64, words: &Text) -> f64 {
    let lines = wrapped(words.as_str(), LINE);
    for (number, words) in lines.iter().enumerate() {
        text(out, 24.0, y + 16.0 * (number + 1) as f64, "m", &shortened(words, LINE + 20));
    }
    y + 16.0 * lines.len() as f64
}

/// Stripes of a colour.
fn pattern(out: &mut String, kind: &Kind) {
    let name = kind.colour.name();
    put(
        out,
        format_args!(
            "<pattern id=\"hatched-{name}\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\" \
             patternTransform=\"rotate(45)\"><rect width=\"4\" height=\"4\" style=\"fill:var(--{name})\"/>\
             <path d=\"M0 0V4\" style=\"stroke:var(--ground)\" stroke-width=\"1.6\"/></pattern>"
        ),
    );
}

fn view(out: &mut String, drawing: Drawing, view: &View, top: f64) -> f64 {
    text(out, 24.0, top, "h", view.title.as_str());
    let mut y = paragraph(out, top + 2.0, &view.help);
    y = legend(out, drawing.picture, view, y + 22.0);
    for shown in view.subjects.iter().take(SUBJECTS) {
        y = subject(out, drawing, view, shown, y + 14.0);
    }
    if view.subjects.len() > SUBJECTS {
        y += 20.0;
        let more =
            format!("and {} more; the page (.html) has them", view.subjects.len() - SUBJECTS);
        text(out, 24.0, y, "m", &more);
    }
    if view.subjects.is_empty() {
        y += 16.0;
        text(out, 24.0, y, "m", "There is nothing to draw.");
    }
    y
}

/// The kinds of a view, with what they are in all.
fn legend(out: &mut String, picture: &Picture, view: &View, y: f64) -> f64 {
    let panels: Vec<&Panel> = view.subjects.iter().take(SUBJECTS).flat_map(|s| &s.panels).collect();
    let drawn = panels.iter().filter_map(|panel| panel.marks);
    let mut kinds: BTreeSet<usize> = drawn.flat_map(|drawn| marks::kinds(picture, drawn)).collect();
    kinds.extend(
        panels.iter().filter_map(|p| p.flow.as_ref()).flat_map(|f| &f.series).map(|s| s.kind),
    );
    let (mut x, mut y) = (24.0, y);
    for (number, kind) in kinds.into_iter().filter_map(|n| Some((n, picture.kinds.get(n)?))) {
        let series = panels.iter().filter_map(|p| p.flow.as_ref()).flat_map(|flow| &flow.series);
        let total =
            series.filter(|s| s.kind == number).map(|s| s.total.as_str()).find(|t| !t.is_empty());
        let words = total.map_or(kind.name.to_string(), |total| format!("{}: {total}", kind.name));
        let width = 36.0 + 6.8 * words.chars().count() as f64;
        if x + width > WIDTH && x > 24.0 {
            (x, y) = (24.0, y + 18.0);
        }
        let shape = marks::shape(kind.mark, (x, y - 4.0), 14.0, (5.0, 10.0));
        put(out, format_args!("<path style=\"{}\" d=\"{shape}\"/>", fill(kind)));
        text(out, x + 20.0, y, "m", &shortened(&words, 100));
        x += width;
    }
    y
}

fn subject(out: &mut String, drawing: Drawing, view: &View, subject: &Subject, top: f64) -> f64 {
    let mut y = top;
    if !subject.name.as_str().is_empty() {
        y += 16.0;
        text(out, 24.0, y, "h", &fitting(subject.name.as_str(), 110));
    }
    if !subject.summary.as_str().is_empty() {
        y += 16.0;
        text(out, 24.0, y, "m", subject.summary.as_str());
    }
    let axis = Axis { high: subject.x_high.unwrap_or(view.x.high), ..view.x.clone() };
    let x = Scale::new(&axis, LEFT, RIGHT);
    for shown in &subject.panels {
        y = panel(out, drawing, shown, &x, y + 10.0);
    }
    for (value, label) in x.ticks(8) {
        text(out, x.pixel(value), y + 16.0, "m mid", &label);
    }
    text(out, (LEFT + RIGHT) / 2.0, y + 33.0, "m mid", axis.title.as_str());
    y + 36.0
}

fn panel(out: &mut String, drawing: Drawing, panel: &Panel, x: &Scale, top: f64) -> f64 {
    let Drawing { picture, coarse } = drawing;
    let mut top = top;
    let title = match &panel.y {
        Y::Value(axis) if panel.title.as_str().is_empty() => &axis.title,
        _ => &panel.title,
    };
    if !title.as_str().is_empty() {
        text(out, LEFT, top + 14.0, "", title.as_str());
        top += 20.0;
    }
    let (height, lanes) = match &panel.y {
        Y::Lanes(lanes) => {
            let count = picture.lanes(*lanes).len().max(1);
            let drawn = if lanes.all { count } else { count.min(4 * NAMED) };
            let height = LANE * if lanes.all { drawn.min(NAMED) } else { drawn } as f64;
            (height, drawn)
        }
        Y::Value(_) if panel.marks.is_some() => (230.0, 0),
        Y::Value(_) => (110.0, 0),
    };
    let bottom = top + height;
    let y = match &panel.y {
        Y::Value(axis) => Some(Scale::new(axis, bottom, top)),
        Y::Lanes(_) => None,
    };
    let place = Place { x, left: LEFT, right: RIGHT, top, bottom, y, lanes, coarse };
    grid(out, &place);
    bars::spans(out, panel, &place);
    bars::bands(out, picture, panel, &place);
    if let Some(flow) = &panel.flow {
        bars::flow(out, picture, flow, &place);
    }
    if let Some(drawn) = panel.marks {
        marks::draw(out, picture, drawn, &place);
    }
    line(out, "line", (LEFT, bottom), (RIGHT, bottom));
    match &panel.y {
        Y::Lanes(lanes) => names(out, picture, *lanes, &place),
        Y::Value(_) => bottom,
    }
}

/// Lines at round values.
fn grid(out: &mut String, place: &Place) {
    put(
        out,
        format_args!(
            "<rect class=\"shade\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill-opacity=\".5\"/>\n",
            Px(place.left),
            Px(place.top),
            Px(place.right - place.left),
            Px(place.bottom - place.top)
        ),
    );
    let (mut lines, [left, right, top, bottom]) =
        (String::new(), [place.left, place.right, place.top, place.bottom].map(Px));
    for (value, _) in place.x.ticks(8) {
        put(&mut lines, format_args!("M{} {top}V{bottom}", Px(place.x.pixel(value))));
    }
    let ticks =
        place.y.map_or_else(Vec::new, |y| y.ticks(((place.bottom - place.top) / 36.0) as usize));
    for (value, label) in ticks {
        let y = place.y(value).unwrap_or(place.bottom);
        put(&mut lines, format_args!("M{left} {}H{right}", Px(y)));
        text(out, place.left - 8.0, y + 4.0, "m end", &label);
    }
    put(out, format_args!("<path class=\"grid\" d=\"{lines}\"/>\n"));
}

/// The names of lanes that have room, and how many are not drawn.
fn names(out: &mut String, picture: &Picture, lanes: Lanes, place: &Place) -> f64 {
    let names = picture.lanes(lanes);
    let height = (place.bottom - place.top) / place.lanes.max(1) as f64;
    let every = ((LANE - 2.0) / height).ceil().max(1.0) as usize;
    for (lane, name) in names.iter().enumerate().take(place.lanes).step_by(every) {
        let Some(y) = place.y(lane as f64) else { continue };
        let shown = fitting(name.as_str(), 25);
        if shown == name.as_str() || !place.is_finest() {
            text(out, place.left - 8.0, y + 4.0, "m end", &shown);
            continue;
        }
        let (x, y) = (Px(place.left - 8.0), Px(y + 4.0));
        let (whole, shown) = (Escaped(name.as_str()), Escaped(&shown));
        put(
            out,
            format_args!(
                "<text class=\"m end\" x=\"{x}\" y=\"{y}\"><title>{whole}</title>{shown}</text>\n"
            ),
        );
    }
    if names.len() > place.lanes {
        let more = format!("and {} more", names.len() - place.lanes);
        text(out, place.left - 8.0, place.bottom + 14.0, "m end", &more);
        return place.bottom + 16.0;
    }
    place.bottom
}

//! Rows as marks of an image. Where many fall on one point, the most important is drawn, so that the
//! image stays small.

use super::place::{Place, fill};
use super::xml::{Escaped, Px, put};
use crate::picture::{Frame, Kind, Mark, Marks, Picture, Unit};
use crate::units::amount;
use std::collections::{BTreeSet, HashMap};

/// So many marks of a panel have their own words.
const WITH_WORDS: usize = 40;
/// The room of a bar, and of a point, which is larger, in pixels of the finest image.
const ROOM_OF_BARS: (f64, f64) = (1.0, 2.0);
const ROOM_OF_POINTS: (f64, f64) = (3.0, 4.0);
/// The least width of a bar.
const LEAST: f64 = 1.5;

/// The rows that are drawn, each with its place on the horizontal axis.
fn rows(frame: &Frame, marks: Marks) -> impl Iterator<Item = (usize, f64)> {
    let value =
        move |column: usize, row: usize| frame.columns.get(column).map_or(0.0, |c| c.at(row));
    let is_drawn = move |row: &usize| {
        let raw =
            |column: usize| frame.columns.get(column).and_then(|c| c.values.get(*row).copied());
        marks.only.is_none_or(|(column, wanted)| raw(column) == Some(wanted))
    };
    let drawn = (0..frame.rows).filter(is_drawn).enumerate();
    drawn
        .map(move |(number, row)| (row, marks.x.map_or(number as f64, |column| value(column, row))))
}

/// The kinds that are among them.
pub(super) fn kinds(picture: &Picture, marks: Marks) -> BTreeSet<usize> {
    let Some(frame) = picture.frames.get(marks.frame) else { return BTreeSet::new() };
    let Some(kinds) = frame.columns.get(marks.kind) else { return BTreeSet::new() };
    rows(frame, marks)
        .filter_map(|(row, _)| kinds.values.get(row).map(|kind| *kind as usize))
        .collect()
}

/// One that is drawn.
#[derive(Clone, Copy)]
struct Drawn {
    row: usize,
    kind: usize,
    x: f64,
    y: f64,
    width: f64,
}

/// Draws them, the less important first.
pub(super) fn draw(out: &mut String, picture: &Picture, marks: Marks, place: &Place) {
    let Some(frame) = picture.frames.get(marks.frame) else { return };
    let at =
        |column: usize, row: usize| frame.columns.get(column).map_or(0.0, |column| column.at(row));
    let mut cells: HashMap<(i64, i64, usize), Drawn> = HashMap::new();
    // A few are all drawn, also where one hides another, each with its words.
    let few = place.is_finest() && rows(frame, marks).take(WITH_WORDS + 1).count() <= WITH_WORDS;
    let room = room(place, marks.length.is_some());
    for (row, value) in rows(frame, marks) {
        let Some(y) = place.y(at(marks.y, row)) else { continue };
        let x = place.x.pixel(value);
        let end = place.x.pixel(value + marks.length.map_or(0.0, |column| at(column, row)));
        let drawn = Drawn { row, kind: at(marks.kind, row) as usize, x, y, width: end - x };
        let cell = ((x / room.0) as i64, (y / room.1) as i64, if few { row } else { 0 });
        let is_more = |other: &Drawn| (drawn.kind, drawn.width) > (other.kind, other.width);
        if cells.get(&cell).is_none_or(is_more) {
            cells.insert(cell, drawn);
        }
    }
    let mut drawn: Vec<Drawn> = cells.into_values().collect();
    drawn.sort_unstable_by_key(|one| (one.kind, one.row));
    let heights = place.heights();
    if few {
        for one in &drawn {
            let Some(kind) = picture.kinds.get(one.kind) else { continue };
            let d = shape(kind.mark, (one.x, one.y), one.width, heights);
            let (style, words) = (fill(kind), words(frame, one.row, kind.name.as_str()));
            let words = Escaped(&words);
            put(
                out,
                format_args!("<path style=\"{style}\" d=\"{d}\"><title>{words}</title></path>\n"),
            );
        }
        return;
    }
    for of_kind in drawn.chunk_by(|a, b| a.kind == b.kind) {
        let Some(kind) = of_kind.first().and_then(|one| picture.kinds.get(one.kind)) else {
            continue;
        };
        let bars = match marks.length.is_some() {
            true => joined(of_kind, room),
            false => of_kind.to_vec(),
        };
        let (style, d) = many(kind, &bars, heights);
        let name = Escaped(kind.name.as_str());
        put(out, format_args!("<path style=\"{style}\" d=\"{d}\"><title>{name}</title></path>\n"));
    }
}

/// The room of a mark: of several in it one is drawn. Lanes have at least their own height.
fn room(place: &Place, are_bars: bool) -> (f64, f64) {
    let (width, height) = if are_bars { ROOM_OF_BARS } else { ROOM_OF_POINTS };
    (width * place.coarse, (height * place.coarse).max(place.lane_height()))
}

/// Bars of one kind, of which those with less than a room between them at the same height are one.
fn joined(bars: &[Drawn], room: (f64, f64)) -> Vec<Drawn> {
    let level = |bar: &Drawn| (bar.y / room.1) as i64;
    let mut sorted = bars.to_vec();
    sorted.sort_by(|a, b| level(a).cmp(&level(b)).then(a.x.total_cmp(&b.x)));
    let mut out: Vec<Drawn> = Vec::new();
    for bar in sorted {
        match out.last_mut() {
            Some(last)
                if level(last) == level(&bar)
                    && bar.x <= last.x + last.width.max(LEAST) + room.0 - 1.0 =>
            {
                last.width = last.width.max(bar.x + bar.width.max(LEAST) - last.x);
            }
            _ => out.push(bar),
        }
    }
    out
}

/// Marks of one kind as the style and the outline of one path. It is short: on whole pixels, each begins where
/// the one before ended, and a bar is a line that is as wide as the bar is high.
fn many(kind: &Kind, marks: &[Drawn], heights: (f64, f64)) -> (String, String) {
    let name = kind.colour.name();
    let line = match kind.mark {
        Mark::Plain => Some((format!("var(--{name})"), heights.0)),
        Mark::Hatched => Some((format!("url(#hatched-{name})"), heights.1)),
        _ => None,
    };
    let (mut d, mut pen) = (String::new(), (0.0, 0.0));
    for one in marks {
        let width = (one.width.round()).max(LEAST);
        let (offset, drawn) = match line {
            Some(_) => ((0.0, 0.0), format!("h{}", Px(width))),
            None => outline(kind.mark, width, heights),
        };
        let to = (one.x.round() + offset.0, one.y.round() + offset.1);
        put(&mut d, format_args!("m{} {}{drawn}", Px(to.0 - pen.0), Px(to.1 - pen.1)));
        pen = (if line.is_some() { to.0 + width } else { to.0 }, to.1);
    }
    let style = match line {
        Some((paint, height)) => format!("fill:none;stroke:{paint};stroke-width:{}", Px(height)),
        None => fill(kind),
    };
    (style, d)
}

/// The outline of a mark from a point on; `heights` are those of plain bars and of others.
pub(super) fn shape(mark: Mark, (x, y): (f64, f64), width: f64, heights: (f64, f64)) -> String {
    let ((right, down), drawn) = outline(mark, width, heights);
    format!("M{} {}{drawn}", Px(x + right), Px(y + down))
}

/// Where the outline of a mark begins, from its point on, and how it goes on from there and back.
fn outline(mark: Mark, width: f64, heights: (f64, f64)) -> ((f64, f64), String) {
    let bar = |height: f64| {
        let (down, width, height) = (-height / 2.0, Px(width.max(LEAST)), Px(height));
        ((0.0, down), format!("h{width}v{height}h-{width}z"))
    };
    match mark {
        Mark::Plain => bar(heights.0),
        Mark::Outline => bar((heights.0 + heights.1) / 2.0),
        Mark::Hatched => bar(heights.1),
        Mark::Up => ((0.0, -3.5), "l3.5 7h-7z".into()),
        Mark::Down => ((0.0, 3.5), "l3.5 -7h-7z".into()),
        Mark::Dot => ((-3.2, 0.0), "a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0 -6.4 0".into()),
    }
}

/// All that is known of a row. Nothing is counted from 0 on, and what has no length needs no words.
fn words(frame: &Frame, row: usize, kind: &str) -> String {
    let cell = |(number, column): (usize, &crate::picture::Column)| {
        let value = *column.values.get(row)?;
        let title = &column.title;
        match column.unit {
            Unit::Kind => None,
            Unit::Count if value == 0 => None,
            Unit::Ns if value == 0 && number > 0 => None,
            Unit::Label => column.labels.get(value as usize).map(ToString::to_string),
            unit => Some(format!("{title} {}", amount(unit, column.at(row)))),
        }
    };
    let cells = frame.columns.iter().enumerate().filter_map(cell);
    [kind.to_owned()].into_iter().chain(cells).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_that_touch_are_one_and_others_stay() {
        let bar = |x: f64, y: f64, width: f64| Drawn { row: 0, kind: 0, x, y, width };
        let bars = [
            bar(10.0, 8.0, 0.0),
            bar(30.0, 8.0, 2.0),
            bar(11.0, 8.0, 4.0),
            bar(12.0, 8.5, 0.0),
            bar(12.0, 20.0, 1.0),
        ];
        let found: Vec<_> =
            joined(&bars, ROOM_OF_BARS).iter().map(|bar| (bar.x, bar.y, bar.width)).collect();
        assert_eq!(found, [(10.0, 8.0, 5.0), (30.0, 8.0, 2.0), (12.0, 20.0, 1.0)]);
        let coarse = joined(&bars, (16.0, 16.0));
        assert_eq!(coarse.len(), 2, "15 pixels between them are less than a room");
    }

    #[test]
    fn many_marks_are_one_path_that_goes_from_each_to_the_next() {
        let bar = |x: f64, y: f64, width: f64| Drawn { row: 0, kind: 0, x, y, width };
        let bars = [bar(10.2, 8.0, 0.3), bar(30.0, 8.0, 2.0), bar(12.0, 20.4, 1.0)];
        let kind = |mark| Kind::new("", crate::picture::Colour::Red, mark);
        let (style, d) = many(&kind(Mark::Hatched), &bars, (3.0, 7.0));
        assert_eq!(style, "fill:none;stroke:url(#hatched-red);stroke-width:7");
        assert_eq!(d, "m10 8h1.5m18.5 0h2m-20 12h1.5");
        let (_, d) = many(&kind(Mark::Up), &bars[..2], (3.0, 7.0));
        assert_eq!(d, "m10 4.5l3.5 7h-7zm20 0l3.5 7h-7z", "a closed outline ends where it began");
    }
}

//! Rows as marks of an image. Where many fall on one point, the most important is drawn, so that the
//! image stays small.

use super::place::{Place, fill};
use super::xml::{Escaped, Px, put};
use crate::picture::{Frame, Mark, Marks, Picture, Unit};
use crate::units::amount;
use std::collections::{BTreeSet, HashMap};

/// So many marks have their own words.
const WITH_WORDS: usize = 400;
/// The least room of a bar, and of a point, which is larger, in pixels.
const STEP_OF_BARS: (f64, f64) = (1.0, 2.0);
const STEP_OF_POINTS: (f64, f64) = (3.0, 4.0);
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
    // A few are all drawn, also where one hides another.
    let few = rows(frame, marks).take(WITH_WORDS + 1).count() <= WITH_WORDS;
    let step = if marks.length.is_some() { STEP_OF_BARS } else { STEP_OF_POINTS };
    for (row, value) in rows(frame, marks) {
        let Some(y) = place.y(at(marks.y, row)) else { continue };
        let x = place.x.pixel(value);
        let end = place.x.pixel(value + marks.length.map_or(0.0, |column| at(column, row)));
        let drawn = Drawn { row, kind: at(marks.kind, row) as usize, x, y, width: end - x };
        let cell = ((x / step.0) as i64, (y / step.1) as i64, if few { row } else { 0 });
        let is_more = |other: &Drawn| (drawn.kind, drawn.width) > (other.kind, other.width);
        if cells.get(&cell).is_none_or(is_more) {
            cells.insert(cell, drawn);
        }
    }
    let mut drawn: Vec<Drawn> = cells.into_values().collect();
    drawn.sort_unstable_by_key(|one| (one.kind, one.row));
    let heights = place.heights();
    let shape = |one: &Drawn, mark| shape(mark, (one.x, one.y), one.width, heights);
    if drawn.len() <= WITH_WORDS {
        for one in &drawn {
            let Some(kind) = picture.kinds.get(one.kind) else { continue };
            let (d, words) = (shape(one, kind.mark), words(frame, one.row, kind.name.as_str()));
            let (style, words) = (fill(kind), Escaped(&words));
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
        let of_kind = match marks.length.is_some() {
            true => joined(of_kind),
            false => of_kind.to_vec(),
        };
        let d: String = of_kind.iter().map(|one| shape(one, kind.mark)).collect();
        let (style, name) = (fill(kind), Escaped(kind.name.as_str()));
        put(out, format_args!("<path style=\"{style}\" d=\"{d}\"><title>{name}</title></path>\n"));
    }
}

/// Bars of one kind, of which those that touch each other at the same height are one.
fn joined(bars: &[Drawn]) -> Vec<Drawn> {
    let level = |bar: &Drawn| (bar.y / STEP_OF_BARS.1) as i64;
    let mut sorted = bars.to_vec();
    sorted.sort_by(|a, b| level(a).cmp(&level(b)).then(a.x.total_cmp(&b.x)));
    let mut out: Vec<Drawn> = Vec::new();
    for bar in sorted {
        match out.last_mut() {
            Some(last) if level(last) == level(&bar) && bar.x <= last.x + last.width.max(LEAST) => {
                last.width = last.width.max(bar.x + bar.width.max(LEAST) - last.x);
            }
            _ => out.push(bar),
        }
    }
    out
}

/// The outline of a mark from a point on; `heights` are those of plain bars and of others.
pub(super) fn shape(mark: Mark, (x, y): (f64, f64), width: f64, heights: (f64, f64)) -> String {
    let bar = |height: f64| {
        let (x, y, width, height) = (Px(x), Px(y - height / 2.0), Px(width.max(LEAST)), Px(height));
        format!("M{x} {y}h{width}v{height}h-{width}z")
    };
    match mark {
        Mark::Plain => bar(heights.0),
        Mark::Outline => bar((heights.0 + heights.1) / 2.0),
        Mark::Hatched => bar(heights.1),
        Mark::Up => format!("M{} {}l3.5 7h-7z", Px(x), Px(y - 3.5)),
        Mark::Down => format!("M{} {}l3.5 -7h-7z", Px(x), Px(y + 3.5)),
        Mark::Dot => format!("M{} {}a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0 -6.4 0", Px(x - 3.2), Px(y)),
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
        let found: Vec<_> = joined(&bars).iter().map(|bar| (bar.x, bar.y, bar.width)).collect();
        assert_eq!(found, [(10.0, 8.0, 5.0), (30.0, 8.0, 2.0), (12.0, 20.0, 1.0)]);
    }
}

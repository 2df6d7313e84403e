//! Pictures from their JSON documents (`doc/pictures.md`), as [`crate::render::json`] writes them. A
//! document may be of somebody else: what is not sound is refused. Opens no files.

use crate::picture::{Axis, Column, Flow, Frame, MOST, Marks, Panel, Picture, SCHEMA, Unit, Y};
use serde::Deserialize;

/// A document that is no picture.
#[derive(Debug, PartialEq, Eq)]
pub enum Error {
    /// It is not JSON, or lacks a part.
    Json(String),
    /// Its schema is another one.
    Schema,
    /// A part of it contradicts another: this one.
    Unsound(&'static str),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Json(error) => write!(f, "This is no picture: {error}"),
            Self::Schema => write!(f, "This is no picture of the form {SCHEMA:?}"),
            Self::Unsound(part) => write!(f, "This picture is damaged: {part}"),
        }
    }
}

impl std::error::Error for Error {}

#[derive(Deserialize)]
struct Document {
    schema: String,
    #[serde(flatten)]
    picture: Picture,
}

/// Reads a document.
///
/// # Errors
/// [`Error`]
pub fn picture(json: &[u8]) -> Result<Picture, Error> {
    let Document { schema, picture } =
        serde_json::from_slice(json).map_err(|error| Error::Json(error.to_string()))?;
    if schema != SCHEMA {
        return Err(Error::Schema);
    }
    check(&picture).map_err(Error::Unsound)?;
    Ok(picture)
}

/// A frame as it is written; the number of rows tells where the values of a column end.
#[derive(Deserialize)]
pub(crate) struct Rows {
    rows: usize,
    columns: Vec<crate::column::Written>,
}

impl TryFrom<Rows> for Frame {
    type Error = &'static str;

    fn try_from(Rows { rows, columns }: Rows) -> Result<Self, Self::Error> {
        let columns = columns.into_iter().map(|column| column.values(rows));
        Ok(Self { rows, columns: columns.collect::<Result<_, _>>()? })
    }
}

fn sound(is_so: bool, part: &'static str) -> Result<(), &'static str> {
    if is_so { Ok(()) } else { Err(part) }
}

/// Whether all numbers of a picture name something, and all axes have a length: else what is wrong.
fn check(picture: &Picture) -> Result<(), &'static str> {
    for frame in &picture.frames {
        sound(frame.columns.iter().all(|column| is_column(picture, frame, column)), "a column")?;
    }
    for view in &picture.views {
        is_axis(&view.x)?;
        for subject in &view.subjects {
            let high = subject.x_high.unwrap_or(view.x.high);
            sound(high > view.x.low && high <= view.x.high, "an axis of a subject")?;
            subject.panels.iter().try_for_each(|panel| is_panel(picture, panel))?;
        }
    }
    let is_table =
        |table: &crate::picture::Table| table.rows.iter().all(|row| row.len() == table.head.len());
    sound(picture.tables.iter().all(is_table), "a table")
}

fn is_column(picture: &Picture, frame: &Frame, column: &Column) -> bool {
    let labels = match column.unit {
        Unit::Label => column.labels.len() as u64,
        Unit::Kind => picture.kinds.len() as u64,
        _ => MOST / column.scale.max(1) + 1,
    };
    column.values.len() == frame.rows
        && column.scale > 0
        && column.values.iter().all(|value| *value < labels)
}

fn is_axis(axis: &Axis) -> Result<(), &'static str> {
    let is_bounded = |end: f64| (0.0..=MOST as f64).contains(&end);
    let is_so = is_bounded(axis.low) && is_bounded(axis.high) && axis.low < axis.high;
    sound(is_so && (!axis.log || axis.low > 0.0), "an axis")
}

fn is_panel(picture: &Picture, panel: &Panel) -> Result<(), &'static str> {
    let column = |frame: usize, column: usize| {
        picture.frames.get(frame).and_then(|frame| frame.columns.get(column))
    };
    match &panel.y {
        Y::Value(axis) => is_axis(axis)?,
        Y::Lanes(lanes) => sound(column(lanes.frame, lanes.column).is_some(), "lanes")?,
    }
    let is_range = |from: f64, to: f64| from <= to && to <= MOST as f64 && from >= 0.0;
    let is_kind = |kind: usize| kind < picture.kinds.len();
    let bands = panel.bands.iter();
    let mut bands = bands.map(|b| is_range(b.from, b.to) && b.kind.is_none_or(is_kind));
    sound(bands.all(|is_so| is_so), "a part of an axis")?;
    sound(panel.spans.iter().all(|span| is_range(span.from, span.to)), "a part of an axis")?;
    if let Some(Flow { from, width, series, .. }) = &panel.flow {
        sound(*from >= 0.0 && *width > 0.0, "a flow")?;
        let is_series = |one: &crate::picture::Series| {
            is_kind(one.kind) && one.values.iter().all(|value| is_range(0.0, *value))
        };
        sound(series.iter().all(is_series), "a series")?;
        let count = series.first().map_or(0, |one| one.values.len());
        sound(series.iter().all(|one| one.values.len() == count), "a series")?;
        sound(matches!(panel.y, Y::Value(_)), "a flow")?;
    }
    let Some(Marks { frame, x, length, y, kind, only }) = panel.marks else { return Ok(()) };
    let is_column = |number: usize| column(frame, number).is_some();
    let columns = [x, length, Some(y), only.map(|(column, _)| column)];
    sound(columns.into_iter().flatten().all(is_column), "marks")?;
    sound(column(frame, kind).is_some_and(|kind| kind.unit == Unit::Kind), "kinds of marks")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn drawn() -> Value {
        json!({
            "schema": SCHEMA, "title": "a\u{202e}", "summary": [], "tables": [],
            "kinds": [{"name": "k", "colour": "sky", "mark": "up"}],
            "frames": [{"rows": 2, "columns": [
                {"title": "at", "unit": "ns", "scale": 5, "labels": [], "form": "varint", "bits": 1, "data": "AQA="},
                {"title": "", "unit": "kind", "scale": 1, "labels": [], "form": "bits", "bits": 1, "data": "AA=="}]}],
            "views": [{
                "title": "v", "help": "", "x": {"title": "", "unit": "ns", "low": 0.0, "high": 9.0, "log": false},
                "subjects": [{"name": "", "summary": "", "panels": [{
                    "title": "p", "y": {"lanes": {"frame": 0, "column": 0, "all": true}}, "bands": [],
                    "spans": [], "flow": null,
                    "marks": {"frame": 0, "x": 0, "length": null, "y": 0, "kind": 1, "only": [0, 1]}}]}],
            }],
        })
    }

    #[test]
    fn a_document_that_contradicts_itself_is_refused() {
        let read = |document: &Value| picture(document.to_string().as_bytes());
        let found = read(&drawn()).unwrap();
        assert_eq!(found.title.as_str(), "a\\342\\200\\256");
        assert_eq!(found.frames[0].columns[0].values, [1, 0]);
        for (at, value, part) in [
            ("/schema", json!("headstart/picture/0"), "no picture of the form"),
            ("/frames/0/rows", json!(3), "no picture: a column"),
            ("/frames/0/rows", json!(u64::MAX), "no picture: a column"),
            ("/frames/0/columns/0/bits", json!(0), ""),
            ("/frames/0/columns/1/bits", json!(0), "no picture: a column"),
            ("/frames/0/columns/1/bits", json!(64), "no picture: a column"),
            ("/frames/0/columns/1/data", json!("Aw=="), "damaged: a column"),
            ("/frames/0/columns/0/data", json!("A?=="), "no picture: a column"),
            ("/frames/0/columns/0/data", json!("gICAgICAgICAgIA="), "no picture: a column"),
            ("/frames/0/columns/0/scale", json!(0), "damaged: a column"),
            ("/frames/0/columns/0/scale", json!(u64::MAX), "damaged: a column"),
            ("/views/0/x/high", json!(0.0), "damaged: an axis"),
            ("/views/0/x/log", json!(true), "damaged: an axis"),
            ("/views/0/subjects/0/panels/0/y/lanes/column", json!(2), "damaged: lanes"),
            ("/views/0/subjects/0/panels/0/marks/frame", json!(1), "damaged: marks"),
            ("/views/0/subjects/0/panels/0/marks/kind", json!(0), "damaged: kinds of marks"),
            ("/views/0/subjects/0/x_high", json!(10.0), "damaged: an axis of a subject"),
            (
                "/views/0/subjects/0/panels/0/spans",
                json!([{"from": 2, "to": 1, "name": ""}]),
                "damaged: a part",
            ),
            (
                "/views/0/subjects/0/panels/0/flow",
                json!({"from": 0, "width": 0, "stacked": true, "series": []}),
                "damaged: a flow",
            ),
            (
                "/tables",
                json!([{"title": "", "head": ["a"], "rows": [[]], "skipped": 0}]),
                "damaged: a table",
            ),
        ] {
            let mut document = drawn();
            *document.pointer_mut(at).unwrap_or(&mut Value::Null) = value.clone();
            if at.ends_with("x_high") {
                document["views"][0]["subjects"][0]["x_high"] = value;
            }
            let error = read(&document).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(part) && part.is_empty() == error.is_empty(), "{at}: {error}");
        }
        assert!(matches!(picture(b"{"), Err(Error::Json(_))));
    }
}

//! What a picture shows, as one value. [`crate::build`] makes it, [`crate::render`] draws it. Has no
//! pixels, no files and no colours, only their names.
//!
//! A picture has frames of rows (accesses, units, runs), and views of them. A view has one
//! horizontal axis and, for each of its subjects (a file, a mapping, a device), panels above each
//! other, which have a vertical axis each: values, or lanes with names.

use headstart::host::names;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display};

/// The schema name of the document.
pub const SCHEMA: &str = "headstart/picture/1";

/// Largest number in a picture: all up to it are exact in JSON and JavaScript.
pub const MOST: u64 = (1 << 53) - 1;

/// Words that people read. What is not visible is escaped, so that no name can change the direction
/// of text, move a cursor or end a line.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(from = "String")]
pub struct Text(String);

impl Text {
    /// The words.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: AsRef<str>> From<T> for Text {
    fn from(words: T) -> Self {
        Self(names::text(words.as_ref()))
    }
}

impl Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// All of it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Picture {
    /// What it is of.
    pub title: Text,
    /// What it says, in sentences, for those who do not see it and for those in a hurry.
    pub summary: Vec<Text>,
    /// What marks and values can be. Those behind others are drawn over them.
    pub kinds: Vec<Kind>,
    /// The rows.
    pub frames: Vec<Frame>,
    /// Ways to look at them.
    pub views: Vec<View>,
    /// Figures.
    pub tables: Vec<Table>,
}

/// What a mark or a value is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Kind {
    /// Its name.
    pub name: Text,
    /// Its colour.
    pub colour: Colour,
    /// What it has besides its colour, which not everybody sees.
    pub mark: Mark,
}

impl Kind {
    /// One of this name and look.
    pub fn new(name: impl AsRef<str>, colour: Colour, mark: Mark) -> Self {
        Self { name: name.into(), colour, mark }
    }
}

/// Okabe and Ito's colours, but for the red.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "they are their names")]
pub enum Colour {
    Blue,
    Sky,
    Green,
    Red,
    Pink,
    Amber,
    Grey,
}

/// How a kind is told from others without colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// A thin bar.
    Plain,
    /// A higher bar with stripes.
    Hatched,
    /// A line around nothing.
    Outline,
    /// A triangle that points up.
    Up,
    /// A triangle that points down.
    Down,
    /// A circle.
    Dot,
}

/// What a number is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Bytes.
    Bytes,
    /// Bytes in a second.
    BytesPerSecond,
    /// So many.
    Count,
    /// The number of one of the column's labels.
    Label,
    /// The number of one of the picture's kinds.
    Kind,
}

/// Rows in columns, those of earlier times first.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "crate::read::Rows")]
pub struct Frame {
    /// How many rows.
    pub rows: usize,
    /// The columns, each with as many values.
    pub columns: Vec<Column>,
}

impl Frame {
    /// Of columns of equal length.
    pub fn new(columns: Vec<Column>) -> Self {
        Self { rows: columns.first().map_or(0, |column| column.values.len()), columns }
    }
}

/// A property of all rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    /// What it is called.
    pub title: Text,
    /// What the values are.
    pub unit: Unit,
    /// A value times this is in the unit.
    pub scale: u64,
    /// Names of [`Unit::Label`].
    pub labels: Vec<Text>,
    /// The values, at most [`MOST`] when scaled.
    pub values: Vec<u64>,
}

impl Column {
    /// Numbers.
    pub fn numbers(title: &str, unit: Unit, scale: u64, mut values: Vec<u64>) -> Self {
        let most = MOST / scale.max(1);
        values.iter_mut().for_each(|value| *value = (*value).min(most));
        Self { title: title.into(), unit, scale: scale.max(1), labels: Vec::new(), values }
    }

    /// Numbers of labels.
    pub fn labels(title: &str, labels: Vec<Text>, values: Vec<u64>) -> Self {
        Self { title: title.into(), unit: Unit::Label, scale: 1, labels, values }
    }

    /// A value in the unit; 0 behind the last row.
    pub fn at(&self, row: usize) -> f64 {
        self.values.get(row).map_or(0.0, |value| value.saturating_mul(self.scale) as f64)
    }
}

/// A way to look at rows.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct View {
    /// What it is called, in a word or two.
    pub title: Text,
    /// How to read it.
    pub help: Text,
    /// The axis that all panels share.
    pub x: Axis,
    /// What it is shown of, one at a time; the most important first.
    pub subjects: Vec<Subject>,
}

/// What a view is shown of.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Subject {
    /// Its name; empty if there is only one.
    pub name: Text,
    /// What to say of it.
    pub summary: Text,
    /// Another end of the horizontal axis, where it is not that of the view.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub x_high: Option<f64>,
    /// The panels, from top to bottom.
    pub panels: Vec<Panel>,
}

/// An axis.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Axis {
    /// What is on it.
    pub title: Text,
    /// What its numbers are.
    pub unit: Unit,
    /// Its begin.
    pub low: f64,
    /// Its end, above the begin.
    pub high: f64,
    /// Whether equal ratios take equal room; the begin is above 0 then.
    pub log: bool,
}

impl Axis {
    /// From `low` to `high`, or a little more if they are equal or no numbers.
    pub fn new(title: impl AsRef<str>, unit: Unit, low: f64, high: f64) -> Self {
        let most = MOST as f64;
        let bounded = |end: f64| if end.is_nan() { 0.0 } else { end.clamp(0.0, most) };
        let (low, high) = (bounded(low), bounded(high));
        let high = if high > low { high } else { low + 1.0 };
        Self { title: title.into(), unit, low, high, log: false }
    }
}

/// An axis with what is drawn on it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Panel {
    /// What it is called.
    pub title: Text,
    /// The vertical axis.
    pub y: Y,
    /// Parts of the vertical axis with names, such as sections of a file. They do not overlap, the
    /// lower ones come first.
    pub bands: Vec<Band>,
    /// Parts of the horizontal axis with names, such as phases of a boot.
    pub spans: Vec<Span>,
    /// Rows of a frame.
    pub marks: Option<Marks>,
    /// Values over the horizontal axis.
    pub flow: Option<Flow>,
}

impl Panel {
    /// An empty one.
    pub fn new(title: impl AsRef<str>, y: Y) -> Self {
        let title = title.into();
        Self { title, y, bands: Vec::new(), spans: Vec::new(), marks: None, flow: None }
    }
}

/// A vertical axis.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Y {
    /// Of values, which grow upwards.
    Value(Axis),
    /// Of lanes, from top to bottom: the labels of a column.
    Lanes(Lanes),
}

/// Lanes with names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lanes {
    /// The frame,
    pub frame: usize,
    /// and the column of it whose labels they are.
    pub column: usize,
    /// Whether all are shown at first, however thin; else as many as have room for their names.
    pub all: bool,
}

/// A part of the vertical axis.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Band {
    /// Where it begins.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// Its name.
    pub name: Text,
    /// What it is, if it has a colour of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<usize>,
}

/// A part of the horizontal axis.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Span {
    /// Where it begins.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// Its name.
    pub name: Text,
}

/// Which rows of a frame are drawn, and how. All numbers are those of columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Marks {
    /// The frame.
    pub frame: usize,
    /// Where they begin on the horizontal axis; `None`: at their number among the rows drawn.
    pub x: Option<usize>,
    /// How long they are.
    pub length: Option<usize>,
    /// Where they are on the vertical axis.
    pub y: usize,
    /// What they are ([`Unit::Kind`]).
    pub kind: usize,
    /// Only rows with this value in this column.
    pub only: Option<(usize, u64)>,
}

/// Values in intervals of equal length.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Flow {
    /// Where the first interval begins.
    pub from: f64,
    /// The length of an interval, above 0.
    pub width: f64,
    /// Whether series are drawn over each other, as parts of a sum; else each as a line.
    pub stacked: bool,
    /// The series, of equal length.
    pub series: Vec<Series>,
}

/// Values of one kind.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Series {
    /// What they are, in [`Picture::kinds`].
    pub kind: usize,
    /// What they are in all, as text; empty if that says nothing.
    pub total: Text,
    /// One for each interval.
    pub values: Vec<f64>,
}

/// Figures with a title.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Table {
    /// What they are.
    pub title: Text,
    /// Names of the columns. The first is that of names, the others are numbers.
    pub head: Vec<Text>,
    /// The rows, each with as many cells.
    pub rows: Vec<Vec<Text>>,
    /// Rows for which there is no room.
    pub skipped: u64,
}

impl Table {
    /// The first `most` of rows.
    pub fn new(
        title: &str,
        head: &[&str],
        rows: impl Iterator<Item = Vec<Text>>,
        most: usize,
    ) -> Self {
        let mut rows: Vec<_> = rows.collect();
        let skipped = rows.len().saturating_sub(most) as u64;
        rows.truncate(most);
        Self { title: title.into(), head: head.iter().map(Text::from).collect(), rows, skipped }
    }
}

impl Picture {
    /// The lanes' names.
    pub fn lanes(&self, lanes: Lanes) -> &[Text] {
        let column = self.frames.get(lanes.frame).and_then(|frame| frame.columns.get(lanes.column));
        column.map_or(&[], |column| &column.labels)
    }
}

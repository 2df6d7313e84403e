//! What holds for every picture, for the tests of builders: all lies within its axes, all numbers name
//! something, and each renderer makes a sound document of it.

use crate::picture::{Axis, Frame, Panel, Picture, Unit, Y};
use crate::render::{html::html, json::json, svg::svg};
use headstart::host::names::is_visible;

/// Fails unless all of it holds.
pub fn check(picture: &Picture) {
    for frame in &picture.frames {
        check_frame(picture, frame);
    }
    for view in &picture.views {
        check_axis(&view.x);
        for subject in &view.subjects {
            let high = subject.x_high.unwrap_or(view.x.high);
            assert!(high > view.x.low && high <= view.x.high, "{high}: {:?}", view.x);
            let x = Axis { high, ..view.x.clone() };
            subject.panels.iter().for_each(|panel| check_panel(picture, panel, &x));
        }
    }
    for table in &picture.tables {
        assert!(table.rows.iter().all(|row| row.len() == table.head.len()), "{table:?}");
    }
    check_documents(picture);
}

fn check_axis(axis: &Axis) {
    assert!(axis.low.is_finite() && axis.high.is_finite() && axis.low < axis.high, "{axis:?}");
    assert!(!axis.log || axis.low > 0.0, "{axis:?}");
}

fn check_frame(picture: &Picture, frame: &Frame) {
    for column in &frame.columns {
        assert_eq!(column.values.len(), frame.rows, "{}", column.title);
        let labels = match column.unit {
            Unit::Label => column.labels.len(),
            Unit::Kind => picture.kinds.len(),
            _ => continue,
        };
        assert!(column.values.iter().all(|value| (*value as usize) < labels), "{}", column.title);
    }
}

fn check_panel(picture: &Picture, panel: &Panel, x: &Axis) {
    let (low, high) = match &panel.y {
        Y::Value(axis) => {
            check_axis(axis);
            (axis.low, axis.high)
        }
        Y::Lanes(lanes) => (0.0, picture.lanes(*lanes).len() as f64 - 0.5),
    };
    let within = |value: f64, low: f64, high: f64| {
        assert!((low..=high).contains(&value), "{value}: {low} to {high}, {panel:?}");
    };
    let mut last = low;
    for band in &panel.bands {
        within(band.from, low, high);
        within(band.to, band.from, high);
        if band.kind.is_none() {
            assert!(band.from >= last, "{:?}", panel.bands);
            last = band.to;
        }
    }
    for span in &panel.spans {
        within(span.from, x.low, x.high);
        within(span.to, span.from, x.high);
    }
    if let Some(flow) = &panel.flow {
        assert!(flow.width > 0.0 && flow.width.is_finite() && flow.from.is_finite());
        let count = flow.series.first().map_or(0, |series| series.values.len());
        for at in 0..count {
            let values = flow.series.iter().map(|series| series.values[at]);
            let sum: f64 = values.clone().sum();
            if flow.stacked {
                within(sum, low, high);
            } else {
                values.for_each(|value| within(value, low, high));
            }
        }
        assert!(flow.series.iter().all(|series| series.kind < picture.kinds.len()));
    }
    let Some(marks) = panel.marks else { return };
    let frame = &picture.frames[marks.frame];
    let value = |column: usize, row: usize| frame.columns[column].at(row);
    let drawn = |row: &usize| {
        marks.only.is_none_or(|(column, wanted)| frame.columns[column].values[*row] == wanted)
    };
    for (number, row) in (0..frame.rows).filter(drawn).enumerate() {
        let at = marks.x.map_or(number as f64, |column| value(column, row));
        within(at, x.low, x.high);
        within(at + marks.length.map_or(0.0, |column| value(column, row)), at, x.high);
        within(value(marks.y, row), low, high);
        assert_eq!(frame.columns[marks.kind].unit, Unit::Kind);
    }
}

fn check_documents(picture: &Picture) {
    let image = svg(picture);
    check_elements(&image);
    assert!(image.ends_with("</svg>\n"));
    let data = json(picture).unwrap();
    let read: serde_json::Value = serde_json::from_str(&data).unwrap();
    // Parsing may change the last digit of a fraction.
    let again = crate::read::picture(data.as_bytes()).unwrap();
    assert!(again.frames == picture.frames && again.kinds == picture.kinds, "{data}");
    assert_eq!((again.views.len(), &again.tables), (picture.views.len(), &picture.tables));
    assert_eq!(read["views"].as_array().map(Vec::len), Some(picture.views.len()));
    let page = html(picture).unwrap();
    let inside = page.split_once("type=\"application/json\">").unwrap().1;
    let inside = inside.split_once("</script>").unwrap().0;
    assert_eq!(serde_json::from_str::<serde_json::Value>(inside).unwrap(), read);
    assert_eq!(page.matches("<script").count(), 2, "names open no scripts");
    assert_eq!(page.matches("</script").count(), 2, "and end none");
    for text in [&image, &page, &data] {
        assert!(text.chars().all(|c| is_visible(c) || c == '\n'), "{text}");
    }
    for attribute in ["x", "y", "d", "width", "height", "viewBox"] {
        for value in image.split(&format!(" {attribute}=\"")).skip(1) {
            let value = value.split('"').next().unwrap_or("");
            assert!(!value.contains("NaN") && !value.contains("inf"), "{value}");
            assert!(!attribute.ends_with("th") || !value.starts_with('-'), "{value}");
        }
    }
}

/// Fails unless elements nest, attributes are quoted and entities are those of XML: a reader for what
/// this crate writes.
fn check_elements(text: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text;
    while let Some((before, tag)) = rest.split_once('<') {
        check_words(before);
        let (tag, behind) = tag.split_once('>').expect("a tag ends");
        rest = behind;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
            continue;
        }
        let is_empty = tag.ends_with('/');
        let tag = tag.trim_end_matches('/');
        let (name, mut attributes) = tag.split_once([' ', '\n']).unwrap_or((tag, ""));
        while let Some((key, value)) = attributes.split_once("=\"") {
            assert!(key.trim().chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{key}");
            let (value, behind) = value.split_once('"').expect("a value ends");
            check_words(value);
            attributes = behind;
        }
        assert_eq!(attributes.trim(), "", "{tag}");
        if !is_empty {
            open.push(name);
        }
    }
    check_words(rest);
    assert!(open.is_empty(), "{open:?}");
}

fn check_words(words: &str) {
    for entity in words.split('&').skip(1) {
        let name = entity.split(';').next().unwrap_or("");
        assert!(["amp", "lt", "gt", "quot", "#39"].contains(&name), "{words}");
    }
}

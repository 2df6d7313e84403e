//! Page faults and advice of a document of `headstart faults`. Pure.

use super::waits;
use crate::output::{JsonPath, grouped, percent};
use headstart_advice::rules::SHOWN_SHARE;
use headstart_view::picture::{Table, Text};
use headstart_view::render::report::{Advice, Drawn, Section};
use headstart_view::units::nanos;
use serde::Deserialize;
use serde_json::Value;

/// Rows of a table.
const ROWS: usize = 40;
/// Characters of a command in a title.
const LONGEST: usize = 60;

/// The sections of a document.
pub fn sections(document: &Value, picture: Option<Drawn>) -> Vec<Section> {
    let words = document["command"].as_array();
    let words = words.into_iter().flatten().filter_map(Value::as_str);
    let command = words.collect::<Vec<_>>().join(" ");
    let matters = |advice: &&Value| advice["share"].as_f64() >= Some(SHOWN_SHARE);
    let advice = list(document, "advice").filter(matters).map(advice).collect::<Vec<_>>();
    let words = vec![match advice.is_empty() {
        true => "No rule found anything that would save much.".into(),
        false => "By the time that each saves of a start like this; gains do not add up.".into(),
    }];
    let to_do = Section {
        title: format!("What to do about {}", shortened(&command)).into(),
        words: if document["advice"].is_array() { words } else { Vec::new() },
        advice,
        ..Section::default()
    };
    let faults = Section {
        title: format!("Page faults of {}", shortened(&command)).into(),
        words: vec![format!("{command}: {} wall time", time(&document["wall_ns"])).into()],
        tables: vec![total(document), places(document)],
        pictures: picture.into_iter().collect(),
        ..Section::default()
    };
    let waits = waits::section(document, &shortened(&command));
    let all = [to_do, faults].into_iter().chain(waits);
    all.filter(|section| !section.words.is_empty()).collect()
}

/// The first words of a command, for a title.
fn shortened(command: &str) -> String {
    match command.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &command[..end]),
        None => command.to_owned(),
    }
}

pub(super) fn list<'a>(document: &'a Value, part: &str) -> impl Iterator<Item = &'a Value> {
    document[part].as_array().into_iter().flatten()
}

pub(super) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

pub(super) fn time(value: &Value) -> String {
    nanos(number(value))
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn advice(advice: &Value) -> Advice {
    let share = percent((advice["share"].as_f64().unwrap_or(0.0) * 1000.0) as u64, 1000);
    let file = JsonPath::deserialize(&advice["file"]).map(|path| format!(" of {}", path.shown()));
    let (rule, file) = (text(&advice["rule"]), file.unwrap_or_default());
    let note = advice["note"].as_str().map(|note| format!("Note: {note}.").into());
    Advice {
        title: format!("{} ({share} %): {rule}{file}", time(&advice["gain_ns"])).into(),
        words: [
            format!("Why: {}.", text(&advice["evidence"])).into(),
            format!("Gain: {}.", text(&advice["formula"])).into(),
        ]
        .into_iter()
        .chain(note)
        .collect(),
        command: text(&advice["command"]).into(),
    }
}

fn total(document: &Value) -> Table {
    let total = &document["total"];
    let row = |kind: &str| -> Vec<Text> {
        let (sum, spread) = (&total[kind], &total[format!("{kind}_latency")]);
        let of_wall = percent(number(&sum["time_ns"]), number(&document["wall_ns"]));
        vec![
            kind.into(),
            grouped(number(&sum["count"])).into(),
            time(&sum["time_ns"]).into(),
            format!("{of_wall} %").into(),
            time(&spread["median_ns"]).into(),
            time(&spread["p99_ns"]).into(),
            time(&spread["max_ns"]).into(),
        ]
    };
    let head = ["", "count", "time", "of wall", "median", "99 %", "longest"];
    Table::new("In total", &head, ["minor", "major"].map(row).into_iter(), 2)
}

fn places(document: &Value) -> Table {
    let row = |place: &Value| -> Vec<Text> {
        let file = JsonPath::deserialize(place).ok().filter(|_| place["path"].is_string());
        let file = file.map_or_else(|| text(&place["memory"]).to_owned(), |path| path.shown());
        let (minor, major) = (&place["minor"], &place["major"]);
        vec![
            [&*file, text(&place["segment"]), text(&place["section"])].join(" ").into(),
            grouped(number(&minor["count"])).into(),
            time(&minor["time_ns"]).into(),
            grouped(number(&major["count"])).into(),
            time(&major["time_ns"]).into(),
            grouped(number(&place["copied"])).into(),
        ]
    };
    let head = ["file, segment, section", "minor", "time", "major", "time", "copied"];
    Table::new("By place", &head, list(document, "places").map(row), ROWS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn advice_and_faults_are_told_and_a_document_without_advice_has_no_such_section() {
        let row = |count: u64| json!({"count": count, "time_ns": 1_500_000});
        let mut document = json!({
            "command": ["git", "status"], "wall_ns": 3_000_000,
            "total": {"minor": row(1200), "major": row(0)},
            "places": [{"path": "/x", "segment": "text", "minor": row(7)}],
            "advice": [{"rule": "backward-text", "file": {"path": "/x"}, "gain_ns": 1_000_000,
                        "share": 0.333, "evidence": "e", "formula": "f", "command": "c"}],
        });
        let found = sections(&document, None);
        let [to_do, faults] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(to_do.advice[0].title.as_str(), "1.0 ms (33.3 %): backward-text of /x");
        assert_eq!(to_do.advice[0].words[0].as_str(), "Why: e.");
        assert_eq!(faults.tables[0].rows[0][3].as_str(), "50.0 %");
        assert_eq!(faults.tables[1].rows[0][0].as_str(), "/x text ");
        document["advice"] = json!([]);
        assert!(sections(&document, None)[0].words[0].as_str().starts_with("No rule"));
        document.as_object_mut().unwrap().remove("advice");
        assert_eq!(sections(&document, None)[0].title.as_str(), "Page faults of git status");
    }
}

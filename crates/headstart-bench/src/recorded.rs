//! A document of `headstart faults` as counters: each figure by its place, process or thread. It
//! reads whatever numbers are in the parts that it knows, so that a newer document has more
//! counters. Opens no files.

use serde_json::{Map, Value};
use std::collections::HashMap;

/// How the schema of such a document begins.
pub const SCHEMA: &str = "headstart/faults/";

/// Parts that are one row of figures.
const ROWS: [&str; 5] = ["total", "getrusage", "executions", "wall_ns", "waits"];
/// Parts that are lists of rows, each with a name before its figures and one before the names of rows.
const LISTS: [(&str, &str, &str); 5] = [
    ("/places", "", ""),
    ("/processes", "", "process "),
    ("/threads", "", THREAD),
    ("/waits/causes", "waits ", ""),
    ("/waits/devices", "waits ", "device "),
];
const THREAD: &str = "thread ";
/// Words that name a row, before others.
const WORDS: [&str; 4] = ["kind", "path", "segment", "section"];
/// Numbers that name a row.
const NUMBERS: [&str; 2] = ["pid", "tid"];
/// Figures that a recording knows only if this member of `unlisted` says so.
const KNOWN_IF: [(&str, &str); 3] =
    [("copied", "copies_known"), ("zero_page", "copies_known"), ("huge", "huge_known")];
/// What is missing in a recording if this is not 0 (or true).
const MISSING: [&str; 5] =
    ["lost_records", "lost_faults", "lost_ends", "threads_missed", "is_full"];

/// What a recording says.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Recorded {
    /// Figures that are not 0, by name; times in ms.
    pub counters: HashMap<String, f64>,
    /// Figures that are not known, by the first word of their names.
    pub unknown: Vec<&'static str>,
    /// What was recorded.
    pub command: String,
    /// Whether nothing of it was lost.
    pub is_whole: bool,
}

impl Recorded {
    /// Of a document, whose schema begins with [`SCHEMA`].
    pub fn of(document: &Value) -> Self {
        let unlisted = &document["unlisted"];
        let is_unknown =
            |(figure, known): (&'static str, &str)| (unlisted[known] == false).then_some(figure);
        let waits = document["waits"].is_null().then_some("waits");
        let mut found = Self {
            counters: HashMap::new(),
            unknown: KNOWN_IF.into_iter().filter_map(is_unknown).chain(waits).collect(),
            command: command(document),
            is_whole: MISSING.iter().all(|missing| is_nothing(&unlisted[*missing])),
        };
        for part in ROWS {
            let mut name = if part == "total" { String::new() } else { part.to_owned() };
            found.add(&document[part], &mut name, "");
        }
        let processes = process_names(document);
        for (part, figures, kind) in LISTS {
            for row in document.pointer(part).and_then(Value::as_array).into_iter().flatten() {
                let Some(row) = row.as_object() else { continue };
                let Some(name) = name(row, kind, &processes) else { continue };
                row.iter().filter(|(key, _)| !NUMBERS.contains(&key.as_str())).for_each(
                    |(key, value)| {
                        found.add(value, &mut [figures, key.as_str()].concat(), &name);
                    },
                );
            }
        }
        found
    }

    /// Adds the numbers of a value: their names are those of the members that lead to them, with
    /// `of` behind.
    fn add(&mut self, value: &Value, name: &mut String, of: &str) {
        match value {
            Value::Object(members) => {
                let length = name.len();
                for (key, value) in members {
                    name.extend([if length == 0 { "" } else { " " }, key.as_str()]);
                    self.add(value, name, of);
                    name.truncate(length);
                }
            }
            Value::Number(number) => {
                let first = name.split(' ').next().unwrap_or_default();
                let Some(number) = number.as_f64().filter(|number| *number != 0.0) else { return };
                if self.unknown.contains(&first) {
                    return;
                }
                let (name, unit, number) = match name.strip_suffix("_ns") {
                    Some(name) => (name, "_ms", number / 1e6),
                    None => (name.as_str(), "", number),
                };
                let space = if of.is_empty() { "" } else { " " };
                let counter = self.counters.entry([name, unit, space, of].concat()).or_default();
                // Several processes have one name.
                *counter = match name.ends_with("longest") && !unit.is_empty() {
                    true => counter.max(number),
                    false => *counter + number,
                };
            }
            _ => {}
        }
    }
}

/// The names of processes by their numbers; the first one of those that have the same number.
fn process_names(document: &Value) -> HashMap<i64, &str> {
    let mut names = HashMap::new();
    for process in document["processes"].as_array().into_iter().flatten() {
        if let (Some(pid), Some(name)) = (process["pid"].as_i64(), process["name"].as_str()) {
            names.entry(pid).or_insert(name);
        }
    }
    names
}

/// What a row is about; `None` for a thread that has the name of its process, whose figures are
/// those of the process or a part of them.
fn name(row: &Map<String, Value>, kind: &str, processes: &HashMap<i64, &str>) -> Option<String> {
    let word = |key: &str| row.get(key).and_then(Value::as_str);
    if kind == THREAD {
        let of_process = row.get("pid").and_then(Value::as_i64).and_then(|pid| processes.get(&pid));
        if of_process.is_some_and(|process| Some(*process) == word("name")) {
            return None;
        }
    }
    let mut words: Vec<&str> = WORDS.into_iter().filter_map(word).collect();
    let others = row.iter().filter(|(key, _)| !WORDS.contains(&key.as_str()));
    words.extend(others.filter_map(|(_, value)| value.as_str()).map(without_number));
    Some(format!("{kind}{}", words.join(" ")))
}

/// The name of a thread without its number, which is another one in each recording.
fn without_number(name: &str) -> &str {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match name.strip_suffix(')').and_then(|name| name.rsplit_once(" (")) {
        Some((name, number)) if is_number(number) => name,
        _ => name,
    }
}

fn is_nothing(value: &Value) -> bool {
    value.is_null() || *value == false || value.as_u64() == Some(0)
}

fn command(document: &Value) -> String {
    let words = document["command"].as_array();
    let words: Vec<_> = words.into_iter().flatten().filter_map(Value::as_str).collect();
    if words.is_empty() { format!("process {}", document["pid"]) } else { words.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn each_figure_that_is_not_zero_is_a_counter_named_by_its_place() {
        let row = |count: u64| json!({"count": count, "time_ns": 2_000_000 * count});
        let found = Recorded::of(&json!({
            "schema": "headstart/faults/1", "command": ["git", "status"], "wall_ns": 5_000_000,
            "total": {"minor": row(7), "major": row(0), "copied": 3, "huge": 9},
            "places": [
                {"path": "/l.so", "segment": "text", "section": ".text", "minor": row(4)},
                {"memory": "[heap]", "minor": row(3)},
            ],
            "processes": [{"pid": 1, "name": "a", "minor": row(2)},
                          {"pid": 2, "name": "a", "minor": row(5)}],
            "threads": [{"pid": 1, "tid": 1, "name": "a", "minor": row(1)},
                        {"pid": 1, "tid": 3, "name": "w", "minor": row(1)}],
            "waits": {
                "main_thread": {"total_ns": 3_000_000, "waits": {"fault": row(1)}},
                "causes": [{"kind": "fault", "path": "/x", "main_thread": row(1)},
                           {"kind": "run-queue", "name": "k (7)", "main_thread": row(1)},
                           {"kind": "run-queue", "name": "k (8)", "main_thread": row(1)}],
                "devices": [{"device": "8:0", "mean_depth": 1.5}],
            },
            "unlisted": {"huge_known": false, "copies_known": true, "lost_records": 0},
        }));
        let expected = [
            ("copied", 3.0),
            ("minor count", 7.0),
            ("minor count /l.so text .text", 4.0),
            ("minor count [heap]", 3.0),
            ("minor count process a", 7.0),
            ("minor count thread w", 1.0),
            ("minor time_ms", 14.0),
            ("minor time_ms /l.so text .text", 8.0),
            ("minor time_ms [heap]", 6.0),
            ("minor time_ms process a", 14.0),
            ("minor time_ms thread w", 2.0),
            ("waits main_thread count fault /x", 1.0),
            ("waits main_thread count run-queue k", 2.0),
            ("waits main_thread time_ms fault /x", 2.0),
            ("waits main_thread time_ms run-queue k", 4.0),
            ("waits main_thread total_ms", 3.0),
            ("waits main_thread waits fault count", 1.0),
            ("waits main_thread waits fault time_ms", 2.0),
            ("waits mean_depth device 8:0", 1.5),
            ("wall_ms", 5.0),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value));
        let counters: std::collections::BTreeMap<_, _> = found.counters.into_iter().collect();
        assert_eq!(counters.into_iter().collect::<Vec<_>>(), expected);
        assert_eq!((found.unknown, found.is_whole), (vec!["huge"], true));
        assert_eq!(found.command, "git status");
    }

    #[test]
    fn a_recording_that_lost_something_is_not_whole() {
        for (unlisted, is_whole) in [
            (json!({"lost_faults": 1}), false),
            (json!({"is_full": true}), false),
            (json!({"is_full": false, "lost_ends": 0}), true),
        ] {
            let found = Recorded::of(&json!({"pid": 7, "unlisted": unlisted}));
            assert_eq!((found.is_whole, &*found.command), (is_whole, "process 7"), "{unlisted}");
        }
    }

    #[test]
    fn each_of_very_many_threads_is_compared_with_its_own_process_alone() {
        let rows = |kind: &str| -> Vec<Value> {
            (0..20_000)
                .map(|n| json!({"pid": n, "tid": n, "name": format!("{kind}{}", n / 2 * 2), "minor": 1}))
                .collect()
        };
        let mut threads = rows("a");
        threads[7]["name"] = json!("worker");
        let found = Recorded::of(&json!({"processes": rows("a"), "threads": threads}));
        assert_eq!(found.counters.len(), 10_001, "processes of one name, and the worker");
        assert_eq!(found.counters["minor thread worker"], 1.0);
    }

    proptest! {
        #[test]
        fn no_document_makes_it_panic(text in r#"[{}\[\]",:a-z0-9]{0,80}"#) {
            if let Ok(value) = serde_json::from_str(&text) {
                Recorded::of(&value);
            }
        }
    }
}

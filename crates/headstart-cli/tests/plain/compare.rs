//! `headstart compare` of sets of recordings of page faults.

use crate::command::headstart;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// A recording of `faults` page faults in the text of a library, some of them elsewhere.
fn record(dir: &Path, name: &str, command: &str, faults: u64, lost: u64) -> String {
    let row = |count: u64| json!({"count": count, "time_ns": 2000 * count});
    let document = json!({
        "schema": "headstart/faults/1", "command": [command], "wall_ns": 10_000_000,
        "total": {"minor": row(faults + 5), "major": row(0), "copied": 0},
        "places": [
            {"path": "/lib/x.so", "segment": "text", "section": ".text", "minor": row(faults)},
            {"memory": "[heap]", "minor": row(5)},
        ],
        "unlisted": {"copies_known": true, "huge_known": false, "lost_faults": lost},
    });
    let file = dir.join(name);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, document.to_string()).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn places_that_moved_are_found_in_directories_and_lists_of_recordings() {
    let dir = tempfile::tempdir().unwrap();
    let set = |name: &str, faults: u64| -> Vec<String> {
        let file = |run| format!("{name}/{run}.json");
        (0..8).map(|run| record(dir.path(), &file(run), "x", faults + run % 3, 0)).collect()
    };
    let (before, after) = (set("before", 100), set("after", 40));
    fs::write(dir.path().join("before/notes.txt"), "mine").unwrap();
    let directory = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let directories =
        ["compare".to_owned(), "--json".to_owned(), directory("before"), directory("after")];
    let lists =
        [&["compare".to_owned(), "--json".to_owned()][..], &before, &["--with".to_owned()], &after]
            .concat();
    let documents = [directories.to_vec(), lists].map(|words| {
        let output = headstart(&words.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    });
    assert_eq!(documents[0], documents[1]);
    let [found, _] = documents;
    assert_eq!(
        (&found["schema"], &found["second"]["recordings"]),
        (&"headstart/compare/2".into(), &8.into())
    );
    let row = |name: &str| {
        let mut rows = found["rows"].as_array().unwrap().iter();
        rows.find(|row| row["counter"] == name).unwrap_or_else(|| panic!("{name}: {found:#}"))
    };
    let text = row("minor count /lib/x.so text .text");
    assert_eq!(text["welch"]["difference"], -60.0);
    assert!(text["p_adjusted"].as_f64() < Some(0.001), "{text:#}");
    assert_eq!(row("minor count [heap]")["p_adjusted"], 1.0);
    assert_eq!(
        found["skipped"],
        json!([{"counter": "huge", "reason": "not-recorded"}, {"counter": "waits", "reason": "not-recorded"}])
    );

    let words = ["compare", "--top", "1", &directory("before"), &directory("after")];
    let text = String::from_utf8(headstart(&words).stdout).unwrap();
    assert!(text.lines().nth(1).unwrap().ends_with("differs"), "{text}");
    assert!(text.contains(" more counters, of which 3 differ (--top 0 lists all)"), "{text}");
    assert!(text.contains("not compared, not all recordings know it: huge, waits"), "{text}");
}

#[test]
fn one_recording_a_side_is_refused_and_what_is_odd_about_others_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, command: &str, lost| record(dir.path(), name, command, 10, lost);
    let (a, b) = (file("a.json", "x", 0), file("b.json", "y", 3));
    for (words, message) in [
        (vec!["compare", &*a, &*b], "the first side has 1 recording"),
        (vec!["compare", &*a, &*b, "--with", &*a], "the second side has 1 recording"),
        (vec!["compare", &*a], "Give two results, or two sets"),
        (vec!["compare", &*a, &*b, &*a], "Give two results, or two sets"),
        (vec!["compare", &*a, &*b, "--with", "/nonexistent"], "Can't read /nonexistent"),
    ] {
        let output = headstart(&words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(message), "{said}");
    }
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let output = headstart(&["compare", empty.to_str().unwrap(), &a]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("ends in .json"), "{output:?}");
    let output = headstart(&["compare", &a, &b, "--with", &a, &a]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("first side is of several commands: x; y"), "{said}");
    assert!(said.contains("On the first side 1 recording lost some faults"), "{said}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains(
            "with 2+2 recordings, a counter that is constant on both sides has p ≥ 0.333"
        ),
        "{text}"
    );
}

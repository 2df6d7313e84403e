//! `headstart report` from documents and from a program that runs now.

use crate::command::headstart;
use crate::faults::is_forbidden;
use serde_json::json;
use std::fs;

const BEGIN: &str = "<!DOCTYPE html>\n<!-- headstart/report/1 -->\n";

#[test]
fn a_page_has_advice_first_then_faults_and_a_benchmark_with_its_picture() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let row = json!({"count": 7, "time_ns": 5_000_000});
    let faults = json!({
        "schema": "headstart/faults/1", "command": ["<b>x", "y"], "wall_ns": 10_000_000,
        "total": {"minor": row, "major": row},
        "places": [{"path": "/lib/<i>.so", "segment": "text", "minor": row}],
        "advice": [
            {"rule": "prefetch", "gain_ns": 4_000_000, "share": 0.4, "evidence": "seven faults",
             "formula": "a × b", "command": "sudo headstart run -- x", "note": "so"},
            {"rule": "relocations", "gain_ns": 1, "share": 0.01, "evidence": "tiny"}],
    });
    let runs = json!([{"wall_s": 1.0}, {"wall_s": 1.5}]);
    let bench = json!({"schema": "headstart/bench/3", "command": ["x"],
                       "arms": [{"name": "hot", "runs": runs}]});
    fs::write(at("faults"), faults.to_string()).unwrap();
    fs::write(at("bench"), bench.to_string()).unwrap();
    let (page, faults, bench) = (at("r.html"), at("faults"), at("bench"));
    // An earlier report is replaced.
    for _ in 0..2 {
        let output = headstart(&["report", "-o", &page, "--bench", &bench, "--faults", &faults]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.starts_with(BEGIN));
    let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
    assert!(place("4.0 ms (40.0 %): prefetch") < place("Page faults of &lt;b&gt;x y</h2>"));
    assert!(place("/lib/&lt;i&gt;.so text") < place("<h2 id=\"s2\">Benchmark"));
    assert!(place("data-page=\"<!DOCTYPE html>") < place(">Machine</h2>"));
    place("<code>sudo headstart run -- x</code>");
    for absent in ["tiny", "<b>x", "src=", "href=\"http", "url(http"] {
        assert!(!text.contains(absent), "{absent}");
    }
}

#[test]
fn the_faults_of_a_program_are_recorded_now_and_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("r.html");
    let output =
        headstart(&["report", "-o", page.to_str().unwrap(), "--", "sh", "-c", "echo mine; exit 3"]);
    let message = String::from_utf8_lossy(&output.stderr);
    if message.contains("were not recorded") {
        // For the reason that headstart faults has given.
        let alone = headstart(&["faults", "-q", "--", "true"]);
        assert!(is_forbidden(&alone), "{message}");
        return;
    }
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"mine\n"[..]), "{message}");
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains("Page faults of sh -c echo mine; exit 3"));
    assert!(text.contains("<figure><svg ") && text.contains("<iframe "));
    assert!(!text.contains("<h2 id=\"s2\">Waits"), "they were not recorded");
}

#[test]
fn an_earlier_recording_has_its_waits_and_pictures_before_and_after() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let row = json!({"count": 7, "time_ns": 5_000_000});
    let waits = json!({"main_thread": {"total_ns": 9_000_000, "waits": {"read": row}},
                       "devices": [{"device": "8:0", "reads": 1234, "mean_depth": 2.0}]});
    let faults = json!({"schema": "headstart/faults/2", "command": ["app"], "wall_ns": 9_000_000,
                        "total": {"minor": row, "major": row}, "places": [], "waits": waits});
    fs::write(at("faults"), faults.to_string()).unwrap();
    let [first, second, both, page, doc] =
        ["1.json", "2.json", "both.json", "r.html", "faults"].map(at);
    for file in [&first, &second] {
        let output = headstart(&["faults", "-q", "--picture", file, "--", "true"]);
        if is_forbidden(&output) {
            return;
        }
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    let compared = headstart(&["compare", &first, &second, "--picture", &both]);
    let said = String::from_utf8_lossy(&compared.stdout);
    assert!(compared.status.code() == Some(0) && said.contains(" before, "), "{compared:?}");
    let words = ["report", "-o", &page, "--faults", &doc, "--picture", &both, "--picture", &first];
    let output = headstart(&words);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = fs::read_to_string(&page).unwrap();
    for part in [
        "Waits of app</h2>",
        "<td>read</td><td>7</td><td>5.0 ms</td><td>55.6 %</td>",
        "<td>8:0</td><td>1,234</td>",
        ">Page faults of true: before and after</h2>",
        ">Page faults of true</h2>",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(text.matches("<iframe ").count(), 2);
    for (words, message) in [
        (&["report", "-o", &*page, "--picture", &*doc][..], "This is no picture"),
        (&["report", "-o", &page, "--waits", "true"], "--waits"),
        (&["compare", &doc, &first, "--picture", &both], "The first side has no picture"),
        (&["compare", &both, &first, "--picture", &page], "It is no earlier result"),
        (&["compare", &both, &first, "--picture", &at("n.svg")], "no picture of headstart faults"),
    ] {
        let output = headstart(words);
        let said = String::from_utf8_lossy(&output.stderr).to_lowercase();
        let is_said = said.contains(&message.to_lowercase());
        assert!(!output.status.success() && is_said, "{message}: {said}");
    }
}

#[test]
fn what_is_no_report_is_kept_and_what_can_not_be_told_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (mine, page, other) = (at("mine.html"), at("r.html"), at("other"));
    fs::write(&mine, "<!DOCTYPE html>\n<html>").unwrap();
    fs::write(&other, "{\"schema\": \"headstart/run/2\"}").unwrap();
    for (words, message) in [
        (&["-o", &*mine, "--faults", &*other][..], "Can't write"),
        (&["-o", &page], "Say what the report is of"),
        (&["-o", &page, "--faults", &other], "no result of headstart faults"),
        (&["-o", &page, "--bench", &other], "\"headstart/run/2\""),
        (&["-o", &page, "--faults", "/nonexistent"], "Can't use /nonexistent"),
        (&["-o", &page, "no-such-program"], "no-such-program"),
        (&["-o", &page, "no-such-unit.service"], "no-such-unit"),
    ] {
        let output = headstart(&[&["report"], words].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(message), "{message}: {said}");
    }
    assert!(!std::path::Path::new(&page).exists());
}

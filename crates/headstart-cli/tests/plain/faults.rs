//! `headstart faults` without privileges, where the setting of the kernel allows it.

use crate::command::headstart;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// `headstart faults` of a command, with its document; `None` where this is forbidden, as
/// containers do.
fn faults(dir: &Path, options: &[&str], command: &[&str]) -> Option<(Output, Value)> {
    let file = dir.join("figures.json");
    let mut words = vec!["faults", "--json", file.to_str().unwrap()];
    words.extend(options);
    words.push("--");
    words.extend(command);
    let output = headstart(&words);
    if output.status.code() == Some(4) {
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains("perf_event_paranoid") || message.contains("perf_event_open"));
        eprintln!("skipped: {}", message.trim());
        return None;
    }
    let text = fs::read(&file).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    Some((output, serde_json::from_slice(&text).unwrap()))
}

#[test]
fn the_faults_of_a_program_are_counted_and_its_status_and_output_are_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let csv = dir.path().join("faults.csv");
    let options = ["--csv", csv.to_str().unwrap()];
    let command = ["sh", "-c", "read x; echo $x; exit 7"];
    let Some((output, document)) = faults(dir.path(), &options, &command) else { return };
    assert_eq!(output.status.code(), Some(7));
    // Standard input is that of the tests, which is empty.
    assert_eq!(output.stdout, b"\n");
    assert_eq!(document["schema"], "headstart/faults/1");
    let count = |kind: &str| document["total"][kind]["count"].as_u64().unwrap();
    let listed = count("minor") + count("major");
    assert!(listed > 20, "{document:#}");
    assert_eq!(document["unlisted"]["ends_without_begin"], 0);
    let text = document["places"].as_array().unwrap().iter().any(|place| {
        place["segment"] == "text" && place["section"] == ".text" && place["path"].is_string()
    });
    assert!(text, "{document:#}");
    let rows = fs::read_to_string(&csv).unwrap();
    let unended = document["total"]["unended"].as_u64().unwrap();
    assert_eq!(rows.lines().count() as u64, 1 + listed + unended);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("getrusage") && message.contains(" records, "), "{message}");
}

#[test]
fn a_program_that_is_not_found_ends_with_127_and_has_no_tables() {
    let output = headstart(&["faults", "--", "/nonexistent/program"]);
    if output.status.code() == Some(4) {
        return eprintln!("skipped: no perf events here");
    }
    assert_eq!(output.status.code(), Some(127));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("Can't run") && !message.contains("MINOR"), "{message}");
}

#[test]
fn a_file_that_is_no_result_is_kept_and_the_program_does_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let (file, made) = (dir.path().join("mine"), dir.path().join("made"));
    fs::write(&file, "precious").unwrap();
    for option in ["--json", "--csv"] {
        let words = ["faults", option, file.to_str().unwrap(), "--", "touch"];
        let output = headstart(&[&words[..], &[made.to_str().unwrap()]].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(fs::read(&file).unwrap() == b"precious" && !made.exists());
    }
}

#[test]
fn a_running_process_is_recorded_for_a_while() {
    // It faults as long as it runs, and says when it has begun.
    let program = "import mmap\nprint('begun', flush=True)\nwhile True:\n    \
                   memory = mmap.mmap(-1, 1 << 20)\n    memory[::4096]\n    memory.close()";
    let child = Command::new("python3").args(["-c", program]).stdout(Stdio::piped()).spawn();
    let Ok(mut child) = child else { return eprintln!("skipped: no python3") };
    let mut line = String::new();
    let out = std::io::BufReader::new(child.stdout.as_mut().unwrap());
    std::io::BufRead::read_line(&mut { out }, &mut line).unwrap();
    let pid = child.id().to_string();
    let output = headstart(&["faults", "--pid", &pid, "--for", "200ms", "--json", "-", "-q"]);
    child.kill().unwrap();
    child.wait().unwrap();
    if output.status.code() == Some(4) {
        return eprintln!("skipped: no perf events here");
    }
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(document["total"]["minor"]["count"].as_u64() > Some(10), "{document:#}");
    assert_eq!(document["pid"].to_string(), pid);
    let gone = headstart(&["faults", "--pid", &pid, "--for", "1s"]);
    assert_eq!(gone.status.code(), Some(1));
    let message = String::from_utf8_lossy(&gone.stderr);
    assert!(message.contains(&format!("There is no process {pid}")), "{message}");
}

//! A program that waits for the disk for less than a replay costs is left alone.
#![allow(clippy::unwrap_used)]

mod common;

use common::{disk_dir, is_root, skipped};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// A device that answers at once.
const QUICK: &str =
    r#"{"latency_us":1,"next_us":1,"bandwidth_mb_s":10000,"depth":16,"iops":999999}"#;

fn run(packs: &Path, options: &[&str]) -> Value {
    let figures = packs.join("figures.json");
    let output = Command::new(env!("CARGO_BIN_EXE_headstart"))
        .env("HEADSTART_PACKS", packs)
        .args(["run", "--json", figures.to_str().unwrap()])
        .args(options)
        .args(["--", "true"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&std::fs::read(&figures).unwrap()).unwrap()
}

#[test]
fn where_it_is_not_worth_it_a_program_is_left_alone_unless_told_otherwise() {
    if !is_root() {
        return skipped("needs root");
    }
    let packs = disk_dir();
    run(packs.path(), &[]);
    let models = std::fs::read_dir(packs.path().join("devices")).into_iter().flatten();
    let models: Vec<_> = models.map(|entry| entry.unwrap().path()).collect();
    if models.is_empty() {
        return skipped("the device of this system can't be measured");
    }
    for model in models.iter().filter(|path| path.extension().is_some_and(|e| e == "json")) {
        std::fs::write(model, QUICK).unwrap();
    }
    let is_left_alone = |figures: &Value| {
        let notes = figures["notes"].to_string();
        assert_eq!(notes.contains("not worth it here"), figures["read_ahead"].is_null(), "{notes}");
        figures["read_ahead"].is_null()
    };
    for starts in [2, 3] {
        let figures = run(packs.path(), &[]);
        assert!(is_left_alone(&figures), "{figures:#}");
        assert_eq!(figures["learned"]["starts"], starts, "{figures:#}");
    }
    let figures = run(packs.path(), &[]);
    assert!(is_left_alone(&figures) && figures["learned"].is_null(), "{figures:#}");
    let figures = run(packs.path(), &["--always"]);
    assert!(!is_left_alone(&figures), "{figures:#}");
    assert_eq!(figures["learned"]["starts"], 4, "{figures:#}");
}

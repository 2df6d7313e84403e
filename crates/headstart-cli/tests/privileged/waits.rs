//! `--waits`: what a start waited for is part of its figures and of the record of the last start.

use crate::command::json;
use headstart_testing::{LoopFs, disk_dir, noise, python, write_synced};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The figures of `headstart VERB --waits`, with these packs.
fn start(packs: &Path, verb: &[&str], command: &[&str]) -> Value {
    let figures = packs.join("figures.json");
    let output = Command::new(env!("CARGO_BIN_EXE_headstart"))
        .env("HEADSTART_PACKS", packs)
        .args(verb)
        .args(["--waits", "--json", figures.to_str().unwrap(), "--"])
        .args(command)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let document: Value = serde_json::from_slice(&fs::read(&figures).unwrap()).unwrap();
    assert_whole(&document["waited"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains(" to the end of the program: "), "{message}");
    document
}

fn us(waited: &Value, part: &str) -> u64 {
    waited[part].as_u64().unwrap_or_else(|| panic!("{part}: {waited:#}"))
}

const PARTS: [&str; 9] = [
    "cpu_us",
    "not_requested_us",
    "too_late_us",
    "in_flight_us",
    "names_us",
    "replay_cpu_us",
    "other_cpu_us",
    "other_us",
    "unexplained_us",
];

/// The parts are the whole, up to a µs for each.
fn assert_whole(waited: &Value) {
    let parts: u64 = PARTS.iter().map(|part| us(waited, part)).sum();
    assert!(us(waited, "wall_us").abs_diff(parts) <= PARTS.len() as u64, "{waited:#}");
}

#[test]
fn a_cold_start_waits_for_pages_that_were_not_requested_and_the_next_one_does_not() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let Some(python) = python() else { return };
    let (packs, data) = (disk_dir(), fs.path().join("data"));
    write_synced(&data, &noise(4 << 20));
    let program = "import sys\nfile = open(sys.argv[1], 'rb', 0)\n\
                   for at in (0, 3 << 20, 1 << 20):\n    file.seek(at)\n    file.read(65536)\n";
    let command = [&*python, "-I", "-S", "-c", program, data.to_str().unwrap()];
    fs.remount();
    let cold = start(packs.path(), &["record"], &command);
    let of_data = |document: &Value| {
        let files = document["waited"]["files"].as_array().unwrap();
        files.iter().find(|file| file["path"] == *data.to_str().unwrap()).cloned()
    };
    let file = of_data(&cold).unwrap_or_else(|| panic!("{cold:#}"));
    assert!(us(&file, "not_requested_us") > 0, "{cold:#}");
    assert_eq!((us(&file, "too_late_us"), us(&file, "in_flight_us")), (0, 0), "{file:#}");
    // It is kept with the classification of the pages.
    let pack = cold["learned"]["pack"]["path"].as_str().unwrap();
    assert_eq!(json(&["show", "--last-run", "--json", pack])["waited"], cold["waited"]);
    // What is in the pack is requested before the program is let go, or soon after.
    fs.remount();
    let options = ["run", "-v", "--always", "--max-delay", "5s"];
    let prefetched = start(packs.path(), &options, &command);
    if let Some(file) = of_data(&prefetched) {
        assert_eq!(us(&file, "not_requested_us"), 0, "{prefetched:#}");
    }
}

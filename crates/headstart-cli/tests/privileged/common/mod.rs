//! What the tests of the command share: programs, packs, boots, terminals.

pub mod models;
pub mod packs;
pub mod process;
pub mod python;
pub mod scripted_boot;
pub mod starts;

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Where trace instances are.
pub const INSTANCES: &str = "/sys/kernel/tracing/instances";

/// The names of the trace instances that there are.
pub fn instances() -> Vec<String> {
    let entries = std::fs::read_dir(INSTANCES).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// What is found, if that is within this time.
pub fn within<T>(time: Duration, mut find: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + time;
    let mut found = find();
    while found.is_none() && Instant::now() < end {
        found = find();
    }
    found
}

/// The figures of `headstart run` with these packs. Not while the kernel removes the trace of
/// another start: a well known program does not wait for that.
pub fn run_json(packs: &Path, options: &[&str], command: &[&str]) -> Value {
    let deadline = Instant::now() + Duration::from_secs(20);
    while instances().iter().any(|name| name.starts_with("headstart-")) {
        assert!(Instant::now() < deadline, "{:?}", instances());
    }
    let figures = packs.join("figures.json");
    let output = Command::new(env!("CARGO_BIN_EXE_headstart"))
        .env("HEADSTART_PACKS", packs)
        .args(["run", "--json", figures.to_str().unwrap()])
        .args(options)
        .arg("--")
        .args(command)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&std::fs::read(&figures).unwrap()).unwrap()
}

//! `headstart faults --waits` as root: what a program waited for is named, and the parts of its time are
//! all of it.

use crate::command::headstart;

use headstart_testing::{
    LoopFs, as_nobody, disk_dir, noise, public_dir, python, root_or_skip, wait_until, write_synced,
};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Command};

/// The document of a recording with these arguments.
fn recorded(arguments: &[&str]) -> Value {
    let dir = disk_dir();
    let figures = dir.path().join("figures.json");
    let words = ["faults", "--waits", "-q", "--json", figures.to_str().unwrap()];
    let output = headstart(&[&words[..], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let document: Value = serde_json::from_slice(&fs::read(figures).unwrap()).unwrap();
    for account in ["main_thread", "all_threads"] {
        assert_exact(&document["waits"][account]);
    }
    document["waits"]["threads"].as_array().unwrap().iter().for_each(assert_exact);
    document
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

fn assert_exact(account: &Value) {
    let waits = account["waits"].as_object().unwrap();
    let waited: u64 = waits.values().map(|sum| number(&sum["time_ns"])).sum();
    let cpu = ["cpu_user_ns", "cpu_calls_ns", "cpu_faults_ns"];
    let ran: u64 = cpu.iter().map(|part| number(&account[part])).sum();
    let parts = ran + waited + number(&account["waits_not_kept_ns"]);
    assert_eq!(parts, number(&account["total_ns"]), "{account:#}");
}

/// The waits of a kind for a file, in ns.
fn waited_for(document: &Value, kind: &str, path: &Path) -> u64 {
    let causes = document["waits"]["causes"].as_array().unwrap();
    let of_file = causes
        .iter()
        .filter(|cause| cause["kind"] == kind && cause["path"] == *path.to_str().unwrap());
    of_file.map(|cause| number(&cause["main_thread"]["time_ns"])).sum()
}

#[test]
fn a_cold_read_and_a_cold_fault_are_waits_for_their_files_and_the_device_is_told() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let Some(python) = python() else { return };
    let (read, mapped) = (fs.path().join("read"), fs.path().join("mapped"));
    for path in [&read, &mapped] {
        write_synced(path, &noise(4 << 20));
    }
    fs.remount();
    let program = "import mmap, sys\n\
                   file = open(sys.argv[1], 'rb', 0)\n\
                   file.seek(1 << 20)\n\
                   file.read(65536)\n\
                   other = open(sys.argv[2], 'rb', 0)\n\
                   pages = mmap.mmap(other.fileno(), 0, prot=mmap.PROT_READ)\n\
                   pages[2 << 20]\n";
    let files = [read.to_str().unwrap(), mapped.to_str().unwrap()];
    let command = [&["--", &*python, "-I", "-S", "-c", program][..], &files].concat();
    let document = recorded(&command);
    assert!(waited_for(&document, "read", &read) > 0, "{document:#}");
    assert!(waited_for(&document, "fault", &mapped) > 0, "{document:#}");
    // A single thread, from its execution to its end.
    assert_eq!(document["wall_ns"], document["waits"]["main_thread"]["total_ns"]);
    let devices = document["waits"]["devices"].as_array().unwrap();
    let device = devices.iter().find(|row| row["device"] == *fs.dev().to_string());
    let device = device.unwrap_or_else(|| panic!("{document:#}"));
    assert!(number(&device["reads"]) >= 2, "{device:#}");
    assert!(number(&device["read_bytes"]) >= 2 * 4096, "{device:#}");
    assert!(number(&device["busy_ns"]) > 0, "{device:#}");
}

#[test]
fn a_program_that_only_sleeps_is_explained_as_such() {
    if !root_or_skip() {
        return;
    }
    let document = recorded(&["--", "sleep", "0.2"]);
    let waits = &document["waits"]["main_thread"]["waits"];
    assert!(number(&waits["timer"]["time_ns"]) >= 199_000_000, "{document:#}");
    if document["unlisted"]["lost_records"] == 0 {
        assert_eq!(waits["unexplained"], Value::Null, "{document:#}");
    }
}

/// A process that sleeps, until it is dropped.
struct Sleeping(Child);

impl Drop for Sleeping {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn the_wait_of_a_process_that_waits_already_is_known_by_its_call() {
    if !root_or_skip() {
        return;
    }
    let sleeping = Sleeping(Command::new("sleep").arg("600").spawn().unwrap());
    let stat = format!("/proc/{}/stat", sleeping.0.id());
    wait_until("sleep", || fs::read_to_string(&stat).unwrap().contains("(sleep) S").then_some(()));
    let pid = sleeping.0.id().to_string();
    let document = recorded(&["--pid", &pid, "--for", "100ms"]);
    let main = &document["waits"]["main_thread"];
    assert_eq!(main["waits"]["timer"]["time_ns"], main["total_ns"], "{document:#}");
}

#[test]
fn users_other_than_root_are_told_what_waits_need() {
    if !root_or_skip() {
        return;
    }
    let dir = public_dir();
    let program = dir.path().join("headstart");
    fs::copy(env!("CARGO_BIN_EXE_headstart"), &program).unwrap();
    let output =
        as_nobody(&program).args(["faults", "--waits", "--", "/bin/true"]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(message.contains("Waits can't be recorded") && message.contains("root"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
}

//! `headstart doctor` on the machine of the test.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::command::{headstart, json};
use headstart_testing::fuse::Fuse;
use headstart_testing::{LoopFs, as_nobody, disk_dir, has, is_root, public_dir, skip};
use serde_json::Value;

fn check<'a>(document: &'a Value, id: &str) -> Option<&'a Value> {
    document["checks"].as_array().unwrap().iter().find(|check| check["id"] == id)
}

#[test]
fn a_kernel_that_can_record_gives_status_0_to_root_and_4_to_others() {
    let tracefs = Path::new("/sys/kernel/tracing/events/filemap/mm_filemap_add_to_page_cache");
    if !is_root() || !has("setpriv") || !tracefs.exists() {
        return skip("needs root, setpriv and a mounted tracefs with the filemap events");
    }
    let output = headstart(&["doctor", "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schema"], "headstart/doctor/3");
    assert_eq!((output.status.code(), &document["lack"]), (Some(0), &Value::Null), "{document}");
    assert_eq!(check(&document, "trace_instances").unwrap()["state"], "ok");

    let dir = public_dir();
    let copy = dir.path().join("headstart");
    std::fs::copy(env!("CARGO_BIN_EXE_headstart"), &copy).unwrap();
    let output = as_nobody(&copy).args(["doctor", "--json"]).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(4), "{document}");
    assert_eq!(document["lack"], "permission");
    let tracefs = check(&document, "tracefs").unwrap();
    assert_eq!((&tracefs["state"], &tracefs["lack"]), (&"missing".into(), &"permission".into()));
    assert!(tracefs["fix"].as_str().unwrap().starts_with("sudo "));
    assert_eq!(check(&document, "cap_dac_read_search").unwrap()["state"], "degraded");
    assert_eq!(check(&document, "open_by_handle_at").unwrap()["state"], "degraded");
}

#[test]
fn inside_a_pid_namespace_it_is_said_how_programs_are_followed() {
    if !is_root() || !has("unshare") {
        return skip("needs root and unshare");
    }
    let output = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", env!("CARGO_BIN_EXE_headstart")])
        .args(["doctor", "--json"])
        .output()
        .unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = check(&document, "pid_namespace").unwrap();
    assert_eq!(found["state"], "ok");
    assert!(found["meaning"].as_str().unwrap().starts_with("In a PID namespace"), "{found}");
}

#[test]
fn a_leftover_of_a_killed_recording_is_listed_until_a_start_removes_it() {
    let instances = Path::new("/sys/kernel/tracing/instances");
    if !is_root() || !instances.exists() {
        return skip("needs root and a mounted tracefs");
    }
    // A start time that no process has.
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let digits: String = namespace.to_str().unwrap().chars().filter(char::is_ascii_digit).collect();
    let name = format!("headstart-1-{}-{digits}", u64::MAX);
    let path = instances.join(&name);
    std::fs::create_dir(&path).unwrap();
    let leftovers = || {
        let document = json(&["doctor", "--json"]);
        let found = check(&document, "leftovers").unwrap();
        (found["state"].as_str().unwrap().to_owned(), found["fix"].as_str().map(str::to_owned))
    };
    let (state, fix) = leftovers();
    let fix = fix.unwrap();
    assert_eq!(state, "degraded");
    assert!(fix.starts_with("sudo rmdir ") && fix.contains(path.to_str().unwrap()), "{fix}");

    // Somebody who looks at all instances does not make it stay.
    let busy = File::open(path.join("tracing_on")).unwrap();
    let dir = public_dir();
    let pack = dir.path().join("true.pack");
    assert!(
        headstart(&["record", "-q", "--pack", pack.to_str().unwrap(), "true"]).status.success()
    );
    assert!(path.exists());
    drop(busy);
    // It takes the kernel a while, and is done in parallel with the program.
    let deadline = Instant::now() + Duration::from_secs(60);
    while path.exists() {
        assert!(Instant::now() < deadline, "{:?}", leftovers());
    }
    let (_, fix) = leftovers();
    assert!(fix.is_none_or(|fix| !fix.contains(&name)));
}

#[test]
fn a_file_system_is_listed_with_what_can_be_done_on_it() {
    for (kind, paths, metadata) in [
        ("ext4", "by_handle", "by_device"),
        ("xfs", "by_bulkstat", "by_opening"),
        ("btrfs", "by_lookup", "by_opening"),
        ("erofs", "by_handle", "by_device"),
    ] {
        let fs = if kind == "erofs" { LoopFs::erofs(|_| {}) } else { LoopFs::new(kind) };
        let Some(fs) = fs else { continue };
        let document = json(&["doctor", "--json"]);
        let all = document["file_systems"].as_array().unwrap();
        let mount_point = fs.path().to_str().unwrap();
        let found = all.iter().find(|found| found["mount_point"]["path"] == mount_point).unwrap();
        assert_eq!(found["kind"], kind);
        assert_eq!((&found["paths"], &found["metadata"]), (&paths.into(), &metadata.into()));
        assert!(found["readahead_kb"].is_u64(), "{found}");
        let devices = document["devices"].as_array().unwrap();
        let device = devices.iter().find(|device| device["dev"] == found["device"]).unwrap();
        assert_eq!(format!("/dev/{}", device["name"].as_str().unwrap()), fs.device());
    }
}

#[test]
fn a_file_system_that_needs_a_server_has_a_line_also_when_that_does_not_answer() {
    if !is_root() {
        return skip("needs root");
    }
    let dir = disk_dir();
    let Some(fuse) = Fuse::at(dir.path(), vec![7; 4096]) else {
        return skip("there is no /dev/fuse");
    };
    fuse.go_silent();
    let document = json(&["doctor", "--json"]);
    let mount_point = dir.path().to_str().unwrap();
    let all = document["file_systems"].as_array().unwrap();
    let found = all.iter().find(|found| found["mount_point"]["path"] == mount_point).unwrap();
    assert_eq!((&found["needs_server"], &found["keeps_data"]), (&true.into(), &true.into()));
    assert_eq!(found["paths"], "by_walk", "{found}");
    let checks = document["checks"].as_array().unwrap();
    let line = checks.iter().find(|check| check["meaning"].to_string().contains(mount_point));
    let line = line.unwrap();
    assert_eq!((&line["id"], &line["state"]), (&"file_server".into(), &"degraded".into()));
}

#[test]
fn the_text_names_every_check_and_has_no_colours_in_a_pipe() {
    let document = json(&["doctor", "--json"]);
    let text = String::from_utf8(headstart(&["doctor"]).stdout).unwrap();
    for check in document["checks"].as_array().unwrap() {
        let id = check["id"].as_str().unwrap();
        assert!(text.lines().any(|line| line.split_whitespace().nth(1) == Some(id)), "{id}");
    }
    assert!(!text.contains('\x1b'));
    assert!(text.trim_end().lines().last().unwrap().starts_with("headstart can "));
}

//! What headstart waits for ten seconds at most: a lock of another learner, and a file system that
//! stays busy.

use crate::command::headstart;
use headstart_testing::{disk_dir, is_root, skip};

#[test]
fn where_another_learner_keeps_the_packs_locked_a_start_is_not_learned_and_ends_all_the_same() {
    if !is_root() {
        return skip("recording needs root");
    }
    let packs = disk_dir();
    let locked = std::fs::File::create(packs.path().join(".lock")).unwrap();
    rustix::fs::flock(&locked, rustix::fs::FlockOperation::LockShared).unwrap();
    let pack = packs.path().join("a.pack");
    let output =
        headstart(&["run", "-v", "--pack", pack.to_str().unwrap(), "--", "sh", "-c", "exit 7"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(7), 1), "{said}");
    assert!(said.contains("another process keeps its directory locked"), "{said}");
    assert!(!pack.exists());
}

#[test]
fn a_file_system_that_stays_busy_ends_the_benchmark_with_what_the_command_said() {
    let options = ["bench", "--states", "cold", "--runs", "1", "--cold-cmd"];
    let failing = "echo target is busy >&2; exit 32";
    let output = headstart(&[&options[..], &[failing, "--", "true"]].concat());
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("target is busy; trying again"), "{message}");
}

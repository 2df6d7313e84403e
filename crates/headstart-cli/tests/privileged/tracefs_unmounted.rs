//! Tracefs that is unmounted while a start is recorded: the recording ends as ever, and leaves
//! nothing that goes on tracing.

use crate::common::instances;
use headstart_testing::{disk_dir, has, is_root, skip, wait_until};
use std::process::Command;

#[test]
fn an_instance_ends_when_tracefs_was_unmounted_meanwhile() {
    if !is_root() || !has("unshare") {
        return skip("needs root and unshare");
    }
    let packs = disk_dir();
    let before = instances();
    let script = "umount -l /sys/kernel/tracing && ! test -e /sys/kernel/tracing/instances";
    let output = Command::new("unshare")
        .args(["-m", "--propagation", "private", env!("CARGO_BIN_EXE_headstart"), "record"])
        .args(["--", "sh", "-c", script])
        .env("HEADSTART_PACKS", packs.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output:?}");
    assert!(said.contains("learned"), "{said}");
    wait_until("the instance is removed", || {
        instances().iter().all(|name| before.contains(name)).then_some(())
    });
}

//! Verbs that write units say when no systemd is here to use them.

use headstart_testing::{has, is_root, skip};
use std::process::Command;

/// What `boot disable` says on a machine where `prepare` was done to an empty `/run` and
/// `/etc/systemd`.
fn said_where(prepare: &str) -> String {
    let script = format!(
        "mount -t tmpfs none /run && mount -t tmpfs none /etc/systemd && {prepare} && exec \"$0\" \"$@\""
    );
    let output = Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-c", &script])
        .args([env!("CARGO_BIN_EXE_headstart"), "boot", "disable"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn whoever_writes_units_where_systemd_does_not_run_hears_of_it() {
    if !is_root() || !has("unshare") {
        return skip("needs root and unshare");
    }
    if !std::path::Path::new("/etc/systemd").is_dir() {
        return skip("there is no /etc/systemd to hide");
    }
    for (prepare, expected) in [("true", true), ("mkdir -p /run/systemd/system", false)] {
        let said = said_where(prepare);
        assert_eq!(said.contains("systemd does not run here"), expected, "{prepare}: {said}");
    }
}

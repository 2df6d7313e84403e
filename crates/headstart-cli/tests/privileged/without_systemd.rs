//! Verbs that write units say when no systemd is here to use them.

use headstart_testing::{has, is_root, skip};
use std::process::Command;

/// A service that exists nowhere but here.
const SERVICE: &str = "mkdir -p /etc/systemd/system && printf '[Service]\\nExecStart=/bin/true\\n' \
    >/etc/systemd/system/test-of-headstart.service";

/// What a verb says on a machine where `prepare` was done to an empty `/run` and `/etc/systemd`,
/// and where headstart is installed.
fn said_where(prepare: &str, verb: &[&str]) -> String {
    let script = format!(
        "mount -t tmpfs none /run && mount -t tmpfs -o mode=755 none /etc/systemd && {SERVICE} && \
         mount -t tmpfs -o mode=755 none /usr/local && mkdir /usr/local/bin && \
         install -m 755 \"$0\" /usr/local/bin/headstart && {prepare} && \
         exec /usr/local/bin/headstart \"$@\""
    );
    let output = Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-c", &script])
        .arg(env!("CARGO_BIN_EXE_headstart"))
        .args(verb)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn units_that_no_running_systemd_uses_are_reported() {
    if !is_root() || !has("unshare") {
        return skip("needs root and unshare");
    }
    if !std::path::Path::new("/etc/systemd").is_dir() {
        return skip("there is no /etc/systemd to hide");
    }
    for (prepare, expected) in [("true", true), ("mkdir -p /run/systemd/system", false)] {
        for verb in [&["boot", "disable"][..], &["boot", "enable"], &["unit", "test-of-headstart"]]
        {
            let said = said_where(prepare, verb);
            let found = said.contains("systemd does not run here");
            assert_eq!(found, expected, "{verb:?}, {prepare}: {said}");
        }
    }
}

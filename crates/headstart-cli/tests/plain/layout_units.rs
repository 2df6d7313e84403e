//! The units in dist/systemd that lay out disks: what they run, and that systemd takes them.

use headstart_testing::{has, must};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn units() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/systemd")
}

/// What a unit runs, as the shell gets it.
fn script(unit: &str, setting: &str) -> String {
    let text = fs::read_to_string(units().join(unit)).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(setting)).unwrap();
    let script = line.strip_prefix("/bin/sh -c '").and_then(|rest| rest.strip_suffix('\''));
    script.unwrap().replace("$$", "$")
}

#[test]
fn they_go_on_with_a_layout_and_make_one_only_where_there_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let (fake, log) = (dir.path().join("headstart"), dir.path().join("log"));
    for (unit, setting, options) in [
        ("headstart-layout.service", "ExecStart=", "--idle 2s --for 1h"),
        ("headstart-layout-shutdown.service", "ExecStop=", "--for 60s"),
    ] {
        let (resume, apply) =
            (format!("layout resume {options}\n"), format!("layout apply {options} a.pack b\n"));
        for (resumed, status, expected) in
            [(0, 0, resume.clone()), (1, 1, resume.clone()), (3, 7, format!("{resume}{apply}"))]
        {
            let text = format!(
                "#!/bin/sh\necho \"$@\" >> '{}'\ntest $2 = apply && exit 7\nexit {resumed}\n",
                log.display()
            );
            fs::write(&fake, text).unwrap();
            fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
            fs::write(&log, "").unwrap();
            let ended = Command::new("/bin/sh")
                .args(["-c", &script(unit, setting)])
                .env("PATH", format!("{}:/usr/bin:/bin", dir.path().display()))
                .env("PACKS", "a.pack b")
                .status()
                .unwrap();
            assert_eq!(ended.code(), Some(status), "{unit}");
            assert_eq!(fs::read_to_string(&log).unwrap(), expected, "{unit}");
        }
    }
    // The options are those of the command.
    for verb in ["resume", "apply"] {
        let help = must(env!("CARGO_BIN_EXE_headstart"), &["layout", verb, "--help"]);
        assert!(help.contains("--idle <TIME>") && help.contains("--for <TIME>"), "{help}");
    }
}

#[test]
fn systemd_takes_them() {
    if !has("systemd-analyze") {
        return headstart_testing::skip("systemd-analyze is missing");
    }
    for unit in
        ["headstart-layout.service", "headstart-layout.timer", "headstart-layout-shutdown.service"]
    {
        let unit = units().join(unit);
        let output = Command::new("systemd-analyze").arg("verify").arg(&unit).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let own = said.lines().filter(|line| {
            // What is not installed here is not wrong.
            line.contains("headstart-layout")
                && !line.contains("man:headstart")
                && !line.contains("not executable")
                && !line.contains("'man headstart")
        });
        assert_eq!(own.collect::<Vec<_>>(), Vec::<&str>::new());
    }
}

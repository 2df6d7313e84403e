//! `headstart boot enable`, `disable` and `status` on an image: what they write there,
//! and that all of it goes again. The same for services and `unit`.

use crate::command::{headstart, json};
use headstart_testing::skip;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An image with headstart in it.
fn image() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("usr/local/bin/headstart", ""),
        ("usr/lib/modules/6.1.0-18-amd64/x", ""),
        ("usr/lib/modules/6.12.9-amd64/x", ""),
        ("etc/kernel/cmdline", "quiet\n"),
    ] {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let root = dir.path().to_str().unwrap().to_owned();
    (dir, root)
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => out.extend(files(&entry.path())),
            false => out.push(entry.path()),
        }
    }
    out.sort();
    out
}

fn said(args: &[&str]) -> String {
    let output = headstart(args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_image_is_enabled_and_disabled_without_a_trace() {
    let (dir, root) = image();
    let before = files(dir.path());
    let text = said(&["boot", "enable", "--kernel-cmdline", "--root", &root]);
    assert!(text.contains("enabled headstart-boot-record.service"), "{text}");
    assert!(text.contains("trace_instance=headstart-boot,filemap:"), "the latest kernel: {text}");
    let link = dir.path().join("etc/systemd/system/sysinit.target.wants");
    let target = fs::read_link(link.join("headstart-boot-replay.service")).unwrap();
    let unit = dir.path().join(target.strip_prefix("/").unwrap());
    let unit = fs::read_to_string(unit).unwrap();
    assert!(unit.contains("ExecStart=-/usr/local/bin/headstart boot replay"), "{unit}");
    let status = json(&["boot", "status", "--json", "--root", &root]);
    assert_eq!(status["schema"], "headstart/boot-status/2");
    assert_eq!(status["enabled"].as_array().unwrap().len(), 2);
    assert!(status["hint"].as_str().unwrap().contains("no boot was learned yet"), "{status}");
    said(&["boot", "disable", "--root", &root]);
    assert_eq!(files(dir.path()), before);
    assert_eq!(fs::read_to_string(dir.path().join("etc/kernel/cmdline")).unwrap(), "quiet\n");
    let text = said(&["boot", "status", "--root", &root]);
    assert!(text.starts_with("not enabled\n"), "{text}");
}

#[test]
fn what_was_learned_stays_unless_it_is_purged() {
    let (dir, root) = image();
    let history = dir.path().join("var/lib/headstart/boot/history");
    fs::create_dir_all(&history).unwrap();
    for (number, replayed, ms) in [(1, false, 9000.0), (2, true, 3000.0)] {
        let record = serde_json::json!({
            "schema": "headstart/boot/1", "kernel": "6.12.9 x86_64", "replayed": replayed,
            "default_target_ms": ms, "recorded_at": 1_800_000_000,
        });
        fs::write(history.join(format!("{number:06}.json")), record.to_string()).unwrap();
    }
    let text = said(&["boot", "status", "--root", &root]);
    assert!(text.contains("2027-01-15 08:00  6.12.9"), "{text}");
    assert!(text.contains("67 % sooner"), "{text}");
    let text = said(&["boot", "disable", "--root", &root]);
    assert!(text.contains("--purge removes it") && history.exists(), "{text}");
    said(&["boot", "disable", "--purge", "--root", &root]);
    assert!(!history.parent().unwrap().exists());
}

#[test]
fn a_broken_configuration_and_an_image_without_headstart_end_in_one_sentence() {
    let (dir, root) = image();
    fs::create_dir_all(dir.path().join("etc/headstart")).unwrap();
    fs::write(dir.path().join("etc/headstart/boot.conf"), "\nphase x\n").unwrap();
    let output = headstart(&["boot", "status", "--root", &root]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    assert!(text.contains("boot.conf, line 2: this is no phase; write `phase NAME"), "{text}");
    fs::remove_file(dir.path().join("usr/local/bin/headstart")).unwrap();
    let output = headstart(&["boot", "enable", "--root", &root]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("copy headstart there"), "{text}");
}

#[test]
fn a_service_of_an_image_is_added_listed_and_taken_away_and_its_unit_file_stays_as_it_is() {
    let (dir, root) = image();
    let unit = dir.path().join("usr/lib/systemd/system/web.service");
    fs::create_dir_all(unit.parent().unwrap()).unwrap();
    fs::write(&unit, "[Service]\nType=forking\nPIDFile=/run/web.pid\nExecStart=/bin/web\n")
        .unwrap();
    let before = files(dir.path());
    let text = said(&["unit", "web", "--root", &root]);
    assert!(text.contains("web.service.d/headstart.conf"), "{text}");
    assert_eq!(files(dir.path()).len(), before.len() + 2);
    assert_eq!(said(&["unit", "--list", "--root", &root]), "web.service\n");
    let listed = json(&["unit", "--list", "--json", "--root", &root]);
    assert_eq!(listed["schema"], "headstart/unit/1");
    assert_eq!(listed["services"][0]["name"], "web.service");
    assert_eq!(listed["services"][0]["starts"], 0);
    said(&["unit", "web.service", "--remove", "--root", &root]);
    assert_eq!(files(dir.path()), before);
    for (args, words) in [
        (vec!["unit", "web", "--remove"], "is not one of those"),
        (vec!["unit", "nothing"], "There is no nothing.service"),
        (vec!["unit", "a.timer"], "is no service"),
    ] {
        let output = headstart(&[&args[..], &["--root", &root]].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn no_unit_is_written_that_starts_a_program_which_others_can_replace() {
    let (dir, root) = image();
    let units = dir.path().join("usr/lib/systemd/system");
    fs::create_dir_all(&units).unwrap();
    fs::write(units.join("web.service"), "[Service]\nExecStart=/bin/web\n").unwrap();
    let before = files(dir.path());
    let program = dir.path().join("usr/local/bin/headstart");
    let above = dir.path().join("usr/local");
    for (path, mode, why) in [
        (&program, 0o775, "won't start /usr/local/bin/headstart: it may be written by others"),
        // A user may have been there first.
        (&above, 0o1777, "a directory above it may be written by others"),
    ] {
        let old = fs::metadata(path).unwrap().permissions();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        for args in [&["unit", "web"][..], &["boot", "enable"]] {
            let output = headstart(&[args, &["--root", &root]].concat());
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
            assert!(said.contains(why), "{said}");
        }
        fs::set_permissions(path, old).unwrap();
    }
    assert_eq!(files(dir.path()), before, "nothing was written");
}

#[test]
fn what_is_written_for_a_service_is_sound_to_systemd() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return skip("there is no systemd-analyze");
    }
    let (dir, root) = image();
    let units = dir.path().join("usr/lib/systemd/system");
    fs::create_dir_all(&units).unwrap();
    // Its program has to be there.
    fs::write(units.join("web.service"), "[Service]\nType=notify\nExecStart=/bin/true\n").unwrap();
    said(&["unit", "web", "--root", &root]);
    let system = dir.path().join("etc/systemd/system");
    let template = system.join("headstart-unit@.service");
    let text = fs::read_to_string(&template).unwrap();
    fs::write(&template, text.replace("/usr/local/bin/headstart", "/bin/true")).unwrap();
    let path = format!("{}:{}:", system.display(), units.display());
    let output = Command::new("systemd-analyze")
        .args([
            "verify",
            "--man=no",
            "--generators=no",
            "web.service",
            "headstart-unit@web.service",
        ])
        .env("SYSTEMD_UNIT_PATH", path)
        .output()
        .unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

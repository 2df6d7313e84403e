//! `headstart boot enable`, `disable` and `status` on an image: what they write there,
//! and that all of it goes again. The same for services and `unit`.

use crate::command::{headstart, json};
use headstart::boot::history::BootRecord;
use headstart::boot::machine::Machine;
use headstart::pack::key::Key;
use headstart::pack::{FileSystem, Origin, Pack, store};
use headstart_testing::skip;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
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
fn links_of_an_image_lead_to_nothing_outside_of_it() {
    let (dir, root) = image();
    let host = tempfile::tempdir().unwrap();
    let at = |name: &str| host.path().join(name);
    for name in ["units", "state/headstart/boot"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    fs::write(at("cmdline"), "host\n").unwrap();
    fs::write(at("state/headstart/boot/a.pack"), "").unwrap();
    let before = files(host.path());
    for (link, target) in
        [("etc/kernel/cmdline", "cmdline"), ("etc/systemd/system", "units"), ("var/lib", "state")]
    {
        let link = dir.path().join(link);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&link);
        symlink(at(target), link).unwrap();
    }
    let units = dir.path().join("usr/lib/systemd/system");
    fs::create_dir_all(&units).unwrap();
    fs::write(units.join("web.service"), "[Service]\nExecStart=/bin/web\n").unwrap();
    let kept = dir.path().join(at("units").strip_prefix("/").unwrap());
    for arguments in [
        &["boot", "enable", "--kernel-cmdline"][..],
        &["unit", "web"],
        &["unit", "web", "--remove"],
        &["boot", "disable", "--purge"],
    ] {
        headstart(&[arguments, &["--root", &root]].concat());
        assert_eq!(files(host.path()), before, "{arguments:?}");
        assert_eq!(fs::read_to_string(at("cmdline")).unwrap(), "host\n", "{arguments:?}");
        assert!(arguments[1] != "enable" || !files(&kept).is_empty(), "where the image looks");
    }
}

#[test]
fn nothing_that_links_of_an_image_lead_to_outside_of_it_is_told_of_it() {
    let (dir, root) = image();
    let host = tempfile::tempdir().unwrap();
    let on_host = Machine::at(host.path());
    on_host.keep(&mut BootRecord::default(), None).unwrap();
    let of = FileSystem { uuid: Some([7; 16]), kind: "ext4".into(), ..FileSystem::default() };
    fs::write(on_host.pack("mounts", &of), "no pack").unwrap();
    let pack = host.path().join("var/lib/headstart/packs");
    let pack = pack.join(Key::of_name("web.service").file_name);
    let origin = Origin { page_shift: 12, starts: 7, ..Origin::default() };
    store::lock(&pack).unwrap().write(&Pack { origin, ..Pack::default() }).unwrap();
    for (path, text) in [
        ("etc/headstart/boot.conf", "nonsense\n"),
        ("usr/lib/modules/9.9.9/x", ""),
        ("usr/local/bin/headstart", ""),
    ] {
        let path = host.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    for link in ["etc/headstart", "var/lib/headstart", "usr/lib/modules"] {
        let (link, target) = (dir.path().join(link), host.path().join(link));
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        let _ = fs::remove_dir_all(&link);
        symlink(target, link).unwrap();
    }
    let units = dir.path().join("usr/lib/systemd/system");
    fs::create_dir_all(&units).unwrap();
    fs::write(units.join("web.service"), "[Service]\nExecStart=/bin/web\n").unwrap();
    said(&["unit", "web", "--root", &root]);
    let service = &json(&["unit", "--list", "--json", "--root", &root])["services"][0];
    assert_eq!((&service["name"], &service["starts"]), (&"web.service".into(), &0.into()));
    let status = json(&["boot", "status", "--json", "--root", &root]);
    for list in ["packs", "boots", "problems"] {
        assert_eq!(status[list].as_array().map(Vec::len), Some(0), "{list}: {status}");
    }
    let analysis = headstart(&["boot", "analyze", "--root", &root]);
    assert!(String::from_utf8(analysis.stderr).unwrap().contains("No boot was recorded yet"));
    said(&["boot", "enable", "--kernel-cmdline", "--root", &root]);
    let program = dir.path().join("usr/local/bin/headstart");
    fs::remove_file(&program).unwrap();
    symlink(host.path().join("usr/local/bin/headstart"), &program).unwrap();
    let refused = headstart(&["boot", "enable", "--root", &root]);
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(why.contains("There is no /usr/bin/headstart"), "{why}");
}

#[test]
fn a_command_line_of_an_image_is_what_it_was_when_boots_are_disabled_again() {
    for before in ["quiet\n", "quiet", "", "quiet \n\n", "\n"] {
        let (dir, root) = image();
        let cmdline = dir.path().join("etc/kernel/cmdline");
        fs::write(&cmdline, before).unwrap();
        said(&["boot", "enable", "--kernel-cmdline", "--root", &root]);
        assert!(fs::read_to_string(&cmdline).unwrap().contains("trace_instance="));
        said(&["boot", "disable", "--root", &root]);
        assert_eq!(fs::read_to_string(&cmdline).unwrap(), before);
        assert!(!dir.path().join("etc/systemd/system/sysinit.target.wants").exists());
    }
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

#[test]
fn units_are_no_more_exposed_than_security_md_says() {
    let analyze = || {
        let mut command = Command::new("systemd-analyze");
        command.args(["security", "--offline=true", "--no-pager"]);
        command
    };
    // 250 has it.
    let help = Command::new("systemd-analyze").arg("--help").output();
    if !help.is_ok_and(|help| String::from_utf8_lossy(&help.stdout).contains("--offline")) {
        return skip("there is no systemd-analyze that takes units offline");
    }
    let (dir, root) = image();
    let units = dir.path().join("usr/lib/systemd/system");
    fs::create_dir_all(&units).unwrap();
    fs::write(units.join("web.service"), "[Service]\nExecStart=/bin/true\n").unwrap();
    said(&["boot", "enable", "--kernel-cmdline", "--root", &root]);
    said(&["unit", "web", "--root", &root]);
    let security = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../SECURITY.md"));
    let security = security.unwrap();
    for name in [
        "headstart-boot-replay.service",
        "headstart-boot-record.service",
        "headstart-boot-end-trace.service",
        "headstart-unit@.service",
    ] {
        let line = security.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        let figure = line.and_then(|line| line.trim_end_matches(" |").rsplit("| ").next());
        let most: f64 =
            figure.unwrap_or_default().parse().unwrap_or_else(|e| panic!("{name}: {e}"));
        let unit = dir.path().join("etc/systemd/system").join(name);
        let text =
            fs::read_to_string(&unit).unwrap().replace("/usr/local/bin/headstart", "/bin/true");
        fs::write(&unit, text).unwrap();
        // Other versions weigh otherwise.
        let threshold = format!("--threshold={}", (most * 10.0).round() + 3.0);
        let output = analyze().arg(threshold).arg(&unit).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(told.contains("exposure level"), "{name}: {output:?}");
        assert!(output.status.success(), "{name}: {most}: {told}");
    }
}

//! `headstart boot analyze` on histories of files.

use crate::command::{headstart, json};
use headstart::boot::bins::Row;
use headstart::boot::history::{BootRecord, PhaseRecord, SCHEMA};
use headstart::boot::machine::Machine;
use headstart::boot::timeline::{self, Timeline};
use headstart::boot::unit_times::UnitTimes;
use std::fs;
use std::os::unix::fs::symlink;

/// A machine whose history has two boots, the second one over time.
fn machine() -> (tempfile::TempDir, Machine, String) {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::at(dir.path());
    let phase = |name: &str, begin, end| PhaseRecord {
        name: name.into(),
        begin_ms: Some(begin),
        end_ms: Some(end),
        ..PhaseRecord::default()
    };
    let mut record = BootRecord {
        schema: SCHEMA.into(),
        kernel: "6.12.9 x86_64".into(),
        default_target_ms: Some(3000.0),
        replayed: true,
        phases: vec![phase("mounts", 0.0, 800.0), phase("system", 800.0, 3000.0)],
        ..BootRecord::default()
    };
    machine.keep(&mut record, None).unwrap();
    let unit = |name: &str, from, to| UnitTimes {
        name: name.into(),
        activating_us: Some(from),
        active_us: Some(to),
        ..UnitTimes::default()
    };
    let mut timeline = Timeline {
        schema: timeline::SCHEMA.into(),
        has_access_events: true,
        units: vec![
            unit("ssh.service", 900_000, 1_400_000),
            unit("\u{1b}[2J.service", 950_000, 960_000),
        ],
        ..Timeline::default()
    };
    for (row, at, bytes) in [
        (Row::Prefetched, 200_000, 8 << 20),
        (Row::Wasted, 200_000, 1 << 20),
        (Row::Demand, 2_900_000, 4096),
    ] {
        timeline.bins.add(row, at, bytes);
    }
    machine.keep(&mut record, Some(&timeline)).unwrap();
    let root = dir.path().to_str().unwrap().to_owned();
    (dir, machine, root)
}

fn said(args: &[&str]) -> String {
    let output = headstart(args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(args: &[&str]) -> String {
    let output = headstart(args);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    text
}

#[test]
fn the_last_boot_is_reported_as_text_json_picture_and_page() {
    let (dir, _, root) = machine();
    let text = said(&["boot", "analyze", "--root", &root]);
    assert!(text.starts_with("Boot 2, Linux 6.12.9: default target after 3.00 s\n"), "{text}");
    assert!(text.contains("8.00 MiB prefetched, 1.00 MiB of it wasted"), "{text}");
    assert!(text.contains("2690 ms from 0.21 s"), "{text}");
    assert!(text.contains("500 ms  0.900 s  ssh.service"), "{text}");
    assert!(!text.contains('\u{1b}'), "names can't write what they want: {text}");
    let document = json(&["boot", "analyze", "--json", "--root", &root]);
    assert_eq!(document["schema"], "headstart/boot-analyze/2");
    assert_eq!((&document["number"], &document["end_us"]), (&2.into(), &3_000_000.into()));
    assert_eq!(document["sums"]["prefetched_bytes"], 8 << 20);
    assert_eq!(document["timeline"]["units"][0]["name"], "ssh.service");
    assert_eq!(document["boot"]["phases"][1]["name"], "system");
    let (svg, html) = (dir.path().join("x.svg"), dir.path().join("x.html"));
    let (svg_path, html_path) = (svg.to_str().unwrap(), html.to_str().unwrap());
    for path in [svg_path, html_path] {
        let text = said(&["boot", "analyze", "--root", &root, "--picture", path]);
        assert_eq!(text, "", "the picture is what was requested");
    }
    let picture = fs::read_to_string(&svg).unwrap();
    assert!(picture.contains(">ssh.service (500 ms)<"), "{picture}");
    let page = fs::read_to_string(&html).unwrap();
    assert!(page.contains("<td>ssh.service</td><td>500</td>") && !page.contains("href"), "{page}");
    let status = json(&["boot", "status", "--json", "--root", &root]);
    assert_eq!(status["boots"][0]["number"], 2);
    // Its own pictures are replaced, and nothing else.
    let draw = |path: &str| headstart(&["boot", "analyze", "--root", &root, "--picture", path]);
    let mine = [dir.path().join("app.svg"), dir.path().join("app.html")];
    for (mine, path) in mine.iter().zip([svg_path, html_path]) {
        fs::write(mine, "print()").unwrap();
        assert!(draw(path).status.success());
        let output = draw(mine.to_str().unwrap());
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && told.contains("give --force"), "{told}");
        assert_eq!(fs::read(mine).unwrap(), b"print()");
    }
    let mine = mine[0].to_str().unwrap();
    said(&["boot", "analyze", "--root", &root, "--force", "--picture", mine]);
    assert!(fs::read(mine).unwrap().starts_with(b"<svg"));
    let told = String::from_utf8(draw("x.png").stderr).unwrap();
    assert!(told.contains("end its name in .html, .svg or .json"), "{told}");
}

#[test]
fn a_boot_is_named_by_its_number_and_one_without_a_timeline_is_reported_all_the_same() {
    let (_dir, _, root) = machine();
    let text = said(&["boot", "analyze", "1", "--root", &root]);
    assert!(text.contains("were not kept of it") && text.contains("system"), "{text}");
    let text = refused(&["boot", "analyze", "7", "--root", &root]);
    assert!(text.contains("no boot 7 in the history; there are 2, 1"), "{text}");
    let empty = tempfile::tempdir().unwrap();
    let text = refused(&["boot", "analyze", "--root", empty.path().to_str().unwrap()]);
    assert!(text.contains("headstart boot enable"), "{text}");
}

#[test]
fn a_timeline_that_is_broken_or_not_ours_is_reported_and_the_record_is_shown() {
    let (dir, machine, root) = machine();
    let path = machine.state().join("history/000002.timeline.json");
    let elsewhere = dir.path().join("elsewhere");
    fs::write(&elsewhere, "{}").unwrap();
    for (why, text) in [
        ("is not used", Some("{")),
        ("is not used", Some(r#"{"schema":"x"}"#)),
        ("symbolic link", None),
    ] {
        fs::remove_file(&path).unwrap();
        match text {
            Some(text) => fs::write(&path, text).unwrap(),
            None => symlink(&elsewhere, &path).unwrap(),
        }
        let output = headstart(&["boot", "analyze", "--root", &root]);
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && told.lines().count() == 1, "{told}");
        assert!(told.contains(why), "{told}");
        assert!(String::from_utf8(output.stdout).unwrap().contains("mounts"));
    }
}

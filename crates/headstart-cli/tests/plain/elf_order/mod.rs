//! `headstart elf order` with real programs: they end as without it, and what it writes orders them.

#![cfg(target_arch = "x86_64")]

use headstart_testing::{as_nobody, has, is_root, must, public_dir, skip, wait_until};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The program that these tests run, with these options of the compiler; nothing without one.
fn compiled(dir: &Path, options: &[&str]) -> Option<String> {
    if !has("cc") {
        skip("cc is needed");
        return None;
    }
    let source = dir.join("program.c");
    fs::write(&source, include_str!("program.c")).unwrap();
    let program = dir.join("program").to_str().unwrap().to_owned();
    let all = ["-O1", "-pthread", "-ffunction-sections", "-o", &program, source.to_str().unwrap()];
    must("cc", &[&all[..], options].concat());
    Some(program)
}

/// Runs `headstart elf order` with this input.
fn order(args: &[&str]) -> Output {
    with_input(Command::new(env!("CARGO_BIN_EXE_headstart")).args(["elf", "order"]).args(args))
}

fn with_input(command: &mut Command) -> Output {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // One that is refused may have ended before it reads.
    let _ = child.stdin.take().unwrap().write_all(b"a line\n");
    child.wait_with_output().unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The names in an order file for lld.
fn names(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.strip_prefix("# The order of first calls, by headstart elf order\n").unwrap();
    lines.lines().map(str::to_owned).collect()
}

#[test]
fn a_program_ends_as_without_it_and_its_first_calls_are_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compiled(dir.path(), &[]) else { return };
    let (lld, json) = (dir.path().join("lld"), dir.path().join("json"));
    let files = ["--lld", lld.to_str().unwrap(), "--json", json.to_str().unwrap()];
    let output = order(&[&files[..], &["--runs", "2", "--", &program]].concat());
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert!(output.stdout.starts_with(b"a line\n"), "{output:?}");
    let names = names(&lld);
    let place = |name: &str| names.iter().position(|one| one == name).unwrap();
    let expected = ["main", "race", "f0", "f1", "f15", "in_child", "in_vfork", "on_usr1"];
    let places = expected.map(place);
    assert!(places.is_sorted(), "{names:?}");
    assert!(!names.iter().any(|name| name == "later"), "{names:?}");
    let document: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(document["schema"], "headstart/elf-order/1");
    let runs = document["files"][0]["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    assert_eq!(runs[0], runs[1]);
    // The document alone makes the same order again.
    let again = dir.path().join("again");
    let from = ["--from", json.to_str().unwrap(), "--lld", again.to_str().unwrap()];
    let output = order(&from);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("2 runs"), "{output:?}");
    assert_eq!(fs::read(again).unwrap(), fs::read(&lld).unwrap());
}

#[test]
fn threads_may_hit_a_breakpoint_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compiled(dir.path(), &[]) else { return };
    for options in [&["-q", "--runs", "20", "--"][..], &["-q", "--libraries", "--runs", "4", "--"]]
    {
        let output = order(&[options, &[&program]].concat());
        assert_eq!(output.status.code(), Some(7), "{output:?}");
    }
}

#[test]
fn signals_and_traps_of_the_program_are_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compiled(dir.path(), &[]) else { return };
    let output = order(&["--", &program, "traps"]);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert!(told(&output).contains("handles SIGTRAP"), "{output:?}");
    let output = order(&["--", &program, "kill"]);
    assert_eq!(output.status.code(), Some(128 + 15), "{output:?}");
    let ignoring =
        format!("trap '' TRAP; exec {} elf order -- {program}", env!("CARGO_BIN_EXE_headstart"));
    let output = with_input(Command::new("sh").args(["-c", &ignoring]));
    assert!(told(&output).contains("ignores SIGTRAP"), "{output:?}");
}

#[test]
fn what_outlives_the_program_is_let_go() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compiled(dir.path(), &[]) else { return };
    let written = dir.path().join("written");
    let output = order(&["-q", "--", &program, "daemon", written.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(9), "{output:?}");
    let text = wait_until("the daemon's answer", || {
        fs::read_to_string(&written).ok().filter(|text| !text.is_empty())
    });
    assert_eq!(text, "4");
}

#[test]
fn after_its_time_a_program_goes_on_alone() {
    let script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; /bin/true; exit 3";
    let output = order(&["-q", "--for", "10ms", "--libraries", "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}

#[test]
fn a_link_with_the_order_file_puts_called_functions_together() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compiled(dir.path(), &[]) else { return };
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let files = [
        "--lld",
        &path("lld"),
        "--gold",
        &path("gold"),
        "--gnu-ld",
        &path("gnu"),
        "--bolt",
        &path("bolt"),
    ];
    let output = order(&[&files[..], &["-q", "--", &program]].concat());
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let bolt = fs::read_to_string(path("bolt")).unwrap();
    assert!(bolt.lines().eq(names(Path::new(&path("lld")))), "{bolt}");
    let linkers = [
        (
            "ld.lld",
            vec!["-fuse-ld=lld".to_owned(), format!("-Wl,--symbol-ordering-file={}", path("lld"))],
        ),
        (
            "ld.gold",
            vec!["-fuse-ld=gold".into(), format!("-Wl,--section-ordering-file={}", path("gold"))],
        ),
        (
            "ld.bfd",
            vec!["-fuse-ld=bfd".into(), format!("-Wl,--section-ordering-file={}", path("gnu"))],
        ),
    ];
    let mut linked = 0;
    for (linker, options) in linkers {
        let help = Command::new(linker).arg("--help").output();
        let help = help.map(|output| output.stdout).unwrap_or_default();
        if !String::from_utf8_lossy(&help).contains("-ordering-file") {
            // Those before GNU ld 2.43 can't.
            println!("note: {linker} takes no order file");
            continue;
        }
        linked += 1;
        let ordered = tempfile::tempdir().unwrap();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let Some(program) = compiled(ordered.path(), &options) else { return };
        let symbols = must("nm", &["-n", &program]);
        let place =
            |name: &str| symbols.lines().position(|line| line.ends_with(&format!(" {name}")));
        let called = ["main", "race", "f0", "f1", "f15", "in_child", "in_vfork", "on_usr1"];
        let places = called.map(|name| place(name).unwrap());
        assert!(places.is_sorted(), "{linker}: {symbols}");
        // What is not called lies before them or behind.
        let later = place("later").unwrap();
        assert!(later < places[0] || later > places[7], "{linker}: {symbols}");
    }
    if linked == 0 {
        skip("no linker takes an order file; install lld");
    }
}

#[test]
fn a_program_that_can_not_be_followed_does_not_run() {
    let output = order(&["--", "/nowhere/at/all"]);
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    assert!(told(&output).contains("Can't run /nowhere/at/all"), "{output:?}");
    if has("strace") {
        let mut strace = Command::new("strace");
        strace.args([
            "-f",
            "-qq",
            "-e",
            "none",
            env!("CARGO_BIN_EXE_headstart"),
            "elf",
            "order",
            "--",
            "true",
        ]);
        let output = with_input(&mut strace);
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        assert!(told(&output).contains("traces it already"), "{output:?}");
    }
    if is_root() {
        let dir = public_dir();
        let Some(program) = compiled(dir.path(), &[]) else { return };
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
        let exe = dir.path().join("headstart");
        fs::copy(env!("CARGO_BIN_EXE_headstart"), &exe).unwrap();
        let output = with_input(as_nobody(&exe).args(["elf", "order", "--", &program]));
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        assert!(told(&output).contains("privileges of its own"), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
    } else {
        skip("root is needed to make a set-user-ID program");
    }
}

#[test]
fn only_earlier_results_are_replaced_and_others_stay_before_the_program_runs() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compiled(dir.path(), &[]) else { return };
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for (option, is_marked) in [
        ("--json", true),
        ("--lld", true),
        ("--gnu-ld", true),
        ("--gold", false),
        ("--bolt", false),
    ] {
        let out = path(option);
        let write =
            |more: &[&str]| order(&[&["-q", option, &out], more, &["--", &program]].concat());
        fs::write(&out, "mine\n").unwrap();
        let refused = write(&[]);
        assert_eq!(refused.status.code(), Some(1), "{option}: {refused:?}");
        assert!(told(&refused).contains("give --force"), "{option}: {refused:?}");
        // It did not run.
        assert!(refused.stdout.is_empty(), "{option}: {refused:?}");
        assert_eq!(fs::read(&out).unwrap(), b"mine\n", "{option}");
        assert_eq!(write(&["--force"]).status.code(), Some(7), "{option}");
        assert_ne!(fs::read(&out).unwrap(), b"mine\n", "{option}");
        let again = write(&[]).status.code();
        assert_eq!(again, Some(if is_marked { 7 } else { 1 }), "{option}");
    }
}

#[test]
fn a_stripped_program_has_the_functions_of_its_debug_file() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compiled(dir.path(), &["-Wl,--build-id=none"]) else { return };
    if !has("objcopy") {
        return skip("objcopy is needed");
    }
    let debug = dir.path().join("program.debug");
    let debug = debug.to_str().unwrap();
    must("objcopy", &["--only-keep-debug", &program, debug]);
    must("objcopy", &["--strip-all", &format!("--add-gnu-debuglink={debug}"), &program]);
    let lld = dir.path().join("lld");
    let output = order(&["-q", "--lld", lld.to_str().unwrap(), "--", &program]);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert!(names(&lld).iter().any(|name| name == "f15"), "{output:?}");
}

#[test]
fn a_document_that_is_none_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("document");
    for (text, why) in [
        ("{}", "no JSON document"),
        ("{\"schema\": \"headstart/elf-order/9\"}", "headstart/elf-order/1"),
    ] {
        fs::write(&path, text).unwrap();
        let output = order(&["--from", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(told(&output).contains(why) && told(&output).contains("document"), "{output:?}");
    }
}

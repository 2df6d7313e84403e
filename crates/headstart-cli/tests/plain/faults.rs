//! `headstart faults` without privileges, where the setting of the kernel allows it.

use crate::command::headstart;
use headstart::host::proc;
use headstart_testing::{is_root, must, python, wait_until};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// Whether this machine forbids what `output` is the outcome of: containers do, and some systems
/// without root.
pub fn is_forbidden(output: &Output) -> bool {
    if output.status.code() != Some(4) {
        return false;
    }
    let message = String::from_utf8_lossy(&output.stderr);
    let setting = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let by_setting = !is_root() && setting.trim().parse::<i32>().unwrap() > 2;
    assert!(by_setting || status.contains("Seccomp:\t2"), "{message}");
    assert!(message.contains("perf_event_paranoid") || message.contains("perf_event_open"));
    eprintln!("skipped: {}", message.trim());
    true
}

/// `headstart faults` of a command, with its document; `None` where this is forbidden.
fn faults(dir: &Path, options: &[&str], command: &[&str]) -> Option<(Output, Value)> {
    let file = dir.join("figures.json");
    let mut words = vec!["faults", "--json", file.to_str().unwrap()];
    words.extend(options);
    words.push("--");
    words.extend(command);
    let output = headstart(&words);
    if is_forbidden(&output) {
        return None;
    }
    let text = fs::read(&file).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    Some((output, serde_json::from_slice(&text).unwrap()))
}

/// `headstart` with these words, which is not waited for.
fn start(words: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// A process that faults as long as it runs.
struct Running {
    child: Child,
    pid: String,
    /// Another thread than the first.
    thread: String,
}

impl Running {
    fn new() -> Option<Self> {
        // Each thread says its number when it has begun, in one write: print makes two.
        let program = "import mmap, os, threading\n\
                       def run():\n    \
                       os.write(1, b'%d\\n' % threading.get_native_id())\n    \
                       while True:\n        \
                       memory = mmap.mmap(-1, 1 << 20)\n        memory[::4096]\n        \
                       memory.close()\n\
                       threading.Thread(target=run).start()\nrun()";
        let mut child =
            Command::new(python()?).args(["-c", program]).stdout(Stdio::piped()).spawn().unwrap();
        let pid = child.id().to_string();
        let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        let tids: Vec<_> = lines.map(Result::unwrap).take(2).collect();
        let thread = tids.into_iter().find(|tid| *tid != pid).unwrap();
        Some(Self { child, pid, thread })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn the_faults_of_a_program_are_counted_and_its_status_and_output_are_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let csv = dir.path().join("faults.csv");
    let [firefox, perfetto, folded] =
        ["firefox", "perfetto", "folded"].map(|name| dir.path().join(name));
    let options = [
        ["--csv", csv.to_str().unwrap()],
        ["--firefox", firefox.to_str().unwrap()],
        ["--perfetto", perfetto.to_str().unwrap()],
        ["--folded", folded.to_str().unwrap()],
    ]
    .concat();
    let command = ["sh", "-c", "read x; echo $x; exit 7"];
    let Some((output, document)) = faults(dir.path(), &options, &command) else { return };
    assert_eq!(output.status.code(), Some(7));
    // Standard input is that of the tests, which is empty.
    assert_eq!(output.stdout, b"\n");
    assert_eq!(document["schema"], "headstart/faults/2");
    let count = |kind: &str| document["total"][kind]["count"].as_u64().unwrap();
    let listed = count("minor") + count("major");
    assert!(listed > 20, "{document:#}");
    for none in ["ends_without_start", "lost_faults", "lost_ends", "privileged_programs"] {
        assert_eq!(document["unlisted"][none], 0, "{none}");
    }
    let text = document["places"].as_array().unwrap().iter().any(|place| {
        place["segment"] == "text" && place["section"] == ".text" && place["path"].is_string()
    });
    assert!(text, "{document:#}");
    let rows = fs::read_to_string(&csv).unwrap();
    let unended = document["total"]["unended"].as_u64().unwrap();
    assert_eq!(rows.lines().count() as u64, 1 + listed + unended);
    let profile: Value = serde_json::from_slice(&fs::read(&firefox).unwrap()).unwrap();
    let markers = |thread: &Value| thread["markers"]["length"].as_u64().unwrap();
    let markers: u64 = profile["threads"].as_array().unwrap().iter().map(markers).sum();
    assert_eq!(markers, listed + unended);
    assert!(fs::read(&perfetto).unwrap().starts_with(headstart_faults::export::perfetto::BEGIN));
    let folded = fs::read_to_string(&folded).unwrap();
    let weight = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
    let time = |kind: &str| document["total"][kind]["time_ns"].as_u64().unwrap();
    assert_eq!(folded.lines().map(weight).sum::<u64>(), time("minor") + time("major"));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("getrusage") && message.contains(" records, "), "{message}");
}

#[test]
fn a_picture_has_all_of_the_faults_in_each_form() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (data, page, image) = (file("x.json"), file("x.html"), file("x.svg"));
    for _ in 0..2 {
        for path in [&page, &image, &data] {
            let output = headstart(&["faults", "-q", "--picture", path, "--", "true"]);
            if is_forbidden(&output) {
                return;
            }
            assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        }
    }
    let document: Value = serde_json::from_slice(&fs::read(&data).unwrap()).unwrap();
    assert_eq!(document["schema"], "headstart/picture/1");
    assert!(document["frames"][0]["rows"].as_u64().unwrap() > 20, "{document}");
    let files = document["frames"][0]["columns"][2]["labels"].as_array().unwrap();
    assert!(files.iter().any(|file| file.as_str().unwrap().contains("libc.so")), "{files:?}");
    let sections = document["views"][1]["subjects"].to_string();
    assert!(sections.contains("\".text\""), "{sections}");
    assert!(fs::read_to_string(&page).unwrap().contains("<td>[stack]</td>"));
    assert!(fs::read_to_string(&image).unwrap().contains("Page faults of true"));
}

#[test]
fn standard_input_and_the_signal_that_ends_a_program_are_its_own() {
    let mut child = start(&["faults", "-q", "--", "sh", "-c", "read x; echo got $x; kill -9 $$"]);
    child.stdin.take().unwrap().write_all(b"a line\n").unwrap();
    let output = child.wait_with_output().unwrap();
    if is_forbidden(&output) {
        return;
    }
    assert_eq!((output.status.code(), &*output.stdout), (Some(137), &b"got a line\n"[..]));
}

#[test]
fn an_ignored_sigchld_is_inherited_by_the_program_and_its_status_is_known() {
    let Some(python) = python() else { return };
    let ignore = "import os, signal, sys\n\
                  signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nos.execv(sys.argv[1], sys.argv[1:])";
    // A shell would set it itself.
    let tell = "import signal\nprint(signal.getsignal(signal.SIGCHLD).name)\nraise SystemExit(7)";
    let packs = tempfile::tempdir().unwrap();
    for verb in [&["faults", "-q"][..], &["run", "-v"]] {
        let output = Command::new(&python)
            .args(["-c", ignore, env!("CARGO_BIN_EXE_headstart")])
            .args(verb)
            .args(["--", &python, "-I", "-S", "-c", tell])
            .env("HEADSTART_PACKS", packs.path())
            .output()
            .unwrap();
        if verb[0] == "faults" && is_forbidden(&output) {
            continue;
        }
        assert_eq!(output.status.code(), Some(7), "{verb:?}: {output:?}");
        assert_eq!(output.stdout, b"SIG_IGN\n", "{verb:?}");
    }
}

#[test]
fn signals_of_the_terminal_are_for_the_program_and_a_program_outlives_its_recorder() {
    let dir = tempfile::tempdir().unwrap();
    let command = ["sh", "-c", "kill -INT $PPID; kill -QUIT $PPID; exit 5"];
    let Some((output, document)) = faults(dir.path(), &[], &command) else { return };
    assert_eq!(output.status.code(), Some(5));
    assert!(document["total"]["minor"]["count"].as_u64() > Some(20));
    let made = dir.path().join("made");
    let command = format!("echo begun; read x; touch {}", made.display());
    let mut child = start(&["faults", "-q", "--", "sh", "-c", &command]);
    let mut line = String::new();
    let out = BufReader::new(child.stdout.as_mut().unwrap());
    { out }.read_line(&mut line).unwrap();
    let stdin = child.stdin.take().unwrap();
    headstart_sys::signals::kill(child.id().cast_signed(), 15).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    { stdin }.write_all(b"\n").unwrap();
    wait_until("file of the program", || made.exists().then_some(()));
}

#[test]
fn the_time_of_a_recording_begins_with_the_program_which_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let command = ["sh", "-c", "sleep 0.3; exit 3"];
    let Some((output, document)) = faults(dir.path(), &["--for", "100ms"], &command) else {
        return;
    };
    assert_eq!(output.status.code(), Some(3));
    assert!(document["wall_ns"].as_u64() >= Some(100_000_000), "{document:#}");
    assert!(document["getrusage"].is_null());
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("getrusage is not compared"), "{message}");
}

#[test]
fn a_program_that_a_thread_executes_is_recorded_until_its_end() {
    let Some(python) = python() else { return };
    let dir = tempfile::tempdir().unwrap();
    let program = "import os, threading\nshell = ['sh', '-c', 'sleep 0.2; exit 6']\n\
                   threading.Thread(target=lambda: os.execv('/bin/sh', shell)).start()";
    let command = [&*python, "-I", "-S", "-c", program];
    let Some((output, document)) = faults(dir.path(), &["-q"], &command) else { return };
    assert_eq!(output.status.code(), Some(6));
    assert!(document["wall_ns"].as_u64() >= Some(200_000_000), "{document:#}");
    let processes = document["processes"].as_array().unwrap();
    let is_shell = |process: &&Value| process["name"] == "sh" && process["pid"] == document["pid"];
    assert!(processes.iter().any(|process| is_shell(&process)), "{document:#}");
}

#[test]
fn each_result_is_written_even_if_another_cannot_be() {
    let dir = tempfile::tempdir().unwrap();
    let csv = dir.path().join("faults.csv");
    let output =
        headstart(&["faults", "--json", "/dev/full", "--csv", csv.to_str().unwrap(), "--", "true"]);
    if is_forbidden(&output) {
        return;
    }
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("Can't write /dev/full") && message.contains("MINOR"), "{message}");
    assert!(fs::read_to_string(&csv).unwrap().lines().count() > 20);
}

#[test]
fn rows_go_into_a_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    must("mkfifo", &[pipe.to_str().unwrap()]);
    let mut reader = Command::new("cat").arg(&pipe).stdout(Stdio::piped()).spawn().unwrap();
    let output = headstart(&["faults", "-q", "--csv", pipe.to_str().unwrap(), "--", "true"]);
    if is_forbidden(&output) {
        reader.kill().unwrap();
        reader.wait().unwrap();
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let rows = String::from_utf8(reader.wait_with_output().unwrap().stdout).unwrap();
    assert!(rows.starts_with("time_ns,pid,") && rows.lines().count() > 20, "{rows}");
}

#[test]
fn a_program_that_is_not_found_ends_with_127_and_has_no_tables() {
    let output = headstart(&["faults", "--", "/nonexistent/program"]);
    if is_forbidden(&output) {
        return;
    }
    assert_eq!(output.status.code(), Some(127));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("Can't run") && !message.contains("MINOR"), "{message}");
}

#[test]
fn a_file_that_is_no_result_is_kept_and_the_program_does_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let (file, made) = (dir.path().join("mine"), dir.path().join("made"));
    fs::write(&file, "precious").unwrap();
    for option in ["--json", "--csv", "--firefox", "--perfetto", "--folded"] {
        let words = ["faults", option, file.to_str().unwrap(), "--", "touch"];
        let output = headstart(&[&words[..], &[made.to_str().unwrap()]].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(fs::read(&file).unwrap() == b"precious" && !made.exists());
    }
}

#[test]
fn two_results_are_not_mixed_on_standard_output_and_what_is_no_text_is_not_printed() {
    let dir = tempfile::tempdir().unwrap();
    let made = dir.path().join("made");
    for options in [&["--json", "-", "--csv", "-"][..], &["--perfetto", "-"]] {
        let words = [&["faults"], options, &["--", "touch", made.to_str().unwrap()]].concat();
        let output = headstart(&words);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{output:?}");
        assert!(!made.exists());
    }
}

#[test]
fn a_running_process_is_recorded_for_a_while() {
    let Some(running) = Running::new() else { return };
    for quiet in [&["-q"][..], &[]] {
        let words = ["faults", "--pid", &running.pid, "--for", "200ms", "--json", "-"];
        let output = headstart(&[&words[..], quiet].concat());
        if is_forbidden(&output) {
            return;
        }
        // Tables don't mix with it.
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(message.contains("MINOR"), quiet.is_empty(), "{message}");
        assert!(document["total"]["minor"]["count"].as_u64() > Some(10), "{document:#}");
        assert_eq!(document["pid"].to_string(), running.pid);
        assert!(document["threads"].as_array().unwrap().len() >= 2, "{document:#}");
    }
    let of_thread = headstart(&["faults", "--pid", &running.thread, "--for", "1s"]);
    assert_eq!(of_thread.status.code(), Some(1));
    let message = String::from_utf8_lossy(&of_thread.stderr);
    assert!(message.contains(&format!("{} is a thread", running.thread)), "{message}");
    let pid = running.pid.clone();
    drop(running);
    let gone = headstart(&["faults", "--pid", &pid, "--for", "1s"]);
    assert_eq!(gone.status.code(), Some(1));
    let message = String::from_utf8_lossy(&gone.stderr);
    assert!(message.contains(&format!("There is no process {pid}")), "{message}");
}

#[test]
fn a_signal_ends_the_recording_of_a_running_process() {
    let Some(running) = Running::new() else { return };
    for signal in [1, 2, 15] {
        let child = start(&["faults", "--pid", &running.pid, "--json", "-", "-q"]);
        let pid = child.id().cast_signed();
        // It catches the signal before it looks for what is allowed.
        wait_until("handler, or end", || {
            let caught =
                proc::status_text(&fs::read(format!("/proc/{pid}/status")).ok()?, "SigCgt")
                    .map(|set| u64::from_str_radix(set, 16).unwrap());
            caught.is_none_or(|set| set & 1 << (signal - 1) != 0).then_some(())
        });
        headstart_sys::signals::kill(pid, signal).unwrap();
        let output = child.wait_with_output().unwrap();
        if is_forbidden(&output) {
            return;
        }
        assert_eq!(output.status.code(), Some(0), "{signal}: {output:?}");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["pid"].to_string(), running.pid);
    }
}

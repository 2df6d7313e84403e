//! `headstart bench` and `headstart compare`: on real file systems, with
//! programs that end and programs that don't.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::command::{headstart, json};
use crate::common::python;
use headstart_testing::{LoopFs, as_nobody, disk_dir, has, is_root, noise, skip};
use serde_json::Value;

/// The document of a benchmark that has to succeed.
fn bench(options: &[&str], command: &[&str]) -> Value {
    let output = headstart(&[&["bench", "--json"], options, &["--"], command].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Its arm of this name.
fn arm<'a>(document: &'a Value, name: &str) -> &'a Value {
    let arms = document["arms"].as_array().unwrap();
    arms.iter().find(|arm| arm["name"] == name).unwrap_or_else(|| panic!("no {name}: {document:#}"))
}

/// The median of a counter of an arm.
fn median(document: &Value, name: &str, counter: &str) -> f64 {
    let found = &arm(document, name)["counters"][counter]["median"];
    found.as_f64().unwrap_or_else(|| panic!("no {counter} of {name}: {document:#}"))
}

/// A shell command that empties the cache of a file system by mounting it again.
fn remount(fs: &LoopFs) -> String {
    let (mount, image) = (fs.path().display(), fs.beside("image"));
    format!("umount {mount} && mount -o loop {} {mount}", image.display())
}

fn python_is_measured_on(kind: &'static str) {
    let Some(fs) = LoopFs::new(kind) else { return };
    if !python::install(&fs) {
        return;
    }
    let dir = disk_dir();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let import = format!("import {}", python::MODULES);
    let command = ["chroot", fs.path().to_str().unwrap(), "/usr/bin/python3", "-c", &import];
    let (pack, markdown, svg) = (at("python.pack"), at("report.md"), at("runs.svg"));
    let cold = remount(&fs);
    let options = [
        "--runs",
        "3",
        "--cold-cmd",
        &cold,
        "--states",
        "cold,selective,prefetched,hot",
        "--pack",
        &pack,
        "--against",
        "nothing=",
        "--export-markdown",
        &markdown,
        "--picture",
        &svg,
    ];
    let found = bench(&options, &command);

    let names = ["cold", "selective", "prefetched", "hot", "nothing", "floor"];
    for name in names {
        let runs = arm(&found, name)["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 3, "{kind} {name}");
        assert!(runs.iter().all(|run| run["failure"].is_null()), "{kind} {name}: {runs:#?}");
    }
    assert!(found["limit"]["in_order"]["ratio"].is_number(), "{kind}: {found:#}");
    assert_eq!(found["hot_starts"], 3, "{kind}: {found:#}");
    // 30 modules are some 15 MB.
    let read = |name: &str| median(&found, name, "read_bytes");
    for name in ["cold", "selective", "prefetched", "nothing", "floor"] {
        assert!(read(name) > 8e6, "{kind}: {name} read only {} bytes", read(name));
    }
    assert!(read("hot") < 0.05 * read("cold"), "{kind}: hot read {} bytes", read("hot"));
    let faults = |name: &str| median(&found, name, "major_faults");
    assert!(faults("cold") >= 20.0 && faults("selective") >= 20.0, "{kind}: {found:#}");
    assert!(faults("prefetched") * 4.0 < faults("cold"), "{kind}: {}", faults("prefetched"));
    // Another test may drop caches meanwhile.
    assert!(faults("hot") * 10.0 < faults("cold"), "{kind}: {}", faults("hot"));

    let accuracy = &found["pack"]["accuracy"];
    let bytes = |part: &str| accuracy[part].as_f64().unwrap();
    assert!(bytes("used") + bytes("late") > 0.9 * bytes("planned"), "{kind}: {accuracy:#}");
    assert_eq!(found["pack"]["learned_now"], true);
    assert!(found["floor"]["trials"].as_array().unwrap().len() >= 6);
    assert!(found["limit"]["ratio"]["ratio"].as_f64().unwrap() > 0.0);
    // Every hot start follows one that brought the pages in by itself.
    for round in 0..3 {
        let place = |name: &str| arm(&found, name)["runs"][round]["place"].as_u64().unwrap();
        let before = place("hot") - 1;
        assert!(before == place("cold") || before == place("selective"), "{found:#}");
    }
    let results = found["results"].as_array().unwrap();
    assert_eq!(results.len(), 5, "the floor is no command");
    assert!(results.iter().all(|r| r["times"].as_array().unwrap().len() == 3));

    assert!(std::fs::read_to_string(markdown).unwrap().contains("| prefetched |"));
    assert!(std::fs::read_to_string(svg).unwrap().contains("<title>prefetched, run 3"));
    // A pack that is there is used and left as it is.
    let before = std::fs::read(&pack).unwrap();
    let options =
        ["--runs", "1", "--warmup", "0", "--cold-cmd", &cold, "--no-floor", "--pack", &pack];
    let again = bench(&options, &command);
    assert_eq!(again["pack"]["learned_now"], false);
    assert_eq!(again["pack"]["starts"], 4);
    assert_eq!(again["arms"].as_array().unwrap().len(), 3);
    assert_eq!(std::fs::read(&pack).unwrap(), before);
}

#[test]
fn every_state_of_python_is_measured_on_ext4() {
    python_is_measured_on("ext4");
}

#[test]
fn every_state_of_python_is_measured_on_btrfs() {
    python_is_measured_on("btrfs");
}

#[test]
fn a_program_against_itself_is_not_called_different() {
    let called = |_| {
        let options = ["--states", "hot", "--against", "again:=true"];
        let found = bench(&options, &["true"]);
        let comparison = &found["comparisons"][0];
        assert_eq!(comparison["ratio"]["pairs"], 20, "{comparison:#}");
        let verdict = comparison["verdict"]["verdict"].as_str().unwrap();
        usize::from(verdict == "helps" || verdict == "hurts")
    };
    // A difference is called by chance once in a hundred times, so two of ten once in two hundred, and
    // then five of fifty hardly ever.
    let few: usize = (0..10).map(called).sum();
    let wrong = few + if few > 1 { (0..40).map(called).sum() } else { 0 };
    assert!(wrong < 5, "{wrong} of 50, {few} of the first 10");
}

#[test]
fn a_difference_that_is_there_is_called() {
    let options =
        ["--states", "hot", "--runs", "12", "--warmup", "0", "--against", "twice:=sleep 0.04"];
    let found = bench(&options, &["sleep", "0.02"]);
    let comparison = &found["comparisons"][0];
    assert_eq!(comparison["verdict"]["verdict"], "hurts", "{comparison:#}");
    let ratio = comparison["ratio"]["ratio"].as_f64().unwrap();
    assert!((1.3..2.2).contains(&ratio), "{ratio}");
}

#[test]
fn a_peer_runs_before_the_program_or_in_parallel_and_is_ended() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let file = fs.path().join("file");
    std::fs::write(&file, noise(8 << 20)).unwrap();
    let file = file.to_str().unwrap();
    let (before, beside) = (format!("before=cat {file}"), "beside&=sleep 1000".to_owned());
    let cold = remount(&fs);
    let options = ["--states", "cold", "--runs", "1", "--warmup", "0", "--cold-cmd", &cold];
    let peers = ["--against", &before, "--against", &beside];
    let found = bench(&[&options[..], &peers].concat(), &["cat", file]);
    let run = &arm(&found, "before")["runs"][0];
    let (peer, wall) = (run["peer_s"].as_f64().unwrap(), run["wall_s"].as_f64().unwrap());
    assert!(peer > 0.0 && peer < wall, "{run:#}");
    assert!(run["read_bytes"].as_f64().unwrap() >= 8e6, "{run:#}");
    let run = &arm(&found, "beside")["runs"][0];
    assert!(run["wall_s"].as_f64().unwrap() < 500.0 && run["peer_s"].is_null(), "{run:#}");
    let failing =
        ["--against", "bad=false", "--states", "cold", "--runs", "1", "--cold-cmd", &cold];
    let output = headstart(&[&["bench"], &failing[..], &["--", "cat", file]].concat());
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("(bad): bad: it ended with status 1"), "{message}");
}

/// Measures the hot start of a program that doesn't end; its time in seconds.
fn until_ready(condition: &str, prepare: &str, command: &[&str]) -> f64 {
    let options = [
        "--states",
        "hot",
        "--runs",
        "2",
        "--warmup",
        "0",
        "--ready",
        condition,
        "--prepare",
        prepare,
    ];
    let found = bench(&options, command);
    let time = median(&found, "hot", "time_s");
    // They sleep for 1000 s.
    assert!(time < 100.0, "{time}");
    time
}

#[test]
fn a_program_that_does_not_end_is_measured_until_a_line_or_a_file_and_then_ended() {
    let script = "echo starting; sleep 0.1; echo now it is ready; exec sleep 1000.25";
    assert!(until_ready("line:is ready", "true", &["sh", "-c", script]) > 0.1);
    let dir = disk_dir();
    let file = dir.path().join("pid");
    let file = file.to_str().unwrap();
    // There at once with its content.
    let script =
        format!("sleep 0.1; echo $$ > {file}.new; mv {file}.new {file}; exec sleep 1000.25");
    let condition = format!("file:{file}");
    let prepare = format!("rm -f {file}");
    assert!(until_ready(&condition, &prepare, &["sh", "-c", &script]) > 0.1);
    assert!(!Path::new("/proc").join(std::fs::read_to_string(file).unwrap().trim()).exists());
    // It is there now, and nothing removes it.
    let options = ["bench", "--states", "hot", "--ready", &condition, "--", "true"];
    let output = headstart(&options);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("exists already"), "{output:?}");
}

#[test]
fn a_service_is_measured_until_it_listens_or_notifies() {
    if !has("perl") {
        return skip("perl is missing");
    }
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = format!(
        "use IO::Socket::INET; select(undef, undef, undef, 0.1); my $s = \
         IO::Socket::INET->new(LocalAddr => '127.0.0.1:{free}', Listen => 1, ReuseAddr => 1) or \
         die $@; sleep 1000"
    );
    assert!(until_ready(&format!("port:{free}"), "true", &["perl", "-e", &listen]) > 0.1);
    let notify = "use Socket; my $to = $ENV{NOTIFY_SOCKET}; $to =~ s/^@/\\0/; \
         socket(my $s, AF_UNIX, SOCK_DGRAM, 0) or die $!; select(undef, undef, undef, 0.1); \
         send($s, \"STATUS=up\\nREADY=1\", 0, pack_sockaddr_un($to)) or die $!; sleep 1000";
    assert!(until_ready("notify", "true", &["perl", "-e", notify]) > 0.1);
}

/// Waits a tenth of a second, then takes a name on the session's bus, as a service
/// does, and stays.
const TAKES_A_NAME: &str = include_str!("common/takes_a_name.py");

#[test]
fn a_service_is_measured_until_its_name_is_on_the_bus() {
    for tool in ["python3", "dbus-run-session", "gdbus"] {
        if !has(tool) {
            return skip(&format!("{tool} is missing"));
        }
    }
    let options = ["--states", "hot", "--runs", "2", "--warmup", "0", "--json"];
    let output = Command::new("dbus-run-session")
        .args(["--", env!("CARGO_BIN_EXE_headstart"), "bench"])
        .args(options)
        .args(["--ready", "dbus:session:org.example.Started", "--"])
        .args(["python3", "-c", TAKES_A_NAME])
        .output()
        .unwrap();
    let found: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    let time = median(&found, "hot", "time_s");
    assert!(time > 0.1 && time < 100.0, "{time}: {output:?}");
}

#[test]
fn a_helper_that_fails_is_no_help() {
    let options =
        ["--states", "hot", "--runs", "2", "--cold-cmd", "true", "--against", "broken&=false"];
    let output = headstart(&[&["bench"], &options[..], &["--", "sleep", "0.1"]].concat());
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text.contains("broken: it ended with status 1"), "{text}");
}

#[test]
fn programs_that_fail_or_never_end_are_reported_with_their_last_words() {
    let message = |options: &[&str], command: &[&str]| {
        let output =
            headstart(&[&["bench", "--states", "hot"], options, &["--"], command].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let text = message(&[], &["sh", "-c", "echo no such config >&2; exit 3"]);
    assert!(text.contains("it ended with status 3") && text.contains("no such config"), "{text}");
    assert!(text.contains("--ignore-failure"), "{text}");
    let text = message(&["--timeout", "100ms"], &["sleep", "1000"]);
    assert!(text.contains("longer than 100ms") && text.contains("--ready"), "{text}");
    let text = message(&["--ready", "line:never"], &["true"]);
    assert!(text.contains("status 0 before it prints a line"), "{text}");
    let text = message(&[], &["/nowhere/program"]);
    assert!(text.contains("Can't run /nowhere/program"), "{text}");
    let options = ["--states", "hot", "--runs", "2", "--ignore-failure"];
    let found = bench(&options, &["sh", "-c", "exit 3"]);
    assert_eq!(arm(&found, "hot")["runs"][1]["exit_code"], 3);
}

#[test]
fn programs_keep_their_limit_of_descriptors_between_floors_that_raise_it() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let dir = disk_dir();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (limits, pack, cold) = (at("limits"), at("cat.pack"), remount(&fs));
    let file = fs.path().join("file");
    headstart_testing::write_synced(&file, &noise(1 << 20));
    let limited = "ulimit -S -n 77; exec \"$@\"";
    let program = format!("cat {} >/dev/null; ulimit -S -n >> {limits}", file.display());
    let states = ["--states", "prefetched", "--runs", "2", "--cold-cmd", &cold, "--pack", &pack];
    let output = Command::new("sh")
        .args(["-c", limited, "sh", env!("CARGO_BIN_EXE_headstart"), "bench", "--json"])
        .args(states)
        .args(["--", "sh", "-c", &program])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(found["floor"].is_object(), "{found:#}");
    let limits = std::fs::read_to_string(limits).unwrap();
    assert!(limits.lines().count() >= 2 && limits.lines().all(|limit| limit == "77"), "{limits}");
}

#[test]
fn what_a_program_leaves_behind_is_ended_and_reported() {
    let dir = disk_dir();
    let pid = dir.path().join("pid");
    let script = format!("sleep 1000.5 & echo $! > {}", pid.display());
    let options = ["--states", "hot", "--runs", "1", "--warmup", "0"];
    let found = bench(&options, &["sh", "-c", &script]);
    assert_eq!(arm(&found, "hot")["runs"][0]["left_behind"], 1);
    let pid = std::fs::read_to_string(pid).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "it goes on");
    let warnings = found["warnings"].to_string();
    assert!(warnings.contains("left up to 1 process running"), "{warnings}");
}

#[test]
fn what_a_command_left_that_prepared_the_start_goes_on() {
    let dir = disk_dir();
    let pids = dir.path().join("pids");
    // It keeps the command's output open, as a server of a mount may.
    let prepare = format!("sleep 1000.5 & echo $! >> {}", pids.display());
    let options = ["--states", "hot", "--runs", "1", "--warmup", "0", "--prepare", &prepare];
    let found = bench(&options, &["true"]);
    assert_eq!(arm(&found, "hot")["runs"][0]["left_behind"], 0);
    let pids = std::fs::read_to_string(pids).unwrap();
    // A hot start has one before it.
    assert_eq!(pids.lines().count(), 2, "{pids}");
    for pid in pids.lines() {
        let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
}

#[test]
fn a_program_that_says_that_it_is_ready_as_its_last_word_is_ready() {
    let script = "head -c 60000 /dev/zero | tr '\\0' '\\n'; echo done";
    let options = ["--states", "hot", "--runs", "1", "--warmup", "0", "--ready", "line:done"];
    let found = bench(&options, &["sh", "-c", script]);
    assert!(arm(&found, "hot")["runs"][0]["failure"].is_null(), "{found:#}");
    let words = [&["bench", "--show-output"], &options[..], &["--", "sh", "-c", script]].concat();
    let output = headstart(&words);
    assert!(String::from_utf8_lossy(&output.stderr).contains("\ndone\n"), "{output:?}");
}

#[test]
fn an_interrupted_benchmark_reports_the_rounds_it_has() {
    let dir = disk_dir();
    let starts = dir.path().join("starts");
    let prepare = format!("echo >> {}", starts.display());
    let mut child = Command::new(env!("CARGO_BIN_EXE_headstart"))
        .args(["bench", "--json", "--states", "hot", "--runs", "1000", "--prepare", &prepare])
        .args(["--", "sleep", "0.01"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Two starts a round, and a round that warms up.
    while std::fs::read(&starts).map_or(0, |text| text.len()) < 8 {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&child);
    // Whoever is started in the background of a script ignores SIGINT.
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["stopped"], "interrupted");
    let rounds = found["rounds"].as_u64().unwrap();
    assert!((1..1000).contains(&rounds), "{rounds}");
    assert_eq!(arm(&found, "hot")["runs"].as_array().unwrap().len() as u64, rounds);
}

#[test]
fn precision_and_time_end_a_benchmark_too() {
    let options = ["--states", "hot", "--runs", "6", "--until-ci", "50%"];
    let found = bench(&options, &["sleep", "0.02"]);
    assert_eq!(found["stopped"], "precise-or-cap");
    // Ten rounds is the least that is looked at.
    assert!((10..100).contains(&found["rounds"].as_u64().unwrap()), "{found:#}");
    let options = ["--states", "hot", "--runs", "100000", "--time-limit", "200ms"];
    let found = bench(&options, &["true"]);
    assert_eq!(found["stopped"], "time-limit");
}

#[test]
fn what_is_asserted_and_not_so_ends_with_status_three() {
    let with = |states: &str, what: &str| {
        let words = ["bench", "--runs", "1", "--states", states, "--assert", what, "--", "true"];
        headstart(&words)
    };
    assert_eq!(with("hot", "nonsense").status.code(), Some(2));
    let output = with("prefetched,hot", "helps");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("--states cold,prefetched"));
    if !is_root() {
        return skip("only root can learn what is to be prefetched");
    }
    // One round shows nothing.
    for what in ["helps", "harmless"] {
        let output = with("selective,prefetched", what);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
    }
}

#[test]
fn without_root_cold_starts_are_refused_with_a_fix() {
    if !is_root() || !has("setpriv") {
        return skip("needs root and setpriv");
    }
    // The checkout may be where only root can look.
    let dir = tempfile::tempdir().unwrap();
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), all).unwrap();
    let copy = dir.path().join("headstart");
    std::fs::copy(env!("CARGO_BIN_EXE_headstart"), &copy).unwrap();
    let as_nobody = |arguments: &[&str]| -> Output {
        as_nobody(&copy).args(arguments).env("HEADSTART_PACKS", dir.path()).output().unwrap()
    };
    let output = as_nobody(&["bench", "--states", "cold", "--", "true"]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("--cold-cmd"), "{output:?}");
    let output = as_nobody(&["bench", "--", "true"]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("has no pack"), "{output:?}");
    let output = as_nobody(&["bench", "--states", "hot", "--runs", "2", "--", "true"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// Not run with the others: everybody on the machine feels it.
#[test]
#[ignore = "drops all caches of the machine"]
fn by_default_cold_starts_drop_all_caches_and_say_so_before() {
    if !is_root() {
        return skip("only root can drop caches");
    }
    let file = disk_dir();
    let file = file.path().join("file");
    headstart_testing::write_synced(&file, &noise(4 << 20));
    let options = ["bench", "--json", "--states", "cold", "--runs", "1", "--warmup", "0", "--"];
    let output = headstart(&[&options[..], &["cat", file.to_str().unwrap()]].concat());
    assert!(String::from_utf8_lossy(&output.stderr).contains("drop_caches=3"), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(median(&found, "cold", "read_bytes") >= f64::from(4 << 20), "{found:#}");
}

#[test]
fn two_results_are_compared_and_the_counter_that_moved_is_named() {
    let dir = disk_dir();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let result = |name: &str, time: &str| {
        let file = at(name);
        let options = ["--states", "hot", "--runs", "8", "--export-json", &file];
        bench(&options, &["sleep", time]);
        file
    };
    let (first, second) = (result("first", "0.01"), result("second", "0.05"));
    let found = json(&["compare", "--json", &first, &second]);
    assert_eq!(found["schema"], "headstart/compare/2");
    let rows = found["rows"].as_array().unwrap();
    let time = rows.iter().find(|row| row["counter"] == "hot time_s").unwrap();
    assert!(time["p_adjusted"].as_f64().unwrap() < 0.05, "{time:#}");
    assert!(time["welch"]["difference"].as_f64().unwrap() > 0.02, "{time:#}");

    let text = String::from_utf8(headstart(&["compare", &first, &second]).stdout).unwrap();
    assert!(text.lines().any(|l| l.starts_with("hot time_s") && l.ends_with("differs")), "{text}");
    let hyperfine = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/stats/hyperfine.json");
    let found = json(&["compare", "--json", hyperfine, hyperfine]);
    assert_eq!(found["rows"].as_array().unwrap().len(), 2, "{found:#}");

    let output = headstart(&["compare", &first, hyperfine]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("no counter in common"));
    std::fs::write(at("broken"), "{\"schema\": \"headstart/run/1\"}").unwrap();
    let output = headstart(&["compare", &first, &at("broken")]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("headstart/run/1"), "{output:?}");
}

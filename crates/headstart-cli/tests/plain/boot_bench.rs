//! `headstart boot bench` with commands that only say that they boot, and on a history.

use crate::command::{headstart, json};
use headstart::boot::history::{BootRecord, SCHEMA};
use headstart::boot::machine::Machine;
use serde_json::Value;
use std::fs;

fn refused(args: &[&str]) -> String {
    let output = headstart(args);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    text
}

#[test]
fn arms_run_once_a_round_in_random_order_and_are_compared_with_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let (perf, log) = (dir.path().join("perf.json"), dir.path().join("log"));
    // Each boot takes a little longer than the one before.
    let boot = |name: &str, factor: u32| {
        format!(
            "echo {name} >> {log}; n=$(wc -l < {log}); echo starting; \
             echo '{{\"seconds\": '$((n + 100))e-1', \"seconds_kernel_to_local_fs\": {factor}}}'",
            log = log.display()
        )
    };
    let (base, other) = (boot("base", 1), format!("other={}", boot("other", 2)));
    let perf_path = perf.to_str().unwrap();
    let args = ["boot", "bench", "--runs", "6", "--seed", "3", "--json", "--arm", &other];
    let args = [&args[..], &["--bootperf", perf_path, "--", "sh", "-c", &base]].concat();
    let document = json(&args);
    assert_eq!(document["schema"], "headstart/boot-bench/1");
    assert_eq!((&document["rounds"], &document["seed"]), (&6.into(), &3.into()));
    let order = fs::read_to_string(&log).unwrap();
    let order: Vec<&str> = order.lines().collect();
    assert_eq!(order.len(), 12);
    let rounds: Vec<&[&str]> = order.chunks(2).collect();
    assert!(rounds.iter().all(|round| round[0] != round[1]), "{order:?}");
    assert!(rounds.iter().any(|round| round[0] != rounds[0][0]), "{order:?}");
    let metric = &document["metrics"][0];
    assert_eq!(metric["name"], "seconds_kernel_to_local_fs");
    assert_eq!(metric["comparisons"][0]["ratio"]["ratio"].as_f64().unwrap().round(), 2.0);
    assert_eq!(document["arms"][1]["boots"][5]["round"], 6);
    let perf: Value = serde_json::from_slice(&fs::read(perf).unwrap()).unwrap();
    let login = &perf["seconds_kernel_to_login"]["base"];
    assert_eq!((&login["units"], &login["improvement_direction"]), (&"s".into(), &"down".into()));
    assert_eq!(login["type"], "list_of_scalar_values");
    assert_eq!(login["values"].as_array().unwrap().len(), 6);
    let out = headstart(&["boot", "bench", "--runs", "2", "--", "echo", "1.5"]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.starts_with("seconds_kernel_to_login\n") && text.contains("1.50"), "{text}");
}

#[test]
fn a_command_that_does_not_boot_is_reported_with_the_reason() {
    for (args, why) in [
        (&["--", "false"][..], "ended with exit status: 1"),
        (&["--", "echo", "done"], "no line with the seconds"),
        (&["--timeout", "1ms", "--", "cat", "/dev/zero"], "longer than 1ms"),
        (&["--", "sh", "-c", "cat /dev/zero & exit 3"], "exit status: 3"),
        (&["--", "/nowhere/at/all"], "Can't start"),
        (&["--arm", "base=true", "--", "true"], "Two commands are called"),
        (&[], "or --history"),
    ] {
        let text = refused(&[&["boot", "bench", "--runs", "1"], args].concat());
        assert!(text.contains(why), "{args:?}: {text}");
    }
    // Behind the first round a failure is counted, and the others are kept.
    let dir = tempfile::tempdir().unwrap();
    let once = format!("mkdir {0}/x 2>&- && echo 2", dir.path().display());
    let output = headstart(&["boot", "bench", "--runs", "3", "--", "sh", "-c", &once]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("2 boots failed; the first in round 2 of base"), "{text}");
}

#[test]
fn the_history_is_summed_up_with_and_without_prefetched() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::at(dir.path());
    let root = dir.path().to_str().unwrap();
    let text = refused(&["boot", "bench", "--history", "--root", root]);
    assert!(text.contains("No boot was recorded yet"), "{text}");
    for (replayed, ms) in [(false, 9000.0), (true, 3000.0), (true, 3200.0)] {
        let mut record = BootRecord {
            schema: SCHEMA.into(),
            replayed,
            default_target_ms: Some(ms),
            ..BootRecord::default()
        };
        machine.keep(&mut record, None).unwrap();
    }
    let document = json(&["boot", "bench", "--history", "--json", "--root", root]);
    let metric = &document["metrics"][0];
    assert_eq!(metric["name"], "seconds_kernel_to_default_target");
    assert_eq!(metric["arms"][0]["name"], "without");
    assert_eq!(metric["arms"][1]["summary"]["median"], 3.1);
    assert_eq!((&metric["comparisons"], &document["seed"]), (&Value::Array(vec![]), &Value::Null));
}

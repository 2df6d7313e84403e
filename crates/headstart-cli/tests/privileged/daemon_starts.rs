//! Which starts the service sees, and by which programs it knows them: one that `headstart run` has
//! learned; one whose name is executed all the time; one that was hot again and again.

use crate::common::within;
use crate::daemon::{
    Service, Start, TRIALS, first_start, learned_program, prefetched_start, program, second_start,
};
use headstart_testing::{is_root, public_dir, skip};
use std::process::Command;
use std::time::Duration;

/// Execs of a name that the kernel then no longer reports.
const MANY: u32 = 64;
/// What the service calls the program.
const NAME: &str = "python3-reader.py";

#[test]
fn what_run_has_learned_is_prefetched_at_the_first_start_that_the_service_sees() {
    if !is_root() {
        return skip("tracing needs root");
    }
    let Some(fs) = program() else { return };
    let dir = public_dir();
    let mut run = Command::new(env!("CARGO_BIN_EXE_headstart"));
    run.env("HEADSTART_PACKS", dir.path().join("packs")).args(["record", "--"]);
    let mut learned = Start::cold_by(&fs, run);
    learned.line();
    learned.end();
    let service = Service::start_in(dir, "");
    assert!(service.programs().iter().any(|name| name == NAME));
    let seen = prefetched_start(&service, &fs);
    assert_eq!(seen["program"], NAME);
}

/// Hot starts that are looked at before the cold one: the next is only looked at two seconds later. More would
/// be so many execs that the kernel no longer reports the name.
const HOT: u32 = 4;
/// How long it may take to look at a hot start.
const LOOK: Duration = Duration::from_secs(1);

#[test]
fn a_cold_start_is_prefetched_also_while_hot_ones_are_not_looked_at() {
    if !is_root() {
        return skip("tracing needs root");
    }
    let Some((service, fs)) = learned_program("") else { return };
    // From now on it is well known, and hot starts are not recorded.
    prefetched_start(&service, &fs);
    let mut looks = 0;
    while looks < HOT {
        let mut start = Start::again(&fs);
        let seen = within(LOOK, || service.listed(start.pid()));
        looks += u32::from(seen.is_some_and(|seen| seen["kind"] == "hot"));
        start.line();
        start.end();
    }
    prefetched_start(&service, &fs);
}

#[test]
fn a_slow_script_is_learned_though_its_interpreter_is_executed_all_the_time() {
    if !is_root() {
        return skip("tracing needs root");
    }
    let Some(fs) = program() else { return };
    let service = Service::start();
    let seen_by_reads = |start: &dyn Fn() -> bool| {
        let before = service.count("by_reads");
        start() && service.count("by_reads") > before
    };
    // The kernel's filter changes every two seconds at most, so that the first starts may be seen by their
    // exec.
    let is_cold = || {
        for _ in 0..MANY {
            let mut hot = Command::new(fs.path().join("python3"));
            assert!(hot.args(["-I", "-S", "-c", ""]).status().unwrap().success());
        }
        seen_by_reads(&|| first_start(&service, &fs).is_some())
    };
    assert!((0..TRIALS).any(|_| is_cold()), "{:?}", service.starts(NAME));
    let second = || {
        second_start(&service, &fs);
        true
    };
    assert!(seen_by_reads(&second));
    assert!(seen_by_reads(&|| prefetched_start(&service, &fs)["program"] == NAME));
}

//! Which starts the service knows from before: one that `headstart run` has learned.

use crate::daemon::{Service, Start, prefetched_start, program};
use headstart_testing::{is_root, public_dir, skip};
use std::process::Command;

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

//! A program whose name is executed often, so that its cold starts are seen by their reads: the first of these comes
//! while execve(2) still loads the program, which has no arguments yet.

use crate::common::starts::Ends;
use crate::common::within;
use crate::daemon::{FILES, Service};
use crate::daemon_scripts::{DIRECTORY, disk};
use headstart_testing::{is_root, skip, wait_until};
use std::process::{Command, Stdio};
use std::time::Duration;

const PROGRAM: &str = "cat";
/// It reads for half a second. Others of such names may be seen later.
const SOON: Duration = Duration::from_secs(10);

#[test]
fn a_program_that_reads_while_it_is_loaded_is_seen_though_its_name_is_executed_often() {
    if !is_root() {
        return skip("tracing needs root");
    }
    let Some(fs) = disk(PROGRAM) else { return };
    let path = fs.path().join(DIRECTORY).join(PROGRAM);
    let mut command = Command::new(&path);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let service = Service::start();
    wait_until("a name that is executed often", || {
        assert!(command.status().unwrap().success());
        let filter = service.filter("-execs", "sched/sched_process_exec");
        filter.contains(path.to_str().unwrap()).then_some(())
    });
    fs.remount();
    let before = service.count("by_reads");
    // It does not end meanwhile, and goes on reading when it is loaded.
    command.args((0..FILES).map(|number| fs.path().join(number.to_string())));
    let _running = Ends(command.arg(fs.beside("begin")).spawn().unwrap());
    let is_seen = || (service.count("by_reads") > before).then_some(());
    assert!(within(SOON, is_seen).is_some());
}

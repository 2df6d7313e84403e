//! A replay in a control group with little memory: it stays within its budget, and it
//! stops under memory pressure.

use headstart::host::memory;
use headstart::replay::engine::{Options, Replay};
use headstart::replay::list::Entry;
use headstart::replay::plan::{Limits, Plan};
use headstart::replay::strategy::{InFlight, ReadStrategy};
use headstart_testing::{ControlGroup, LoopFs, run_inner, skip, variable};
use std::time::Instant;

const MIB: u64 = 1 << 20;
/// The file, and the memory of the group.
const SIZE: u64 = 512 * MIB;
const MEMORY: u64 = 48 * MIB;
/// Which file the inner test reads, and whether within its budget.
const FILE: &str = "HEADSTART_TEST_FILE";
const BOUNDED: &str = "HEADSTART_TEST_BOUNDED";

#[test]
#[ignore = "run by another test, in a control group"]
fn inner_replay() {
    let Some(file) = variable(FILE) else { return };
    let is_bounded = variable(BOUNDED).is_some_and(|text| text == "yes");
    let budget = if is_bounded { memory::budget() } else { u64::MAX };
    let limits = Limits { budget, metadata: false };
    let whole = Entry { path: file.into(), ranges: Vec::new() };
    // One step at a time: while another program has the CPU, nothing is read.
    let in_flight = Some(InFlight { bytes: 4 * MIB, steps: 1 });
    let strategy = ReadStrategy { threads: 1, in_flight, ..ReadStrategy::default() };
    let plan = Plan::of_list(&[whole], |_| Some(SIZE), limits, strategy);
    let options = Options { check_all: true, ..Options::default() };
    let replay = Replay::start(plan, options, Default::default(), Instant::now()).unwrap();
    let report = replay.finish();
    println!("{report:?}");
    if is_bounded {
        assert!(report.complete && report.stopped.is_none());
        // Three quarters of what the group leaves.
        assert!(report.bytes <= MEMORY / 4 * 3);
        assert_eq!(report.bytes + report.over_budget_bytes, SIZE);
    } else {
        assert!(!report.complete && report.stopped.is_some());
        assert!(report.bytes < SIZE / 2);
        assert_eq!(report.bytes + report.stopped_bytes, SIZE);
    }
}

#[test]
fn with_little_memory_a_replay_keeps_to_its_budget_and_stops_where_pages_are_reclaimed() {
    let Some(fs) = LoopFs::sized("ext4", 2 * SIZE) else { return };
    let Some(group) = ControlGroup::with_memory(MEMORY) else {
        return skip("no control group with a limit of memory can be made");
    };
    let file = fs.path().join("large");
    std::fs::write(&file, vec![7; SIZE as usize]).unwrap();
    let exe = std::env::current_exe().unwrap();
    for bounded in ["yes", "no"] {
        let variables = [(FILE, file.to_str().unwrap().to_owned()), (BOUNDED, bounded.into())];
        fs.remount();
        run_inner(concat!(module_path!(), "::inner_replay"), &group.wrapper(), &exe, &variables);
    }
}

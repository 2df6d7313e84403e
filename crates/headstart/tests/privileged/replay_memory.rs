//! A replay in a control group with little memory: it stays within its budget, and it
//! stops under memory pressure.

use headstart::host::memory;
use headstart::replay::engine::{Options, Replay};
use headstart::replay::frequency::Frequency;
use headstart::replay::list::Entry;
use headstart::replay::plan::{Limits, Plan};
use headstart::replay::strategy::{InFlight, ReadStrategy};
use headstart_testing::{LoopFs, run_inner, skip, variable};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

const MIB: u64 = 1 << 20;
/// The file, and the memory of the group.
const SIZE: u64 = 512 * MIB;
const MEMORY: u64 = 48 * MIB;
/// Which file the inner test reads, and whether within its budget.
const FILE: &str = "HEADSTART_TEST_FILE";
const BOUNDED: &str = "HEADSTART_TEST_BOUNDED";

/// A control group of our own; its processes have ended when it is dropped.
struct Group(PathBuf);

impl Group {
    /// In either version; `None` where there is none to be had.
    fn with_limit(bytes: u64) -> Option<Self> {
        let one = Path::new("/sys/fs/cgroup/memory");
        let (root, limit) = if one.is_dir() {
            (one, "memory.limit_in_bytes")
        } else {
            let root = Path::new("/sys/fs/cgroup");
            // It may be so already.
            let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
            (root, "memory.max")
        };
        let dir = root.join(format!("headstart-test-{}", std::process::id()));
        fs::create_dir(&dir).ok()?;
        let group = Self(dir);
        fs::write(group.0.join(limit), bytes.to_string()).ok()?;
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
#[ignore = "run by another test, in a control group"]
fn inner_replay() {
    let Some(file) = variable(FILE) else { return };
    let is_bounded = variable(BOUNDED).is_some_and(|text| text == "yes");
    let budget = if is_bounded { memory::budget() } else { u64::MAX };
    let limits = Limits { budget, metadata: false, often: Frequency::EVER };
    let whole = Entry { path: file.into(), ranges: Vec::new() };
    // One step at a time: while another program has the processor, nothing is read.
    let in_flight = Some(InFlight { bytes: 4 * MIB, steps: 1 });
    let strategy = ReadStrategy { threads: 1, in_flight, ..ReadStrategy::default() };
    let plan = Plan::of_list(&[whole], |_| Some(SIZE), limits, strategy);
    let options = Options { exact: true, ..Options::default() };
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
    let Some(group) = Group::with_limit(MEMORY) else {
        return skip("no control group with a limit of memory can be made");
    };
    let file = fs.path().join("large");
    std::fs::write(&file, vec![7; SIZE as usize]).unwrap();
    let exe = std::env::current_exe().unwrap();
    let enter = "echo $$ > \"$1/cgroup.procs\" && shift && exec \"$@\"";
    let wrapper = ["/bin/sh", "-c", enter, "sh", group.0.to_str().unwrap()];
    for bounded in ["yes", "no"] {
        let variables = [(FILE, file.to_str().unwrap().to_owned()), (BOUNDED, bounded.into())];
        fs.remount();
        run_inner(concat!(module_path!(), "::inner_replay"), &wrapper, &exe, &variables);
    }
}

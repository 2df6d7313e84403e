//! A replay where the address space is limited, so that readahead can't be batched: files are
//! requested one by one, also with a low in-flight limit.

use headstart::cache::residency::page_size;
use headstart::replay::engine::{Options, Replay};
use headstart::replay::list::Entry;
use headstart::replay::plan::{Limits, Plan};
use headstart::replay::strategy::{InFlight, ReadStrategy};
use headstart_sys::willneed::{Piece, will_need};
use headstart_testing::{LoopFs, run_inner, variable, wait_until};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::fs;
use std::os::fd::AsFd;
use std::time::Instant;

const FILES: u64 = 256;
const SIZE: u64 = 128 << 10;
/// A batch of so many does not fit into what is allowed. Threads do.
const TOGETHER: usize = 16;
const ALLOWED: u64 = 1 << 20;
/// Where the files of the inner test are.
const FILES_IN: &str = "HEADSTART_TEST_FILES";

#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_replay() {
    let Some(directory) = variable(FILES_IN) else { return };
    let path = |number| format!("{directory}/{number}").into();
    let entries: Vec<Entry> =
        (0..FILES).map(|number| Entry { path: path(number), ranges: Vec::new() }).collect();
    for entry in &entries {
        // A file that takes long to open is requested alone.
        fs::metadata(&entry.path).unwrap();
    }
    let limits = Limits { budget: u64::MAX, metadata: false };
    let in_flight = Some(InFlight { bytes: 2 * SIZE, steps: 2 });
    let strategy = ReadStrategy { in_flight, ..ReadStrategy::default() };
    let mut plan = Plan::of_list(&entries, |_| Some(SIZE), limits, strategy);
    plan.strategy.batched = true;
    let file = fs::File::open(&entries[0].path).unwrap();
    let used = fs::read_to_string("/proc/self/statm").unwrap();
    let used = used.split(' ').next().unwrap().parse::<u64>().unwrap() * page_size();
    let most = Some(used + ALLOWED);
    setrlimit(Resource::As, Rlimit { current: most, maximum: most }).unwrap();
    let pieces = [Piece { file: file.as_fd(), offset: 0, length: SIZE as usize }; TOGETHER];
    assert!(will_need(&pieces).is_err(), "the limit is too high");
    let replay =
        Replay::start(plan, Options::default(), Default::default(), Instant::now()).unwrap();
    wait_until("the end of the replay", || replay.is_finished().then_some(()));
    let report = replay.finish();
    assert!(report.complete);
    assert_eq!((report.bytes, report.failed), (FILES * SIZE, 0));
}

#[test]
fn without_address_space_small_files_are_requested_one_by_one_and_none_waits_for_ever() {
    let Some(fs) = LoopFs::sized("ext4", 64 << 20) else { return };
    for number in 0..FILES {
        fs::write(fs.path().join(number.to_string()), vec![7; SIZE as usize]).unwrap();
    }
    fs.remount();
    let variables = [
        (FILES_IN, fs.path().to_str().unwrap().to_owned()),
        // Only mappings meet the limit, not what threads allocate.
        ("MALLOC_ARENA_MAX", "1".into()),
        ("MALLOC_TOP_PAD_", (4 << 20).to_string()),
    ];
    run_inner(
        concat!(module_path!(), "::inner_replay"),
        &["env"],
        &std::env::current_exe().unwrap(),
        &variables,
    );
}

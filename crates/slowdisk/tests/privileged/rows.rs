//! Files that lie side by side on a network volume are read in rows, as soon as that is busy: all of them,
//! each page once, in few requests.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::common::{Place, possible, text};
use headstart::cache::residency::resident_count;
use headstart::host::range::ByteRange;
use headstart::replay::engine::{Options, Replay};
use headstart::replay::list::Entry;
use headstart::replay::plan::{Limits, Plan};
use headstart::replay::report::Report;
use headstart::replay::strategy::{InFlight, ReadStrategy};
use headstart_testing::undisturbed;
use serde_json::Value;

const FILES: u64 = 400;
const BYTES: u64 = 32 << 10;

/// A disk with many files that were written one after the other; whether they lie so.
fn with_files(place: &Place) -> Vec<Entry> {
    place.blank(256);
    let made = Command::new("mkfs.ext4").args(["-qF"]).arg(place.image()).output();
    let made = made.expect("mkfs runs");
    assert!(made.status.success(), "{}", text(&made.stderr));
    let device = place.must(
        &["up", "--model", "sata-ssd", "--keep-writes", "--image"],
        &[&place.image(), Path::new("--mount"), &place.mount()],
    );
    let entry = |number: u64| {
        let path = place.mount().join(format!("{number:03}"));
        fs::write(&path, vec![7; BYTES as usize]).expect("room");
        Entry { path, ranges: vec![ByteRange::of(0, BYTES)] }
    };
    let entries = (0..FILES).map(entry).collect();
    place.must(&["down"], &[Path::new(device.trim())]);
    entries
}

/// The requests and bytes of a cold replay of all files.
fn replayed(place: &Place, entries: &[Entry], strategy: ReadStrategy) -> (u64, u64) {
    let (report, stats, resident) =
        undisturbed(&[&place.mount()], || replay(place, entries, strategy));
    assert_eq!((report.bytes, report.failed), (FILES * BYTES, 0), "{report:?}");
    let pages = ByteRange::of(0, BYTES).pages(4096).count();
    assert!(resident.iter().all(|count| *count == pages), "{resident:?} of {pages} pages each");
    let read = |what: &str| stats["reads"][what].as_u64().expect("a number");
    (read("requests"), read("bytes"))
}

/// Such a replay: its report, what the disk counted, and the resident pages of each file.
fn replay(place: &Place, entries: &[Entry], strategy: ReadStrategy) -> (Report, Value, Vec<u64>) {
    place.must(&["remount"], &[&place.mount()]);
    place.must(&["stats", "--reset"], &[&place.mount()]);
    let limits = Limits { budget: u64::MAX, metadata: false };
    let plan = Plan::of_list(entries, |_| None, limits, strategy);
    let options = Options { wait: true, check_all: true, ..Options::default() };
    let replay = Replay::start(plan, options, Default::default(), Instant::now()).expect("threads");
    let report = replay.finish();
    let stats = place.must(&["stats", "--json"], &[&place.mount()]);
    let resident = |entry: &Entry| {
        let file = fs::File::open(&entry.path).expect("the file");
        resident_count(&file, ByteRange::of(0, BYTES).pages(4096)).expect("a count")
    };
    let stats = serde_json::from_str(&stats).expect("JSON");
    (report, stats, entries.iter().map(resident).collect())
}

#[test]
fn a_busy_network_volume_gets_few_requests_for_files_side_by_side() {
    if !possible("rows", &["mkfs.ext4"]) {
        return;
    }
    let place = Place::new();
    let entries = with_files(&place);
    place.up("cloud", true);
    let limit = InFlight { bytes: 4 << 20, steps: 64 };
    let one_by_one = ReadStrategy { threads: 8, in_flight: Some(limit), ..ReadStrategy::default() };
    let busy = InFlight { bytes: 1 << 20, steps: 16 };
    let rows = ReadStrategy { rows: Some(busy), ..one_by_one };
    let (many, bytes) = replayed(&place, &entries, one_by_one);
    let (few, same) = replayed(&place, &entries, rows);
    assert!(many >= FILES, "{many} requests one by one");
    assert!(few < many / 2, "{few} requests in rows, {many} one by one");
    // Inode tables are read, too, and by either.
    assert!(same.abs_diff(bytes) < 1 << 20, "{same} and {bytes} bytes");
    for (_, read) in [(few, same), (many, bytes)] {
        assert!((FILES * BYTES..FILES * BYTES + (2 << 20)).contains(&read), "{read} bytes");
    }
}
